#include "bench/bandwidth_probe.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/checked.h"
#include "base/clock.h"
#include "kernels/read_stream.h"
#include "kernels/thread_pool.h"

namespace cleave {
namespace {

constexpr size_t kHugePage = size_t{1} << 21U;
constexpr size_t kLineWords = 8;

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

void BandwidthProbe::Unmap::operator()(std::byte* p) const { munmap(p, bytes); }

BandwidthProbe::BandwidthProbe(Memory memory, size_t words, std::vector<int> cpus)
    : cpus_(std::move(cpus)),
      memory_(std::move(memory)),
      word_count_(words),
      words_(reinterpret_cast<uint64_t*>(
          RoundUp<uintptr_t>(reinterpret_cast<uintptr_t>(memory_.get()), kHugePage))) {}

Result<std::unique_ptr<BandwidthProbe>> BandwidthProbe::Create(uint64_t bytes,
                                                               std::vector<int> cpus) {
  if (cpus.empty()) return InvalidArgument("a bandwidth probe needs at least one core");
  const size_t words = std::clamp(bytes, kLeastBytes, kMostBytes) / sizeof(uint64_t);
  const size_t mapped = words * sizeof(uint64_t) + kHugePage;
  void* p = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    return ResourceExhausted(
        fmt::format("{} bytes for a bandwidth probe cannot be had; free some memory", mapped));
  }
  madvise(p, mapped, MADV_HUGEPAGE);
  return std::unique_ptr<BandwidthProbe>(new BandwidthProbe(
      Memory(static_cast<std::byte*>(p), Unmap{mapped}), words, std::move(cpus)));
}

void BandwidthProbe::Measure(uint32_t passes) {
  // A pool pins its caller for good: it gets a thread of its own for that.
  std::thread([&] {
    ThreadPool pool(cores(), cpus_);
    const uint64_t threads = pool.size();
    std::vector<ThreadSum> sums(threads);
    // Whole lines; the last thread has what is left too.
    const auto border = [&](uint64_t thread) {
      return thread == threads ? word_count_
                               : word_count_ / kLineWords * thread / threads * kLineWords;
    };
    if (!touched_) {
      pool.Run([&](uint32_t thread) {
        for (size_t i = border(thread); i < border(thread + 1); ++i) words_[i] = i;
      });
      touched_ = true;
    }
    const uint64_t reads = std::max<uint64_t>(1, kPassBytes / bytes());
    for (uint32_t pass = 0; pass < passes; ++pass) {
      const TimePoint start = SteadyClock::now();
      pool.Run([&](uint32_t thread) {
        const size_t begin = border(thread);
        const size_t count = border(thread + 1) - begin;
        for (uint64_t read = 0; read < reads; ++read) {
          sums[thread].value = SumWords(words_ + begin, count);
        }
      });
      const double seconds = SecondsBetween(start, SteadyClock::now());
      sum_ = 0;
      for (const ThreadSum& sum : sums) sum_ += sum.value;
      figures_.push_back(static_cast<double>(reads * bytes()) / seconds);
    }
  }).join();
}

double BandwidthProbe::best_bytes_per_s() const {
  return figures_.empty() ? 0 : *std::max_element(figures_.begin(), figures_.end());
}

}  // namespace cleave
