#include "http/reply.h"

#include <spdlog/spdlog.h>

#include <utility>

namespace cleave {

http::Response ErrorResponse(const openai::ApiError& error) {
  http::Response response;
  response.status = error.status;
  response.body = openai::ErrorBody(error);
  if (error.retry_after_s > 0) {
    response.headers.push_back({"Retry-After", std::to_string(error.retry_after_s)});
  }
  if (error.status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  return response;
}

Reply::Reply(ReplyContext context) : context_(std::move(context)) {}

Reply::~Reply() {
  context_.writer->OnGone(nullptr);
  Count();
}

void Reply::OnGone(std::function<void()> gone) {
  gone_ = std::move(gone);
  context_.writer->OnGone([this] {
    std::function<void()> call = std::exchange(gone_, nullptr);
    if (call) call();  // may end this reply
  });
}

void Reply::AddHeaders(http::Response* response) const {
  response->headers.insert(response->headers.end(), context_.headers.begin(),
                           context_.headers.end());
  response->headers.push_back({"X-Request-Id", context_.request_id});
}

void Reply::Send(http::Response response) {
  AddHeaders(&response);
  status_ = response.status;
  response_bytes_ = response.body.size();
  context_.writer->Send(std::move(response));
  Count();
}

void Reply::SendError(const openai::ApiError& error) { Send(ErrorResponse(error)); }

void Reply::SendJson(std::string body) {
  http::Response response;
  response.body = std::move(body);
  Send(std::move(response));
}

void Reply::StartEvents() {
  http::Response head;
  head.content_type = "text/event-stream; charset=utf-8";
  // Proxies pass each event on at once.
  head.headers.push_back({"Cache-Control", "no-cache"});
  head.headers.push_back({"X-Accel-Buffering", "no"});
  AddHeaders(&head);
  status_ = head.status;
  context_.writer->Start(std::move(head));
}

bool Reply::Write(std::string_view bytes) {
  if (!context_.writer->Write(bytes)) return false;
  response_bytes_ += bytes.size();
  return true;
}

void Reply::FinishWith(std::string_view last) {
  response_bytes_ += last.size();
  context_.writer->FinishWith(last);
  Count();
}

void Reply::Count() {
  if (std::exchange(done_, true)) return;
  const double seconds = SecondsBetween(context_.arrival, SteadyClock::now());
  if (context_.counted) {
    context_.metrics->CountExchange({context_.handler, context_.method, status_, seconds,
                                     context_.request_bytes, response_bytes_});
  }
  if (context_.logged) {
    spdlog::info("{} {} {} in {:.1f} ms, {} bytes, request {}", context_.method, context_.handler,
                 status_, seconds * 1e3, response_bytes_, context_.request_id);
  }
}

}  // namespace cleave
