#include "http/wire.h"

#include <fmt/format.h>

#include <iterator>

namespace cleave::http {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// RFC 9110 section 5.6.7, in English whatever the locale.
std::string DateText(std::time_t now) {
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm t{};
  gmtime_r(&now, &t);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[t.tm_wday], t.tm_mday,
                     kMonths[t.tm_mon], 1900 + t.tm_year, t.tm_hour, t.tm_min, t.tm_sec);
}

bool HasLineBreak(std::string_view text) {
  return text.find_first_of(std::string_view("\r\n\0", 3)) != std::string_view::npos;
}

}  // namespace

std::string_view StatusPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Payload Too Large";
    case 414:
      return "URI Too Long";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "Unknown";
  }
}

bool EqualsIgnoreCase(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (Lower(a[i]) != Lower(b[i])) return false;
  }
  return true;
}

const std::string* Request::Find(std::string_view name) const {
  for (const Header& h : headers) {
    if (EqualsIgnoreCase(h.name, name)) return &h.value;
  }
  return nullptr;
}

void SplitTarget(std::string_view target, std::string* path, std::string* query) {
  for (std::string_view scheme : {"http://", "https://"}) {
    if (!EqualsIgnoreCase(target.substr(0, scheme.size()), scheme)) continue;
    target.remove_prefix(scheme.size());
    const size_t slash = target.find_first_of("/?#");
    target = slash == std::string_view::npos ? "/" : target.substr(slash);
    break;
  }
  target = target.substr(0, target.find('#'));
  const size_t mark = target.find('?');
  path->assign(target.substr(0, mark));
  query->assign(mark == std::string_view::npos ? std::string_view() : target.substr(mark + 1));
  if (path->empty()) *path = "/";
}

std::string FormatHead(const Response& response, const HeadOptions& options) {
  std::string head;
  head.reserve(256);
  auto out = std::back_inserter(head);
  fmt::format_to(out, "HTTP/1.1 {} {}\r\nDate: {}\r\n", response.status,
                 StatusPhrase(response.status), DateText(options.now));
  if (!response.content_type.empty()) {
    fmt::format_to(out, "Content-Type: {}\r\n", response.content_type);
  }
  if (options.framing == Framing::kChunked) {
    head += "Transfer-Encoding: chunked\r\n";
  } else if (options.framing == Framing::kLength && response.status != 204) {
    fmt::format_to(out, "Content-Length: {}\r\n", response.body.size());
  }
  for (const Header& h : response.headers) {
    if (HasLineBreak(h.name) || HasLineBreak(h.value)) continue;
    fmt::format_to(out, "{}: {}\r\n", h.name, h.value);
  }
  if (options.close) head += "Connection: close\r\n";
  head += "\r\n";
  return head;
}

void AppendChunk(std::string_view bytes, std::string* out) {
  if (bytes.empty()) return;
  fmt::format_to(std::back_inserter(*out), "{:x}\r\n", bytes.size());
  out->append(bytes);
  out->append("\r\n");
}

}  // namespace cleave::http
