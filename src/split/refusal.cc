#include "split/refusal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "model/config.h"
#include "split/balance.h"

namespace cleave {
namespace {

constexpr uint32_t kMaxCount = 1U << 30U;
constexpr size_t kMaxSuggestions = 4;

uint32_t FfnUnits(const ModelShape& shape) { return CeilDiv(shape.ffn_size, kFfnUnitColumns); }
uint32_t VocabUnits(const ModelShape& shape) { return CeilDiv(shape.vocab_size, kVocabUnitRows); }

Status InRange(const char* name, uint64_t value, uint64_t low, uint64_t high) {
  if (value >= low && value <= high) return OkStatus();
  return InvalidArgument(
      fmt::format("{} is {}; it must be between {} and {}", name, value, low, high));
}

Status CheckSizes(const Split& split) {
  RETURN_IF_ERROR(InRange("dp", split.dp, 1, kMaxAxisSize));
  RETURN_IF_ERROR(InRange("pp", split.pp, 1, kMaxAxisSize));
  RETURN_IF_ERROR(InRange("teams", split.teams, 1, kMaxAxisSize));
  RETURN_IF_ERROR(InRange("tp", split.tp, 1, kMaxAxisSize));
  RETURN_IF_ERROR(InRange("ep", split.ep, 1, kMaxAxisSize));
  RETURN_IF_ERROR(InRange("cp", split.cp, 1, kMaxAxisSize));
  RETURN_IF_ERROR(InRange("dcp", split.dcp, 1, kMaxAxisSize));
  const uint64_t ranks = uint64_t{split.pp} * split.teams * split.tp * split.cp;
  if (ranks <= kMaxReplicaRanks) return OkStatus();
  const std::string teams = split.teams == 1 ? "" : fmt::format("teams {} · ", split.teams);
  return InvalidArgument(
      fmt::format("pp {} · {}tp {} · cp {} is {} ranks; a replica has at most {}", split.pp, teams,
                  split.tp, split.cp, ranks, kMaxReplicaRanks));
}

// What teams have in common are the experts.
Status CheckTeams(const ModelShape& shape, const Split& split) {
  if (split.teams == 1 || split.ep > 1) return OkStatus();
  return InvalidArgument(
      fmt::format("teams is {} and ep is 1: teams would share nothing; {}", split.teams,
                  shape.num_experts == 0 ? "the model has no experts, so take replicas (dp)"
                                         : "spread the experts over them (ep), or take replicas "
                                           "(dp)"));
}

// The most ranks that something can be shared out over, and why.
struct Limit {
  uint32_t most = 0;
  std::string why;
};

Status AtMost(const char* axis, uint32_t value, const Limit& limit) {
  if (value <= limit.most) return OkStatus();
  return InvalidArgument(
      fmt::format("{} is {}; it can be at most {}: {}", axis, value, limit.most, limit.why));
}

Limit HeadLimit(const ModelShape& shape) {
  return {shape.num_heads, fmt::format("the model has {} query heads", shape.num_heads)};
}

Limit VocabLimit(const ModelShape& shape) {
  return {VocabUnits(shape), fmt::format("the vocabulary's {} rows make {} units of {}",
                                         shape.vocab_size, VocabUnits(shape), kVocabUnitRows)};
}

Limit FfnLimit(const ModelShape& shape) {
  return {FfnUnits(shape),
          fmt::format("{}'s {} FFN columns make {} unit{} of {}",
                      shape.num_experts > 0 ? "an expert" : "a layer", shape.ffn_size,
                      FfnUnits(shape), FfnUnits(shape) == 1 ? "" : "s", kFfnUnitColumns)};
}

Status CheckTp(const ModelShape& shape, const Split& split) {
  std::vector<Limit> limits{HeadLimit(shape), VocabLimit(shape)};
  if (split.ep == 1) limits.push_back(FfnLimit(shape));
  const Limit tightest = *std::min_element(
      limits.begin(), limits.end(), [](const Limit& a, const Limit& b) { return a.most < b.most; });
  RETURN_IF_ERROR(AtMost("tp", split.tp, tightest));
  if (split.tp % split.dcp == 0) return OkStatus();
  return InvalidArgument(fmt::format("dcp is {}; it must divide tp, {}", split.dcp, split.tp));
}

Status CheckEp(const ModelShape& shape, const Split& split) {
  if (split.ep == 1) return OkStatus();
  if (shape.num_experts == 0) {
    return InvalidArgument(
        fmt::format("ep is {}; the model has no experts, so ep can only be 1", split.ep));
  }
  RETURN_IF_ERROR(AtMost(
      "ep", split.ep,
      {shape.num_experts, fmt::format("the model has {} experts a layer", shape.num_experts)}));
  const uint32_t ranks = split.ranks_per_stage();
  if (ranks % split.ep != 0) {
    const std::string what = split.teams == 1 ? fmt::format("tp · cp, {} · {}", split.tp, split.cp)
                                              : fmt::format("teams · tp · cp, {} · {} · {}",
                                                            split.teams, split.tp, split.cp);
    return InvalidArgument(fmt::format("ep is {}; it must divide {} = {}", split.ep, what, ranks));
  }
  return AtMost(split.teams == 1 ? "tp · cp / ep" : "teams · tp · cp / ep", ranks / split.ep,
                FfnLimit(shape));
}

// What groups of ranks in shared memory are made for.
Status CheckGroups(const Split& split) {
  const Limit limit{kMaxGroupRanks, "no more exchange with each other"};
  RETURN_IF_ERROR(AtMost("pp", split.pp, limit));
  RETURN_IF_ERROR(AtMost("teams", split.teams, limit));
  RETURN_IF_ERROR(AtMost("tp", split.tp, limit));
  RETURN_IF_ERROR(AtMost("cp", split.cp, limit));
  if (split.ep == 1) return OkStatus();
  return AtMost(split.teams == 1 ? "tp · cp under ep" : "teams · tp · cp under ep",
                split.ranks_per_stage(), limit);
}

Limit RedundantLimit(const ModelShape& shape, const Split& split) {
  const uint64_t most = MostRedundant(shape.num_experts, split.ep);
  if (most > kMaxRedundantExperts) return {kMaxRedundantExperts, "more are not provided for"};
  return {static_cast<uint32_t>(most),
          fmt::format("each of {} ep ranks holds each of {} experts once at most", split.ep,
                      shape.num_experts)};
}

Status CheckExperts(const ModelShape& shape, const Split& split) {
  if (!split.expert_loads.empty() && split.expert_loads.size() != shape.num_experts) {
    return InvalidArgument(fmt::format("loads of {} experts are given; the model has {}",
                                       split.expert_loads.size(), shape.num_experts));
  }
  if (split.redundant_experts == 0) return OkStatus();
  if (split.ep == 1) {
    return InvalidArgument(
        fmt::format("redundant-experts is {}; ep is 1: copies need other ep ranks to lie on",
                    split.redundant_experts));
  }
  return AtMost("redundant-experts", split.redundant_experts, RedundantLimit(shape, split));
}

Status CheckPp(const ModelShape& shape, const Split& split) {
  RETURN_IF_ERROR(
      AtMost("pp", split.pp,
             {shape.num_layers, fmt::format("the model has {} layers", shape.num_layers)}));
  if (split.pp_layers.empty()) return OkStatus();
  if (split.pp_layers.size() != split.pp) {
    return InvalidArgument(fmt::format("pp-layers has {} number{}; pp {} needs {}",
                                       split.pp_layers.size(),
                                       split.pp_layers.size() == 1 ? "" : "s", split.pp, split.pp));
  }
  uint64_t sum = 0;
  for (uint32_t stage = 0; stage < split.pp; ++stage) {
    sum += split.pp_layers[stage];
    if (split.pp_layers[stage] > 0) continue;
    return InvalidArgument(
        fmt::format("pp-layers gives stage {} no layer; each needs at least 1", stage));
  }
  if (sum == shape.num_layers) return OkStatus();
  return InvalidArgument(fmt::format("pp-layers {} add up to {}; the model has {} layers",
                                     fmt::join(split.pp_layers, ","), sum, shape.num_layers));
}

Status CheckNoneEmpty(const std::vector<Range>& ranges, const Split& split, const char* rank,
                      const std::string& what) {
  const auto empty =
      std::find_if(ranges.begin(), ranges.end(), [](const Range& r) { return r.size() == 0; });
  if (empty == ranges.end()) return OkStatus();
  return InvalidArgument(fmt::format("tp-shares {} leave {} {} none of the {}",
                                     fmt::join(split.tp_shares, ","), rank, empty - ranges.begin(),
                                     what));
}

Status CheckShares(const ModelShape& shape, const Split& split) {
  if (split.tp_shares.empty()) return OkStatus();
  if (split.tp_shares.size() != split.tp) {
    return InvalidArgument(fmt::format("tp-shares has {} number{}; tp {} needs {}",
                                       split.tp_shares.size(),
                                       split.tp_shares.size() == 1 ? "" : "s", split.tp, split.tp));
  }
  const auto zero = std::find(split.tp_shares.begin(), split.tp_shares.end(), 0U);
  if (zero != split.tp_shares.end()) {
    return InvalidArgument(fmt::format("tp-shares gives tp rank {} a share of 0; at least 1",
                                       zero - split.tp_shares.begin()));
  }
  const StageShares shares = SharesOfStage(shape, split);
  RETURN_IF_ERROR(CheckNoneEmpty(shares.q_heads, split, "tp rank",
                                 fmt::format("{} query heads", shape.num_heads)));
  RETURN_IF_ERROR(
      CheckNoneEmpty(shares.vocab_rows, split, "tp rank",
                     fmt::format("{} vocabulary units of {}", VocabUnits(shape), kVocabUnitRows)));
  if (split.ep > 1) {
    RETURN_IF_ERROR(CheckNoneEmpty(shares.experts, split, "ep rank",
                                   fmt::format("{} experts", shape.num_experts)));
  }
  return CheckNoneEmpty(shares.ffn_columns, split, "stage rank",
                        fmt::format("{} FFN units of {}", FfnUnits(shape), kFfnUnitColumns));
}

// Shares near the asked ones that leave no rank without a head; even ones if
// that is not enough.
std::vector<uint32_t> NearestShares(const ModelShape& shape, const Split& split) {
  std::vector<uint32_t> even(split.tp, 1);
  if (split.tp_shares.size() != split.tp) return even;
  std::vector<uint32_t> heads;
  for (const Range& range : ShareOut(shape.num_heads, split.tp_shares)) {
    heads.push_back(range.size());
  }
  for (uint32_t& count : heads) {
    if (count > 0) continue;
    --*std::max_element(heads.begin(), heads.end());
    count = 1;
  }
  Split mended = split;
  mended.tp_shares = heads;
  return CheckCut(shape, mended).ok() ? heads : even;
}

// The largest ep and dcp, at most the asked ones, that go with the candidate's teams, tp and cp.
void FitGroups(const ModelShape& shape, Split* candidate) {
  const uint64_t ranks = uint64_t{candidate->teams} * candidate->tp * candidate->cp;
  const uint32_t most = std::min(std::max(candidate->ep, 1U), std::max(shape.num_experts, 1U));
  candidate->ep = static_cast<uint32_t>(std::min<uint64_t>(most, ranks));
  while (candidate->ep > 1 &&
         (ranks % candidate->ep != 0 || ranks / candidate->ep > FfnUnits(shape))) {
    --candidate->ep;
  }
  if (candidate->ep == 1) {
    candidate->dp = std::min(candidate->dp * candidate->teams, kMaxAxisSize);
    candidate->teams = 1;
  }
  candidate->dcp = std::clamp(candidate->dcp, 1U, candidate->tp);
  while (candidate->tp % candidate->dcp != 0) --candidate->dcp;
}

// Other (pp, tp) of the same product that work, the tp nearest to the asked one
// first.
std::vector<Split> SameRanks(const ModelShape& shape, const Split& base, uint64_t ranks,
                             uint32_t asked_tp) {
  std::vector<Split> found;
  const uint64_t most = std::min<uint64_t>({ranks, shape.num_heads, kMaxGroupRanks});
  for (uint32_t tp = 1; tp <= most; ++tp) {
    if (ranks % tp != 0 || ranks / tp > shape.num_layers) continue;
    Split candidate = base;
    candidate.tp = tp;
    candidate.pp = static_cast<uint32_t>(ranks / tp);
    FitGroups(shape, &candidate);
    if (CheckCut(shape, candidate).ok()) found.push_back(candidate);
  }
  const auto distance = [&](const Split& s) {
    return std::abs(std::log2(static_cast<double>(s.tp) / std::max(asked_tp, 1U)));
  };
  std::stable_sort(found.begin(), found.end(),
                   [&](const Split& a, const Split& b) { return distance(a) < distance(b); });
  if (found.size() >= kMaxSuggestions) found.resize(kMaxSuggestions - 1);
  return found;
}

// The asked split with every size pulled into its limits.
Split Nearest(const ModelShape& shape, const Split& base) {
  Split candidate = base;
  candidate.pp = std::clamp(base.pp, 1U, std::min(shape.num_layers, kMaxGroupRanks));
  candidate.tp =
      std::clamp(base.tp, 1U, std::min({shape.num_heads, VocabUnits(shape), kMaxGroupRanks}));
  if (base.ep <= 1 || shape.num_experts == 0) {
    candidate.tp = std::min(candidate.tp, FfnUnits(shape));
  }
  FitGroups(shape, &candidate);
  if (CheckCut(shape, candidate).ok()) return candidate;
  candidate.tp = std::min(candidate.tp, FfnUnits(shape));
  candidate.cp = 1;
  FitGroups(shape, &candidate);
  if (CheckCut(shape, candidate).ok()) return candidate;
  candidate.pp = 1;
  FitGroups(shape, &candidate);
  if (CheckCut(shape, candidate).ok()) return candidate;
  candidate.teams = 1;
  FitGroups(shape, &candidate);
  return candidate;
}

std::string ExpertsThatWork(const ModelShape& shape, const Split& split) {
  if (split.redundant_experts == 0) return fmt::format("{} loads, or none", shape.num_experts);
  return fmt::format("redundant-experts {}", RedundantLimit(shape, split).most);
}

}  // namespace

std::string Brief(const Split& split) {
  std::string text;
  const auto add = [&](const char* name, uint32_t size) {
    if (size != 1) text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, size);
  };
  add("dp", split.dp);
  add("pp", split.pp);
  add("teams", split.teams);
  add("tp", split.tp);
  add("ep", split.ep);
  add("cp", split.cp);
  add("dcp", split.dcp);
  return text.empty() ? "tp=1" : text;
}

