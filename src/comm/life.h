#pragma once
// RankBoard: signs of life of a replica's ranks, one cache line each, in shared memory.
//
// A rank beats while it computes (between kernels) and writes down which operation it waits in and
// for whom. Others who wait for it, and the supervisor, read: a rank that has work and has not
// beaten for the deadline is hung, whatever its process is doing; one that is idle is not. A wait
// for a rank that itself waits is charged to the one at the end of the chain.
//
// Writers: each rank its own line (one thread). Readers: anyone. Relaxed words: a report may be one
// beat old.

#include <atomic>
#include <cstdint>
#include <string>

#include "split/traffic.h"

namespace cleave {

enum class RankPhase : uint32_t { kStarting, kIdle, kComputing, kWaiting, kEnded };

struct alignas(64) RankLine {
  std::atomic<uint64_t> beat{0};
  std::atomic<uint32_t> phase{0};
  std::atomic<uint32_t> axis{0};       // of the operation it waits in
  std::atomic<uint32_t> op{0};         // likewise
  std::atomic<uint32_t> waits_for{0};  // rank of the replica
  std::atomic<uint64_t> call{0};       // number of the operation in its group
  std::atomic<uint64_t> since_ns{0};   // steady clock, when the phase began
};
static_assert(sizeof(RankLine) == 64);

// "rank 1 (pp 0, tp 1, cp 0) waits in tp all_reduce, call 381, for rank 0, since 4.2 s".
std::string DescribeRank(const RankLine& line, uint32_t rank, const Split& split, uint64_t now_ns);

}  // namespace cleave
