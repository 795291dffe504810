#include "kernels/thread_pool.h"

#include <immintrin.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <system_error>
#include <thread>
#include <vector>

#include "kernels/isa.h"

namespace cleave {
namespace {

// Inside a token the next call comes within microseconds, and a futex wake costs about 20 µs; a
// thread that spins longer takes a shared processor from whom it waits for.
constexpr std::chrono::microseconds kSpin{30};
constexpr std::chrono::microseconds kYield{200};
constexpr int kPausesPerLook = 8;  // a pause is 40-140 cycles, a look at the clock about as much

constexpr size_t kLines = 128;  // two cache lines: the prefetcher fetches them in pairs

using Word = std::atomic<uint32_t>;

// Waits until `word` is no longer `old`. Whoever changes it does so by an atomic read-modify-write
// and notifies.
void WaitWhile(const Word& word, uint32_t old) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  Clock::duration waited{};
  while (waited < kSpin + kYield) {
    if (word.load(std::memory_order_acquire) != old) return;
    if (waited < kSpin) {
      for (int i = 0; i < kPausesPerLook; ++i) _mm_pause();
    } else {
      sched_yield();
    }
    waited = Clock::now() - start;
  }
  word.wait(old, std::memory_order_acquire);
}

// Best effort: a processor outside the allowed set leaves the thread where it was.
void PinSelf(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (cpu < 0 || cpu >= CPU_SETSIZE) return;
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

}  // namespace

struct ThreadPool::State {
  // Set by the constructor, never changed.
  std::vector<int> cpus;
  std::vector<std::thread> workers;  // threads 1 .. size-1

  // Written by the caller of Run before it raises `epoch`.
  void (*fn)(void*, uint32_t) = nullptr;
  void* argument = nullptr;
  bool stop = false;
  pthread_t pinned_caller{};

  alignas(kLines) Word epoch{0};    // Run calls so far
  alignas(kLines) Word pending{0};  // workers that have not finished this Run
  alignas(kLines) Word arrived{0};  // threads at the barrier
  alignas(kLines) Word generation{0};

  void Pin(uint32_t thread) const {
    if (!cpus.empty()) PinSelf(cpus[thread % cpus.size()]);
  }

  void Work(uint32_t thread) {
    Pin(thread);
    ScopedFpMode mode;
    for (uint32_t seen = 0;; ++seen) {
      WaitWhile(epoch, seen);
      if (stop) return;
      fn(argument, thread);
      if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) pending.notify_one();
    }
  }

  void RaiseEpoch() {
    epoch.fetch_add(1, std::memory_order_release);
    epoch.notify_all();
  }
};

ThreadPool::ThreadPool(uint32_t threads, std::span<const int> cpus)
    : size_(std::max(threads, 1U)), state_(std::make_unique<State>()) {
  State* state = state_.get();
  state->cpus.assign(cpus.begin(), cpus.end());
  state->workers.reserve(size_ - 1);
  for (uint32_t thread = 1; thread < size_; ++thread) {
    try {
      state->workers.emplace_back([state, thread] { state->Work(thread); });
    } catch (const std::system_error&) {
      size_ = thread;  // the system gives no more threads: serve with those there are
    }
  }
}

ThreadPool::~ThreadPool() {
  state_->stop = true;
  state_->RaiseEpoch();
  for (std::thread& worker : state_->workers) worker.join();
}

void ThreadPool::RunErased(void (*fn)(void*, uint32_t), void* argument) {
  State& state = *state_;
  if (!state.cpus.empty() && !pthread_equal(state.pinned_caller, pthread_self())) {
    state.Pin(0);
    state.pinned_caller = pthread_self();
  }
  ScopedFpMode mode;
  if (size_ == 1) return fn(argument, 0);
  state.fn = fn;
  state.argument = argument;
  state.pending.store(size_ - 1, std::memory_order_relaxed);
  state.RaiseEpoch();
  fn(argument, 0);
  for (uint32_t left = state.pending.load(std::memory_order_acquire); left != 0;
       left = state.pending.load(std::memory_order_acquire)) {
    WaitWhile(state.pending, left);
  }
}

void ThreadPool::Barrier() {
  if (size_ == 1) return;
  State& state = *state_;
  const uint32_t generation = state.generation.load(std::memory_order_acquire);
  if (state.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
    state.arrived.store(0, std::memory_order_relaxed);
    state.generation.fetch_add(1, std::memory_order_acq_rel);
    state.generation.notify_all();
    return;
  }
  WaitWhile(state.generation, generation);
}

}  // namespace cleave
