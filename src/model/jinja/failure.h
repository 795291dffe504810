#pragma once
// Failure: how an error travels inside this folder. It is thrown deep in the interpreter and caught
// in template.cc, which turns it into a Status; it never leaves the folder.

#include <exception>
#include <string>
#include <utility>

#include "base/status.h"

namespace cleave::jinja {

// Whether the message still wants "line N: " in front.
enum class Located { kNo, kYes };

class Failure : public std::exception {
 public:
  Failure(StatusCode code, std::string message, Located located)
      : code_(code), message_(std::move(message)), located_(located) {}

  [[nodiscard]] const char* what() const noexcept override { return message_.c_str(); }
  [[nodiscard]] const std::string& message() const { return message_; }
  [[nodiscard]] StatusCode code() const { return code_; }
  [[nodiscard]] Located located() const { return located_; }

 private:
  StatusCode code_;
  std::string message_;
  Located located_;
};

// The template or its input is wrong.
[[noreturn]] inline void Fail(std::string message) {
  throw Failure(StatusCode::kInvalidArgument, std::move(message), Located::kNo);
}
// A bound of Limits is reached; the message names it.
[[noreturn]] inline void FailBound(std::string message) {
  throw Failure(StatusCode::kResourceExhausted, std::move(message), Located::kNo);
}

}  // namespace cleave::jinja
