// Answers the front gives at once: probes, lists, metrics, the bill.

#include <fmt/format.h>

#include <algorithm>

#include "comm/bill_report.h"
#include "http/front.h"
#include "http/openai/error.h"
#include "http/openai/json.h"
#include "http/openapi.h"

namespace cleave {
namespace {

using openai::JsonWriter;

void WriteModelCard(const std::string& name, const std::string& root, int64_t created_s,
                    uint32_t max_model_len, JsonWriter* json) {
  json->BeginObject().Key("id").String(name).Key("object").String("model");
  json->Key("created").Int(created_s).Key("owned_by").String("cleave");
  json->Key("root").String(root).Key("parent").Null();
  json->Key("max_model_len");
  if (max_model_len == 0) {
    json->Null();
  } else {
    json->Int(max_model_len);
  }
  json->Key("permission").BeginArray().BeginObject();
  json->Key("id").String("modelperm-" + name).Key("object").String("model_permission");
  json->Key("created").Int(created_s);
  json->Key("allow_create_engine").Bool(false).Key("allow_sampling").Bool(true);
  json->Key("allow_logprobs").Bool(true).Key("allow_search_indices").Bool(false);
  json->Key("allow_view").Bool(true).Key("allow_fine_tuning").Bool(false);
  json->Key("organization").String("*").Key("group").Null().Key("is_blocking").Bool(false);
  json->EndObject().EndArray().EndObject();
}

}  // namespace

void Front::Answer(const http::Request& request, const Route& route, Reply* reply) {
  switch (route.id) {
    case RouteId::kHealth:
    case RouteId::kPing:
      return AnswerHealth(reply);
    case RouteId::kReady:
      return AnswerReady(reply);
    case RouteId::kLive:
      return reply->SendJson("{\"status\":\"alive\"}");
    case RouteId::kModels:
    case RouteId::kModel:
      return AnswerModels(request, route, reply);
    case RouteId::kMetrics:
      return AnswerMetrics(reply);
    case RouteId::kBill:
      return AnswerBill(reply);
    case RouteId::kLoad:
      return reply->SendJson(fmt::format("{{\"server_load\":{}}}", active_.load()));
    case RouteId::kOpenApi:
      return reply->SendJson(OpenApiDocument(options_.version));
    default:
      break;
  }
  std::string body;
  JsonWriter(&body).BeginObject().Key("version").String(options_.version).EndObject();
  reply->SendJson(std::move(body));
}

std::string Front::EngineTrouble() const {
  const Status health = model_.engine->health();
  if (!health.ok()) return "the engine does not serve: " + health.message();
  const EngineStats stats = model_.engine->stats();
  const auto now = SteadyClock::now();
  if (stats.running > 0 && now - stats.last_progress > options_.stall_timeout) {
    return fmt::format("the engine is stalled: {} sequences run and no step ended for {:.0f} s",
                       stats.running, SecondsBetween(stats.last_progress, now));
  }
  return {};
}

// Bodies are empty, as vLLM's are.
void Front::AnswerHealth(Reply* reply) const {
  http::Response response;
  response.content_type.clear();
  if (text_ == nullptr || !EngineTrouble().empty()) response.status = 503;
  reply->Send(std::move(response));
}

void Front::AnswerReady(Reply* reply) const {
  std::string reason;
  if (draining_.load()) {
    reason = "draining";
  } else if (text_ == nullptr) {
    reason = loading_;
  } else {
    reason = EngineTrouble();
  }
  http::Response response;
  JsonWriter json(&response.body);
  json.BeginObject().Key("status").String(reason.empty() ? "ready" : "not ready");
  if (!reason.empty()) {
    response.status = 503;
    response.headers.push_back({"Retry-After", "1"});
    json.Key("reason").String(reason);
  }
  json.EndObject();
  reply->Send(std::move(response));
}

void Front::AnswerModels(const http::Request& request, const Route& route, Reply* reply) const {
  const std::vector<std::string>& names = options_.served_model_names;
  const uint32_t max_len = text_ == nullptr ? 0 : text_->rules.max_model_len;
  std::string body;
  JsonWriter json(&body);
  if (route.id == RouteId::kModel) {
    const std::string wanted = ModelOfPath(request.path);
    if (std::find(names.begin(), names.end(), wanted) == names.end()) {
      return reply->SendError(openai::ModelNotFound(wanted));
    }
    WriteModelCard(wanted, names.front(), created_s_, max_len, &json);
    return reply->SendJson(std::move(body));
  }
  json.BeginObject().Key("object").String("list").Key("data").BeginArray();
  for (const std::string& name : names) {
    WriteModelCard(name, names.front(), created_s_, max_len, &json);
  }
  json.EndArray().EndObject();
  reply->SendJson(std::move(body));
}

// A server that has no model yet has moved nothing.
void Front::AnswerBill(Reply* reply) const {
  if (model_.engine == nullptr) return reply->SendJson(BillJson({}, 0));
  const uint64_t tokens = model_.engine->stats().generation_tokens;
  reply->SendJson(BillJson(model_.engine->bill(), tokens));
}

void Front::AnswerMetrics(Reply* reply) const {
  ServerMetrics::Levels levels;
  EngineStats stats;
  Bill bill;
  if (model_.engine != nullptr) {
    stats = model_.engine->stats();
    levels.stats = &stats;
    bill = model_.engine->bill();
    levels.bill = &bill;
  }
  const http::Server::Counts counts = server_->counts();
  levels.connections = counts.connections;
  levels.refused = counts.refused;
  http::Response response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = metrics_->Expose(levels);
  reply->Send(std::move(response));
}

}  // namespace cleave