StageShares SharesOfStage(const ModelShape& shape, const Split& split) {
  std::vector<uint32_t> weights = split.tp_shares;
  if (weights.empty()) weights.assign(split.tp, 1);
  const auto in_units = [](uint32_t n, uint32_t unit, const std::vector<uint32_t>& by) {
    std::vector<Range> ranges = ShareOut(CeilDiv(n, unit), by);
    for (Range& range : ranges) {
      range = {std::min(range.begin * unit, n), std::min(range.end * unit, n)};
    }
    return ranges;
  };
  StageShares shares;
  shares.q_heads = ShareOut(shape.num_heads, weights);
  shares.vocab_rows = in_units(shape.vocab_size, kVocabUnitRows, weights);
  if (split.ep == 1) {
    shares.experts = {{0, shape.num_experts}};
    for (const Range& columns : in_units(shape.ffn_size, kFfnUnitColumns, weights)) {
      shares.ffn_columns.insert(shares.ffn_columns.end(), split.cp, columns);
    }
    return shares;
  }
  std::vector<uint64_t> ep_weights(split.ep, 0);
  std::vector<std::vector<uint32_t>> column_weights(split.ep);
  for (uint32_t place = 0; place < split.ranks_per_stage(); ++place) {
    const RankCoord coord = CoordOf(split, place);
    const uint32_t ep_rank = ExpertPlaceOf(split, coord).ep_rank;
    ep_weights[ep_rank] += weights[coord.tp];
    column_weights[ep_rank].push_back(weights[coord.tp]);
  }
  shares.experts = ShareOutWide(shape.num_experts, ep_weights);
  shares.ep_weights = std::move(ep_weights);
  for (const std::vector<uint32_t>& by : column_weights) {
    const std::vector<Range> columns = in_units(shape.ffn_size, kFfnUnitColumns, by);
    shares.ffn_columns.insert(shares.ffn_columns.end(), columns.begin(), columns.end());
  }
  return shares;
}

