#pragma once
// Runtime: what one render may still use, and what it must take apart at its end.
//
// Owner: the render; it outlives every value the render makes. One thread.
// Steps only fall. Bytes rise and fall with what is alive, in two accounts: text (the output and
// strings the template makes, up to max_output_bytes) and values (what lists, dicts and the strings
// weigh besides their text, up to kMaxValueBytes).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "model/jinja/jinja.h"

namespace cleave::jinja {

// Something that can become part of a cycle of references: Drop lets go of what it refers to.
class Droppable {
 public:
  Droppable() = default;
  Droppable(const Droppable&) = delete;
  Droppable& operator=(const Droppable&) = delete;
  virtual ~Droppable() = default;
  virtual void Drop() {}
};

class Runtime {
 public:
  explicit Runtime(const Limits& limits);
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  ~Runtime();

  void Step(uint64_t count = 1) {
    if (count > steps_left_) FailSteps();
    steps_left_ -= count;
  }
  // Passing over `bytes` of text costs steps too: one for every kBytesPerStep.
  void PassOver(uint64_t bytes) { Step(bytes / kBytesPerStep); }

  void TakeText(uint64_t bytes);
  void TakeValues(uint64_t bytes);
  void Give(uint64_t text_bytes, uint64_t value_bytes) {
    text_bytes_ -= text_bytes;
    value_bytes_ -= value_bytes;
  }

  // Deepest nesting of values (lists in lists) and of evaluation.
  [[nodiscard]] uint32_t max_depth() const { return limits_.max_depth; }
  [[nodiscard]] std::optional<int64_t> fixed_time_s() const { return limits_.fixed_time_s; }
  void Enter();
  void Leave() { --depth_; }

  // Keeps `object` until the end of the render and drops it then.
  // shared: the values of the template refer to it as well.
  void Keep(std::shared_ptr<Droppable> object);

 private:
  static constexpr uint64_t kBytesPerStep = 256;
  static constexpr uint64_t kMaxValueBytes = 256U << 20U;
  [[noreturn]] void FailSteps() const;

  const Limits limits_;
  uint64_t steps_left_;
  uint64_t text_bytes_ = 0;
  uint64_t value_bytes_ = 0;
  uint32_t depth_ = 0;
  std::vector<std::shared_ptr<Droppable>> kept_;
};

// One level of nesting, for as long as it lives.
class Nesting {
 public:
  explicit Nesting(Runtime& rt) : rt_(rt) { rt_.Enter(); }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
  ~Nesting() { rt_.Leave(); }

 private:
  Runtime& rt_;
};

// Bytes taken from a Runtime, given back when the holder goes. Without a Runtime (text of the
// compiled template itself, and of the caller) it counts nothing.
class Lease {
 public:
  Lease() = default;
  explicit Lease(Runtime* rt) : rt_(rt) {}
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() { Release(); }

  void GrowText(uint64_t bytes);
  void GrowValues(uint64_t bytes);

 private:
  void Release();

  Runtime* rt_ = nullptr;
  uint64_t text_bytes_ = 0;
  uint64_t value_bytes_ = 0;
};

}  // namespace cleave::jinja
