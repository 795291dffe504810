#pragma once
// Connection: one client's connection, from its first byte to its close; and Core, what all of a
// server's connections share. Private to server.cc and connection.cc: the only header that knows
// Asio.
//
// Owner: its own pending operations and open answers. Thread: the server's, for all of it but
// Core's atomics.

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <unordered_set>

#include "http/server.h"

namespace cleave::http {

class Connection {
 public:
  virtual ~Connection() = default;
  // Reads and answers requests until the end.
  virtual void Start() = 0;
  // Answers without having read a request, and closes.
  virtual void SendError(int status, std::string_view message) = 0;
  virtual void Close() = 0;
  [[nodiscard]] virtual bool idle() const = 0;     // between requests
  [[nodiscard]] virtual bool leaving() const = 0;  // a complete answer is not all written yet
};

// Lives as long as any connection.
struct Core {
  boost::asio::io_context io{1};
  Server::Options options;
  Server::OnRequest on_request;
  std::function<void()> on_closed;  // a connection ended
  std::unordered_set<Connection*> connections;
  // Of PostAfter; shared with the wait of each.
  std::unordered_set<std::shared_ptr<boost::asio::steady_timer>> timers;
  size_t all_bodies_bytes = 0;
  bool draining = false;
  bool stopping = false;  // connections end as soon as their answer is written
  std::atomic<bool> stopped{false};
  std::atomic<size_t> connection_count{0};
  std::atomic<uint64_t> refused{0};
};

// Shared: pending operations and the open answer keep it.
std::shared_ptr<Connection> MakeConnection(std::shared_ptr<Core> core,
                                           boost::asio::ip::tcp::socket socket);

}  // namespace cleave::http
