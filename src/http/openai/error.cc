#include "http/openai/error.h"

#include <fmt/format.h>

#include "http/openai/json.h"

namespace cleave::openai {
namespace {

std::string_view TypeOf(int http_status) {
  switch (http_status) {
    case 401:
      return "AuthenticationError";
    case 404:
      return "NotFoundError";
    case 501:
      return "NotImplementedError";
    case 503:
      return "ServiceUnavailableError";
    default:
      return http_status >= 500 ? "InternalServerError" : "BadRequestError";
  }
}

}  // namespace

ApiError BadRequest(std::string message, std::string param) {
  return {400, std::string(TypeOf(400)), std::move(message), std::move(param), 0};
}

ApiError ModelNotFound(std::string_view model) {
  return {404, std::string(TypeOf(404)), fmt::format("The model `{}` does not exist.", model),
          "model", 0};
}

ApiError FromStatus(const Status& status) {
  ApiError error;
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
      error.status = 400;
      break;
    case StatusCode::kNotFound:
      error.status = 404;
      break;
    case StatusCode::kUnsupported:
      error.status = 501;
      break;
    case StatusCode::kResourceExhausted:
    case StatusCode::kUnavailable:
    case StatusCode::kCancelled:
      error.status = 503;
      error.retry_after_s = 1;
      break;
    default:
      error.status = 500;
      break;
  }
  error.type = TypeOf(error.status);
  error.message = status.message();
  return error;
}

ApiError FromHttpStatus(int http_status, std::string_view message) {
  return {http_status, std::string(TypeOf(http_status)), std::string(message), {}, 0};
}

std::string ErrorBody(const ApiError& error) {
  std::string out;
  JsonWriter json(&out);
  json.BeginObject().Key("error").BeginObject();
  json.Key("message").String(error.message);
  json.Key("type").String(error.type);
  json.Key("param");
  if (error.param.empty()) {
    json.Null();
  } else {
    json.String(error.param);
  }
  json.Key("code").Int(error.status).EndObject().EndObject();
  return out;
}

}  // namespace cleave::openai
