#pragma once
// A mixture-of-experts layer out of the kernels alone, as a rank of an engine would run it, for the
// tests: any share of every expert's FFN columns, any order of tokens and experts.

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/moe.h"
#include "kernels/weight_fixture.h"

namespace cleave {

struct MoeShape {
  DType dtype = DType::kF32;
  uint32_t hidden = 256;  // D
  uint32_t ffn = 256;     // F of one expert
  uint32_t experts = 6;
  uint32_t top_k = 3;
  GateRule rule = GateRule::kSoftmaxOfChosen;
};

inline constexpr uint32_t kFfnUnit = 64;

// Weights of about 0.1, whatever the type: the plain fixture's K-quants are several times larger.
Weights MakeExpertWeights(DType dtype, uint32_t rows, uint32_t cols, uint32_t seed);

// What stands before the down projections, by token.
struct MoeFront {
  std::vector<uint32_t> chosen;  // [T][k]
  std::vector<float> gates;      // [T][k]
  std::vector<int32_t> shift;    // [T]
  std::vector<float> ffn;        // [T][k][F], the activated columns of each chosen expert
};

// Units of FFN columns of each expert that one rank holds.
using MoeShare = std::vector<std::vector<UnitRange>>;

// Which tokens go together, in which order; and the order of experts.
struct MoeOrder {
  std::vector<std::vector<uint32_t>> batches;
  std::vector<uint32_t> experts;
};

enum class MoeWidth { kAsItFits, kAllWide };

struct MoeTotals {
  std::vector<int64_t> totals;  // [T][D] quanta
  std::vector<double> bound;    // [T], of what this rank adds
  bool any_wide = false;
};

class MoeLayer {
 public:
  MoeLayer(const MoeShape& shape, uint32_t seed);

  // x [T][D], the residual rows. Tokens in batches, as `order` says.
  [[nodiscard]] MoeFront Front(Isa isa, const std::vector<float>& x, const MoeOrder& order) const;

  // One rank: its slices of the down projections, packed once, then run as often as wanted.
  class Rank {
   public:
    Rank(const MoeLayer& layer, const MoeShare& share);
    [[nodiscard]] MoeTotals Down(Isa isa, const MoeFront& front, const MoeOrder& order,
                                 MoeWidth width) const;

   private:
    void AddExpert(Isa isa, const MoeFront& front, uint32_t expert,
                   const std::vector<uint32_t>& batch, MoeWidth width, MoeTotals* out) const;
    [[nodiscard]] std::vector<float> SliceOf(const float* ffn, uint32_t expert) const;

    const MoeLayer* layer_;
    MoeShare share_;
    std::vector<std::optional<PackedMatrix>> down_;  // [experts]
  };

  [[nodiscard]] MoeShare Everything() const;
  [[nodiscard]] const MoeShape& shape() const { return shape_; }
  [[nodiscard]] uint32_t units() const { return (shape_.ffn + kFfnUnit - 1) / kFfnUnit; }
  [[nodiscard]] const Weights& down(uint32_t expert) const { return down_[expert]; }
  // All tokens at once in order, experts ascending; or both shuffled, in batches of random size.
  [[nodiscard]] MoeOrder Plain(uint32_t tokens) const;
  [[nodiscard]] MoeOrder Shuffled(uint32_t tokens, std::mt19937& rng) const;

 private:
  void FrontBatch(Isa isa, const std::vector<float>& x, const std::vector<uint32_t>& batch,
                  const std::vector<uint32_t>& experts, MoeFront* out) const;

  MoeShape shape_;
  PackedMatrix router_;
  std::vector<PackedMatrix> gate_;
  std::vector<PackedMatrix> up_;
  std::vector<Weights> down_;
};

// Row-parallel inputs of quantised weights take two int8 terms, as in the engine.
inline ActTerms DownTerms(DType dtype) {
  return IsQuantised(dtype) ? ActTerms::kTwo : ActTerms::kOne;
}
void PrepareDown(Isa isa, DType dtype, const KPlan& plan, const std::vector<float>& x,
                 uint32_t rows, ActBuffer* out);

}  // namespace cleave
