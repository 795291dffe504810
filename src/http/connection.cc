#include "http/connection.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <ctime>
#include <exception>
#include <iterator>
#include <optional>
#include <utility>

#include "http/wire.h"

// The life of a connection:
//
//   kIdle ── bytes ──> kHeader ── header ok ──> kBody ── whole ──> kAnswer ── sent ──> kIdle
//     │ idle timeout       │ malformed, slow, too big: an error answer    │ close
//     └──> kClosed         └──────────────> kAnswer ──> kLinger ──────────┴──> kClosed
//
// One read is pending in kIdle and kAnswer, so that the end of the connection is seen while nothing
// is written; bytes it brings during kAnswer are the start of a pipelined request and stay in
// buffer_. kLinger reads on after the last answer, or the kernel would reset the connection and the
// client might never see the answer.

namespace cleave::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using ErrorCode = boost::system::error_code;
using Tcp = asio::ip::tcp;
using Parser = beast::http::request_parser<beast::http::string_body>;

constexpr size_t kMaxPipelinedBytes = 64U << 10U;
constexpr size_t kReadBytes = 4096;
constexpr Milliseconds kLingerTimeout{2000};
constexpr size_t kKeptBufferBytes = 64U << 10U;

class Exchange;

class Session final : public Connection, public std::enable_shared_from_this<Session> {
 public:
  Session(std::shared_ptr<Core> core, Tcp::socket socket);

  void Start() override { ReadNext(); }
  void SendError(int status, std::string_view message) override;
  void Close() override;
  [[nodiscard]] bool idle() const override { return phase_ == Phase::kIdle; }
  [[nodiscard]] bool leaving() const override { return phase_ == Phase::kAnswer && answer_done_; }
  Core& core() { return *core_; }

  // For Exchange.
  void BeginAnswer(const Response& response, Framing framing);
  void AppendBody(std::string_view bytes);
  void EndAnswer();
  [[nodiscard]] bool chunks_allowed() const { return version_ >= 11; }
  // One write may be of any size; what waits behind it may not, unless it waits for this thread
  // alone (it was stopped, or much came at once): then the socket would take more now.
  [[nodiscard]] bool reader_is_behind() {
    return writing_ && out_.size() > core_->options.limits.stream_buffer_bytes && !Writable();
  }

 private:
  enum class Phase { kIdle, kHeader, kBody, kAnswer, kLinger, kClosed };

  void ReadNext();
  void Monitor();
  void OnMonitor(ErrorCode ec, size_t bytes);
  void ReadHeader();
  void OnHeader(ErrorCode ec);
  [[nodiscard]] std::pair<int, std::string> CheckHeader() const;
  void ReadBody();
  void OnReadError(ErrorCode ec);
  bool ChargeBody(size_t bytes);
  void ReleaseBody();
  void Dispatch();
  void Queue(std::string_view bytes);
  void Flush();
  void WriteSome();
  [[nodiscard]] bool Writable();
  void OnWritten(ErrorCode ec, size_t bytes);
  void AfterAnswer();
  void Linger();
  void Discard(size_t left);
  void ArmRead(Milliseconds timeout);
  void OnReadTimeout();

  const std::shared_ptr<Core> core_;  // shared: outlives the server while an answer is open
  Tcp::socket socket_;
  asio::steady_timer read_timer_;
  asio::steady_timer write_timer_;
  beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::function<void(uint64_t, beast::string_view, ErrorCode&)> on_chunk_;
  size_t chunks_ = 0;
  size_t charged_bytes_ = 0;
  TimePoint arrival_;

  Phase phase_ = Phase::kIdle;
  bool reading_ = false;    // the monitoring read is pending
  bool timed_out_ = false;  // of the header or body being read
  bool head_only_ = false;  // HEAD
  unsigned version_ = 11;
  bool close_ = false;        // after this answer
  bool answer_done_ = false;  // everything of it is queued
  bool begun_ = false;        // its head is queued
  Framing framing_ = Framing::kLength;
  std::weak_ptr<Exchange> exchange_;

