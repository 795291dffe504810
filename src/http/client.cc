#include "http/client.h"

#include <fmt/format.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <charconv>
#include <optional>
#include <utility>

namespace cleave::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;

constexpr size_t kMaxEventBytes = 16U << 20U;

// One connection; each step runs the private io_context until its own operation is done or late.
class Exchange {
 public:
  Exchange(const Url& url, const ClientOptions& options) : url_(url), options_(options) {}

  Status Connect();
  Status Send(beast::http::verb verb, const std::string& path, const std::string& body,
              std::string_view accept);
  Status ReadHead();
  // The next stretch of the body; empty at its end.
  Result<std::string> ReadSome();
  [[nodiscard]] int status() const { return parser_->get().result_int(); }

 private:
  using Parser = beast::http::response_parser<beast::http::buffer_body>;

  [[nodiscard]] std::string Peer() const { return fmt::format("{}:{}", url_.host, url_.port); }
  Status Error(const error_code& error, std::string_view what) const {
    if (error == beast::error::timeout) {
      return DeadlineExceeded(fmt::format("{}: no answer in time while {}", Peer(), what));
    }
    return Unavailable(fmt::format("{}: {} failed: {}", Peer(), what, error.message()));
  }
  template <typename Start>
  error_code Run(std::chrono::milliseconds timeout, Start start) {
    error_code result = asio::error::would_block;
    stream_.expires_after(timeout);
    start([&result](const error_code& error, auto&&...) { result = error; });
    io_.restart();
    io_.run();
    return result;
  }

  const Url& url_;
  const ClientOptions& options_;
  asio::io_context io_;
  beast::tcp_stream stream_{io_};
  beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
};

Status Exchange::Connect() {
  asio::ip::tcp::resolver resolver(io_);
  error_code error;
  const auto endpoints = resolver.resolve(url_.host, std::to_string(url_.port), error);
  if (error) return Error(error, "looking the name up");
  error = Run(options_.connect_timeout, [&](auto done) {
    stream_.async_connect(endpoints, [done](const error_code& e, const auto&) mutable { done(e); });
  });
  if (error) return Error(error, "connecting");
  error_code ignored;
  stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
  return OkStatus();
}

Status Exchange::Send(beast::http::verb verb, const std::string& path, const std::string& body,
                      std::string_view accept) {
  beast::http::request<beast::http::string_body> request(verb, url_.path + path, 11);
  request.set(beast::http::field::host, Peer());
  request.set(beast::http::field::user_agent, "cleave");
  request.set(beast::http::field::accept, beast::string_view(accept.data(), accept.size()));
  request.set(beast::http::field::connection, "close");
  if (!options_.api_key.empty()) {
    request.set(beast::http::field::authorization, "Bearer " + options_.api_key);
  }
  if (!body.empty()) request.set(beast::http::field::content_type, "application/json");
  request.body() = body;
  request.prepare_payload();
  const error_code error = Run(options_.idle_timeout, [&](auto done) {
    beast::http::async_write(stream_, request, std::move(done));
  });
  return error ? Error(error, "sending the request") : OkStatus();
}

Status Exchange::ReadHead() {
  parser_.emplace();
  parser_->body_limit(options_.body_bytes);
  const error_code error = Run(options_.response_timeout, [&](auto done) {
    beast::http::async_read_header(stream_, buffer_, *parser_, std::move(done));
  });
  return error ? Error(error, "waiting for the answer") : OkStatus();
}

Result<std::string> Exchange::ReadSome() {
  std::string piece(16384, '\0');
  while (!parser_->is_done()) {
    auto& body = parser_->get().body();
    body.data = piece.data();
    body.size = piece.size();
    const error_code error = Run(options_.idle_timeout, [&](auto done) {
      beast::http::async_read_some(stream_, buffer_, *parser_, std::move(done));
    });
    if (error && error != beast::http::error::need_buffer)
      return Error(error, "reading the answer");
    if (body.size < piece.size()) {
      piece.resize(piece.size() - body.size);
      return piece;
    }
  }
  return std::string();
}

Result<ClientResponse> ReadWhole(Exchange* exchange) {
  ClientResponse response;
  response.status = exchange->status();
  for (;;) {
    ASSIGN_OR_RETURN(const std::string piece, exchange->ReadSome());
    if (piece.empty()) return response;
    response.body += piece;
  }
}

}  // namespace

