#include "cli/dry_run.h"

#include <fmt/core.h>

#include <utility>
#include <vector>

#include "cli/expert_load.h"
#include "comm/segment.h"
#include "engine/model_bytes.h"
#include "split/layout_report.h"

namespace cleave {

Status DryRun(const ServeFlags& flags, const std::string& path) {
  ASSIGN_OR_RETURN(const auto checkpoint, OpenCheckpoint(path));
  ModelSettings settings = flags.model.Settings();
  ASSIGN_OR_RETURN(settings.split, flags.split.ToSplit());
  FitToModel(checkpoint->config(), &settings.split);
  ASSIGN_OR_RETURN(const auto loads, OpenExpertLoad(flags.split.expert_load, path,
                                                    ExpertLoadFile::Use::kRead, &settings.split));
  ASSIGN_OR_RETURN(const ModelPlan plan, PlanModel(*checkpoint, settings));
  ASSIGN_OR_RETURN(std::vector<LayerWires> wires, WiresOf(*checkpoint, plan.executor.float_type));
  const KvShape& kv = plan.executor.kv_shape;
  const LayoutReport report{.layout = &plan.layout,
                            .bytes = &plan.bytes,
                            .kv_head_bytes = kv.token_bytes(),
                            .traffic = {.one_shot_max_bytes = WorldOptions().one_shot_max_bytes},
                            .wires = std::move(wires)};
  if (flags.json) {
    fmt::print("{}\n", ReportJson(report));
    return OkStatus();
  }
  fmt::print("{}: {}\n{}\n{}\n", checkpoint->name(), settings.split.ToString(),
             plan.sizing.Account(kv.block_tokens), ReportText(report));
  if (settings.split.pp > 1 && flags.split.to_measure().pp_layers) {
    fmt::print(
        "Stages are balanced by multiply-adds here; serve balances them by what a layer and "
        "the head take on its cores.\n");
  }
  if (settings.split.tp > 1 && flags.split.to_measure().tp_shares) {
    fmt::print("Shares are even here; serve measures the cores of the tp ranks.\n");
  }
  return OkStatus();
}

}  // namespace cleave
