#pragma once
// Attention over some of the runs of 512 positions, and the sum of such partials: context
// parallelism gives each rank every count-th run and adds what the ranks found.
//
// A partial of one query head row is what AttentionBins holds: integers in up to three absolute
// bins. They add in any order, over any grouping and any number of levels, to the bits of Attention
// over all runs. Its PartialCode says which bins there are; ranks exchange the codes, take the
// highest bin of the row over all of them, and send only the counts that matter beside it.
//
// Counts are [d] weighted values, then the mass. They take 64 bits (narrow) while they stay below
// 2^61 / AttentionRuns::count, so that one narrow partial of each rank fits 64 bits in sum; else
// 128 (wide). Which it is changes no answer.
// A row with a partial that is not finite or reaches 2^72 is broken and ends as NaN.
// Jobs are split over threads as for Attention; a PartialSum belongs to one thread. Only its
// constructor allocates. Nothing fails.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/attention_bins.h"

namespace cleave {

// Runs r with r mod count == index; count 1: all. count > index.
struct AttentionRuns {
  uint32_t count = 1;
  uint32_t index = 0;
};

// What a partial of one query head row is. Four bytes that travel as they are:
//   bits 0-1   0 empty (no position was seen), 1 counts, 2 and 3 broken
//   bit  2     bin top - 1 holds something; bit 3 bin top - 2; bin top always does
//   bit  4     wide
//   bits 5-31  top, two's complement: |top| <= 2^25
class PartialCode {
 public:
  PartialCode() = default;
  static PartialCode Broken() { return PartialCode(2); }
  // `held`: bit i says that bin top - i holds something; bit 0 is set.
  static PartialCode Narrow(int32_t top, uint32_t held) { return PartialCode(Pack(top, held)); }
  static PartialCode Wide(int32_t top, uint32_t held) {
    return PartialCode(Pack(top, held) | kWideBit);
  }

  [[nodiscard]] bool empty() const { return (bits_ & 3U) == 0; }
  [[nodiscard]] bool broken() const { return (bits_ & 2U) != 0; }
  [[nodiscard]] bool wide() const { return (bits_ & kWideBit) != 0; }
  // The highest bin that holds something; meaningless where empty or broken.
  [[nodiscard]] int32_t top() const { return static_cast<int32_t>(bits_) >> 5; }
  // Whether bin top - slot holds something, slot 0 to 2.
  [[nodiscard]] bool Holds(uint32_t slot) const {
    return (bits_ & 3U) == 1 && (slot == 0 || (bits_ & (2U << slot)) != 0);
  }
  // How many of its bins count beside a highest bin of the whole row: those above highest - 3.
  [[nodiscard]] uint32_t CountingBins(int32_t highest) const;

  [[nodiscard]] bool operator==(const PartialCode&) const = default;

 private:
  static constexpr uint32_t kWideBit = 16;

  explicit PartialCode(uint32_t bits) : bits_(bits) {}
  static uint32_t Pack(int32_t top, uint32_t held) {
    return (static_cast<uint32_t>(top) << 5) | (held & 6U) << 1 | 1U;
  }

  uint32_t bits_ = 0;
};
static_assert(sizeof(PartialCode) == 4);

// The highest bin over the partials of one row, codes[i · stride] for i < count; INT32_MIN when
// none has counts.
int32_t HighestBin(const PartialCode* codes, size_t stride, uint32_t count);

// Counts of a record: three slots of [d] then the mass; slot i is bin top - i of its code. Slots
// that the code does not hold are left as they were.
inline uint32_t PartialCounts(uint32_t head_dim) { return 3 * (head_dim + 1); }

// Where AttentionPartial puts what it found. Token t, query head h of the job is record
// t · token_stride + h; its counts begin at record · PartialCounts(d), in `wide` where its code is
// wide and in `counts` otherwise.
struct PartialRows {
  PartialCode* codes = nullptr;
  int64_t* counts = nullptr;
  Int128* wide = nullptr;
  size_t token_stride = 0;
};

// Attention over the job's own runs; job.out is not used. Block table entries and blocks of other
// runs are never looked at. Rows that see no position of the own runs get an empty code.
void AttentionPartial(Isa isa, const KvShape& shape, const AttentionJob& job, AttentionRuns runs,
                      const PartialRows& rows, AttentionScratch* scratch);

// Counts on the wire: the bins that count beside `highest`, from the highest down, each [d] then
// the mass, int64 or (wide) 128 bits, in the machine's byte order; no alignment.
uint64_t PartialBytes(PartialCode code, int32_t highest, uint32_t head_dim);
// Writes PartialBytes to `out` from the counts of a record.
void StorePartial(PartialCode code, int32_t highest, uint32_t head_dim, const int64_t* counts,
                  const Int128* wide, std::byte* out);

// The sum of partials of one row, each run in one of them at most.
class PartialSum {
 public:
  explicit PartialSum(uint32_t head_dim);

  // A new row, whose highest bin over all partials to come is `highest`. A partial above it makes
  // the row broken.
  void Start(int32_t highest);
  // `wire` as StorePartial wrote it for the same `highest`.
  void Add(PartialCode code, const std::byte* wire);
  // A record as AttentionPartial or Export left it.
  void AddRecord(PartialCode code, const int64_t* counts, const Int128* wide);
  // out [d]: the bits of Attention over all runs; NaN where broken or where nothing was added.
  void Finish(Isa isa, float* out) const;
  // The sum as a record.
  PartialCode Export(int64_t* counts, Int128* wide) const;

 private:
  // Where the counts of a partial's next bin lie: right behind the last, or in a slot of its own.
  enum class Spacing { kPacked, kSlots };
  void AddBins(PartialCode code, const std::byte* counts, Spacing spacing);
  // Adds [d] and the mass to bin highest - slot.
  void AddSlot(uint32_t slot, PartialCode code, const std::byte* counts);
  void Widen();
  [[nodiscard]] bool Holds(uint32_t slot) const { return (held_ & (1U << slot)) != 0; }

  const uint32_t head_dim_;
  const uint32_t stride_;        // of a slot: d + 1, and 15 more that an instruction set may read
  std::vector<int64_t> counts_;  // [3][stride], then [stride] of zeros
  std::vector<Int128> wide_;     // [3][stride]

  int32_t highest_ = 0;
  uint32_t held_ = 0;  // bit i: bin highest - i holds something
  bool is_wide_ = false;
  bool broken_ = false;
};

}  // namespace cleave