Result<Url> Url::Parse(std::string_view text) {
  const std::string whole(text);
  if (text.starts_with("https://")) {
    return InvalidArgument(whole +
                           ": https is not spoken here; give the plain http address behind it");
  }
  if (text.starts_with("http://")) text.remove_prefix(7);
  Url url;
  const size_t slash = text.find('/');
  if (slash != std::string_view::npos) url.path = std::string(text.substr(slash));
  while (url.path.ends_with('/')) url.path.pop_back();
  std::string_view authority = text.substr(0, slash);
  const bool bracketed = authority.starts_with('[');
  const size_t host_end = bracketed ? authority.find(']') : authority.find(':');
  if (bracketed && host_end == std::string_view::npos) {
    return InvalidArgument(whole + ": no ']' after the IPv6 address");
  }
  url.host = std::string(authority.substr(bracketed ? 1 : 0, bracketed ? host_end - 1 : host_end));
  const size_t colon = bracketed ? host_end + 1 : host_end;
  if (colon < authority.size()) {
    const std::string_view port = authority.substr(colon + 1);
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), url.port);
    if (authority[colon] != ':' || error != std::errc() || end != port.data() + port.size() ||
        url.port == 0) {
      return InvalidArgument(whole + ": the port must be a number from 1 to 65535");
    }
  }
  if (url.host.empty()) return InvalidArgument(whole + ": no host in this address");
  return url;
}

Result<Url> Url::ParseServer(std::string_view text) {
  constexpr std::string_view kVersion = "/v1";
  ASSIGN_OR_RETURN(Url url, Parse(text));
  if (url.path.ends_with(kVersion)) url.path.resize(url.path.size() - kVersion.size());
  while (url.path.ends_with('/')) url.path.pop_back();
  return url;
}

Result<ClientResponse> Client::Get(const std::string& path) const {
  Exchange exchange(url_, options_);
  RETURN_IF_ERROR(exchange.Connect());
  RETURN_IF_ERROR(exchange.Send(beast::http::verb::get, path, "", "application/json"));
  RETURN_IF_ERROR(exchange.ReadHead());
  return ReadWhole(&exchange);
}

Result<ClientResponse> Client::Post(const std::string& path, const std::string& json) const {
  Exchange exchange(url_, options_);
  RETURN_IF_ERROR(exchange.Connect());
  RETURN_IF_ERROR(exchange.Send(beast::http::verb::post, path, json, "application/json"));
  RETURN_IF_ERROR(exchange.ReadHead());
  return ReadWhole(&exchange);
}

Result<ClientResponse> Client::PostForEvents(const std::string& path, const std::string& json,
                                             const OnEvent& on_event) const {
  Exchange exchange(url_, options_);
  RETURN_IF_ERROR(exchange.Connect());
  RETURN_IF_ERROR(exchange.Send(beast::http::verb::post, path, json, "text/event-stream"));
  RETURN_IF_ERROR(exchange.ReadHead());
  if (exchange.status() != 200) return ReadWhole(&exchange);
  EventParser parser(on_event);
  for (;;) {
    ASSIGN_OR_RETURN(const std::string piece, exchange.ReadSome());
    if (piece.empty() || !parser.Feed(piece)) return ClientResponse{.status = 200, .body = ""};
  }
}

bool EventParser::Feed(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    line_.append(bytes.substr(0, end));
    if (line_.size() + data_.size() > kMaxEventBytes) return false;
    if (end == std::string_view::npos) return true;
    bytes.remove_prefix(end + 1);
    if (line_.ends_with('\r')) line_.pop_back();
    const bool go_on = Line(line_);
    line_.clear();
    if (!go_on) return false;
  }
  return true;
}

bool EventParser::Line(std::string_view line) {
  if (line.empty()) {
    if (!has_data_) return true;
    has_data_ = false;
    const std::string data = std::exchange(data_, "");
    return on_event_(data);
  }
  if (!line.starts_with("data:")) return true;
  line.remove_prefix(5);
  if (line.starts_with(' ')) line.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += line;
  has_data_ = true;
  return true;
}

}  // namespace cleave::http
