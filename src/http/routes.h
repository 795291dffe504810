#pragma once
// The API's routes: paths, methods, and which of them an API key guards. Pure; any thread.

#include <string>
#include <string_view>

namespace cleave {

enum class RouteId {
  kNone,
  kChat,
  kCompletions,
  kChatRender,
  kCompletionsRender,
  kTokenize,
  kDetokenize,
  kModels,
  kModel,
  kHealth,
  kReady,
  kLive,
  kPing,
  kMetrics,
  kBill,
  kVersion,
  kLoad,
  kOpenApi,
};

struct Route {
  RouteId id = RouteId::kNone;
  std::string_view pattern = "none";  // the label of metrics and logs: a closed set
  std::string_view allow;             // methods, as the Allow header lists them
};

// The route of a path, whatever the method. Matching is exact: no decoding, no trailing slash.
const Route& FindRoute(std::string_view path);
bool Allows(const Route& route, std::string_view method);
// Everything below /v1 asks for the key, known or not, as vLLM's does.
bool IsGuarded(std::string_view path);
// Probes and scrapes: not counted in http_… metrics, as vLLM leaves them out, and not logged.
bool IsProbe(const Route& route);
// The {id} of /v1/models/{id}, percent-decoded; "" when its escapes are broken.
std::string ModelOfPath(std::string_view path);

}  // namespace cleave
