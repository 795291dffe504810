#include "comm/crossover.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "comm/shm_group.h"

namespace cleave {
namespace {

constexpr uint32_t kColumns = 576;
constexpr uint32_t kRepeats = 7;
constexpr uint64_t kAlways = std::numeric_limits<uint64_t>::max();

struct Trial {
  std::vector<int64_t> totals;
  std::vector<uint8_t> wide;
  std::vector<int32_t> shift;
  std::vector<float> out;
};

Trial MakeTrial() {
  const uint32_t rows = kTrialRows.back();
  Trial trial = {.totals = std::vector<int64_t>(size_t{rows} * kColumns, 1),
                 .wide = std::vector<uint8_t>(rows, 0),
                 .shift = std::vector<int32_t>(rows, 0),
                 .out = std::vector<float>(size_t{rows} * kColumns)};
  return trial;
}

// Median of a few reductions of `rows` rows.
Result<uint64_t> TimeOf(ShmGroup* group, uint32_t rows, Trial* trial) {
  const IntegerRows mine = {.rows = rows,
                            .columns = kColumns,
                            .totals = trial->totals.data(),
                            .stride = kColumns,
                            .wide = trial->wide.data(),
                            .shift = trial->shift.data()};
  std::array<uint64_t, kRepeats> times{};
  for (uint64_t& time : times) {
    const uint64_t start = SteadyNanos();
    RETURN_IF_ERROR(group->AllReduce(mine, trial->out.data(), kColumns));
    time = SteadyNanos() - start;
  }
  std::nth_element(times.begin(), times.begin() + kRepeats / 2, times.end());
  return times[kRepeats / 2];
}

}  // namespace

uint64_t TrialBytes(uint32_t rows) { return rows * (1 + uint64_t{kColumns} * sizeof(int32_t)); }

uint64_t CrossoverOf(std::span<const uint64_t> one_shot_ns, std::span<const uint64_t> two_shot_ns) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < kTrialRows.size(); ++i) {
    if (one_shot_ns[i] > two_shot_ns[i]) return bytes;
    bytes = TrialBytes(kTrialRows[i]);
  }
  return kAlways;
}

Result<uint64_t> MeasureCrossover(ShmGroup* group) {
  constexpr size_t kTrials = kTrialRows.size();
  using Times = std::array<uint64_t, 2 * kTrials>;  // one-shot, two-shot
  const uint64_t before = group->one_shot_max_bytes();
  Trial trial = MakeTrial();
  Times mine{};
  for (size_t i = 0; i < mine.size(); ++i) {
    group->SetOneShotMaxBytes(i < kTrials ? kAlways : 0);
    ASSIGN_OR_RETURN(mine[i], TimeOf(group, kTrialRows[i % kTrials], &trial));
  }
  group->SetOneShotMaxBytes(before);
  std::vector<Times> all(group->size());
  const std::vector<uint64_t> sizes(group->size(), sizeof(Times));
  RETURN_IF_ERROR(group->AllGather(std::as_bytes(std::span(mine)), sizes,
                                   reinterpret_cast<std::byte*>(all.data())));
  Times sum{};
  for (const Times& times : all) {
    for (size_t i = 0; i < times.size(); ++i) sum[i] += times[i];
  }
  group->ForgetStats();
  const std::span<const uint64_t> sums(sum);
  return CrossoverOf(sums.first(kTrials), sums.subspan(kTrials));
}

}  // namespace cleave
