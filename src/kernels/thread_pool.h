#pragma once
// ThreadPool: the fixed set of threads of one rank. Run() sends one function to all of them, the
// caller included as thread 0, and returns when all are done.
//
// Owner: the executor. Run is called from one thread at a time. Thread i is pinned to cpus[i] when
// given (the caller at its first Run, for good; a processor that is not allowed is ignored). All
// hold a ScopedFpMode while they work, and wait by a short spin (20–50 µs), then yields, then a
// futex: an idle pool burns no processor. Size 1 runs inline. Nothing is allocated in Run.
// The constructor takes the threads the system gives: size() may be less than asked for.

#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

namespace cleave {

class ThreadPool {
 public:
  explicit ThreadPool(uint32_t threads, std::span<const int> cpus = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] uint32_t size() const { return size_; }

  // fn(thread) for every thread in [0, size()).
  template <typename Fn>
  void Run(Fn&& fn) {
    RunErased(
        [](void* f, uint32_t thread) { (*static_cast<std::remove_reference_t<Fn>*>(f))(thread); },
        &fn);
  }

  // Waits until every thread of the running function has reached this call; only inside Run.
  void Barrier();

  struct Share {
    uint32_t begin;
    uint32_t end;
  };
  // Thread `thread`'s contiguous share of [0, n), sizes differing by at most one.
  [[nodiscard]] Share ShareOf(uint32_t n, uint32_t thread) const {
    const uint64_t t = thread;
    return {static_cast<uint32_t>(n * t / size_), static_cast<uint32_t>(n * (t + 1) / size_)};
  }

 private:
  void RunErased(void (*fn)(void*, uint32_t), void* argument);

  struct State;
  uint32_t size_;
  std::unique_ptr<State> state_;
};

}  // namespace cleave
