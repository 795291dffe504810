#include "bench/model_work.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/model_weights.h"
#include "kernels/packed_matrix.h"

namespace cleave {
namespace {

// The mean of min(seen, window) over seen = first … last.
double MeanSeen(double first, double last, uint32_t window) {
  if (window == 0 || window >= last) return (first + last) / 2;
  if (window <= first) return window;
  const double below = window - first + 1;
  const double above = last - window;
  return (below * (first + window) / 2 + above * window) / (below + above);
}

// Adds up weights as they are packed.
class Counter {
 public:
  Counter(const Checkpoint& checkpoint, std::optional<DType> float_type)
      : checkpoint_(checkpoint), float_type_(float_type) {}

  Status AddMatrix(WeightId id, const KPlan& plan, double* bytes, double* operations) {
    ASSIGN_OR_RETURN(const TensorView view, checkpoint_.Weight(id));
    DType type = view.dtype;
    if (float_type_ && (!IsQuantised(type) || *float_type_ == DType::kF32)) type = *float_type_;
    const double own = 2.0 * static_cast<double>(view.elements());
    *bytes += static_cast<double>(PackedMatrix::BytesOf(type, view.rows(), plan));
    *operations += own;
    by_kind_[static_cast<size_t>(PeakKindOf(ActKindOf(type)))] += own;
    return OkStatus();
  }

  // Norms and biases, fp32; none where the model has none.
  Status AddVector(WeightId id, double* bytes) const {
    if (!checkpoint_.Has(id)) return OkStatus();
    ASSIGN_OR_RETURN(const TensorView view, checkpoint_.Weight(id));
    *bytes += 4.0 * static_cast<double>(view.elements());
    return OkStatus();
  }

  [[nodiscard]] PeakKind MostCommon() const {
    const auto most = std::max_element(by_kind_.begin(), by_kind_.end());
    return static_cast<PeakKind>(most - by_kind_.begin());
  }

 private:
  const Checkpoint& checkpoint_;
  const std::optional<DType> float_type_;
  std::array<double, 3> by_kind_{};  // operations, by PeakKind
};

struct Plans {
  KPlan hidden;
  KPlan heads;
  KPlan ffn;
};

Plans PlansOf(const ModelConfig& config) {
  const uint32_t group = SumRuleOf(config).group;
  const UnitRange heads{0, config.num_heads};
  const UnitRange columns{0, (config.ffn_size + kFfnUnitColumns - 1) / kFfnUnitColumns};
  return {ColumnPlan(config.hidden_size),
          RowPlan(config.num_heads * config.head_dim, config.head_dim, group, {&heads, 1}),
          RowPlan(config.ffn_size, kFfnUnitColumns, group, {&columns, 1})};
}

Status AddLayer(const ModelConfig& config, const Plans& plans, uint32_t layer, Counter* counter,
                ModelWork* work) {
  using enum WeightRole;
  for (const WeightRole role :
       {kAttnNorm, kQBias, kKBias, kVBias, kQNorm, kKNorm, kAttnPostNorm, kFfnNorm, kFfnPostNorm}) {
    RETURN_IF_ERROR(counter->AddVector({role, layer}, &work->layer_bytes));
  }
  const auto add = [&](WeightRole role, const KPlan& plan) {
    return counter->AddMatrix({role, layer}, plan, &work->layer_bytes, &work->layer_operations);
  };
  for (const WeightRole role : {kQ, kK, kV}) RETURN_IF_ERROR(add(role, plans.hidden));
  RETURN_IF_ERROR(add(kO, plans.heads));
  if (!config.has_experts()) {
    for (const WeightRole role : {kGate, kUp}) RETURN_IF_ERROR(add(role, plans.hidden));
    return add(kDown, plans.ffn);
  }
  RETURN_IF_ERROR(add(kRouter, plans.hidden));
  for (uint32_t expert = 0; expert < config.num_experts; ++expert) {
    for (const WeightRole role : {kExpertGate, kExpertUp, kExpertDown}) {
      RETURN_IF_ERROR(counter->AddMatrix({role, layer, expert},
                                         role == kExpertDown ? plans.ffn : plans.hidden,
                                         &work->expert_bytes, &work->expert_operations));
    }
  }
  return OkStatus();
}

}  // namespace

double ModelWork::PositionsSeen(double first, double last) const {
  double seen = 0;
  for (const uint32_t window : windows) seen += MeanSeen(first, last, window);
  return seen;
}

double ModelWork::PrefillOperations(const RequestShape& shape) const {
  const double chosen = experts > 0 ? static_cast<double>(experts_per_token) / experts : 0;
  return layer_operations + chosen * expert_operations + head_operations / shape.prompt_tokens +
         position_operations * PositionsSeen(1, shape.prompt_tokens);
}

double ModelWork::DecodeOperations(const RequestShape& shape) const {
  const double chosen = experts > 0 ? static_cast<double>(experts_per_token) / experts : 0;
  const double first = shape.prompt_tokens + 1.0;
  return layer_operations + chosen * expert_operations + head_operations +
         position_operations * PositionsSeen(first, shape.prompt_tokens + shape.output_tokens);
}

double ModelWork::DecodeBytes(const RequestShape& shape) const {
  const double readers = std::min(shape.batch, shape.replicas);
  double read = layer_bytes + head_bytes;  // by one of them, in a step
  if (experts > 0) {
    const double missed = 1 - static_cast<double>(experts_per_token) / experts;
    read += expert_bytes * (1 - std::pow(missed, shape.batch / readers));
  }
  const double first = shape.prompt_tokens + 1.0;
  return read * readers / shape.batch +
         position_bytes * PositionsSeen(first, shape.prompt_tokens + shape.output_tokens);
}

Result<ModelWork> WorkOf(const Checkpoint& checkpoint, std::optional<DType> float_type,
                         const KvShape& kv_shape) {
  const ModelConfig& config = checkpoint.config();
  const Plans plans = PlansOf(config);
  Counter counter(checkpoint, float_type);
  ModelWork work;
  work.experts = config.num_experts;
  work.experts_per_token = config.experts_per_token;
  for (uint32_t layer = 0; layer < config.num_layers(); ++layer) {
    RETURN_IF_ERROR(AddLayer(config, plans, layer, &counter, &work));
    work.windows.push_back(config.layers[layer].window);
  }
  RETURN_IF_ERROR(counter.AddVector({WeightRole::kFinalNorm}, &work.head_bytes));
  const WeightRole head = config.tied_embeddings ? WeightRole::kEmbedding : WeightRole::kHead;
  RETURN_IF_ERROR(counter.AddMatrix({head}, plans.hidden, &work.head_bytes, &work.head_operations));
  work.position_bytes = 1.0 * config.num_kv_heads * static_cast<double>(kv_shape.token_bytes());
  work.position_operations = 4.0 * config.num_heads * config.head_dim;
  work.peak = counter.MostCommon();
  return work;
}

}  // namespace cleave
