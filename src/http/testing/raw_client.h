#pragma once
// A client of raw bytes for tests of the server: what is sent is exactly what the test says, and
// every wait has a deadline. One thread.

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace cleave::testing {

struct RawResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks joined
  bool complete =
      false;  // the body's own end was seen: length, last chunk, or plain close without either
};

class RawClient {
 public:
  explicit RawClient(uint16_t port);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  // False when the connection no longer takes bytes.
  bool Send(std::string_view bytes);
  // The next response; status 0 when the connection ended or the deadline passed before its head.
  RawResponse Read(std::string_view method = "GET");
  // Reads until `text` was seen in what the server sent since the last response; all of it.
  std::string ReadUntil(std::string_view text);
  // Whether the server closes within the deadline, all before it being ignored.
  bool Closed();
  // Whether the server ended the connection by a reset, as seen by the reads so far.
  [[nodiscard]] bool reset() const { return reset_; }
  void Close();
  void ShutdownSend();
  // A small receive window, so that a server's unsent bytes pile up. Before anything is sent.
  // Not below loopback's segments of 64 KiB: the kernel would open it again by slow timers only.
  void ShrinkReceiveBuffer();
  void set_deadline(std::chrono::milliseconds d) { deadline_ = d; }

 private:
  bool Fill();  // more bytes in buffer_
  std::optional<std::string> Line();
  bool ReadBody(RawResponse* response);

  int fd_ = -1;
  bool reset_ = false;
  std::string buffer_;
  std::chrono::milliseconds deadline_{10'000};
};

// "POST path HTTP/1.1" with Host, Content-Length and a JSON body.
std::string PostText(std::string_view path, std::string_view body,
                     std::string_view more_headers = {});
std::string GetText(std::string_view path, std::string_view more_headers = {});

// One request on a connection of its own.
RawResponse Post(uint16_t port, std::string_view path, std::string_view body,
                 std::string_view more_headers = {});
RawResponse Get(uint16_t port, std::string_view path, std::string_view more_headers = {});

}  // namespace cleave::testing
