#pragma once
// BoundedQueue<T>: hands values from threads to one thread, never more than `capacity` waiting.
//
// Owner: whoever connects the two sides. Threads: Push from any, Pop from any.
// Blocks: only Pop, until a value, Close, or its deadline. After Close, Push fails and Pop drains
// what is left and then returns nothing.

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "base/clock.h"

namespace cleave {

template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  // False when full or closed; the value is then untouched.
  bool Push(T&& value) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (closed_ || items_.size() >= capacity_) return false;
      items_.push_back(std::move(value));
    }
    ready_.notify_one();
    return true;
  }

  std::optional<T> Pop(TimePoint deadline) {
    std::unique_lock<std::mutex> lock(mu_);
    ready_.wait_until(lock, deadline, [this] { return closed_ || !items_.empty(); });
    return TakeLocked();
  }

  std::optional<T> TryPop() {
    std::lock_guard<std::mutex> lock(mu_);
    return TakeLocked();
  }

  void Close() {
    {
      std::lock_guard<std::mutex> lock(mu_);
      closed_ = true;
    }
    ready_.notify_all();
  }

 private:
  std::optional<T> TakeLocked() {
    if (items_.empty()) return std::nullopt;
    std::optional<T> value(std::move(items_.front()));
    items_.pop_front();
    return value;
  }

  const size_t capacity_;

  std::mutex mu_;
  std::condition_variable ready_;
  std::deque<T> items_;  // guarded by mu_
  bool closed_ = false;  // guarded by mu_
};

}  // namespace cleave
