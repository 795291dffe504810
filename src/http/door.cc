#include "http/door.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "http/wire.h"

namespace cleave {
namespace {

constexpr std::string_view kBearer = "bearer ";
constexpr size_t kMaxRequestIdBytes = 128;

// Looks at every byte of `key` whatever `given` is.
bool SameSecret(std::string_view given, std::string_view key) {
  unsigned difference = given.size() == key.size() ? 0U : 1U;
  for (size_t i = 0; i < key.size(); ++i) {
    const char other = i < given.size() ? given[i] : '\0';
    difference |= static_cast<unsigned char>(key[i]) ^ static_cast<unsigned char>(other);
  }
  return difference == 0;
}

}  // namespace

bool HasKey(const http::Request& request, const std::vector<std::string>& keys) {
  const auto is_auth = [](const http::Header& h) {
    return http::EqualsIgnoreCase(h.name, "authorization");
  };
  if (std::count_if(request.headers.begin(), request.headers.end(), is_auth) != 1) return false;
  std::string_view value = *request.Find("authorization");
  if (!http::EqualsIgnoreCase(value.substr(0, kBearer.size()), kBearer)) return false;
  value.remove_prefix(kBearer.size());
  bool found = false;
  for (const std::string& key : keys) found |= SameSecret(value, key);
  return found;
}

std::vector<http::Header> OriginHeaders(const http::Request& request,
                                        const std::vector<std::string>& allowed) {
  const std::string* origin = request.Find("origin");
  if (origin == nullptr) return {};
  const bool any = std::find(allowed.begin(), allowed.end(), "*") != allowed.end();
  if (!any && std::find(allowed.begin(), allowed.end(), *origin) == allowed.end()) return {};
  return {{"Access-Control-Allow-Origin", any ? "*" : *origin}, {"Vary", "Origin"}};
}

std::string ClientRequestId(const http::Request& request) {
  const std::string* id = request.Find("x-request-id");
  if (id == nullptr || id->empty() || id->size() > kMaxRequestIdBytes) return {};
  const bool plain =
      std::all_of(id->begin(), id->end(), [](char c) { return c > ' ' && c <= '~'; });
  return plain ? *id : std::string();
}

std::string NewRequestId() { return fmt::format("{:016x}{:016x}", NewSeed(), NewSeed()); }

uint64_t NewSeed() {
  thread_local std::random_device device;
  return static_cast<uint64_t>(device()) << 32U | device();
}

}  // namespace cleave