Status CheckShape(const ModelShape& shape, const LayerCosts& costs) {
  RETURN_IF_ERROR(InRange("the model's layers", shape.num_layers, 1, ModelConfig::kMaxLayers));
  RETURN_IF_ERROR(InRange("its hidden size", shape.hidden_size, 1, kMaxCount));
  RETURN_IF_ERROR(InRange("its query heads", shape.num_heads, 1, kMaxCount));
  RETURN_IF_ERROR(InRange("its KV heads", shape.num_kv_heads, 1, shape.num_heads));
  RETURN_IF_ERROR(InRange("its head dimension", shape.head_dim, 1, kMaxCount));
  RETURN_IF_ERROR(InRange("its FFN columns", shape.ffn_size, 1, kMaxCount));
  RETURN_IF_ERROR(InRange("its vocabulary", shape.vocab_size, 1, kMaxCount));
  RETURN_IF_ERROR(InRange("its experts", shape.num_experts, 0, kMaxExperts));
  if (shape.num_experts > 0) {
    RETURN_IF_ERROR(
        InRange("its experts of a token", shape.experts_per_token, 1, shape.num_experts));
  }
  if (shape.num_heads % shape.num_kv_heads != 0) {
    return InvalidArgument(
        fmt::format("the model's KV heads are {}; they must divide its {} query "
                    "heads",
                    shape.num_kv_heads, shape.num_heads));
  }
  if (costs.layers.size() != shape.num_layers) {
    return InvalidArgument(fmt::format("costs of {} layers are given; the model has {}",
                                       costs.layers.size(), shape.num_layers));
  }
  const auto is_cost = [](double c) { return c >= 0 && c <= kMaxLayerCost; };
  if (is_cost(costs.embedding) && is_cost(costs.head) &&
      std::all_of(costs.layers.begin(), costs.layers.end(), is_cost)) {
    return OkStatus();
  }
  return InvalidArgument(
      fmt::format("every cost of a layer must be between 0 and {}", kMaxLayerCost));
}

