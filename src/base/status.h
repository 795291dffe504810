#pragma once
// Status and Result<T>: errors as values.
//
// A Status is a code and a message that names the thing, the limit and the fix, in lower case:
//   return InvalidArgument("max_tokens must be at least 1, got 0");
//   Result<MappedFile> f = MappedFile::Open(path);
//   if (!f.ok()) return f.status();
// Values own themselves; any thread. Nothing in the libraries throws across a public header or
// ends the process: only main() does.

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace cleave {

enum class StatusCode {
  kOk,
  kInvalidArgument,    // the caller's input is wrong; the message names the field
  kNotFound,           // no such file, model or name
  kUnsupported,        // understood, but not something this build can do
  kDataLoss,           // a file or a peer's message is damaged; expected and real sizes are named
  kResourceExhausted,  // a declared limit is reached
  kUnavailable,        // not now: loading, draining, queue full
  kDeadlineExceeded,   // a wait ended; the message names who was waited for
  kCancelled,          // the client went away or asked to stop
  kInternal,           // a fault of ours
};

// "invalid_argument", "data_loss", …
std::string_view StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  [[nodiscard]] bool ok() const { return code_ == StatusCode::kOk; }
  [[nodiscard]] StatusCode code() const { return code_; }
  [[nodiscard]] const std::string& message() const { return message_; }
  // The same code with "context: " before the message; ok stays ok.
  [[nodiscard]] Status Annotate(std::string_view context) const;
  // "data_loss: model.gguf: …", or "ok".
  [[nodiscard]] std::string ToString() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status OkStatus() { return {}; }
inline Status InvalidArgument(std::string m) {
  return {StatusCode::kInvalidArgument, std::move(m)};
}
inline Status NotFound(std::string m) { return {StatusCode::kNotFound, std::move(m)}; }
inline Status Unsupported(std::string m) { return {StatusCode::kUnsupported, std::move(m)}; }
inline Status DataLoss(std::string m) { return {StatusCode::kDataLoss, std::move(m)}; }
inline Status ResourceExhausted(std::string m) {
  return {StatusCode::kResourceExhausted, std::move(m)};
}
inline Status Unavailable(std::string m) { return {StatusCode::kUnavailable, std::move(m)}; }
inline Status DeadlineExceeded(std::string m) {
  return {StatusCode::kDeadlineExceeded, std::move(m)};
}
inline Status Cancelled(std::string m) { return {StatusCode::kCancelled, std::move(m)}; }
inline Status Internal(std::string m) { return {StatusCode::kInternal, std::move(m)}; }

// Ends the process with both facts printed: for errors of the programmer only. Input from a user,
// a file or a peer never reaches it.
[[noreturn]] void CheckFailed(const char* file, int line, const char* expression);

// A value, or why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return value_.has_value(); }
  [[nodiscard]] const Status& status() const { return status_; }

  T& value() & { return *Checked(); }
  const T& value() const& { return *const_cast<Result*>(this)->Checked(); }
  T&& value() && { return std::move(*Checked()); }
  T* operator->() { return Checked(); }
  const T* operator->() const { return const_cast<Result*>(this)->Checked(); }
  T& operator*() & { return *Checked(); }
  const T& operator*() const& { return *const_cast<Result*>(this)->Checked(); }
  T&& operator*() && { return std::move(*Checked()); }

 private:
  T* Checked() {
    if (!value_.has_value()) CheckFailed(__FILE__, __LINE__, status_.message().c_str());
    return &*value_;
  }

  std::optional<T> value_;
  Status status_;
};

}  // namespace cleave

#define CLEAVE_CONCAT_INNER(a, b) a##b
#define CLEAVE_CONCAT(a, b) CLEAVE_CONCAT_INNER(a, b)

// Returns from the enclosing function when `expr` (a Status) is not ok.
#define RETURN_IF_ERROR(expr)                        \
  do {                                               \
    ::cleave::Status cleave_status_ = (expr);        \
    if (!cleave_status_.ok()) return cleave_status_; \
  } while (false)

// ASSIGN_OR_RETURN(auto file, MappedFile::Open(path));
#define ASSIGN_OR_RETURN(lhs, expr) \
  ASSIGN_OR_RETURN_INNER(CLEAVE_CONCAT(cleave_result_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_INNER(tmp, lhs, expr) \
  auto tmp = (expr);                           \
  if (!tmp.ok()) return tmp.status();          \
  lhs = std::move(tmp).value()

// Programmer errors only; see CheckFailed.
#define CLEAVE_CHECK(condition)                                              \
  do {                                                                       \
    if (!(condition)) ::cleave::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)
