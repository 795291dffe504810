#pragma once
// What the tests of comm share: worlds on threads, random rows, and scripts of collectives whose
// every byte is known, run on any group.

#include <functional>
#include <vector>

#include "comm/group.h"
#include "comm/world.h"

namespace cleave {

WorldOptions TpWorld(uint32_t size);

// fn(world) for every rank, each in a thread of its own, in one segment; returns what they return.
std::vector<Status> RunWorld(const WorldOptions& options, const std::function<Status(World*)>& fn);

// Rows of member `member`: narrow ones fit int32, wide ones int64 and what the sum of 64 allows.
struct TestRows {
  uint32_t rows;
  uint32_t columns;
  size_t stride;
  std::vector<int64_t> totals;
  std::vector<uint8_t> wide;
  std::vector<int32_t> shift;
  [[nodiscard]] IntegerRows View() const {
    return {rows, columns, totals.data(), stride, wide.data(), shift.data()};
  }
};
TestRows MakeRows(uint32_t rows, uint32_t columns, uint32_t wide_percent, uint64_t seed,
                  uint32_t member);

// One collective, or one message of a pair.
struct ScriptStep {
  CommOp op;
  uint32_t rows = 0;
  uint32_t columns = 0;
  uint32_t wide_percent = 0;
  // reduce_scatter: rows of each; all_gather: [member]; all_to_all: [from][to]; send: one.
  std::vector<uint64_t> sizes = {};
  uint32_t from = 0;
  uint32_t to = 0;
  uint64_t seed = 0;
};
// Random steps for `members`; messages up to about `most_bytes`.
std::vector<ScriptStep> MakeScript(uint32_t members, uint32_t steps, uint32_t most_bytes,
                                   uint64_t seed);

// Everything that arrives at one member in the script, in order.
Result<std::vector<std::byte>> RunScript(Group* group, const std::vector<ScriptStep>& script);
// The same by the loopback group, for each member.
std::vector<std::vector<std::byte>> ExpectedOf(uint32_t members,
                                               const std::vector<ScriptStep>& script);

struct Metered {
  uint64_t calls = 0;
  uint64_t bytes = 0;
  bool operator==(const Metered&) const = default;
};
// What the member must have handed over, counted from the script.
std::vector<Metered> BillOf(const std::vector<ScriptStep>& script, uint32_t members,
                            uint32_t member, uint64_t one_shot_max_bytes);
std::vector<Metered> MeteredOf(const CommStats& stats);

}  // namespace cleave
