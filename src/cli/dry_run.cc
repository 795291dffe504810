#include "cli/dry_run.h"

#include <fmt/core.h>

#include "cli/expert_load.h"
#include "comm/segment.h"
#include "split/layout_report.h"

namespace cleave {

namespace {

// As the matrices that most of the model is made of take their input.
RowWire NormedWire(const Checkpoint& checkpoint, std::optional<DType> float_type) {
  DType type = checkpoint.main_dtype();
  if (float_type && (!IsQuantised(type) || *float_type == DType::kF32)) type = *float_type;
  const ActKind kind = ActKindOf(type);
  if (kind == ActKind::kInt8) return RowWire::kInt8;
  return kind == ActKind::kBF16 ? RowWire::kBf16 : RowWire::kFloat;
}

}  // namespace

Status DryRun(const ServeFlags& flags, const std::string& path) {
  ASSIGN_OR_RETURN(const auto checkpoint, OpenCheckpoint(path));
  ModelSettings settings = flags.model.Settings();
  ASSIGN_OR_RETURN(settings.split, flags.split.ToSplit());
  FitToModel(checkpoint->config(), &settings.split);
  ASSIGN_OR_RETURN(const auto loads, OpenExpertLoad(flags.split.expert_load, path,
                                                    ExpertLoadFile::Use::kRead, &settings.split));
  ASSIGN_OR_RETURN(const ModelPlan plan, PlanModel(*checkpoint, settings));
  const KvShape& kv = plan.executor.kv_shape;
  const LayoutReport report{.layout = &plan.layout,
                            .bytes = &plan.bytes,
                            .kv_head_bytes = kv.token_bytes(),
                            .traffic = {.one_shot_max_bytes = WorldOptions().one_shot_max_bytes},
                            .normed_rows = NormedWire(*checkpoint, plan.executor.float_type)};
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
