#include "http/worker_pool.h"

#include <pthread.h>

#include <csignal>
#include <optional>
#include <utility>

namespace cleave {
namespace {

constexpr std::chrono::seconds kWake{1};  // an idle wait's deadline; Close wakes it earlier

}  // namespace

WorkerPool::WorkerPool(size_t threads, size_t capacity) : queue_(capacity) {
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

WorkerPool::~WorkerPool() { Stop(); }

bool WorkerPool::Push(std::function<void()> job) { return queue_.Push(std::move(job)); }

void WorkerPool::Stop() {
  stopped_.store(true, std::memory_order_release);
  queue_.Close();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void WorkerPool::Run() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  while (!stopped_.load(std::memory_order_acquire)) {
    std::optional<std::function<void()>> job = queue_.Pop(SteadyClock::now() + kWake);
    if (job && !stopped_.load(std::memory_order_acquire)) (*job)();
  }
}

}  // namespace cleave
