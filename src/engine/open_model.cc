#include "engine/open_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/host.h"
#include "split/refusal.h"

namespace cleave {
namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

Result<std::optional<DType>> ParseFloatType(const std::string& flag, const std::string& text) {
  if (text == "auto") return std::optional<DType>();
  if (text == "float32" || text == "float" || text == "f32") return std::optional(DType::kF32);
  if (text == "float16" || text == "half" || text == "f16") return std::optional(DType::kF16);
  if (text == "bfloat16" || text == "bf16") return std::optional(DType::kBF16);
  return InvalidArgument(
      fmt::format("{} {}: expected auto, float32, float16 or bfloat16", flag, text));
}

// Auto: the cache follows the weights: exact for F32, their own type for bf16, half otherwise.
Result<KvType> ParseKvType(const std::string& text, DType weights) {
  if (text == "int8" || text == "int8_per_token_head") return KvType::kInt8;
  const auto type = ParseFloatType("--kv-cache-dtype", text);
  if (!type.ok()) {
    return InvalidArgument(
        fmt::format("{}, or int8 (int8_per_token_head)", type.status().message()));
  }
  const DType as = type->value_or(weights);
  return as == DType::kF32 ? KvType::kF32 : as == DType::kBF16 ? KvType::kBF16 : KvType::kF16;
}

// What every rank of every replica can hold on a host of so many bytes.
Result<Sizing> SizeRanks(const ModelConfig& config, const ModelSettings& settings,
                         const ModelPlan& plan, uint64_t host_bytes) {
  const RankOptions& options = plan.executor;
  const uint32_t ranks = settings.split.world_size();
  std::optional<Sizing> least;
  for (const RankLayout& rank : plan.layout.ranks) {
    const SizingInput input{.config = &config,
                            .rank = &rank,
                            .tp = settings.split.tp,
                            .teams = settings.split.teams,
                            .kv_partitions = KvPartitionsOf(settings.split),
                            .partial_queries = KvPartitionsOf(settings.split) == 1
                                                   ? 0
                                                   : plan.layout.DcpQueries(rank.coord).size(),
                            .kv_shape = options.kv_shape,
                            .weight_bytes = WeightBytesOf(plan.layout, rank, plan.bytes),
                            .memory_bytes = host_bytes / ranks,
                            .utilization = settings.memory_utilization,
                            .kv_cache_memory_bytes = settings.kv_cache_memory_bytes,
                            .max_model_len = settings.max_model_len,
                            .max_num_seqs = settings.max_num_seqs,
                            .max_num_batched_tokens = settings.max_num_batched_tokens};
    auto sizing = ComputeSizing(input);
    if (!sizing.ok()) {
      if (ranks == 1) return sizing.status();
      return sizing.status().Annotate(fmt::format("rank {} of {}, which share {:.2f} GiB",
                                                  rank.rank, ranks,
                                                  static_cast<double>(host_bytes) / kGib));
    }
    least = least ? Smallest(*least, *sizing) : *sizing;
  }
  return *least;
}

// Of a plan that does not fit: "layouts that fit: dp=36", the most ranks along one axis each;
// nothing where none does.
std::string LayoutsThatFit(const ModelConfig& config, const ModelSettings& settings, ModelPlan plan,
                           uint64_t host_bytes) {
  const ModelShape shape = ShapeOf(config);
  const auto ranks = [](const Split& split) { return split.teams * split.tp * split.cp; };
  const bool ep_is_all = settings.split.ep == ranks(settings.split);
  std::vector<std::string> fit;
  for (uint32_t Split::*const axis :
       {&Split::dp, &Split::pp, &Split::teams, &Split::tp, &Split::cp}) {
    ModelSettings tried = settings;
    if (axis == &Split::pp) tried.split.pp_layers.clear();
    if (axis == &Split::tp) tried.split.tp_shares.clear();
    uint32_t most = 0;
    for (uint32_t above = settings.split.*axis; above - most > 1;) {
      const uint32_t size = most + (above - most) / 2;
      tried.split.*axis = size;
      if (ep_is_all) tried.split.ep = ranks(tried.split);
      auto layout = MakeLayout(shape, tried.split, CostsByWork(shape));
      bool fits = layout.ok();
      if (fits) {
        plan.layout = *std::move(layout);
        fits = SizeRanks(config, tried, plan, host_bytes).ok();
      }
      (fits ? most : above) = size;
    }
    if (most == 0) continue;
    tried.split.*axis = most;
    if (ep_is_all) tried.split.ep = ranks(tried.split);
    fit.push_back(Brief(tried.split));
  }
  return fit.empty() ? "" : fmt::format("; layouts that fit: {}", fmt::join(fit, ", "));
}

}  // namespace

