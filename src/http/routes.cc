#include "http/routes.h"

#include <charconv>

namespace cleave {
namespace {

constexpr std::string_view kGet = "GET, HEAD, OPTIONS";
constexpr std::string_view kPost = "POST, OPTIONS";
constexpr std::string_view kModelPrefix = "/v1/models/";

constexpr Route kRoutes[] = {
    {RouteId::kChat, "/v1/chat/completions", kPost},
    {RouteId::kCompletions, "/v1/completions", kPost},
    {RouteId::kChatRender, "/v1/chat/completions/render", kPost},
    {RouteId::kCompletionsRender, "/v1/completions/render", kPost},
    {RouteId::kTokenize, "/tokenize", kPost},
    {RouteId::kDetokenize, "/detokenize", kPost},
    {RouteId::kModels, "/v1/models", kGet},
    {RouteId::kModel, "/v1/models/{id}", kGet},
    {RouteId::kHealth, "/health", kGet},
    {RouteId::kReady, "/ready", kGet},
    {RouteId::kLive, "/live", kGet},
    {RouteId::kPing, "/ping", "GET, HEAD, POST, OPTIONS"},
    {RouteId::kMetrics, "/metrics", kGet},
    {RouteId::kBill, "/v1/bill", kGet},
    {RouteId::kVersion, "/version", kGet},
    {RouteId::kLoad, "/load", kGet},
    {RouteId::kOpenApi, "/openapi.json", kGet},
};
constexpr Route kNoRoute{};

}  // namespace

const Route& FindRoute(std::string_view path) {
  for (const Route& route : kRoutes) {
    if (route.pattern == path && route.id != RouteId::kModel) return route;
    const bool model = route.id == RouteId::kModel && path.size() > kModelPrefix.size() &&
                       path.substr(0, kModelPrefix.size()) == kModelPrefix;
    if (model) return route;
  }
  return kNoRoute;
}

bool Allows(const Route& route, std::string_view method) {
  std::string_view rest = route.allow;
  while (!rest.empty()) {
    const size_t comma = rest.find(", ");
    if (rest.substr(0, comma) == method) return true;
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 2);
  }
  return false;
}

bool IsGuarded(std::string_view path) { return path == "/v1" || path.substr(0, 4) == "/v1/"; }

bool IsProbe(const Route& route) {
  switch (route.id) {
    case RouteId::kHealth:
    case RouteId::kReady:
    case RouteId::kLive:
    case RouteId::kPing:
    case RouteId::kMetrics:
    case RouteId::kVersion:
    case RouteId::kLoad:
      return true;
    default:
      return false;
  }
}

std::string ModelOfPath(std::string_view path) {
  std::string_view raw = path.substr(kModelPrefix.size());
  std::string model;
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '%') {
      model.push_back(raw[i]);
      continue;
    }
    unsigned value = 0;
    const char* first = raw.data() + i + 1;
    if (i + 2 >= raw.size()) return {};
    const auto [end, ec] = std::from_chars(first, first + 2, value, 16);
    if (ec != std::errc() || end != first + 2) return {};
    model.push_back(static_cast<char>(value));
    i += 2;
  }
  return model;
}

}  // namespace cleave
