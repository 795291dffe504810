#include "engine/model_weights.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "base/clock.h"
#include "engine/pack_job.h"
#include "engine/packed_store.h"

namespace cleave {
namespace {

// A whole float matrix as another float type, rounded to nearest even.
std::vector<std::byte> RoundTo(DType type, const TensorView& source, ThreadPool* pool) {
  const uint64_t cols = source.cols();
  const uint64_t from_bytes = RowBytes(source.dtype, cols).value_or(0);
  const uint64_t to_bytes = RowBytes(type, cols).value_or(0);
  const auto rows = static_cast<uint32_t>(source.rows());
  std::vector<std::byte> out(rows * to_bytes);
  pool->Run([&](uint32_t thread) {
    const ThreadPool::Share share = pool->ShareOf(rows, thread);
    std::vector<float> row(cols);
    for (uint64_t r = share.begin; r < share.end; ++r) {
      DequantiseRow(source.dtype, source.data + r * from_bytes, cols, row.data());
      std::byte* to = &out[r * to_bytes];
      if (type == DType::kF32) {
        std::memcpy(to, row.data(), to_bytes);
        continue;
      }
      for (uint64_t i = 0; i < cols; ++i) {
        const uint16_t half = type == DType::kF16 ? FloatToHalf(row[i]) : FloatToBFloat16(row[i]);
        std::memcpy(to + 2 * i, &half, sizeof(half));
      }
    }
  });
  return out;
}

class Loader {
 public:
  Loader(const Checkpoint& checkpoint, const RankLayout& rank, std::optional<DType> float_type)
      : checkpoint_(checkpoint),
        config_(checkpoint.config()),
        rank_(rank),
        float_type_(float_type) {}

  Status Collect(ModelWeights* out);
  Status Pack(ThreadPool* pool, const LoadProgress& progress);
  // As collected; their targets are in what Collect filled.
  [[nodiscard]] const std::vector<PackJob>& jobs() const { return jobs_; }

