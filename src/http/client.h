#pragma once
// Client: one HTTP/1.1 exchange at a time with a server, whole or as a stream of server-sent
// events.
//
// Owner: who talks (cleave chat, later the router's probes). One thread; calls block, each within
// its deadline. A connection is opened for each call. Fails: kInvalidArgument (a URL we cannot
// use), kUnavailable (cannot connect, connection lost, with host and port), kDeadlineExceeded
// (naming what was waited for).

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cleave::http {

struct Url {
  std::string host;
  uint16_t port = 80;
  std::string path;  // without a trailing slash; "" for the root

  // "http://host:port/path", "host:port", "[::1]:80". https is refused: TLS ends before Cleave.
  static Result<Url> Parse(std::string_view text);
  // The root of a server of OpenAI's API: "/v1", in which its clients' base addresses end, is not
  // part of it.
  static Result<Url> ParseServer(std::string_view text);
};

struct ClientOptions {
  std::chrono::milliseconds connect_timeout{5'000};
  std::chrono::milliseconds response_timeout{600'000};  // until the head of the answer
  std::chrono::milliseconds idle_timeout{120'000};      // between bytes of a body
  size_t body_bytes = 64U << 20U;                       // most that is read
  std::string api_key;                                  // sent as a bearer token when not empty
};

struct ClientResponse {
  int status = 0;
  std::string body;
};

class Client {
 public:
  Client(Url url, ClientOptions options) : url_(std::move(url)), options_(std::move(options)) {}

  [[nodiscard]] const Url& url() const { return url_; }
  [[nodiscard]] Result<ClientResponse> Get(const std::string& path) const;
  [[nodiscard]] Result<ClientResponse> Post(const std::string& path, const std::string& json) const;

  // Called with each event's data; false ends the stream early (the connection is closed).
  using OnEvent = std::function<bool(std::string_view data)>;
  // A non-200 answer is returned with its body, without events. kUnavailable when the body ends
  // before it is complete.
  [[nodiscard]] Result<ClientResponse> PostForEvents(const std::string& path,
                                                     const std::string& json,
                                                     const OnEvent& on_event) const;

 private:
  Url url_;
  ClientOptions options_;
};

// Splits a byte stream into server-sent events and hands over each one's data (lines joined by a
// newline). Comments and other fields are skipped. An event is at most 16 MiB.
class EventParser {
 public:
  explicit EventParser(Client::OnEvent on_event) : on_event_(std::move(on_event)) {}
  // False once on_event asked to stop or an event grew too large.
  bool Feed(std::string_view bytes);

 private:
  bool Line(std::string_view line);

  Client::OnEvent on_event_;
  std::string line_;
  std::string data_;
  bool has_data_ = false;
};

}  // namespace cleave::http
