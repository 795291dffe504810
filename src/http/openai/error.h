#pragma once
// ApiError: what a client is told when a request can not be served, and Parsed<T>, a value or that.
// The body is OpenAI's error object; `code` is the HTTP status as a number, as vLLM's is.

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/status.h"

namespace cleave::openai {

struct ApiError {
  int status = 400;
  std::string type;
  std::string message;
  std::string param;      // field at fault; "" = none
  int retry_after_s = 0;  // 0 = no Retry-After header
};

template <typename T>
class Parsed {
 public:
  Parsed(T value) : state_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Parsed(ApiError error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor)
  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  T& value() { return std::get<0>(state_); }
  [[nodiscard]] const ApiError& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, ApiError> state_;
};

ApiError BadRequest(std::string message, std::string param = {});
ApiError ModelNotFound(std::string_view model);
// 400 invalid, 404 not found, 501 unsupported, 503 exhausted, unavailable or cancelled, with
// Retry-After; 500 the rest.
ApiError FromStatus(const Status& status);
// For errors the server finds by itself: the type follows from the status.
ApiError FromHttpStatus(int http_status, std::string_view message);

// {"error":{"message":…,"type":…,"param":…,"code":…}}
std::string ErrorBody(const ApiError& error);

}  // namespace cleave::openai