  std::string out_;       // queued
  std::string inflight_;  // being written, sent_ bytes of it gone
  size_t sent_ = 0;
  bool writing_ = false;
  bool flush_posted_ = false;
};

class Exchange final : public ResponseWriter {
 public:
  explicit Exchange(std::shared_ptr<Session> session) : session_(std::move(session)) {}
  ~Exchange() override {
    if (ended_) return;
    asio::post(session_->core().io, [session = session_] { session->Close(); });
  }

  void Send(Response response) override {
    if (ended_ || started_) return;
    ended_ = true;
    session_->BeginAnswer(response, Framing::kLength);
    session_->EndAnswer();
  }
  void Start(Response head) override {
    if (ended_ || started_) return;
    started_ = true;
    session_->BeginAnswer(head,
                          session_->chunks_allowed() ? Framing::kChunked : Framing::kUntilClose);
  }
  bool Write(std::string_view bytes) override {
    if (ended_ || !started_) return true;
    if (session_->reader_is_behind()) return false;
    session_->AppendBody(bytes);
    return true;
  }
  void FinishWith(std::string_view last) override {
    if (ended_ || !started_) return;
    ended_ = true;
    session_->AppendBody(last);
    session_->EndAnswer();
  }
  void Abort() override {
    if (ended_) return;
    ended_ = true;
    session_->Close();
  }
  void OnGone(std::function<void()> gone) override { gone_ = std::move(gone); }
  [[nodiscard]] bool ended() const override { return ended_; }

  // The session's word that the client is gone.
  void Gone() {
    if (ended_) return;
    ended_ = true;
    std::function<void()> gone = std::exchange(gone_, nullptr);
    if (gone) gone();
  }

 private:
  const std::shared_ptr<Session> session_;  // shared: pending reads and writes hold it too
  std::function<void()> gone_;
  bool started_ = false;
  bool ended_ = false;
};

Session::Session(std::shared_ptr<Core> core, Tcp::socket socket)
    : core_(std::move(core)),
      socket_(std::move(socket)),
      read_timer_(core_->io),
      write_timer_(core_->io),
      buffer_(core_->options.limits.header_bytes + kMaxPipelinedBytes + kReadBytes),
      on_chunk_([this](uint64_t /*size*/, beast::string_view /*extensions*/, ErrorCode& ec) {
        if (++chunks_ > core_->options.limits.body_chunks) ec = beast::http::error::body_limit;
      }) {
  core_->connections.insert(this);
  core_->connection_count.store(core_->connections.size(), std::memory_order_relaxed);
}

// ---- reading

void Session::ReadNext() {
  phase_ = Phase::kIdle;
  begun_ = false;
  answer_done_ = false;
  if (buffer_.size() == 0) {
    ArmRead(core_->options.limits.idle_timeout);
    Monitor();
  } else if (reading_) {
    // A pipelined request is waiting; OnMonitor goes on with it once the read is off the buffer.
    ErrorCode ignored;
    socket_.cancel(ignored);
  } else {
    ReadHeader();
  }
}

void Session::Monitor() {
  if (reading_ || buffer_.size() >= kMaxPipelinedBytes) return;
  reading_ = true;
  socket_.async_read_some(
      buffer_.prepare(kReadBytes),
      [self = shared_from_this()](ErrorCode ec, size_t bytes) { self->OnMonitor(ec, bytes); });
}

void Session::OnMonitor(ErrorCode ec, size_t bytes) {
  reading_ = false;
  if (!ec) buffer_.commit(bytes);
  if (phase_ == Phase::kIdle) {
    const bool pipelined = ec == asio::error::operation_aborted && buffer_.size() > 0;
    if (ec && !pipelined) return Close();
    return ReadHeader();
  }
  if (phase_ != Phase::kAnswer) return;
  if (ec) return Close();
  Monitor();
}