 private:
  // What a matrix that is stored as `stored` is packed as.
  [[nodiscard]] DType PackedType(DType stored) const {
    if (!float_type_ || (IsQuantised(stored) && *float_type_ != DType::kF32)) return stored;
    return *float_type_;
  }
  // Elements of the heads in `heads`.
  [[nodiscard]] Range HeadRows(Range heads) const {
    return {heads.begin * config_.head_dim, heads.end * config_.head_dim};
  }
  // Output rows `rows` of the file's matrix, in plain order.
  Status AddMatrix(WeightId id, Range rows, KPlan plan, PackedMatrix* target);
  // Elements `range` of a norm or bias (all: {0, 0}) as fp32.
  Status ReadVector(WeightId id, Range range, std::vector<float>* out) const;
  Status ReadNorm(WeightId id, std::vector<float>* out) const;
  Status CollectVectors(uint32_t layer, LayerWeights* out) const;
  Status CollectMatrices(uint32_t layer, LayerWeights* out);
  Status CollectFfn(uint32_t layer, LayerWeights* out);
  Status CollectExperts(uint32_t layer, LayerWeights* out);
  [[nodiscard]] Result<std::optional<ActKind>> ExpertInput(uint32_t layer) const;
  // The columns of a dense layer, or of each expert.
  [[nodiscard]] KPlan DownPlan() const;

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const RankLayout& rank_;
  const std::optional<DType> float_type_;
  std::vector<PackJob> jobs_;
};

Status Loader::ReadVector(WeightId id, Range range, std::vector<float>* out) const {
  ASSIGN_OR_RETURN(const TensorView view, checkpoint_.Weight(id));
  std::vector<float> stored(view.elements());
  DequantiseRow(view.dtype, view.data, view.elements(), stored.data());
  if (range.size() == 0) range = {0, static_cast<uint32_t>(stored.size())};
  const RowOrder order = checkpoint_.OrderOf(id);
  out->resize(range.size());
  for (uint32_t i = 0; i < range.size(); ++i) {
    (*out)[i] = stored[SourceRow(order, range.begin + i, config_.head_dim)];
  }
  return OkStatus();
}

Status Loader::ReadNorm(WeightId id, std::vector<float>* out) const {
  RETURN_IF_ERROR(ReadVector(id, {}, out));
  if (config_.norm_plus_one) {
    for (float& w : *out) w += 1.0F;
  }
  return OkStatus();
}

Status Loader::AddMatrix(WeightId id, Range rows, KPlan plan, PackedMatrix* target) {
  ASSIGN_OR_RETURN(TensorView view, checkpoint_.Weight(id));
  TensorView packed_as = view;
  packed_as.dtype = PackedType(view.dtype);
  ASSIGN_OR_RETURN(*target, PackedMatrix::Describe(packed_as, rows.size(), std::move(plan)));
  jobs_.push_back({.source = std::move(view),
                   .order = checkpoint_.OrderOf(id),
                   .head_dim = config_.head_dim,
                   .first_row = rows.begin,
                   .target = target});
  return OkStatus();
}

Status Loader::CollectVectors(uint32_t layer, LayerWeights* out) const {
  RETURN_IF_ERROR(ReadNorm({WeightRole::kAttnNorm, layer}, &out->attn_norm));
  RETURN_IF_ERROR(ReadNorm({WeightRole::kFfnNorm, layer}, &out->ffn_norm));
  if (config_.post_norms) {
    RETURN_IF_ERROR(ReadNorm({WeightRole::kAttnPostNorm, layer}, &out->attn_post_norm));
    RETURN_IF_ERROR(ReadNorm({WeightRole::kFfnPostNorm, layer}, &out->ffn_post_norm));
  }
  if (config_.qk_norm) {
    RETURN_IF_ERROR(ReadNorm({WeightRole::kQNorm, layer}, &out->q_norm));
    RETURN_IF_ERROR(ReadNorm({WeightRole::kKNorm, layer}, &out->k_norm));
  }
  if (!config_.qkv_bias) return OkStatus();
  const Range q_rows = HeadRows(rank_.q_heads);
  const Range kv_rows = HeadRows(rank_.kv_heads);
  RETURN_IF_ERROR(ReadVector({WeightRole::kQBias, layer}, q_rows, &out->q_bias));
  RETURN_IF_ERROR(ReadVector({WeightRole::kKBias, layer}, kv_rows, &out->k_bias));
  return ReadVector({WeightRole::kVBias, layer}, kv_rows, &out->v_bias);
}

Status Loader::CollectMatrices(uint32_t layer, LayerWeights* out) {
  const SumRule rule = SumRuleOf(config_);
  const UnitRange heads{rank_.q_heads.begin, rank_.q_heads.end};
  const KPlan hidden = ColumnPlan(config_.hidden_size);
  const Range q_rows = HeadRows(rank_.q_heads);
  const Range kv_rows = HeadRows(rank_.kv_heads);
  const Range all{0, config_.hidden_size};
  RETURN_IF_ERROR(AddMatrix({WeightRole::kQ, layer}, q_rows, hidden, &out->q));
  RETURN_IF_ERROR(AddMatrix({WeightRole::kK, layer}, kv_rows, hidden, &out->k));
  RETURN_IF_ERROR(AddMatrix({WeightRole::kV, layer}, kv_rows, hidden, &out->v));
  RETURN_IF_ERROR(AddMatrix(
      {WeightRole::kO, layer}, all,
      RowPlan(config_.num_heads * config_.head_dim, config_.head_dim, rule.group, {&heads, 1}),
      &out->o));
  return config_.has_experts() ? CollectExperts(layer, out) : CollectFfn(layer, out);
}

KPlan Loader::DownPlan() const {
  const UnitRange held{rank_.ffn_columns.begin / kFfnUnitColumns,
                       CeilDiv(rank_.ffn_columns.end, kFfnUnitColumns)};
  return RowPlan(config_.ffn_size, kFfnUnitColumns, SumRuleOf(config_).group, {&held, 1});
}

Status Loader::CollectFfn(uint32_t layer, LayerWeights* out) {
  const KPlan hidden = ColumnPlan(config_.hidden_size);
  RETURN_IF_ERROR(AddMatrix({WeightRole::kGate, layer}, rank_.ffn_columns, hidden, &out->gate));
  RETURN_IF_ERROR(AddMatrix({WeightRole::kUp, layer}, rank_.ffn_columns, hidden, &out->up));
  return AddMatrix({WeightRole::kDown, layer}, {0, config_.hidden_size}, DownPlan(), &out->down);
}

Status Loader::CollectExperts(uint32_t layer, LayerWeights* out) {
  const KPlan hidden = ColumnPlan(config_.hidden_size);
  const Range all{0, config_.hidden_size};
  const Range columns = rank_.ffn_columns;
  RETURN_IF_ERROR(
      AddMatrix({WeightRole::kRouter, layer}, {0, config_.num_experts}, hidden, &out->router));
  out->experts.resize(rank_.experts.size());
  for (size_t i = 0; i < rank_.experts.size(); ++i) {
    const uint32_t expert = rank_.experts[i];
    ExpertWeights* w = &out->experts[i];
    RETURN_IF_ERROR(AddMatrix({WeightRole::kExpertGate, layer, expert}, columns, hidden, &w->gate));
    RETURN_IF_ERROR(AddMatrix({WeightRole::kExpertUp, layer, expert}, columns, hidden, &w->up));
    RETURN_IF_ERROR(AddMatrix({WeightRole::kExpertDown, layer, expert}, all, DownPlan(), &w->down));
  }
  ASSIGN_OR_RETURN(out->expert_input, ExpertInput(layer));
  return OkStatus();
}

Result<std::optional<ActKind>> Loader::ExpertInput(uint32_t layer) const {
  std::optional<ActKind> kind;
  for (uint32_t expert = 0; expert < config_.num_experts; ++expert) {
    for (const WeightRole role : {WeightRole::kExpertGate, WeightRole::kExpertUp}) {
      ASSIGN_OR_RETURN(const TensorView view, checkpoint_.Weight({role, layer, expert}));
      const ActKind this_kind = ActKindOf(PackedType(view.dtype));
      if (kind && *kind != this_kind) return std::optional<ActKind>();
      kind = this_kind;
    }
  }
  return kind;
}

Status Loader::Collect(ModelWeights* out) {
  out->layers.resize(rank_.layers.size());
  for (uint32_t i = 0; i < rank_.layers.size(); ++i) {
    RETURN_IF_ERROR(CollectVectors(rank_.layers.begin + i, &out->layers[i]));
    RETURN_IF_ERROR(CollectMatrices(rank_.layers.begin + i, &out->layers[i]));
  }
  ASSIGN_OR_RETURN(out->embedding, checkpoint_.Weight({WeightRole::kEmbedding}));
  if (!rank_.has_head()) return OkStatus();
  RETURN_IF_ERROR(ReadNorm({WeightRole::kFinalNorm}, &out->final_norm));
  const WeightRole head = config_.tied_embeddings ? WeightRole::kEmbedding : WeightRole::kHead;
  return AddMatrix({head}, rank_.vocab_rows, ColumnPlan(config_.hidden_size), &out->head);
}

Status Loader::Pack(ThreadPool* pool, const LoadProgress& progress) {
  // All are had before any is written: small ones then share huge pages.
  for (const PackJob& job : jobs_) RETURN_IF_ERROR(job.target->Reserve());
  std::vector<std::byte> rounded;
  for (size_t i = 0; i < jobs_.size(); ++i) {
    const PackJob& job = jobs_[i];
    TensorView source = job.source;
    if (job.target->dtype() != source.dtype) {
      rounded = RoundTo(job.target->dtype(), source, pool);
      source.data = rounded.data();
      source.dtype = job.target->dtype();
    }
    pool->Run([&](uint32_t thread) {
      // The same share of groups that the thread multiplies later: first touch places its pages.
      const ThreadPool::Share share = pool->ShareOf(job.target->groups(), thread);
      job.target->PackGroups(
          source, [&job](uint64_t row) { return job.SourceRowOf(row); }, share.begin, share.end);
    });
    job.target->Finish();
    if (progress) progress(static_cast<double>(i + 1) / static_cast<double>(jobs_.size()));
  }
  return OkStatus();
}

constexpr double kMib = 1024.0 * 1024.0;

double Since(TimePoint start) { return SecondsBetween(start, SteadyClock::now()); }

// Whether the matrices are those that an earlier start kept.
bool LoadKept(const PackedStore& store, ThreadPool* pool, const LoadProgress& progress,
              ModelWeights* out) {
  const TimePoint start = SteadyClock::now();
  auto region = store.Load(pool, progress);
  if (region.status().code() == StatusCode::kNotFound) return false;
  if (!region.ok()) {
    spdlog::warn("--repacked-cache-dir: {}; repacking", region.status().message());
    return false;
  }
  out->kept = std::move(*region);
  spdlog::info("repacked weights {} {} ({:.1f} MiB, {:.3f} s)",
               out->kept.mapped() ? "mapped from" : "read, as their pages are small, from",
               store.path(), static_cast<double>(store.file_bytes()) / kMib, Since(start));
  return true;
}

void Keep(const PackedStore& store, ThreadPool* pool, const LoadProgress& progress) {
  const TimePoint start = SteadyClock::now();
  // The loading is done; whoever waits sees that it goes on.
  const Status saved = store.Save(pool, [&progress](double /*share*/) {
    if (progress) progress(1);
  });
  if (!saved.ok()) {
    spdlog::warn("--repacked-cache-dir: {}; the next start repacks again", saved.message());
    return;
  }
  spdlog::info("repacked weights written to {} ({:.1f} MiB, {:.3f} s)", store.path(),
               static_cast<double>(store.file_bytes()) / kMib, Since(start));
}

}  // namespace

SumRule SumRuleOf(const ModelConfig& config) {
  if (config.post_norms) return {.group = 128, .absolute = true};
  return {};
}

uint64_t ModelWeights::packed_bytes() const {
  uint64_t total = head.bytes();
  for (const LayerWeights& layer : layers) {
    for (const PackedMatrix* m :
         {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down}) {
      total += m->bytes();
    }
    total += layer.router.bytes();
    for (const ExpertWeights& expert : layer.experts) {
      total += expert.gate.bytes() + expert.up.bytes() + expert.down.bytes();
    }
  }
  return total;
}

Result<ModelWeights> LoadWeights(const Checkpoint& checkpoint, const RankLayout& rank,
                                 std::optional<DType> float_type, ThreadPool* pool,
                                 const LoadProgress& progress, const std::string& packed_folder) {
  ModelWeights weights;
  Loader loader(checkpoint, rank, float_type);
  RETURN_IF_ERROR(loader.Collect(&weights));
  std::optional<PackedStore> store;
  if (!packed_folder.empty()) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    store.emplace(packed_folder, loader.jobs(), checkpoint.Stamps(),
                  std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  }
  if (!store || !LoadKept(*store, pool, progress, &weights)) {
    RETURN_IF_ERROR(loader.Pack(pool, progress));
    if (store) Keep(*store, pool, progress);
  }
  checkpoint.DropResidentPages();
  return weights;
}

}  // namespace cleave
