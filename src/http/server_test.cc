#include "http/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "base/rng.h"
#include "http/testing/raw_client.h"

namespace cleave::http {
namespace {

using testing::GetText;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::PostText;
using testing::RawClient;
using testing::RawResponse;

std::string ErrorText(int status, std::string_view message) {
  return std::to_string(status) + " " + std::string(message);
}

// A flag another thread sets and a test waits for, which takes it down again.
class Flag {
 public:
  void Set() {
    std::lock_guard<std::mutex> lock(mu_);
    set_ = true;
    changed_.notify_all();
  }
  bool Wait() {
    std::unique_lock<std::mutex> lock(mu_);
    changed_.wait_for(lock, std::chrono::seconds(10), [this] { return set_; });
    return std::exchange(set_, false);
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  bool set_ = false;
};

// Answers with what it received: method, path, query and body; /stream starts a stream and leaves
// it open; /hold answers nothing.
class ServerTest : public ::testing::Test {
 protected:
  void Listen(const Limits& limits = {}) {
    Server::Options options;
    options.limits = limits;
    options.error_body = ErrorText;
    auto server = Server::Listen(std::move(options), [this](Request&& r, auto writer) {
      OnRequest(std::move(r), std::move(writer));
    });
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = std::move(server).value();
    server_->Start();
  }

  void OnRequest(Request&& request, std::shared_ptr<ResponseWriter> writer) {
    ++requests_;
    if (request.path == "/throw") throw std::runtime_error("fault");
    if (request.path == "/drop") return;  // the last reference goes with it
    writer->OnGone([this] { gone_.Set(); });
    if (request.path == "/hold" || request.path == "/stream") {
      if (request.path == "/stream") {
        Response head;
        head.content_type = "text/event-stream";
        writer->Start(std::move(head));
      }
      open_ = std::move(writer);
      opened_.Set();
      return;
    }
    Response response;
    response.content_type = "text/plain";
    response.body = request.method + " " + request.path + " " + request.query + " " + request.body;
    writer->Send(std::move(response));
  }

  // Runs on the server's thread and waits for it.
  void OnServer(std::function<void()> work) {
    Flag done;
    server_->Post([&] {
      work();
      done.Set();
    });
    ASSERT_TRUE(done.Wait());
  }

  // Writes to open_ until its reader is too slow; the bytes that were taken.
  size_t WriteUntilRefused() {
    constexpr size_t kBytes = 16U << 10U;
    written_ = 0;
    bool taken = true;
    for (int i = 0; i < 2000 && taken; ++i) {
      OnServer([&] { taken = open_->Write(std::string(kBytes, 'x')); });
      if (taken) written_ += kBytes;
    }
    EXPECT_FALSE(taken);
    return written_;
  }

  bool WaitNoConnections() {
    const TimePoint deadline = SteadyClock::now() + std::chrono::seconds(10);
    while (server_->counts().connections > 0 && SteadyClock::now() < deadline) {
      std::this_thread::yield();
    }
    return server_->counts().connections == 0;
  }

  void TearDown() override {
    if (server_ == nullptr) return;
    OnServer([this] { open_.reset(); });
    server_->Stop(Milliseconds(0));
  }

  RawResponse One(std::string_view bytes, std::string_view method = "GET") {
    RawClient client(server_->port());
    client.Send(bytes);
    return client.Read(method);
  }