Status CheckCut(const ModelShape& shape, const Split& split) {
  RETURN_IF_ERROR(CheckSizes(split));
  RETURN_IF_ERROR(CheckTp(shape, split));
  RETURN_IF_ERROR(CheckTeams(shape, split));
  RETURN_IF_ERROR(CheckEp(shape, split));
  RETURN_IF_ERROR(CheckExperts(shape, split));
  RETURN_IF_ERROR(CheckPp(shape, split));
  RETURN_IF_ERROR(CheckGroups(split));
  return CheckShares(shape, split);
}

std::string LayoutsThatWork(const ModelShape& shape, const Split& split, const LayerCosts& costs) {
  Split base = split;
  base.tp_shares.clear();
  base.pp_layers.clear();
  base.redundant_experts = 0;
  base.expert_loads.clear();
  if (CheckCut(shape, base).ok()) {
    // The sizes are good: it is the lists that are not.
    std::vector<std::string> lists;
    base.tp_shares = split.tp_shares;
    if (!CheckCut(shape, base).ok()) {
      lists.push_back(fmt::format("tp-shares {}", fmt::join(NearestShares(shape, base), ",")));
    }
    if (!CheckPp(shape, split).ok()) {
      lists.push_back(fmt::format("pp-layers {}", fmt::join(BalanceLayers(costs, split.pp), ",")));
    }
    if (!CheckExperts(shape, split).ok()) lists.emplace_back(ExpertsThatWork(shape, split));
    return fmt::format("what works: {}", fmt::join(lists, " "));
  }
  const uint64_t ranks = static_cast<uint64_t>(std::max(split.pp, 1U)) * std::max(split.tp, 1U);
  base.dp = std::clamp(base.dp, 1U, kMaxAxisSize);
  base.cp = std::clamp(base.cp, 1U, kMaxGroupRanks);
  base.teams = std::clamp(base.teams, 1U, kMaxGroupRanks);
  std::vector<Split> works = SameRanks(shape, base, ranks, split.tp);
  const Split nearest = Nearest(shape, base);
  if (std::find(works.begin(), works.end(), nearest) == works.end()) works.push_back(nearest);
  std::vector<std::string> texts;
  bool teams = false;
  for (const Split& candidate : works) {
    texts.push_back(Brief(candidate));
    teams = teams || candidate.teams > 1;
  }
  return fmt::format("layouts that work: {}{}", fmt::join(texts, ", "),
                     teams ? " (teams: dp with --enable-expert-parallel)" : "");
}

}  // namespace cleave
