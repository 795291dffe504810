#include "split/layout_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/rng.h"  // Uint128
#include "base/text_table.h"

namespace cleave {
namespace {

using Json = nlohmann::ordered_json;

// Of `bytes` for `whole` units, those of `held` units.
uint64_t ShareOfBytes(uint64_t bytes, uint64_t held, uint64_t whole) {
  return static_cast<uint64_t>(static_cast<Uint128>(bytes) * held / whole);
}

uint64_t KvBytesPerToken(const LayoutReport& report, const RankLayout& rank) {
  return report.kv_head_bytes * rank.kv_heads.size() * rank.layers.size();
}

uint64_t ReplicatedKvBytes(const LayoutReport& report) {
  return report.kv_head_bytes * report.layout->replicated_kv_heads;
}

std::string RangeText(const Range& range) {
  if (range.size() == 0) return "-";
  if (range.size() == 1) return fmt::format("{}", range.begin);
  return fmt::format("{}-{}", range.begin, range.end - 1);
}

// "0-3,7".
std::string ExpertsText(const std::vector<uint32_t>& experts) {
  if (experts.empty()) return "-";
  std::string text;
  for (size_t i = 0; i < experts.size();) {
    size_t end = i + 1;
    while (end < experts.size() && experts[end] == experts[end - 1] + 1) ++end;
    if (!text.empty()) text += ",";
    text += RangeText({experts[i], experts[end - 1] + 1});
    i = end;
  }
  return text;
}

// Experts that lie on more than one ep rank, with these.
std::vector<std::pair<uint32_t, std::vector<uint32_t>>> CopiedExperts(const Layout& layout) {
  std::vector<std::pair<uint32_t, std::vector<uint32_t>>> copied;
  for (uint32_t expert = 0; layout.split.redundant_experts > 0 && expert < layout.shape.num_experts;
       ++expert) {
    std::vector<uint32_t> holders;
    for (uint32_t ep_rank = 0; ep_rank < layout.split.ep; ++ep_rank) {
      const std::vector<uint32_t>& held = layout.experts.held[ep_rank];
      if (std::binary_search(held.begin(), held.end(), expert)) holders.push_back(ep_rank);
    }
    if (holders.size() > 1) copied.emplace_back(expert, std::move(holders));
  }
  return copied;
}

std::string CopiesText(const Layout& layout) {
  std::vector<std::string> texts;
  for (const auto& [expert, holders] : CopiedExperts(layout)) {
    texts.push_back(fmt::format("{} on ep ranks {}", expert, fmt::join(holders, ",")));
  }
  if (texts.empty()) return "";
  return fmt::format("copies of experts beyond the first: {} a layer; {}\n",
                     layout.split.redundant_experts, fmt::join(texts, "; "));
}

std::string BytesText(uint64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  if (bytes < 10'000'000'000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
  return fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9);
}

std::string RankTable(const LayoutReport& report) {
  std::vector<std::vector<std::string>> rows;
  rows.push_back({"rank", "pp", "tp", "ep", "cp", "layers", "q heads", "kv heads", "ffn columns",
                  "vocabulary", "experts", "weights", "kv a token"});
  const bool teams = report.layout->split.teams > 1;
  if (teams) rows.back().insert(rows.back().begin() + 2, "team");
  for (const RankLayout& rank : report.layout->ranks) {
    const bool words = rank.first_stage || rank.has_head();
    rows.push_back({fmt::format("{}", rank.rank), fmt::format("{}", rank.coord.pp),
                    fmt::format("{}", rank.coord.tp),
                    fmt::format("{}", ExpertPlaceOf(report.layout->split, rank.coord).ep_rank),
                    fmt::format("{}", rank.coord.cp), RangeText(rank.layers),
                    RangeText(rank.q_heads), RangeText(rank.kv_heads), RangeText(rank.ffn_columns),
                    words ? RangeText(rank.vocab_rows) : "-", ExpertsText(rank.experts),
                    report.bytes == nullptr
                        ? "-"
                        : BytesText(WeightBytesOf(*report.layout, rank, *report.bytes)),
                    BytesText(KvBytesPerToken(report, rank))});
    if (teams) rows.back().insert(rows.back().begin() + 2, fmt::format("{}", rank.coord.team));
  }
  return TextTable(rows);
}

uint32_t TokensOf(const LayoutReport& report, StepKind kind) {
  return kind == StepKind::kPrefill ? report.prefill_tokens : 1;
}

std::vector<Transfer> TransfersOf(const LayoutReport& report, StepKind kind) {
  return StepTotals(*report.layout, TokensOf(report, kind), report.traffic, report.wires, kind)
      .List();
}

std::string TrafficText(const char* name, const LayoutReport& report, StepKind kind) {
  const std::vector<Transfer> list = TransfersOf(report, kind);
  if (list.empty()) return fmt::format("{}: nothing is exchanged\n", name);
  std::vector<std::vector<std::string>> rows{{"axis", "operation", "calls", "bytes"}};
  for (const Transfer& t : list) {
    rows.push_back({AxisName(t.axis), CommOpName(t.op), fmt::format("{}", t.calls),
                    fmt::format("{}", t.bytes)});
  }
  return fmt::format("{}, all ranks of a replica together:\n{}", name, TextTable(rows));
}

Json RangeJson(const Range& range) { return Json::array({range.begin, range.end}); }

Json RankJson(const LayoutReport& report, const RankLayout& rank) {
  Json json;
  json["rank"] = rank.rank;
  json["pp"] = rank.coord.pp;
  if (report.layout->split.teams > 1) json["team"] = rank.coord.team;
  json["tp"] = rank.coord.tp;
  json["ep"] = ExpertPlaceOf(report.layout->split, rank.coord).ep_rank;
  json["cp"] = rank.coord.cp;
  json["layers"] = RangeJson(rank.layers);
  json["q_heads"] = RangeJson(rank.q_heads);
  json["kv_heads"] = RangeJson(rank.kv_heads);
  json["ffn_columns"] = RangeJson(rank.ffn_columns);
  json["vocab_rows"] =
      rank.first_stage || rank.has_head() ? RangeJson(rank.vocab_rows) : RangeJson({});
  json["experts"] = rank.experts;
  if (report.bytes != nullptr) {
    json["weight_bytes"] = WeightBytesOf(*report.layout, rank, *report.bytes);
  }
  json["kv_bytes_per_token"] = KvBytesPerToken(report, rank);
  return json;
}

Json TrafficJson(const LayoutReport& report, StepKind kind) {
  Json axes = Json::array();
  for (const Transfer& t : TransfersOf(report, kind)) {
    if (axes.empty() || axes.back()["axis"] != AxisName(t.axis)) {
      axes.push_back({{"axis", AxisName(t.axis)}, {"ops", Json::array()}});
    }
    axes.back()["ops"].push_back(
        {{"op", CommOpName(t.op)}, {"calls", t.calls}, {"bytes", t.bytes}});
  }
  return {{"tokens", TokensOf(report, kind)}, {"axes", std::move(axes)}};
}

Json SplitJson(const Split& split) {
  Json json{{"dp", split.dp}, {"pp", split.pp}, {"tp", split.tp},
            {"ep", split.ep}, {"cp", split.cp}, {"dcp", split.dcp}};
  if (split.teams > 1) json["teams"] = split.teams;
  if (!split.tp_shares.empty()) json["tp_shares"] = split.tp_shares;
  if (!split.pp_layers.empty()) json["pp_layers"] = split.pp_layers;
  if (split.redundant_experts > 0) json["redundant_experts"] = split.redundant_experts;
  return json;
}

}  // namespace

uint64_t WeightBytesOf(const Layout& layout, const RankLayout& rank, const ModelBytes& bytes) {
  const ModelShape& shape = layout.shape;
  const uint64_t experts = std::max(shape.num_experts, 1U);
  const uint64_t held_experts = shape.num_experts == 0 ? 1 : rank.experts.size();
  uint64_t total = 0;
  for (uint32_t layer = rank.layers.begin; layer < rank.layers.end; ++layer) {
    const LayerBytes& b = bytes.layers[layer];
    total += ShareOfBytes(b.query, rank.q_heads.size(), shape.num_heads);
    total += ShareOfBytes(b.kv, rank.kv_heads.size(), shape.num_kv_heads);
    total += ShareOfBytes(b.ffn, held_experts * rank.ffn_columns.size(), experts * shape.ffn_size);
    total += b.common;
  }
  const uint64_t vocab = rank.vocab_rows.size();
  if (rank.first_stage) total += ShareOfBytes(bytes.embedding, vocab, shape.vocab_size);
  if (rank.has_head()) {
    total += ShareOfBytes(bytes.head, vocab, shape.vocab_size) + bytes.final_norm;
  }
  return total;
}

TrafficTotals StepTotals(const Layout& layout, uint32_t tokens, const TrafficOptions& options,
                         std::span<const LayerWires> wires, StepKind kind) {
  TrafficTotals totals;
  for (const RankLayout& rank : layout.ranks) {
    StepCounts counts;
    // One request's: in the first team.
    if (rank.coord.team == 0) {
      counts.tokens = tokens;
      counts.greedy_rows = 1;
      counts.greedy_groups = 1;
    } else {
      counts.others = {.tokens = tokens, .greedy_rows = 1, .greedy_groups = 1};
    }
    // Which rank holds a token's embedding depends on the token; together they hold each once.
    counts.embedded_tokens = rank.first_stage && rank.coord.tp == 0 ? counts.tokens : 0;
    if (layout.shape.post_norms) {
      counts.wide_rows = ReducedRows(layout, rank.rank, counts.tokens);
    }
    counts.normed_rows = ExpectedNormedRows(layout, rank.rank, counts.tokens, wires);
    counts.ep = ExpectedEpCounts(layout, rank.rank, counts, wires);
    counts.cp = ExpectedCpCounts(layout, rank.rank, counts.tokens, kind);
    AddTrafficOfStep(layout, rank.rank, counts, options, &totals);
  }
  return totals;
}

std::string ReportText(const LayoutReport& report) {
  const Layout& layout = *report.layout;
  const Split& split = layout.split;
  std::string text =
      fmt::format("layout {}: {} rank{} in {} replica{}\n", split.ToString(), split.world_size(),
                  split.world_size() == 1 ? "" : "s", split.dp, split.dp == 1 ? "" : "s");
  text += RankTable(report);
  text += fmt::format(
      "KV heads held more than once: {} a layer, {} B a token and layer\n"
      "largest share over the even one: attention {:.3f}, ffn {:.3f}; tp speeds up at most "
      "{:.2f}x\n",
      layout.replicated_kv_heads, ReplicatedKvBytes(report), layout.AttentionImbalance(),
      layout.FfnImbalance(), layout.TpCeiling());
  text += CopiesText(layout);
  text += TrafficText("a decoded token", report, StepKind::kDecode);
  text += TrafficText(fmt::format("a prefill of {} tokens", report.prefill_tokens).c_str(), report,
                      StepKind::kPrefill);
  if (split.pp > 1) {
    text +=
        "These are of one step. serve sends a long prompt through the stages in several, so that "
        "all "
        "of them work: in more calls of fewer rows.\n";
  }
  if (!IsWhollyPriced(split, report.traffic.dialect)) {
    text += "what cp and dcp exchange is not in these figures\n";
  }
  return text;
}

std::string ReportJson(const LayoutReport& report) {
  const Layout& layout = *report.layout;
  Json json;
  json["split"] = SplitJson(layout.split);
  json["world_size"] = layout.split.world_size();
  json["replicated_kv_heads"] = layout.replicated_kv_heads;
  json["replicated_kv_bytes_per_token_and_layer"] = ReplicatedKvBytes(report);
  if (layout.split.redundant_experts > 0) {
    json["copied_experts"] = Json::array();
    for (const auto& [expert, holders] : CopiedExperts(layout)) {
      json["copied_experts"].push_back({{"expert", expert}, {"ep_ranks", holders}});
    }
  }
  json["attention_imbalance"] = layout.AttentionImbalance();
  json["ffn_imbalance"] = layout.FfnImbalance();
  json["tp_ceiling"] = layout.TpCeiling();
  json["ranks"] = Json::array();
  for (const RankLayout& rank : layout.ranks) json["ranks"].push_back(RankJson(report, rank));
  json["traffic"] = {{"whole", IsWhollyPriced(layout.split, report.traffic.dialect)},
                     {"decode", TrafficJson(report, StepKind::kDecode)},
                     {"prefill", TrafficJson(report, StepKind::kPrefill)}};
  return json.dump(2) + "\n";
}

}  // namespace cleave
