#pragma once
// Reply: the answer to one request of the API: the server's writer, with the headers every answer
// carries, counted and logged once when it ends.
//
// Owner: whoever answers. Thread: the server's.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "http/openai/error.h"
#include "http/server.h"
#include "metrics/metrics.h"

namespace cleave {

struct ReplyContext {
  std::shared_ptr<http::ResponseWriter> writer;  // shared: the connection keeps it too
  ServerMetrics* metrics = nullptr;
  std::string handler;     // the route's pattern
  std::string method;      // of the request
  std::string request_id;  // echoed in X-Request-Id
  std::vector<http::Header> headers;
  TimePoint arrival;
  size_t request_bytes = 0;
  bool counted = true;  // in http_… metrics
  bool logged = true;
};

class Reply {
 public:
  explicit Reply(ReplyContext context);
  ~Reply();
  Reply(const Reply&) = delete;
  Reply& operator=(const Reply&) = delete;

  void Send(http::Response response);
  void SendError(const openai::ApiError& error);
  void SendJson(std::string body);
  void StartEvents();  // a stream of server-sent events
  // As ResponseWriter's.
  bool Write(std::string_view bytes);
  void FinishWith(std::string_view last);
  // Called when the client leaves before the end.
  void OnGone(std::function<void()> gone);
  [[nodiscard]] bool ended() const { return context_.writer->ended(); }
  [[nodiscard]] const std::string& request_id() const { return context_.request_id; }

 private:
  void AddHeaders(http::Response* response) const;
  void Count();

  const ReplyContext context_;
  std::function<void()> gone_;
  int status_ = 499;  // what logs show of a client that left first
  size_t response_bytes_ = 0;
  bool done_ = false;
};

http::Response ErrorResponse(const openai::ApiError& error);

}  // namespace cleave
