#pragma once
// WorkerPool: a few threads that do bounded work off the server's thread: JSON, templates,
// tokenising. Threads: Push from any. After Stop nothing runs; what waited is dropped.

#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"

namespace cleave {

class WorkerPool {
 public:
  WorkerPool(size_t threads, size_t capacity);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False when `capacity` jobs wait, or after Stop.
  bool Push(std::function<void()> job);
  void Stop();

 private:
  void Run();

  BoundedQueue<std::function<void()>> queue_;
  std::atomic<bool> stopped_{false};
  std::vector<std::thread> threads_;
};

}  // namespace cleave
