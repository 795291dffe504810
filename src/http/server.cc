#include "http/server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "http/connection.h"

namespace cleave::http {
namespace {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;
using Tcp = asio::ip::tcp;

constexpr size_t kRefusalSlots = 64;  // connections beyond the limit that are told so
// What the kernel takes beyond what it can send. Left alone it takes megabytes: a reader that far
// behind would not be seen, and the end of its stream would stand behind them.
constexpr int kKernelUnsentBytes = 128 << 10;
constexpr Milliseconds kAcceptRetry{100};  // after a failed accept, as with no descriptors left

class AsioServer final : public Server {
 public:
  AsioServer(Options options, OnRequest on_request)
      : acceptor_(core_->io), retry_(core_->io), grace_(core_->io) {
    core_->options = std::move(options);
    core_->on_request = std::move(on_request);
    core_->on_closed = [this] {
      if (core_->stopping) {
        if (core_->connections.empty()) FinishStop();
      } else if (!accepting_) {
        Accept();
      }
    };
  }
  ~AsioServer() override { Stop(Milliseconds(0)); }

  Status Open();
  void Start() override;
  [[nodiscard]] uint16_t port() const override { return port_; }
  void Post(std::function<void()> work) override;
  void PostAfter(Milliseconds delay, std::function<void()> work) override;
  void StartDrain() override;
  void Stop(Milliseconds grace) override;
  [[nodiscard]] Counts counts() const override {
    return {core_->connection_count.load(std::memory_order_relaxed),
            core_->refused.load(std::memory_order_relaxed)};
  }

 private:
  void Accept();
  void OnAccept(ErrorCode ec, Tcp::socket socket);
  [[nodiscard]] std::vector<Connection*> Connections() const;  // a copy: closing changes it
  void FinishStop();
  void Run();

  const std::shared_ptr<Core> core_ = std::make_shared<Core>();  // shared with open answers
  Tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  asio::steady_timer grace_;
  bool accepting_ = false;
  uint16_t port_ = 0;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work_;
  std::thread thread_;
};

Status AsioServer::Open() {
  const Options& options = core_->options;
  if (options.host.empty()) {  // the resolver would take it for every interface
    return InvalidArgument("cannot listen: --host is empty; give an address, 0.0.0.0 for all");
  }
  const std::string address = fmt::format("{}:{}", options.host, options.port);
  ErrorCode ec;
  Tcp::resolver resolver(core_->io);
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port), Tcp::resolver::passive, ec);
  if (ec || found.empty()) {
    return Unavailable(fmt::format("cannot listen on {}: {}; check --host", address, ec.message()));
  }
  const Tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor_.open(endpoint.protocol(), ec);
  if (!ec) acceptor_.set_option(asio::socket_base::reuse_address(true), ec);
  if (!ec) acceptor_.bind(endpoint, ec);
  if (!ec) acceptor_.listen(asio::socket_base::max_listen_connections, ec);
  if (ec) {
    return Unavailable(fmt::format("cannot listen on {}: {}; choose another --host or --port",
                                   address, ec.message()));
  }
  port_ = acceptor_.local_endpoint(ec).port();
  return OkStatus();
}

void AsioServer::Start() {
  work_.emplace(core_->io.get_executor());
  Accept();
  thread_ = std::thread([this] { Run(); });
}

void AsioServer::Run() {
  // Signals are the main thread's.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  while (!core_->stopped.load(std::memory_order_acquire)) {
    try {
      core_->io.run();
    } catch (const std::exception&) {
      // No memory for one operation; that connection's deadline ends it, the others go on.
    }
  }
  core_->io.run();
}

void AsioServer::Accept() {
  if (!acceptor_.is_open()) return;
  accepting_ = core_->connections.size() < core_->options.limits.connections + kRefusalSlots;
  if (!accepting_) return;  // on_closed resumes
  acceptor_.async_accept(
      [this](ErrorCode ec, Tcp::socket socket) { OnAccept(ec, std::move(socket)); });
}

void AsioServer::OnAccept(ErrorCode ec, Tcp::socket socket) {
  if (ec == asio::error::operation_aborted || !acceptor_.is_open()) return;
  if (ec) {
    retry_.expires_after(kAcceptRetry);
    retry_.async_wait([this](ErrorCode wait) {
      if (!wait) Accept();
    });
    return;
  }
  ErrorCode ignored;
  socket.set_option(Tcp::no_delay(true), ignored);
  ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kKernelUnsentBytes,
               sizeof kKernelUnsentBytes);
  const std::shared_ptr<Connection> connection = MakeConnection(core_, std::move(socket));
  if (core_->connections.size() > core_->options.limits.connections) {
    connection->SendError(
        503, fmt::format("more than {} connections; try again", core_->options.limits.connections));
  } else {
    connection->Start();
  }
  Accept();
}

void AsioServer::Post(std::function<void()> work) {
  asio::post(core_->io, [core = core_.get(), work = std::move(work)] {
    if (!core->stopped.load(std::memory_order_acquire)) work();
  });
}

void AsioServer::PostAfter(Milliseconds delay, std::function<void()> work) {
  Post([core = core_.get(), delay, work = std::move(work)] {
    // Shared between the set, which Stop cancels, and its own wait.
    auto timer = std::make_shared<asio::steady_timer>(core->io, delay);
    core->timers.insert(timer);
    timer->async_wait([core, timer, work](ErrorCode ec) {
      core->timers.erase(timer);
      if (!ec) work();
    });
  });
}

void AsioServer::StartDrain() {
  Post([this] {
    core_->draining = true;
    for (Connection* connection : Connections()) {
      if (connection->idle()) connection->Close();
    }
  });
}

std::vector<Connection*> AsioServer::Connections() const {
  return {core_->connections.begin(), core_->connections.end()};
}

void AsioServer::Stop(Milliseconds grace) {
  if (!thread_.joinable()) return;
  asio::post(core_->io, [this, grace] {
    core_->stopping = true;
    core_->draining = true;
    ErrorCode ignored;
    acceptor_.close(ignored);
    retry_.cancel();
    grace_.expires_after(grace);
    grace_.async_wait([this](ErrorCode ec) {
      if (!ec) FinishStop();
    });
    for (Connection* connection : Connections()) {
      if (!connection->leaving()) connection->Close();
    }
    if (core_->connections.empty()) FinishStop();
  });
  thread_.join();
  core_->io.restart();
  core_->io.poll();  // drops what was posted since
  core_->on_request = nullptr;
}

void AsioServer::FinishStop() {
  core_->stopped.store(true, std::memory_order_release);
  core_->on_closed = nullptr;
  grace_.cancel();
  for (Connection* connection : Connections()) connection->Close();
  for (const auto& timer : core_->timers) timer->cancel();
  work_.reset();
}

}  // namespace

Result<std::unique_ptr<Server>> Server::Listen(Options options, OnRequest on_request) {
  auto server = std::make_unique<AsioServer>(std::move(options), std::move(on_request));
  RETURN_IF_ERROR(server->Open());
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace cleave::http
