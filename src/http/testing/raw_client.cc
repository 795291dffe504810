#include "http/testing/raw_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <utility>

namespace cleave::testing {

RawClient::RawClient(uint16_t port) {
  fd_ = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) Close();
}

RawClient::~RawClient() { Close(); }

void RawClient::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

void RawClient::ShutdownSend() { shutdown(fd_, SHUT_WR); }

void RawClient::ShrinkReceiveBuffer() {
  const int bytes = 128 << 10;
  setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
}

bool RawClient::Send(std::string_view bytes) {
  if (fd_ < 0) return false;
  while (!bytes.empty()) {
    pollfd wait{fd_, POLLOUT, 0};
    if (poll(&wait, 1, static_cast<int>(deadline_.count())) <= 0) return false;
    const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool RawClient::Fill() {
  char bytes[65536];
  pollfd wait{fd_, POLLIN, 0};
  if (fd_ < 0 || poll(&wait, 1, static_cast<int>(deadline_.count())) <= 0) return false;
  const ssize_t n = recv(fd_, bytes, sizeof(bytes), 0);
  if (n < 0) reset_ = errno == ECONNRESET;
  if (n <= 0) return false;
  buffer_.append(bytes, static_cast<size_t>(n));
  return true;
}

std::optional<std::string> RawClient::Line() {
  size_t end = 0;
  while ((end = buffer_.find("\r\n")) == std::string::npos) {
    if (!Fill()) return std::nullopt;
  }
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 2);
  return line;
}

bool RawClient::ReadBody(RawResponse* response) {
  if (response->headers.count("transfer-encoding") != 0) {
    while (true) {
      const auto size_line = Line();
      if (!size_line) return false;
      const size_t size = std::strtoul(size_line->c_str(), nullptr, 16);
      while (buffer_.size() < size + 2) {
        if (!Fill()) return false;
      }
      response->body += buffer_.substr(0, size);
      buffer_.erase(0, size + 2);
      if (size == 0) return true;
    }
  }
  const auto length = response->headers.find("content-length");
  if (length == response->headers.end()) {
    while (response->status != 204 && Fill()) {
    }
    response->body = std::exchange(buffer_, {});
    return !reset_;
  }
  const size_t size = std::strtoul(length->second.c_str(), nullptr, 10);
  while (buffer_.size() < size) {
    if (!Fill()) return false;
  }
  response->body = buffer_.substr(0, size);
  buffer_.erase(0, size);
  return true;
}

RawResponse RawClient::Read(std::string_view method) {
  RawResponse response;
  auto line = Line();
  if (!line || line->size() < 12) return response;
  response.status = std::atoi(line->c_str() + 9);
  while ((line = Line()) && !line->empty()) {
    const size_t colon = line->find(": ");
    if (colon == std::string::npos) return response;
    std::string name = line->substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    response.headers[name] = line->substr(colon + 2);
  }
  const bool no_body = method == "HEAD" || response.status / 100 == 1;
  response.complete = line.has_value() && (no_body || ReadBody(&response));
  return response;
}

std::string RawClient::ReadUntil(std::string_view text) {
  while (buffer_.find(text) == std::string::npos && Fill()) {
  }
  return buffer_;
}

bool RawClient::Closed() {
  const auto end = std::chrono::steady_clock::now() + deadline_;
  char bytes[4096];
  while (std::chrono::steady_clock::now() < end) {
    pollfd wait{fd_, POLLIN, 0};
    if (poll(&wait, 1, static_cast<int>(deadline_.count())) <= 0) return false;
    if (recv(fd_, bytes, sizeof(bytes), 0) <= 0) return true;
  }
  return false;
}

std::string GetText(std::string_view path, std::string_view more_headers) {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n" + std::string(more_headers) +
         "\r\n";
}

std::string PostText(std::string_view path, std::string_view body, std::string_view more_headers) {
  return "POST " + std::string(path) +
         " HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n" + std::string(more_headers) + "\r\n" +
         std::string(body);
}

RawResponse Get(uint16_t port, std::string_view path, std::string_view more_headers) {
  RawClient client(port);
  client.Send(GetText(path, more_headers));
  return client.Read();
}

RawResponse Post(uint16_t port, std::string_view path, std::string_view body,
                 std::string_view more_headers) {
  RawClient client(port);
  client.Send(PostText(path, body, more_headers));
  return client.Read();
}

}  // namespace cleave::testing
