#pragma once
// Server: HTTP/1.1 on one thread. It reads whole requests within declared limits and hands each to
// a callback with a writer for its one answer: sent at once, or streamed in chunks.
//
// Owner: cli. Threads: Listen, Start, Post, PostAfter, StartDrain, Stop and the getters from any;
// the callback, posted functions and every ResponseWriter method run on the server's own thread
// only. Bounded: connections, header, body and stream buffer bytes, and the time of each phase
// (Limits). A connection is read while its request is answered, so a client that leaves is noticed
// at once; a half-closed client counts as gone. Pipelined requests are answered in order, one at a
// time. Fails: Listen with kUnavailable naming the address. Requests never fail the server.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace cleave::http {

struct Header {
  std::string name;
  std::string value;
};

struct Request {
  std::string method;  // upper case, as sent
  std::string path;    // target without query, fragment and authority; not percent-decoded
  std::string query;   // after '?', else empty
  std::vector<Header> headers;
  std::string body;
  TimePoint arrival;  // when its header was complete

  // The first header of that name (any case), or null.
  [[nodiscard]] const std::string* Find(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";  // "" = none
  std::vector<Header> headers;
  std::string body;
};

// The one answer to a request. After Send, Finish or Abort, or once the client is gone, further
// calls do nothing. Dropping the last reference without an end cuts the connection: an answer that
// was not finished never looks finished.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;
  virtual void Send(Response response) = 0;
  // Begins a stream; `head.body` is its first part.
  virtual void Start(Response head) = 0;
  // Queues bytes of a stream. What is queued during one posted function or request callback leaves
  // in one write. False, and nothing is queued, while more than Limits::stream_buffer_bytes wait
  // behind a write that the socket does not take: the reader is too slow, and the stream should end
  // with a reason.
  virtual bool Write(std::string_view bytes) = 0;
  // Ends a stream; `last` is taken however slow the reader is. One that then takes nothing for
  // Limits::write_timeout is cut off by a reset, which nobody takes for an end.
  virtual void FinishWith(std::string_view last) = 0;
  void Finish() { FinishWith({}); }
  virtual void Abort() = 0;
  // Called once if the client leaves, or takes nothing for Limits::write_timeout, before the end;
  // never after it.
  virtual void OnGone(std::function<void()> gone) = 0;
  [[nodiscard]] virtual bool ended() const = 0;
};

using Milliseconds = std::chrono::milliseconds;

struct Limits {
  size_t header_bytes = 32U << 10U;  // request line and headers together
  size_t header_count = 256;
  size_t target_bytes = 8U << 10U;
  size_t body_bytes = 16U << 20U;
  size_t body_chunks = 65536;                // of one chunked body
  size_t all_bodies_bytes = 256U << 20U;     // being received or answered, all connections
  size_t connections = 1024;                 // beyond: 503, and beyond 64 of those: not accepted
  size_t stream_buffer_bytes = 256U << 10U;  // of a stream, behind the write in progress
  Milliseconds idle_timeout{75'000};         // between requests
  Milliseconds header_timeout{10'000};       // first byte to end of header
  Milliseconds body_timeout{60'000};         // end of header to end of body
  Milliseconds write_timeout{30'000};        // without any byte taken by the client
};

class Server {
 public:
  using OnRequest = std::function<void(Request&&, std::shared_ptr<ResponseWriter>)>;
  struct Options {
    std::string host = "127.0.0.1";
    uint16_t port = 0;  // 0: the system picks one, see port()
    Limits limits;
    // The body of an answer the server gives by itself: 400, 408, 413, 414, 417, 431, 501, 503.
    std::function<std::string(int status, std::string_view message)> error_body;
  };
  struct Counts {
    size_t connections = 0;
    uint64_t refused = 0;  // answered by the server itself
  };

  // Binds; connections wait until Start.
  static Result<std::unique_ptr<Server>> Listen(Options options, OnRequest on_request);
  virtual ~Server() = default;  // as Stop with no grace

  virtual void Start() = 0;

  [[nodiscard]] virtual uint16_t port() const = 0;
  // Runs `work` on the server's thread; dropped after Stop.
  virtual void Post(std::function<void()> work) = 0;
  virtual void PostAfter(Milliseconds delay, std::function<void()> work) = 0;
  // Answers from now on close their connection; idle connections close now. Still listens.
  virtual void StartDrain() = 0;
  // Accepts nothing more, cuts what is unfinished, gives complete answers `grace` to leave and
  // joins the thread. Idempotent; not from the server's thread.
  virtual void Stop(Milliseconds grace) = 0;
  [[nodiscard]] virtual Counts counts() const = 0;
};

}  // namespace cleave::http
