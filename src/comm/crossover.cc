#include "comm/crossover.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "comm/shm_group.h"

namespace cleave {
namespace {

constexpr uint32_t kColumns = 576;
constexpr uint32_t kRepeats = 5;
constexpr uint32_t kStoreTrialRows = 32;
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

// Of a few reductions of `rows` rows the second fastest: others may take the processor away.
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
  std::sort(times.begin(), times.end());
  return times[1];
}

// Each member's times, added up over all: the same on every member.
template <size_t N>
Status AddUp(ShmGroup* group, std::array<uint64_t, N>* times) {
  std::vector<std::array<uint64_t, N>> all(group->size());
  const std::vector<uint64_t> sizes(group->size(), sizeof(*times));
  RETURN_IF_ERROR(group->AllGather(std::as_bytes(std::span(*times)), sizes,
                                   reinterpret_cast<std::byte*>(all.data())));
  *times = {};
  for (const std::array<uint64_t, N>& theirs : all) {
    for (size_t i = 0; i < N; ++i) (*times)[i] += theirs[i];
  }
  return OkStatus();
}

}  // namespace

uint64_t TrialBytes(uint32_t rows) { return rows * (1 + uint64_t{kColumns} * sizeof(int32_t)); }

uint64_t CrossoverOf(std::span<const uint64_t> one_shot_ns, std::span<const uint64_t> two_shot_ns) {
  // What a trial loses by a way, in 1/1024 of the time of the faster one.
  const auto loss = [&](size_t trial, uint64_t ns) {
    const uint64_t best = std::max<uint64_t>(1, std::min(one_shot_ns[trial], two_shot_ns[trial]));
    return ns * 1024 / best;
  };
  uint64_t least = kAlways;
  size_t border = 0;
  for (size_t at = 0; at <= kTrialRows.size(); ++at) {  // trials before `at` go in one shot
    uint64_t sum = 0;
    for (size_t trial = 0; trial < kTrialRows.size(); ++trial) {
      sum += loss(trial, trial < at ? one_shot_ns[trial] : two_shot_ns[trial]);
    }
    if (sum > least) continue;
    least = sum;
    border = at;
  }
  if (border == kTrialRows.size()) return kAlways;
  return border == 0 ? 0 : TrialBytes(kTrialRows[border - 1]);
}

Result<StoreKind> MeasureStores(ShmGroup* group) {
  constexpr std::array<StoreKind, 2> kKinds = {StoreKind::kOrdinary, StoreKind::kStreaming};
  const uint64_t before = group->one_shot_max_bytes();
  Trial trial = MakeTrial();
  std::array<uint64_t, 2> times{};
  group->SetOneShotMaxBytes(kAlways);
  for (size_t i = 0; i < kKinds.size(); ++i) {
    group->SetLargeStores(kKinds[i]);
    ASSIGN_OR_RETURN(times[i], TimeOf(group, kStoreTrialRows, &trial));
  }
  group->SetOneShotMaxBytes(before);
  RETURN_IF_ERROR(AddUp(group, &times));
  const StoreKind best = times[1] < times[0] ? kKinds[1] : kKinds[0];
  group->SetLargeStores(best);
  group->ForgetStats();
  return best;
}

Result<uint64_t> MeasureCrossover(ShmGroup* group) {
  constexpr size_t kTrials = kTrialRows.size();
  std::array<uint64_t, 2 * kTrials> times{};  // one-shot, two-shot
  Trial trial = MakeTrial();
  for (size_t i = 0; i < times.size(); ++i) {
    group->SetOneShotMaxBytes(i < kTrials ? kAlways : 0);
    ASSIGN_OR_RETURN(times[i], TimeOf(group, kTrialRows[i % kTrials], &trial));
  }
  RETURN_IF_ERROR(AddUp(group, &times));
  const std::span<const uint64_t> sums(times);
  const uint64_t best = CrossoverOf(sums.first(kTrials), sums.subspan(kTrials));
  group->SetOneShotMaxBytes(best);
  group->ForgetStats();
  return best;
}

}  // namespace cleave
