#include "launch/auto_split.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "engine/measured_costs.h"
#include "launch/core_speed.h"
#include "launch/cpu_plan.h"
#include "split/balance.h"

namespace cleave {
namespace {

// One speed a tp rank: the slowest of the replica's ranks that have its shares.
std::vector<double> SpeedsOfTp(const Split& split, const std::vector<double>& of_ranks) {
  std::vector<double> speeds(split.tp, *std::max_element(of_ranks.begin(), of_ranks.end()));
  for (uint32_t rank = 0; rank < split.ranks_per_replica(); ++rank) {
    double& speed = speeds[CoordOf(split, rank).tp];
    speed = std::min(speed, of_ranks[rank]);
  }
  return speeds;
}

Result<std::vector<uint32_t>> TpShares(const ModelSettings& settings) {
  const Split& split = settings.split;
  ASSIGN_OR_RETURN(const CpuTopology topology, ReadCpuTopology());
  const auto cpus = PlanCpus(topology, split.world_size(), settings.threads);
  if (cpus.front().empty()) {
    spdlog::info("tp shares are even: ranks have no cores of their own to measure");
    return std::vector<uint32_t>();
  }
  const std::vector<double> speeds = SpeedsOfTp(split, MeasureCoreSpeeds(cpus));
  std::vector<uint32_t> shares = SharesBySpeed(speeds);
  spdlog::info("tp shares {}, by speed",
               shares.empty() ? "even" : fmt::format("{}", fmt::join(shares, ",")));
  return shares;
}

Result<std::vector<uint32_t>> PpLayers(const std::string& model_path,
                                       const ModelSettings& settings) {
  ASSIGN_OR_RETURN(auto checkpoint, OpenCheckpoint(model_path));
  ASSIGN_OR_RETURN(const ModelPlan plan, PlanModel(*checkpoint, settings));
  ASSIGN_OR_RETURN(const LayerCosts costs, MeasureCosts(std::move(checkpoint), plan));
  std::vector<uint32_t> layers = BalanceLayers(costs, settings.split.pp);
  spdlog::info("pp layers {}: the head takes as long as {:.1f} layers", fmt::join(layers, ","),
               costs.head / costs.layers.front());
  return layers;
}

}  // namespace

Result<Split> ResolveSplit(const std::string& model_path, const ModelSettings& settings,
                           const AutoParts& parts) {
  Split split = settings.split;
  if (parts.tp_shares && split.tp > 1 && split.tp_shares.empty()) {
    ASSIGN_OR_RETURN(split.tp_shares, TpShares(settings));
  }
  if (parts.pp_layers && split.pp > 1 && split.pp_layers.empty()) {
    ASSIGN_OR_RETURN(split.pp_layers, PpLayers(model_path, settings));
  }
  return split;
}

}  // namespace cleave