void Session::ReadHeader() {
  const Limits& limits = core_->options.limits;
  phase_ = Phase::kHeader;
  timed_out_ = false;
  head_only_ = false;
  version_ = 11;
  close_ = true;  // until the header says otherwise
  chunks_ = 0;
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(limits.header_bytes));
  parser_->body_limit(limits.body_bytes);
  parser_->on_chunk_header(on_chunk_);
  ArmRead(limits.header_timeout);
  beast::http::async_read_header(
      socket_, buffer_, *parser_,
      [self = shared_from_this()](ErrorCode ec, size_t) { self->OnHeader(ec); });
}

void Session::OnHeader(ErrorCode ec) {
  if (phase_ == Phase::kClosed) return;
  if (ec || timed_out_) return OnReadError(ec);
  const auto& message = parser_->get();
  arrival_ = SteadyClock::now();
  version_ = message.version();
  head_only_ = message.method() == beast::http::verb::head;
  auto [status, reason] = CheckHeader();
  if (status != 0) return SendError(status, reason);
  close_ = !message.keep_alive() || version_ < 11;
  const auto length = parser_->content_length();
  if (length && !ChargeBody(*length)) return;
  phase_ = Phase::kBody;
  if (message.find(beast::http::field::expect) != message.end() && !parser_->is_done()) {
    Queue("HTTP/1.1 100 Continue\r\n\r\n");
  }
  ArmRead(core_->options.limits.body_timeout);
  ReadBody();
}

// A status and reason to refuse, or 0. What the parser itself accepts too easily is checked here.
std::pair<int, std::string> Session::CheckHeader() const {
  using beast::http::field;
  const Limits& limits = core_->options.limits;
  const auto& message = parser_->get();
  const auto fields = static_cast<size_t>(std::distance(message.begin(), message.end()));
  if (fields > limits.header_count) {
    return {431, fmt::format("the request has {} headers; at most {} are accepted", fields,
                             limits.header_count)};
  }
  if (message.target().size() > limits.target_bytes) {
    return {414, fmt::format("the request target is {} bytes long; at most {} are accepted",
                             message.target().size(), limits.target_bytes)};
  }
  const size_t hosts = message.count(field::host);
  if (hosts > 1 || (hosts == 0 && version_ >= 11)) {
    return {400, "a request needs exactly one Host header"};
  }
  const size_t codings = message.count(field::transfer_encoding);
  if (codings > 0) {
    const auto coding = message[field::transfer_encoding];
    if (codings > 1 || version_ < 11 ||
        !EqualsIgnoreCase({coding.data(), coding.size()}, "chunked")) {
      return {501, "the only transfer encoding supported is chunked"};
    }
  }
  const auto expect = message[field::expect];
  if (!expect.empty() && !EqualsIgnoreCase({expect.data(), expect.size()}, "100-continue")) {
    return {417, "the only expectation supported is 100-continue"};
  }
  return {0, {}};
}

void Session::ReadBody() {
  if (parser_->is_done()) return Dispatch();
  beast::http::async_read_some(
      socket_, buffer_, *parser_, [self = shared_from_this()](ErrorCode ec, size_t) {
        if (self->phase_ != Phase::kBody) return;
        if (ec || self->timed_out_) return self->OnReadError(ec);
        const size_t have = self->parser_->get().body().size();
        if (have > self->charged_bytes_ && !self->ChargeBody(have - self->charged_bytes_)) return;
        self->ReadBody();
      });
}

void Session::OnReadError(ErrorCode ec) {
  using beast::http::error;
  const Limits& limits = core_->options.limits;
  if (timed_out_) {
    const bool header = phase_ == Phase::kHeader;
    const Milliseconds limit = header ? limits.header_timeout : limits.body_timeout;
    return SendError(408, fmt::format("the request {} did not arrive within {} ms",
                                      header ? "header" : "body", limit.count()));
  }
  if (ec == error::header_limit || ec == error::buffer_overflow) {
    return SendError(
        431, fmt::format("the request header is larger than {} bytes", limits.header_bytes));
  }
  if (ec == error::body_limit) {
    return SendError(413, fmt::format("the request body is larger than {} bytes or comes in more "
                                      "than {} chunks",
                                      limits.body_bytes, limits.body_chunks));
  }
  const bool malformed = ec.category() == make_error_code(error::bad_method).category() &&
                         ec != error::end_of_stream && ec != error::partial_message;
  if (!malformed) return Close();
  SendError(400, fmt::format("the request is not valid HTTP/1.1: {}", ec.message()));
}

