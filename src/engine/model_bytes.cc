#include "engine/model_bytes.h"

#include <algorithm>
#include <initializer_list>

#include "engine/row_wire.h"
#include "kernels/matmul.h"

namespace cleave {
namespace {

class Counter {
 public:
  Counter(const Checkpoint& checkpoint, std::optional<DType> float_type)
      : checkpoint_(checkpoint), float_type_(float_type) {}

  // Of the weights that are there.
  Result<uint64_t> Sum(std::initializer_list<WeightRole> roles, uint32_t layer,
                       uint32_t expert = 0) const {
    uint64_t total = 0;
    for (const WeightRole role : roles) {
      if (!checkpoint_.Has({role, layer, expert})) continue;
      ASSIGN_OR_RETURN(const TensorView view, checkpoint_.Weight({role, layer, expert}));
      total += view.rows() * RowBytes(TypeOf(view), view.cols()).value_or(0);
    }
    return total;
  }

  // Of what takes the same rows: as its kind, where there is one.
  Result<RowWire> Wire(std::initializer_list<WeightRole> roles, uint32_t layer) const {
    std::optional<RowWire> wire;
    const uint32_t experts = std::max(checkpoint_.config().num_experts, 1U);
    for (uint32_t expert = 0; expert < experts; ++expert) {
      for (const WeightRole role : roles) {
        if (!checkpoint_.Has({role, layer, expert})) continue;
        ASSIGN_OR_RETURN(const TensorView view, checkpoint_.Weight({role, layer, expert}));
        const RowWire own = WireOf(ActKindOf(TypeOf(view)));
        if (wire && *wire != own) return RowWire::kFloat;
        wire = own;
      }
    }
    return wire.value_or(RowWire::kFloat);
  }

 private:
  [[nodiscard]] DType TypeOf(const TensorView& view) const {
    if (view.shape.size() < 2) return DType::kF32;  // norms and biases
    if (!float_type_ || (IsQuantised(view.dtype) && *float_type_ != DType::kF32)) return view.dtype;
    return *float_type_;
  }

  const Checkpoint& checkpoint_;
  const std::optional<DType> float_type_;
};

}  // namespace

Result<ModelBytes> BytesOf(const Checkpoint& checkpoint, std::optional<DType> float_type) {
  using enum WeightRole;
  const Counter counter(checkpoint, float_type);
  ModelBytes bytes;
  for (uint32_t layer = 0; layer < checkpoint.config().num_layers(); ++layer) {
    LayerBytes b;
    ASSIGN_OR_RETURN(b.query, counter.Sum({kQ, kO, kQBias}, layer));
    ASSIGN_OR_RETURN(b.kv, counter.Sum({kK, kV, kKBias, kVBias}, layer));
    ASSIGN_OR_RETURN(b.ffn, counter.Sum({kGate, kUp, kDown}, layer));
    for (uint32_t expert = 0; expert < checkpoint.config().num_experts; ++expert) {
      ASSIGN_OR_RETURN(const uint64_t of_expert,
                       counter.Sum({kExpertGate, kExpertUp, kExpertDown}, layer, expert));
      b.ffn += of_expert;
    }
    ASSIGN_OR_RETURN(b.common, counter.Sum({kAttnNorm, kFfnNorm, kAttnPostNorm, kFfnPostNorm,
                                            kQNorm, kKNorm, kRouter},
                                           layer));
    bytes.layers.push_back(b);
  }
  const bool tied = checkpoint.config().tied_embeddings;
  ASSIGN_OR_RETURN(bytes.embedding, counter.Sum({kEmbedding}, 0));
  ASSIGN_OR_RETURN(bytes.head, counter.Sum({tied ? kEmbedding : kHead}, 0));
  ASSIGN_OR_RETURN(bytes.final_norm, counter.Sum({kFinalNorm}, 0));
  return bytes;
}

Result<std::vector<LayerWires>> WiresOf(const Checkpoint& checkpoint,
                                        std::optional<DType> float_type) {
  using enum WeightRole;
  const Counter counter(checkpoint, float_type);
  std::vector<LayerWires> wires(checkpoint.config().num_layers());
  for (uint32_t layer = 0; layer < wires.size(); ++layer) {
    LayerWires& of = wires[layer];
    ASSIGN_OR_RETURN(of.attention, counter.Wire({kQ, kK, kV}, layer));
    ASSIGN_OR_RETURN(of.ffn, counter.Wire({kGate, kUp, kRouter, kExpertGate, kExpertUp}, layer));
    ASSIGN_OR_RETURN(of.experts, counter.Wire({kExpertGate, kExpertUp}, layer));
  }
  return wires;
}

}  // namespace cleave
