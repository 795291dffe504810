#include "model/jinja/runtime.h"

#include <fmt/core.h>

#include <utility>

#include "model/jinja/failure.h"

namespace cleave::jinja {

Runtime::Runtime(const Limits& limits) : limits_(limits), steps_left_(limits.max_steps) {}

// All kept objects are alive while each is dropped, so that a long chain of them comes apart link
// by link instead of by recursion.
Runtime::~Runtime() {
  for (const auto& object : kept_) object->Drop();
}

void Runtime::FailSteps() const {
  FailBound(fmt::format("the template needs more than max_steps = {} steps", limits_.max_steps));
}

void Runtime::TakeText(uint64_t bytes) {
  if (bytes > limits_.max_output_bytes || text_bytes_ > limits_.max_output_bytes - bytes) {
    FailBound(
        fmt::format("the template needs more than max_output_bytes = {} bytes of text and "
                    "intermediate strings",
                    limits_.max_output_bytes));
  }
  text_bytes_ += bytes;
}

void Runtime::TakeValues(uint64_t bytes) {
  if (bytes > kMaxValueBytes || value_bytes_ > kMaxValueBytes - bytes) {
    FailBound(fmt::format("the template holds more than {} bytes of values", kMaxValueBytes));
  }
  value_bytes_ += bytes;
}

void Runtime::Enter() {
  if (depth_ >= limits_.max_depth) {
    FailBound(fmt::format("the template nests deeper than max_depth = {}", limits_.max_depth));
  }
  ++depth_;
}

void Runtime::Keep(std::shared_ptr<Droppable> object) {
  // About what a kept scope or namespace weighs.
  constexpr uint64_t kKeptBytes = 256;
  TakeValues(kKeptBytes);
  kept_.push_back(std::move(object));
}

Lease::Lease(Lease&& other) noexcept
    : rt_(std::exchange(other.rt_, nullptr)),
      text_bytes_(std::exchange(other.text_bytes_, 0)),
      value_bytes_(std::exchange(other.value_bytes_, 0)) {}

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  Release();
  rt_ = std::exchange(other.rt_, nullptr);
  text_bytes_ = std::exchange(other.text_bytes_, 0);
  value_bytes_ = std::exchange(other.value_bytes_, 0);
  return *this;
}

void Lease::GrowText(uint64_t bytes) {
  if (rt_ == nullptr) return;
  rt_->TakeText(bytes);
  text_bytes_ += bytes;
}

void Lease::GrowValues(uint64_t bytes) {
  if (rt_ == nullptr) return;
  rt_->TakeValues(bytes);
  value_bytes_ += bytes;
}

void Lease::Release() {
  if (rt_ != nullptr) rt_->Give(text_bytes_, value_bytes_);
  text_bytes_ = 0;
  value_bytes_ = 0;
}

}  // namespace cleave::jinja
