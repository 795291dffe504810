#include "kernels/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace cleave {
namespace {

TEST(ThreadPoolTest, RunsOnceOnEveryThread) {
  for (uint32_t size = 1; size <= 5; ++size) {
    ThreadPool pool(size);
    EXPECT_EQ(pool.size(), size);
    std::vector<int> calls(size, 0);
    for (int i = 0; i < 1000; ++i) pool.Run([&](uint32_t thread) { ++calls[thread]; });
    for (int c : calls) EXPECT_EQ(c, 1000);
  }
}

TEST(ThreadPoolTest, ZeroThreadsMeansTheCaller) {
  ThreadPool pool(0);
  EXPECT_EQ(pool.size(), 1U);
  int calls = 0;
  pool.Run([&](uint32_t thread) { calls += thread == 0 ? 1 : 100; });
  EXPECT_EQ(calls, 1);
}

TEST(ThreadPoolTest, RunOnlyReturnsWhenAllAreDone) {
  ThreadPool pool(3);
  std::vector<uint64_t> values(3);
  uint64_t total = 0;
  for (uint64_t i = 1; i <= 2000; ++i) {
    pool.Run([&](uint32_t thread) { values[thread] = i; });
    total += values[0] + values[1] + values[2];  // plain reads: a race unless Run synchronises
  }
  EXPECT_EQ(total, 3U * 2000 * 2001 / 2);
}

TEST(ThreadPoolTest, BarrierSeparatesPhases) {
  for (uint32_t size : {1U, 2U, 4U}) {
    ThreadPool pool(size);
    std::vector<uint64_t> a(size, 0);
    std::vector<uint64_t> b(size, 0);
    pool.Run([&](uint32_t thread) {
      for (int phase = 0; phase < 500; ++phase) {
        a[thread] = std::accumulate(b.begin(), b.end(), uint64_t{1}) % 1'000'003;
        pool.Barrier();
        b[thread] = std::accumulate(a.begin(), a.end(), uint64_t{thread}) % 1'000'003;
        pool.Barrier();
      }
    });
    std::vector<uint64_t> ea(size, 0);
    std::vector<uint64_t> eb(size, 0);
    for (int phase = 0; phase < 500; ++phase) {
      for (auto& v : ea) v = std::accumulate(eb.begin(), eb.end(), uint64_t{1}) % 1'000'003;
      for (uint32_t t = 0; t < size; ++t) {
        eb[t] = std::accumulate(ea.begin(), ea.end(), uint64_t{t}) % 1'000'003;
      }
    }
    EXPECT_EQ(a, ea);
    EXPECT_EQ(b, eb);
  }
}

TEST(ThreadPoolTest, SharesCoverTheRangeOnce) {
  ThreadPool pool(3);
  for (uint32_t n : {0U, 1U, 2U, 3U, 10U, 4294967295U}) {
    uint32_t next = 0;
    for (uint32_t t = 0; t < 3; ++t) {
      const ThreadPool::Share share = pool.ShareOf(n, t);
      EXPECT_EQ(share.begin, next);
      EXPECT_LE(share.end - share.begin, n / 3 + 1);
      EXPECT_GE(share.end - share.begin, n / 3);
      next = share.end;
    }
    EXPECT_EQ(next, n);
  }
}

float Opaque(float x) {
  volatile float v = x;
  return v;
}

TEST(ThreadPoolTest, EveryThreadFlushesDenormals) {
  ThreadPool pool(3);
  std::vector<float> products(3, 1.0F);
  pool.Run([&](uint32_t thread) { products[thread] = Opaque(0x1p-100F) * Opaque(0x1p-40F); });
  EXPECT_EQ(products, std::vector<float>(3, 0.0F));
  EXPECT_NE(Opaque(0x1p-100F) * Opaque(0x1p-40F), 0.0F) << "the caller's own mode comes back";
}

TEST(ThreadPoolTest, ThreadsArePinned) {
  cpu_set_t before;
  ASSERT_EQ(0, sched_getaffinity(0, sizeof before, &before));
  int cpu = 0;
  while (!CPU_ISSET(cpu, &before)) ++cpu;
  {
    const std::vector<int> cpus{cpu};
    ThreadPool pool(2, cpus);
    std::vector<int> allowed(2, 0);
    std::vector<int> on(2, -1);
    pool.Run([&](uint32_t thread) {
      cpu_set_t set;
      sched_getaffinity(0, sizeof set, &set);
      allowed[thread] = CPU_COUNT(&set);
      on[thread] = sched_getcpu();
    });
    EXPECT_EQ(allowed, (std::vector<int>{1, 1}));
    EXPECT_EQ(on, (std::vector<int>{cpu, cpu}));
  }
  sched_setaffinity(0, sizeof before, &before);
}

TEST(ThreadPoolTest, ImpossibleProcessorsAreIgnored) {
  const std::vector<int> cpus{-1, 100000};
  ThreadPool pool(2, cpus);
  std::atomic<int> calls{0};
  pool.Run([&](uint32_t) { ++calls; });
  EXPECT_EQ(calls, 2);
}

// The third field of /proc/self/task/N/stat, after the name in parentheses.
char StateOf(const std::filesystem::path& task) {
  std::ifstream file(task / "stat");
  std::stringstream text;
  text << file.rdbuf();
  const size_t at = text.str().rfind(") ");
  return at == std::string::npos ? '?' : text.str()[at + 2];
}

TEST(ThreadPoolTest, IdleThreadsSleep) {
  ThreadPool pool(4);
  pool.Run([](uint32_t) {});
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  int awake = 0;
  do {
    awake = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      if (task.path().filename() == std::to_string(getpid())) continue;
      awake += StateOf(task.path()) == 'R' ? 1 : 0;
    }
    std::this_thread::yield();
  } while (awake > 0 && std::chrono::steady_clock::now() < deadline);
  EXPECT_EQ(awake, 0);
  std::atomic<int> calls{0};
  pool.Run([&](uint32_t) { ++calls; });  // and they still wake
  EXPECT_EQ(calls, 4);
}

TEST(ThreadPoolTest, MorePoolsThanProcessorsMakeProgress) {
  std::vector<std::thread> callers;
  callers.reserve(4);
  std::atomic<uint64_t> calls{0};
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      ThreadPool pool(4);
      for (int i = 0; i < 200; ++i) {
        pool.Run([&](uint32_t) {
          calls.fetch_add(1, std::memory_order_relaxed);
          pool.Barrier();
        });
      }
    });
  }
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(calls, 4U * 4 * 200);
}

}  // namespace
}  // namespace cleave
