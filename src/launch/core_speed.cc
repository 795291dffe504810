#include "launch/core_speed.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <thread>

#include "launch/cpu_plan.h"

namespace cleave {
namespace {

constexpr std::chrono::milliseconds kWindow(30);
constexpr double kEvenWithin = 1.1;

// A few thousand multiply-adds that no compiler can leave out.
float Work(std::array<float, 256>* x) {
  float sum = 0;
  for (int round = 0; round < 16; ++round) {
    for (float& value : *x) value = value * 0.999F + 0.001F;
  }
  for (const float value : *x) sum += value;
  return sum;
}

// Pieces of work a second of this thread's processor time: what others take of its core does not
// count.
double WorkUntil(const std::atomic<bool>& stop) {
  const auto processor_s = [] {
    timespec t = {};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  };
  std::array<float, 256> x{};
  volatile float sink = 0;
  uint64_t count = 0;
  const double start_s = processor_s();
  do {
    sink = Work(&x);
    ++count;
  } while (!stop.load(std::memory_order_relaxed));
  (void)sink;
  return static_cast<double>(count) / std::max(processor_s() - start_s, 1e-9);
}

}  // namespace

std::vector<double> MeasureCoreSpeeds(const std::vector<std::vector<int>>& cpus_of_ranks) {
  std::atomic<bool> go = false;
  std::atomic<bool> stop = false;
  std::vector<std::vector<double>> rates;  // of each rank's threads
  rates.reserve(cpus_of_ranks.size());
  for (const std::vector<int>& cpus : cpus_of_ranks) {
    rates.emplace_back(std::max<size_t>(cpus.size(), 1));
  }
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < rates.size(); ++rank) {
    for (size_t i = 0; i < rates[rank].size(); ++i) {
      const int cpu = cpus_of_ranks[rank].empty() ? -1 : cpus_of_ranks[rank][i];
      threads.emplace_back([&go, &stop, cpu, rate = &rates[rank][i]] {
        if (cpu >= 0) (void)PinThisThread({&cpu, 1});
        while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
        *rate = WorkUntil(stop);
      });
    }
  }
  go.store(true, std::memory_order_release);
  std::this_thread::sleep_for(kWindow);
  stop.store(true, std::memory_order_relaxed);
  for (std::thread& t : threads) t.join();
  std::vector<double> speeds;
  speeds.reserve(rates.size());
  for (const std::vector<double>& of_rank : rates) {
    speeds.push_back(std::accumulate(of_rank.begin(), of_rank.end(), 0.0));
  }
  return speeds;
}

std::vector<uint32_t> SharesBySpeed(std::span<const double> speeds) {
  if (speeds.empty()) return {};
  const auto [slowest, quickest] = std::minmax_element(speeds.begin(), speeds.end());
  if (*quickest <= *slowest * kEvenWithin) return {};
  std::vector<uint32_t> shares;
  uint32_t divisor = 0;
  for (const double speed : speeds) {
    const double share = std::round(kLargestShare * speed / *quickest);
    shares.push_back(std::max(1U, static_cast<uint32_t>(share)));
    divisor = std::gcd(divisor, shares.back());
  }
  for (uint32_t& share : shares) share /= divisor;
  return shares;
}

}  // namespace cleave
