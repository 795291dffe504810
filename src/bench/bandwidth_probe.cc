#include "bench/bandwidth_probe.h"

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "kernels/thread_pool.h"

namespace cleave {
namespace {

// Independent sums, so that loads do not wait for additions: a cache line at a time.
uint64_t SumOf(const uint64_t* words, size_t count) {
  constexpr size_t kLanes = 8;
  std::array<uint64_t, kLanes> sums{};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += words[i + lane];
  }
  uint64_t sum = 0;
  for (; i < count; ++i) sum += words[i];
  for (const uint64_t lane : sums) sum += lane;
  return sum;
}

// A line each, as threads write them at the same time.
struct alignas(128) ThreadSum {
  uint64_t value = 0;
};

}  // namespace

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) / 2;
}

Result<std::unique_ptr<BandwidthProbe>> BandwidthProbe::Create(uint64_t bytes,
                                                               std::vector<int> cpus) {
  if (cpus.empty()) return InvalidArgument("a bandwidth probe needs at least one core");
  const size_t words = std::clamp(bytes, kLeastBytes, kMostBytes) / sizeof(uint64_t);
  return std::unique_ptr<BandwidthProbe>(new BandwidthProbe(words, std::move(cpus)));
}

void BandwidthProbe::Measure(uint32_t passes) {
  // A pool pins its caller for good: it gets a thread of its own for that.
  std::thread([&] {
    ThreadPool pool(cores(), cpus_);
    const uint64_t threads = pool.size();
    std::vector<ThreadSum> sums(threads);
    const auto share = [&](uint32_t thread) {
      return std::pair<size_t, size_t>{words_.size() * thread / threads,
                                       words_.size() * (thread + 1) / threads};
    };
    if (!touched_) {
      pool.Run([&](uint32_t thread) {
        const auto [begin, end] = share(thread);
        for (size_t i = begin; i < end; ++i) words_.data[i] = i;
      });
      touched_ = true;
    }
    for (uint32_t pass = 0; pass < passes; ++pass) {
      const TimePoint start = SteadyClock::now();
      pool.Run([&](uint32_t thread) {
        const auto [begin, end] = share(thread);
        sums[thread].value = SumOf(words_.data.get() + begin, end - begin);
      });
      const double seconds = SecondsBetween(start, SteadyClock::now());
      sum_ = 0;
      for (const ThreadSum& sum : sums) sum_ += sum.value;
      figures_.push_back(static_cast<double>(bytes()) / seconds);
    }
  }).join();
}

double BandwidthProbe::best_bytes_per_s() const {
  return figures_.empty() ? 0 : *std::max_element(figures_.begin(), figures_.end());
}

}  // namespace cleave