// False when the bodies of all connections would exceed their limit; the answer is then sent.
bool Session::ChargeBody(size_t bytes) {
  const size_t limit = core_->options.limits.all_bodies_bytes;
  if (bytes > limit - std::min(limit, core_->all_bodies_bytes)) {
    SendError(503,
              fmt::format("request bodies of all connections exceed {} bytes; try again", limit));
    return false;
  }
  core_->all_bodies_bytes += bytes;
  charged_bytes_ += bytes;
  return true;
}

void Session::ReleaseBody() {
  core_->all_bodies_bytes -= charged_bytes_;
  charged_bytes_ = 0;
}

void Session::Dispatch() {
  phase_ = Phase::kAnswer;
  read_timer_.cancel();
  Request request;
  auto& message = parser_->get();
  request.method.assign(message.method_string());
  const auto target = message.target();
  SplitTarget({target.data(), target.size()}, &request.path, &request.query);
  for (const auto& field : message) {
    const auto name = field.name_string();
    const auto value = field.value();
    request.headers.push_back({{name.data(), name.size()}, {value.data(), value.size()}});
  }
  request.body = std::move(message.body());
  request.arrival = arrival_;
  parser_.reset();

  // Shared: the callback keeps it for as long as the answer takes.
  auto exchange = std::make_shared<Exchange>(shared_from_this());
  exchange_ = exchange;
  try {
    core_->on_request(std::move(request), exchange);
  } catch (const std::exception&) {
    // Out of memory, or a fault of ours: this request fails, the server does not.
    close_ = true;
    Response failed;
    failed.status = 500;
    failed.body = core_->options.error_body(500, "internal error");
    exchange->Send(std::move(failed));
    exchange->Abort();  // had it begun to stream
  }
  if (phase_ == Phase::kAnswer && !answer_done_) Monitor();
}

// ---- writing

void Session::SendError(int status, std::string_view message) {
  phase_ = Phase::kAnswer;
  read_timer_.cancel();
  core_->refused.fetch_add(1, std::memory_order_relaxed);
  close_ = true;
  Response response;
  response.status = status;
  response.body = core_->options.error_body(status, message);
  if (status == 503) response.headers.push_back({"Retry-After", "1"});
  BeginAnswer(response, Framing::kLength);
  EndAnswer();
}

void Session::BeginAnswer(const Response& response, Framing framing) {
  if (phase_ == Phase::kClosed) return;
  begun_ = true;
  framing_ = framing;
  if (framing == Framing::kUntilClose || core_->draining) close_ = true;
  HeadOptions head;
  head.framing = framing;
  head.close = close_;
  head.now = std::time(nullptr);
  Queue(FormatHead(response, head));
  AppendBody(response.body);
}

void Session::AppendBody(std::string_view bytes) {
  if (phase_ == Phase::kClosed || head_only_) return;
  if (framing_ == Framing::kChunked) {
    AppendChunk(bytes, &out_);
    Queue({});
  } else {
    Queue(bytes);
  }
}

void Session::EndAnswer() {
  if (phase_ == Phase::kClosed) return;
  answer_done_ = true;
  Queue(framing_ == Framing::kChunked && !head_only_ ? kLastChunk : std::string_view());
}

// Everything queued until the posted flush runs leaves in one write.
void Session::Queue(std::string_view bytes) {
  out_.append(bytes);
  if (flush_posted_) return;
  flush_posted_ = true;
  asio::post(core_->io, [self = shared_from_this()] {
    self->flush_posted_ = false;
    self->Flush();
  });
}