  std::unique_ptr<Server> server_;
  std::atomic<int> requests_{0};
  size_t written_ = 0;
  std::shared_ptr<ResponseWriter> open_;  // server thread
  Flag opened_;
  Flag gone_;
};

TEST_F(ServerTest, KeepsConnectionsAlive) {
  Listen();
  RawClient client(server_->port());
  for (int i = 0; i < 3; ++i) {
    client.Send(PostText("/echo?x=1", "body" + std::to_string(i)));
    const RawResponse r = client.Read();
    EXPECT_EQ(r.status, 200);
    EXPECT_EQ(r.body, "POST /echo x=1 body" + std::to_string(i));
    EXPECT_TRUE(r.headers.count("date"));
    EXPECT_FALSE(r.headers.count("connection"));
  }
  client.Send(GetText("/last", "Connection: close\r\n"));
  EXPECT_EQ(client.Read().headers["connection"], "close");
  EXPECT_TRUE(client.Closed());
}

TEST_F(ServerTest, AnswersPipelinedRequestsInOrder) {
  Listen();
  RawClient client(server_->port());
  std::string all;
  for (int i = 0; i < 200; ++i) all += PostText("/p" + std::to_string(i), "b");
  client.Send(all);
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(client.Read().body, "POST /p" + std::to_string(i) + "  b");
  }
}

TEST_F(ServerTest, AnswersWhatWasPipelinedBehindAnOpenAnswer) {
  Listen();
  RawClient client(server_->port());
  client.Send(GetText("/hold") + GetText("/next"));
  ASSERT_TRUE(opened_.Wait());
  client.Send(GetText("/third"));
  OnServer([this] {
    Response response;
    response.body = "held";
    open_->Send(std::move(response));
  });
  EXPECT_EQ(client.Read().body, "held");
  EXPECT_EQ(client.Read().body, "GET /next  ");
  EXPECT_EQ(client.Read().body, "GET /third  ");
}

TEST_F(ServerTest, ReadsChunkedBodies) {
  Listen();
  const RawResponse r =
      One("POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n"
          "5;ext=1\r\nhello\r\n6\r\n world\r\n0\r\nTrailer: x\r\n\r\n");
  EXPECT_EQ(r.body, "POST /c  hello world");
}

TEST_F(ServerTest, AnswersTheSameHoweverBytesAreCut) {
  Listen();
  const std::string bytes = PostText("/first", "one") +
                            "POST /second HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                            "3\r\ntwo\r\n0\r\n\r\n" +
                            GetText("/third");
  RngStream rng(7);
  for (int round = 0; round < 20; ++round) {
    RawClient client(server_->port());
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = std::min<size_t>(1 + rng.Below(round % 2 == 0 ? 3 : 60), bytes.size() - at);
      ASSERT_TRUE(client.Send(std::string_view(bytes).substr(at, n)));
      at += n;
    }
    EXPECT_EQ(client.Read().body, "POST /first  one");
    EXPECT_EQ(client.Read().body, "POST /second  two");
    EXPECT_EQ(client.Read().body, "GET /third  ");
  }
}

TEST_F(ServerTest, RefusesWhatIsNotWellFormed) {
  Limits limits;
  limits.header_bytes = 2048;
  limits.header_count = 20;
  limits.target_bytes = 256;
  limits.body_bytes = 1000;
  limits.body_chunks = 10;
  Listen(limits);
  const std::string post = "POST / HTTP/1.1\r\nHost: a\r\n";
  std::string many;
  for (int i = 0; i < 30; ++i) many += "X-" + std::to_string(i) + ": 1\r\n";
  std::string chunks;
  for (int i = 0; i < 11; ++i) chunks += "1\r\na\r\n";
  struct Case {
    std::string bytes;
    int status;
    const char* says;
  };
  const Case cases[] = {
      {"GET / HTTP/1.1\r\n\r\n", 400, "exactly one Host"},
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "exactly one Host"},
      {post + "Transfer-Encoding: xchunked\r\n\r\n", 501, "chunked"},
      {post + "Transfer-Encoding: chunked, identity\r\n\r\n", 501, "chunked"},
      {post + "Transfer-Encoding: gzip, chunked\r\n\r\n", 501, "chunked"},
      {post + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", 400, "not valid"},
      {post + "Content-Length: 3\r\nContent-Length: 4\r\n\r\n", 400, "not valid"},
      {post + "Content-Length: +4\r\n\r\n", 400, "not valid"},
      {post + "Content-Length: 99999999999999999999999\r\n\r\n", 400, "not valid"},
      {post + "Content-Length: 1001\r\n\r\n", 413, "1000 bytes"},
      {post + "Transfer-Encoding: chunked\r\n\r\n3e9\r\n", 413, "1000 bytes"},
      {post + "Transfer-Encoding: chunked\r\n\r\n" + chunks, 413, "10 chunks"},
      {post + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", 400, "not valid"},
      {post + "Transfer-Encoding: chunked\r\n\r\n-1\r\n", 400, "not valid"},
      {post + "Expect: 200-maybe\r\nContent-Length: 1\r\n\r\n", 417, "100-continue"},
      {"GET / HTTP/1.1\r\nHost: a\r\n" + many + "\r\n", 431, "31 headers"},
      {"GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(4000, 'x') + "\r\n\r\n", 431, "2048"},
      {"GET /" + std::string(300, 'p') + " HTTP/1.1\r\nHost: a\r\n\r\n", 414, "256"},
      {"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400, "not valid"},
      {"GET / HTTP/1.1\nHost: a\n\n", 400, "not valid"},
      {"GET / HTTP/9.9\r\nHost: a\r\n\r\n", 400, "not valid"},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "not valid"},
      {"\x16\x03\x01\x02", 400, "not valid"},
      {std::string("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", 28), 400, "not valid"},
  };
  for (const Case& c : cases) {
    RawClient client(server_->port());
    client.Send(c.bytes);
    const RawResponse r = client.Read();
    EXPECT_EQ(r.status, c.status) << c.bytes;
    EXPECT_THAT(r.body, HasSubstr(c.says)) << c.bytes;
    EXPECT_TRUE(client.Closed()) << c.bytes;
  }
  EXPECT_EQ(requests_, 0);
  EXPECT_EQ(server_->counts().refused, std::size(cases));
  EXPECT_EQ(One(GetText("/fine")).status, 200);
}

TEST_F(ServerTest, AnswersABodyThatIsTooLargeWhileItIsStillSent) {
  Limits limits;
  limits.body_bytes = 1 << 20;
  Listen(limits);
  RawClient client(server_->port());
  client.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1500000\r\n\r\n");
  client.Send(std::string(1'500'000, 'x'));
  EXPECT_EQ(client.Read().status, 413);
}

TEST_F(ServerTest, ContinuesOn100Continue) {
  Listen();
  RawClient client(server_->port());
  client.Send("POST /e HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.Read().status, 100);
  client.Send("hi");
  EXPECT_EQ(client.Read().body, "POST /e  hi");
}

TEST_F(ServerTest, AnswersHeadWithoutABody) {
  Listen();
  RawClient client(server_->port());
  client.Send("HEAD /h HTTP/1.1\r\nHost: a\r\n\r\n");
  const RawResponse r = client.Read("HEAD");
  EXPECT_EQ(r.status, 200);
  EXPECT_EQ(r.headers.at("content-length"), "9");
  client.Send(GetText("/after"));
  EXPECT_EQ(client.Read().body, "GET /after  ");
}

TEST_F(ServerTest, SpeaksHttp10) {
  Listen();
  RawClient client(server_->port());
  client.Send("GET /old HTTP/1.0\r\n\r\n");
  EXPECT_EQ(client.Read().body, "GET /old  ");
  EXPECT_TRUE(client.Closed());
  RawClient streaming(server_->port());
  streaming.Send("GET /stream HTTP/1.0\r\n\r\n");
  ASSERT_TRUE(opened_.Wait());
  OnServer([this] {
    open_->Write("plain");
    open_->Finish();
  });
  const RawResponse r = streaming.Read();
  EXPECT_EQ(r.body, "plain");
  EXPECT_FALSE(r.headers.count("transfer-encoding"));
}

TEST_F(ServerTest, TimesOutSlowHeadersBodiesAndIdleConnections) {
  Limits limits;
  limits.idle_timeout = limits.header_timeout = limits.body_timeout = Milliseconds(150);
  Listen(limits);
  RawClient idle(server_->port());
  RawClient header(server_->port());
  RawClient body(server_->port());
  header.Send("GET / HT");
  body.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
  const RawResponse h = header.Read();
  EXPECT_EQ(h.status, 408);
  EXPECT_THAT(h.body, HasSubstr("header did not arrive within 150 ms"));
  const RawResponse b = body.Read();
  EXPECT_EQ(b.status, 408);
  EXPECT_THAT(b.body, HasSubstr("body did not arrive"));
  EXPECT_TRUE(idle.Closed());
  EXPECT_EQ(requests_, 0);
}

// Bytes that trickle in do not move the deadline.
TEST_F(ServerTest, TimesOutTricklingHeaders) {
  Limits limits;
  limits.header_timeout = Milliseconds(300);
  Listen(limits);
  RawClient client(server_->port());
  client.set_deadline(Milliseconds(20));
  const std::string bytes = GetText("/slow", "X-Long: " + std::string(500, 'x') + "\r\n");
  RawResponse r;
  for (size_t i = 0; i < bytes.size() && r.status == 0; ++i) {
    if (!client.Send(bytes.substr(i, 1))) break;
    r = client.Read();
  }
  EXPECT_EQ(r.status, 408);
}

TEST_F(ServerTest, BoundsConnections) {
  Limits limits;
  limits.connections = 2;
  Listen(limits);
  RawClient a(server_->port());
  RawClient b(server_->port());
  a.Send(GetText("/a"));
  b.Send(GetText("/b"));
  EXPECT_EQ(a.Read().status, 200);
  EXPECT_EQ(b.Read().status, 200);
  RawClient c(server_->port());
  const RawResponse r = c.Read();
  EXPECT_EQ(r.status, 503);
  EXPECT_EQ(r.headers.at("retry-after"), "1");
  a.Close();
  c.Close();
  // Once the server saw both leave, there is room again.
  int status = 503;
  for (int i = 0; i < 1000 && status != 200; ++i) {
    RawClient d(server_->port());
    d.Send(GetText("/d"));
    status = d.Read().status;
  }
  EXPECT_EQ(status, 200);
}

TEST_F(ServerTest, BoundsTheBodiesOfAllConnections) {
  Limits limits;
  limits.all_bodies_bytes = 1000;
  Listen(limits);
  RawClient holder(server_->port());
  holder.Send("POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n" +
              std::string(900, 'x'));
  ASSERT_TRUE(opened_.Wait());
  EXPECT_EQ(One(PostText("/x", std::string(101, 'y'))).status, 503);
  const std::string chunk = "65\r\n" + std::string(101, 'y') + "\r\n0\r\n\r\n";
  EXPECT_EQ(One("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk).status,
            503);
  EXPECT_EQ(One(PostText("/x", std::string(100, 'y'))).status, 200);
  OnServer([this] { open_->Send({}); });
  EXPECT_EQ(holder.Read().status, 200);
  EXPECT_EQ(One(PostText("/x", std::string(1000, 'y'))).status, 200);
}

TEST_F(ServerTest, StreamsInChunks) {
  Listen();
  RawClient client(server_->port());
  client.Send(GetText("/stream"));
  ASSERT_TRUE(opened_.Wait());
  OnServer([this] { open_->Write("first "); });
  EXPECT_THAT(client.ReadUntil("first "), HasSubstr("first "));
  OnServer([this] {
    open_->Write("second");
    open_->Write("");
    open_->Finish();
    open_->Write("never");
    EXPECT_TRUE(open_->ended());
  });
  const RawResponse r = client.Read();
  EXPECT_EQ(r.body, "first second");
  EXPECT_TRUE(r.complete);
  client.Send(GetText("/again"));
  EXPECT_EQ(client.Read().body, "GET /again  ");
}

TEST_F(ServerTest, NoticesAClientThatLeavesWhileNothingIsWritten) {
  Listen();
  for (const char* path : {"/hold", "/stream"}) {
    RawClient client(server_->port());
    client.Send(GetText(path));
    ASSERT_TRUE(opened_.Wait());
    client.Close();
    EXPECT_TRUE(gone_.Wait()) << path;
    OnServer([this] {
      EXPECT_TRUE(open_->ended());
      open_->Write("to nobody");
      open_.reset();
    });
  }
}

TEST_F(ServerTest, CountsAHalfClosedClientAsGone) {
  Listen();
  RawClient client(server_->port());
  client.Send(GetText("/hold"));
  ASSERT_TRUE(opened_.Wait());
  client.ShutdownSend();
  EXPECT_TRUE(gone_.Wait());
}

TEST_F(ServerTest, TakesNoMoreForAReaderThatIsTooSlowButTheReason) {
  Limits limits;
  limits.stream_buffer_bytes = 64 << 10;
  Listen(limits);
  RawClient client(server_->port());
  client.ShrinkReceiveBuffer();
  client.Send(GetText("/stream"));
  ASSERT_TRUE(opened_.Wait());
  EXPECT_GT(WriteUntilRefused(), 64U << 10U);
  OnServer([&] {
    EXPECT_FALSE(open_->ended());
    EXPECT_FALSE(open_->Write("more"));
    open_->FinishWith("the reason");
    EXPECT_TRUE(open_->ended());
  });
  const RawResponse r = client.Read();
  EXPECT_TRUE(r.complete);
  EXPECT_EQ(r.body, std::string(written_, 'x') + "the reason");
  client.Send(GetText("/again"));
  EXPECT_EQ(client.Read().body, "GET /again  ");
}

TEST_F(ServerTest, OneLargeWriteIsNoReaderThatIsTooSlow) {
  Limits limits;
  limits.stream_buffer_bytes = 1000;
  Listen(limits);
  RawClient client(server_->port());
  client.Send(GetText("/stream"));
  ASSERT_TRUE(opened_.Wait());
  OnServer([&] { EXPECT_TRUE(open_->Write(std::string(1 << 20, 'x'))); });
  OnServer([&] {
    EXPECT_TRUE(open_->Write("y"));
    open_->Finish();
  });
  EXPECT_EQ(client.Read().body, std::string(1 << 20, 'x') + "y");
}

// With chunks and without: a stream that nobody reads to its end is reset.
TEST_F(ServerTest, AReaderThatTakesNothingSeesABrokenStream) {
  Limits limits;
  limits.stream_buffer_bytes = 64 << 10;
  limits.write_timeout = Milliseconds(150);
  Listen(limits);
  for (const char* version : {"1.1", "1.0"}) {
    RawClient client(server_->port());
    client.ShrinkReceiveBuffer();
    client.Send(std::string("GET /stream HTTP/") + version + "\r\nHost: a\r\n\r\n");
    ASSERT_TRUE(opened_.Wait());
    WriteUntilRefused();
    OnServer([&] { open_->FinishWith("the reason"); });
    ASSERT_TRUE(WaitNoConnections());
    const RawResponse r = client.Read();
    EXPECT_EQ(r.status, 200) << version;
    EXPECT_FALSE(r.complete) << version;
    EXPECT_TRUE(client.reset()) << version;
    EXPECT_THAT(r.body, Not(HasSubstr("reason"))) << version;
  }
}

TEST_F(ServerTest, CutsOffAReaderThatTakesNothingInTime) {
  Limits limits;
  limits.write_timeout = Milliseconds(150);
  limits.stream_buffer_bytes = 64U << 20U;
  Listen(limits);
  RawClient client(server_->port());
  client.ShrinkReceiveBuffer();
  client.Send(GetText("/stream"));
  ASSERT_TRUE(opened_.Wait());
  OnServer([this] { open_->Write(std::string(32U << 20U, 'x')); });
  EXPECT_TRUE(gone_.Wait());
}

TEST_F(ServerTest, AnAnswerDroppedUnfinishedNeverLooksFinished) {
  Listen();
  RawClient client(server_->port());
  client.Send(GetText("/stream"));
  ASSERT_TRUE(opened_.Wait());
  OnServer([this] { open_->Write("half"); });
  client.ReadUntil("half");
  OnServer([this] { open_.reset(); });
  const RawResponse r = client.Read();
  EXPECT_EQ(r.status, 200);
  EXPECT_FALSE(r.complete);
  EXPECT_EQ(One(GetText("/drop")).status, 0);
}

TEST_F(ServerTest, AFaultOfTheHandlerIsOneRequestsFault) {
  Listen();
  EXPECT_EQ(One(GetText("/throw")).status, 500);
  EXPECT_EQ(One(GetText("/fine")).status, 200);
}

TEST_F(ServerTest, DrainClosesIdleConnectionsAndAnswersTheRest) {
  Listen();
  RawClient idle(server_->port());
  RawClient busy(server_->port());
  idle.Send(GetText("/idle"));
  EXPECT_EQ(idle.Read().status, 200);
  busy.Send(GetText("/hold"));
  ASSERT_TRUE(opened_.Wait());
  server_->StartDrain();
  EXPECT_TRUE(idle.Closed());
  const RawResponse fresh = One(GetText("/new"));
  EXPECT_EQ(fresh.status, 200);
  EXPECT_EQ(fresh.headers.at("connection"), "close");
  OnServer([this] { open_->Send({}); });
  EXPECT_EQ(busy.Read().headers.at("connection"), "close");
}

TEST_F(ServerTest, StopLetsCompleteAnswersLeaveAndCutsTheRest) {
  Listen();
  RawClient done(server_->port());
  RawClient open(server_->port());
  open.Send(GetText("/stream"));
  ASSERT_TRUE(opened_.Wait());
  done.Send(GetText("/large"));
  EXPECT_EQ(done.Read().status, 200);
  bool delayed = false;
  server_->PostAfter(std::chrono::hours(1), [&] { delayed = true; });
  server_->Stop(Milliseconds(50));
  EXPECT_FALSE(open.Read().complete);
  EXPECT_TRUE(gone_.Wait());
  server_->Post([&] { delayed = true; });
  server_->Stop(Milliseconds(0));
  EXPECT_FALSE(delayed);
  EXPECT_EQ(server_->counts().connections, 0U);
  RawClient late(server_->port());
  EXPECT_FALSE(late.Send("x") && late.Read().status != 0);
  open_.reset();
  server_.reset();
}

TEST_F(ServerTest, PostsInOrderAndAfterADelay) {
  Listen();
  Flag flag;
  const auto begin = SteadyClock::now();
  server_->PostAfter(Milliseconds(30), [&] { flag.Set(); });
  ASSERT_TRUE(flag.Wait());
  EXPECT_GE(SteadyClock::now() - begin, Milliseconds(30));
}

TEST(ServerListenTest, AnEmptyHostIsNotEveryInterface) {
  Server::Options options;
  options.host = "";
  const auto server = Server::Listen(options, [](Request&&, const auto&) {});
  ASSERT_FALSE(server.ok());
  EXPECT_NE(server.status().message().find("--host is empty"), std::string::npos);
}

TEST(ServerListenTest, NamesTheAddressItCanNotHave) {
  Server::Options options;
  options.error_body = ErrorText;
  const auto ignore = [](Request&&, const std::shared_ptr<ResponseWriter>&) {};
  auto first = Server::Listen(options, ignore);
  ASSERT_TRUE(first.ok());
  options.port = first.value()->port();
  const auto second = Server::Listen(options, ignore);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.status().message(), HasSubstr("127.0.0.1:" + std::to_string(options.port)));
  EXPECT_THAT(second.status().message(), HasSubstr("choose another --host or --port"));
  options.host = "no such host";
  EXPECT_THAT(Server::Listen(options, ignore).status().message(), HasSubstr("check --host"));
}

}  // namespace
}  // namespace cleave::http
