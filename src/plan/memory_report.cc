#include "plan/memory_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text_table.h"
#include "plan/holding.h"

namespace cleave {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostRows = 40;
constexpr double kGib = 1073741824.0;

std::string Gib(double bytes) { return fmt::format("{:.2f}", bytes / kGib); }
std::string Gib(uint64_t bytes) { return Gib(static_cast<double>(bytes)); }

const char* DialectName(Dialect dialect) { return dialect == Dialect::kVllm ? "vllm" : "cleave"; }

double WholeWeightBytes(const MemoryReport& report) {
  if (report.settings.weight_bytes) return static_cast<double>(*report.settings.weight_bytes);
  return WeightBytes(*report.model, report.settings.weights);
}

std::vector<std::string> ChangesOf(const MemoryReport& report, const MemoryAccount& a) {
  return ChangesThatFit(*report.model, report.cluster->device, a.split, report.settings,
                        report.request);
}

std::string ModelText(const MemoryReport& report) {
  const ModelFacts& m = *report.model;
  return fmt::format(
      "{}: {:.2f} B parameters{}, {:.2f} B active; weights {:.1f} GB as {}; KV {:.0f} B a token, "
      "{} GiB for {} tokens\n  source: {}\n",
      m.name, InBillions(m.TotalParameters()),
      m.published_total.empty() ? "" : fmt::format(" (published {})", m.published_total),
      InBillions(m.ActiveParameters()), WholeWeightBytes(report) / 1e9,
      report.settings.weights.name, KvBytesPerToken(m, report.settings.kv_element_bytes),
      Gib(SequenceBytes(m, report.settings.kv_element_bytes, report.request.tokens())),
      report.request.tokens(), m.source);
}

std::string DeviceText(const ClusterFacts& cluster) {
  const DeviceFacts& d = cluster.device;
  std::string text = fmt::format("{} x {}", cluster.devices_per_node, d.name);
  if (cluster.nodes > 1) text += fmt::format(" on each of {} nodes", cluster.nodes);
  text += fmt::format(": {} GiB", Gib(d.memory_bytes()));
  if (d.bandwidth_gb_s > 0) text += fmt::format(", {} GB/s", d.bandwidth_gb_s);
  if (!d.link.empty()) text += ", " + d.link;
  return text + fmt::format("\n  source: {}\n", d.source);
}

std::vector<std::string> Row(const MemoryAccount& a) {
  const Split& s = a.split;
  return {fmt::format("{}", s.dp),
          fmt::format("{}", s.pp),
          fmt::format("{}", s.tp),
          fmt::format("{}", s.ep),
          Gib(a.weight_bytes),
          Gib(static_cast<double>(a.kv_bytes)),
          Gib(a.runtime_bytes()),
          Gib(a.margin_bytes),
          a.fits ? fmt::format("{}", a.kv_tokens) : "-",
          a.fits ? fmt::format("{}", a.requests) : "-",
          a.fits ? fmt::format("{}", a.context_limit) : "-"};
}

Json AccountJson(const MemoryReport& report, const MemoryAccount& a) {
  Json json{{"dp", a.split.dp}, {"pp", a.split.pp}, {"tp", a.split.tp},
            {"ep", a.split.ep}, {"cp", a.split.cp}, {"fits", a.fits}};
  json["reason"] = a.reason;
  json["changes"] = a.fits ? std::vector<std::string>() : ChangesOf(report, a);
  json["rank"] = a.rank;
  json["device_bytes"] = a.device_bytes;
  json["budget_bytes"] = a.budget_bytes;
  json["weight_bytes"] = a.weight_bytes;
  json["kv_bytes"] = a.kv_bytes;
  json["runtime_bytes"] = a.runtime_bytes();
  json["activation_bytes"] = a.activation_bytes;
  json["logits_bytes"] = a.logits_bytes;
  json["graph_bytes"] = a.graph_bytes;
  json["context_bytes"] = a.context_bytes;
  json["collective_bytes"] = a.collective_bytes;
  json["margin_bytes"] = a.margin_bytes;
  json["kv_bytes_per_token"] = a.kv_bytes_per_token;
  json["kv_tokens"] = a.kv_tokens;
  json["context_limit"] = a.context_limit;
  json["requests"] = a.requests;
  return json;
}

}  // namespace

std::string ReportText(const MemoryReport& report) {
  std::string text = ModelText(report) + DeviceText(*report.cluster);
  if (report.accounts.empty()) {
    return text + fmt::format("infeasible: no dp · pp · tp of {} devices cuts this model\n",
                              report.cluster->devices());
  }
  std::vector<std::vector<std::string>> rows{{"dp", "pp", "tp", "ep", "weights", "KV", "runtime",
                                              "margin", "KV tokens", "requests", "context"}};
  for (size_t i = 0; i < std::min(report.accounts.size(), kMostRows); ++i) {
    rows.push_back(Row(report.accounts[i]));
  }
  text += fmt::format(
      "\nSplits as {} runs them, by KV tokens; GiB of the rank with the least room; requests of "
      "{} + {} tokens\n{}",
      DialectName(report.settings.dialect), report.request.prompt_tokens,
      report.request.output_tokens, TextTable(rows));
  if (report.accounts.size() > kMostRows) {
    text += fmt::format("and {} more\n", report.accounts.size() - kMostRows);
  }
  const MemoryAccount& best = report.accounts.front();
  if (best.fits) {
    return best.reason.empty() ? text : text + fmt::format("first row: {}\n", best.reason);
  }
  text += fmt::format("infeasible ({}): {}\n", best.split.ToString(), best.reason);
  for (const std::string& change : ChangesOf(report, best)) {
    text += fmt::format("  would fit: {}\n", change);
  }
  return text;
}

std::string ReportJson(const MemoryReport& report) {
  const ModelFacts& m = *report.model;
  const DeviceFacts& d = report.cluster->device;
  Json json;
  json["model"] = {{"name", m.name},
                   {"total_params_b", InBillions(m.TotalParameters())},
                   {"active_params_b", InBillions(m.ActiveParameters())},
                   {"published_total", m.published_total},
                   {"kv_bytes_per_token", KvBytesPerToken(m, report.settings.kv_element_bytes)},
                   {"weight_bytes", static_cast<uint64_t>(WholeWeightBytes(report))},
                   {"weight_format", report.settings.weights.name},
                   {"source", m.source}};
  json["device"] = {{"name", d.name},
                    {"memory_bytes", d.memory_bytes()},
                    {"bandwidth_gb_s", d.bandwidth_gb_s},
                    {"source", d.source}};
  json["devices"] = report.cluster->devices();
  json["nodes"] = report.cluster->nodes;
  json["dialect"] = DialectName(report.settings.dialect);
  json["splits"] = Json::array();
  for (const MemoryAccount& a : report.accounts) {
    json["splits"].push_back(AccountJson(report, a));
  }
  // What is not UTF-8 in a name is shown as a replacement.
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace cleave