Result<ModelPlan> PlanModel(const Checkpoint& checkpoint, const ModelSettings& settings) {
  const ModelConfig& config = checkpoint.config();
  RETURN_IF_ERROR(config.Validate());
  ModelPlan plan;
  RankOptions& options = plan.executor;
  ASSIGN_OR_RETURN(options.float_type, ParseFloatType("--dtype", settings.dtype));
  const uint32_t block = settings.block_size;
  if (block != 16 && block != 32 && block != 64 && block != 128) {
    return InvalidArgument(
        fmt::format("--block-size {}: KV blocks hold 16, 32, 64 or 128 tokens", block));
  }
  DType weights = checkpoint.main_dtype();
  if (options.float_type && (!IsQuantised(weights) || *options.float_type == DType::kF32)) {
    weights = *options.float_type;
  }
  ASSIGN_OR_RETURN(const KvType kv_type, ParseKvType(settings.kv_cache_dtype, weights));
  options.kv_shape = {.type = kv_type, .head_dim = config.head_dim, .block_tokens = block};
  ASSIGN_OR_RETURN(options.isa, ChooseIsa());
  options.threads = settings.threads;
  if (options.threads == 0) {
    options.threads = std::max(1U, UsableCoreCount() / settings.split.world_size());
  }
  options.max_batch_tokens = settings.max_num_batched_tokens;
  options.max_sequences = settings.max_num_seqs;
  options.repacked_cache_dir = settings.repacked_cache_dir;
  if (settings.max_model_len && *settings.max_model_len > config.max_position) {
    return InvalidArgument(fmt::format(
        "--max-model-len {}: the model was made for {} positions; give at most that, or auto",
        *settings.max_model_len, config.max_position));
  }
  const ModelShape shape = ShapeOf(config);
  ASSIGN_OR_RETURN(plan.layout, MakeLayout(shape, settings.split, CostsByWork(shape)));
  ASSIGN_OR_RETURN(plan.bytes, BytesOf(checkpoint, options.float_type));
  const uint64_t host_bytes = ReadHostMemory().total_bytes;
  auto sizing = SizeRanks(config, settings, plan, host_bytes);
  if (!sizing.ok()) {
    return Status(sizing.status().code(),
                  sizing.status().message() + LayoutsThatFit(config, settings, plan, host_bytes));
  }
  plan.sizing = *sizing;
  options.max_positions = plan.sizing.max_model_len;
  options.num_blocks = plan.sizing.num_blocks;
  return plan;
}

Result<std::unique_ptr<InlineExecutor>> LoadModel(std::unique_ptr<Checkpoint> checkpoint,
                                                  const ModelPlan& plan,
                                                  const LoadProgress& progress) {
  return InlineExecutor::Create(std::move(checkpoint), plan.executor, plan.layout, progress);
}

Status SmokeForward(Executor* executor) {
  const int32_t token = 0;
  const int32_t block = 0;
  const BatchSequence sequence{.first_position = 0, .tokens = 1, .block_table = {&block, 1}};
  const WantedRow row;
  const uint32_t vocab_size = executor->vocab_size();
  return RunBatch(
      executor, {.token_ids = {&token, 1}, .sequences = {&sequence, 1}, .wanted = {&row, 1}},
      [vocab_size](uint32_t /*index*/, const RowResult& result) {
        for (uint32_t id = 0; id < vocab_size; ++id) {
          if (std::isfinite(result.logits[id])) continue;
          return DataLoss(fmt::format(
              "the model's first forward pass gives {} for token {}: its weights are damaged",
              result.logits[id], id));
        }
        return OkStatus();
      });
}

}  // namespace cleave