void Session::Flush() {
  if (writing_ || phase_ == Phase::kClosed) return;
  if (out_.empty()) {
    if (phase_ == Phase::kAnswer && answer_done_) AfterAnswer();
    return;
  }
  writing_ = true;
  inflight_.swap(out_);
  sent_ = 0;
  WriteSome();
}

void Session::WriteSome() {
  write_timer_.expires_after(core_->options.limits.write_timeout);
  write_timer_.async_wait([self = shared_from_this()](ErrorCode ec) {
    if (ec || !self->writing_ || self->write_timer_.expiry() > SteadyClock::now()) return;
    self->Close();
  });
  socket_.async_write_some(
      asio::buffer(inflight_.data() + sent_, inflight_.size() - sent_),
      [self = shared_from_this()](ErrorCode ec, size_t bytes) { self->OnWritten(ec, bytes); });
}

bool Session::Writable() {
  pollfd writable{socket_.native_handle(), POLLOUT, 0};
  return ::poll(&writable, 1, 0) == 1 && (writable.revents & POLLOUT) != 0;
}

void Session::OnWritten(ErrorCode ec, size_t bytes) {
  if (phase_ == Phase::kClosed) return;
  if (ec) return Close();
  sent_ += bytes;
  if (sent_ < inflight_.size()) return WriteSome();
  writing_ = false;
  write_timer_.cancel();
  inflight_.clear();
  sent_ = 0;
  if (inflight_.capacity() > kKeptBufferBytes) inflight_ = std::string();
  if (!out_.empty()) return Flush();
  if (answer_done_) AfterAnswer();
}

void Session::AfterAnswer() {
  ReleaseBody();
  if (core_->stopping) return Close();
  if (close_ || core_->draining) return Linger();
  ReadNext();
}

void Session::Linger() {
  phase_ = Phase::kLinger;
  ErrorCode ignored;
  socket_.cancel(ignored);
  socket_.shutdown(Tcp::socket::shutdown_send, ignored);
  ArmRead(kLingerTimeout);
  Discard(core_->options.limits.body_bytes);
}

void Session::Discard(size_t left) {
  buffer_.clear();
  socket_.async_read_some(buffer_.prepare(kReadBytes),
                          [self = shared_from_this(), left](ErrorCode ec, size_t bytes) {
                            if (self->phase_ != Phase::kLinger) return;
                            if (ec || bytes >= left) return self->Close();
                            self->Discard(left - bytes);
                          });
}

// ---- ends and deadlines

void Session::ArmRead(Milliseconds timeout) {
  read_timer_.expires_after(timeout);
  read_timer_.async_wait([self = shared_from_this()](ErrorCode ec) {
    if (!ec && self->read_timer_.expiry() <= SteadyClock::now()) self->OnReadTimeout();
  });
}

void Session::OnReadTimeout() {
  if (phase_ == Phase::kIdle || phase_ == Phase::kLinger) return Close();
  if (phase_ != Phase::kHeader && phase_ != Phase::kBody) return;
  timed_out_ = true;  // the read in progress ends and answers with 408
  ErrorCode ignored;
  socket_.cancel(ignored);
}

void Session::Close() {
  if (phase_ == Phase::kClosed) return;
  ErrorCode ignored;
  const bool all_written = answer_done_ && !writing_ && out_.empty();
  if (phase_ == Phase::kAnswer && begun_ && !all_written) {
    // A reset: a plain close is how an answer without a length ends well.
    socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  }
  phase_ = Phase::kClosed;
  ReleaseBody();
  read_timer_.cancel();
  write_timer_.cancel();
  socket_.close(ignored);
  core_->connections.erase(this);
  core_->connection_count.store(core_->connections.size(), std::memory_order_relaxed);
  if (auto exchange = exchange_.lock()) exchange->Gone();
  const std::function<void()> closed = core_->on_closed;  // it may clear itself
  if (closed) closed();
}

}  // namespace

std::shared_ptr<Connection> MakeConnection(std::shared_ptr<Core> core, Tcp::socket socket) {
  return std::make_shared<Session>(std::move(core), std::move(socket));
}

}  // namespace cleave::http
