#include "kernels/thread_pool.h"

#include <immintrin.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <system_error>
#include <thread>
#include <vector>

#include "kernels/isa.h"

namespace cleave {
namespace {

using Clock = std::chrono::steady_clock;

// Inside a token the next call comes within microseconds, and a futex wake costs about 20 µs; a
// thread that spins longer takes a shared processor from whom it waits for.
constexpr std::chrono::microseconds kSpin{30};
constexpr std::chrono::microseconds kYield{200};
constexpr int kPausesPerLook = 8;  // a pause is 40-140 cycles, a look at the clock about as much

// A yield that took this long and switched threads ran somebody else: then spinning only keeps the
// processor from the thread that is waited for, and yielding gives whole time slices away, whereas
// a sleeper that is woken runs at once. So for a while threads sleep soon. (Without a switch it was
// an interrupt, or the host took the processor: sleeping would not help.)
constexpr std::chrono::microseconds kSliceLost{10};
constexpr std::chrono::milliseconds kCrowdedFor{50};
constexpr std::chrono::microseconds kCrowdedSpin{5};

constexpr size_t kLines = 128;  // two cache lines: the prefetcher fetches them in pairs

// A number that threads wait on. Every change is an atomic read-modify-write, sequentially
// consistent with the count of sleepers, so that no wake is lost.
class alignas(kLines) Signal {
 public:
  [[nodiscard]] uint32_t Value() const { return value_.load(std::memory_order_acquire); }
  void Set(uint32_t v) { value_.store(v, std::memory_order_relaxed); }  // while nobody waits
  // Adds and returns the new value, waking all sleepers.
  uint32_t Add(uint32_t v) {
    const uint32_t sum = value_.fetch_add(v) + v;
    if (sleepers_.load() != 0) Futex(FUTEX_WAKE_PRIVATE, std::numeric_limits<int32_t>::max());
    return sum;
  }
  void SleepWhile(uint32_t old) {
    sleepers_.fetch_add(1);
    while (value_.load() == old) Futex(FUTEX_WAIT_PRIVATE, old);
    sleepers_.fetch_sub(1);
  }

 private:
  void Futex(int operation, uint32_t argument) {
    static_assert(sizeof(value_) == sizeof(uint32_t));
    syscall(SYS_futex, &value_, operation, argument, nullptr, nullptr, 0);
  }

  std::atomic<uint32_t> value_{0};
  std::atomic<uint32_t> sleepers_{0};
};

// How often this thread gave its processor to another.
int64_t SwitchesOfSelf() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw + usage.ru_nivcsw;
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

  Signal epoch;                                      // Run calls so far
  Signal pending;                                    // workers that have not finished this Run
  Signal generation;                                 // barriers passed
  alignas(kLines) std::atomic<uint32_t> arrived{0};  // threads at the barrier
  alignas(kLines) std::atomic<Clock::rep> crowded_until{0};  // see kSliceLost

  void Pin(uint32_t thread) const {
    if (!cpus.empty()) PinSelf(cpus[thread % cpus.size()]);
  }

  // Waits until `signal` is no longer `old`.
  void WaitWhile(Signal* signal, uint32_t old) {
    const Clock::time_point start = Clock::now();
    const bool crowded =
        start.time_since_epoch().count() < crowded_until.load(std::memory_order_relaxed);
    const Clock::duration spin = crowded ? kCrowdedSpin : kSpin;
    const Clock::duration patience = crowded ? spin : spin + kYield;
    int64_t switches = -1;  // before the first yield: not known
    for (Clock::time_point now = start; now - start < patience;) {
      if (signal->Value() != old) return;
      if (now - start < spin) {
        for (int i = 0; i < kPausesPerLook; ++i) _mm_pause();
        now = Clock::now();
        continue;
      }
      if (switches < 0) switches = SwitchesOfSelf();
      sched_yield();
      const Clock::time_point after = Clock::now();
      if (after - now > kSliceLost && SwitchesOfSelf() != switches) {
        crowded_until.store((after + kCrowdedFor).time_since_epoch().count(),
                            std::memory_order_relaxed);
        break;
      }
      now = after;
    }
    signal->SleepWhile(old);
  }

  void Work(uint32_t thread) {
    Pin(thread);
    ScopedFpMode mode;
    for (uint32_t seen = 0;; ++seen) {
      WaitWhile(&epoch, seen);
      if (stop) return;
      fn(argument, thread);
      pending.Add(static_cast<uint32_t>(-1));
    }
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
  state_->epoch.Add(1);
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
  state.pending.Set(size_ - 1);
  state.epoch.Add(1);
  fn(argument, 0);
  for (uint32_t left = state.pending.Value(); left != 0; left = state.pending.Value()) {
    state.WaitWhile(&state.pending, left);
  }
}

void ThreadPool::Barrier() {
  if (size_ == 1) return;
  State& state = *state_;
  const uint32_t generation = state.generation.Value();
  if (state.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
    state.arrived.store(0, std::memory_order_relaxed);
    state.generation.Add(1);
    return;
  }
  state.WaitWhile(&state.generation, generation);
}

}  // namespace cleave
