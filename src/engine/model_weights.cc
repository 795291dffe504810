#include "engine/model_weights.h"

#include <cstring>
#include <utility>

namespace cleave {
namespace {

// One matrix to repack: where it comes from and where it goes.
struct PackJob {
  TensorView source;
  PackedMatrix::RowMap row_map;
  PackedMatrix* target = nullptr;
};

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
  Loader(const Checkpoint& checkpoint, std::optional<DType> float_type)
      : checkpoint_(checkpoint), config_(checkpoint.config()), float_type_(float_type) {}

  Status Collect(ModelWeights* out);
  void Pack(ThreadPool* pool, const LoadProgress& progress);

 private:
  [[nodiscard]] bool NeedsRounding(const TensorView& view) const {
    if (!float_type_ || view.dtype == *float_type_) return false;
    return !IsQuantised(view.dtype) || *float_type_ == DType::kF32;
  }
  Status AddMatrix(WeightId id, KPlan plan, PackedMatrix* target);
  // Reads a norm or bias as fp32; optional ones stay empty when the file has none.
  Status ReadVector(WeightId id, std::vector<float>* out) const;
  Status ReadNorm(WeightId id, std::vector<float>* out) const;
  Status CollectVectors(uint32_t layer, LayerWeights* out) const;
  Status CollectMatrices(uint32_t layer, LayerWeights* out);

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const std::optional<DType> float_type_;
  std::vector<PackJob> jobs_;
};

Status Loader::ReadVector(WeightId id, std::vector<float>* out) const {
  ASSIGN_OR_RETURN(const TensorView view, checkpoint_.Weight(id));
  out->resize(view.elements());
  DequantiseRow(view.dtype, view.data, view.elements(), out->data());
  const RowOrder order = checkpoint_.OrderOf(id);
  if (order == RowOrder::kPlain) return OkStatus();
  const std::vector<float> stored = *out;
  for (size_t row = 0; row < out->size(); ++row) {
    (*out)[row] = stored[SourceRow(order, row, config_.head_dim)];
  }
  return OkStatus();
}

Status Loader::ReadNorm(WeightId id, std::vector<float>* out) const {
  RETURN_IF_ERROR(ReadVector(id, out));
  if (config_.norm_plus_one) {
    for (float& w : *out) w += 1.0F;
  }
  return OkStatus();
}

Status Loader::AddMatrix(WeightId id, KPlan plan, PackedMatrix* target) {
  ASSIGN_OR_RETURN(TensorView view, checkpoint_.Weight(id));
  const auto rows = static_cast<uint32_t>(view.rows());
  TensorView packed_as = view;
  if (NeedsRounding(view)) packed_as.dtype = *float_type_;
  ASSIGN_OR_RETURN(*target, PackedMatrix::Allocate(packed_as, rows, std::move(plan)));
  const RowOrder order = checkpoint_.OrderOf(id);
  const uint32_t head_dim = config_.head_dim;
  jobs_.push_back({std::move(view),
                   [order, head_dim](uint64_t row) { return SourceRow(order, row, head_dim); },
                   target});
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
  if (config_.qkv_bias) {
    RETURN_IF_ERROR(ReadVector({WeightRole::kQBias, layer}, &out->q_bias));
    RETURN_IF_ERROR(ReadVector({WeightRole::kKBias, layer}, &out->k_bias));
    RETURN_IF_ERROR(ReadVector({WeightRole::kVBias, layer}, &out->v_bias));
  }
  return OkStatus();
}

Status Loader::CollectMatrices(uint32_t layer, LayerWeights* out) {
  const SumRule rule = SumRuleOf(config_);
  const uint32_t q_size = config_.num_heads * config_.head_dim;
  const UnitRange all_heads{0, config_.num_heads};
  const UnitRange all_ffn{0, (config_.ffn_size + kFfnUnit - 1) / kFfnUnit};
  const KPlan hidden = ColumnPlan(config_.hidden_size);
  RETURN_IF_ERROR(AddMatrix({WeightRole::kQ, layer}, hidden, &out->q));
  RETURN_IF_ERROR(AddMatrix({WeightRole::kK, layer}, hidden, &out->k));
  RETURN_IF_ERROR(AddMatrix({WeightRole::kV, layer}, hidden, &out->v));
  RETURN_IF_ERROR(AddMatrix({WeightRole::kO, layer},
                            RowPlan(q_size, config_.head_dim, rule.group, {&all_heads, 1}),
                            &out->o));
  RETURN_IF_ERROR(AddMatrix({WeightRole::kGate, layer}, hidden, &out->gate));
  RETURN_IF_ERROR(AddMatrix({WeightRole::kUp, layer}, hidden, &out->up));
  return AddMatrix({WeightRole::kDown, layer},
                   RowPlan(config_.ffn_size, kFfnUnit, rule.group, {&all_ffn, 1}), &out->down);
}

Status Loader::Collect(ModelWeights* out) {
  out->layers.resize(config_.num_layers());
  for (uint32_t layer = 0; layer < config_.num_layers(); ++layer) {
    RETURN_IF_ERROR(CollectVectors(layer, &out->layers[layer]));
    RETURN_IF_ERROR(CollectMatrices(layer, &out->layers[layer]));
  }
  RETURN_IF_ERROR(ReadNorm({WeightRole::kFinalNorm}, &out->final_norm));
  ASSIGN_OR_RETURN(out->embedding, checkpoint_.Weight({WeightRole::kEmbedding}));
  const WeightRole head = config_.tied_embeddings ? WeightRole::kEmbedding : WeightRole::kHead;
  return AddMatrix({head}, ColumnPlan(config_.hidden_size), &out->head);
}

void Loader::Pack(ThreadPool* pool, const LoadProgress& progress) {
  std::vector<std::byte> rounded;
  for (size_t i = 0; i < jobs_.size(); ++i) {
    PackJob& job = jobs_[i];
    if (NeedsRounding(job.source)) {
      rounded = RoundTo(*float_type_, job.source, pool);
      job.source.data = rounded.data();
      job.source.dtype = *float_type_;
    }
    pool->Run([&](uint32_t thread) {
      // The same share of groups that the thread multiplies later: first touch places its pages.
      const ThreadPool::Share share = pool->ShareOf(job.target->groups(), thread);
      job.target->PackGroups(job.source, job.row_map, share.begin, share.end);
    });
    job.target->Finish();
    if (progress) progress(static_cast<double>(i + 1) / static_cast<double>(jobs_.size()));
  }
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
  }
  return total;
}

Result<ModelWeights> LoadWeights(const Checkpoint& checkpoint, std::optional<DType> float_type,
                                 ThreadPool* pool, const LoadProgress& progress) {
  ModelWeights weights;
  Loader loader(checkpoint, float_type);
  RETURN_IF_ERROR(loader.Collect(&weights));
  loader.Pack(pool, progress);
  checkpoint.DropResidentPages();
  return weights;
}

}  // namespace cleave
