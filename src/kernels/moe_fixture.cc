#include "kernels/moe_fixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/vector_ops.h"

namespace cleave {
namespace {

constexpr int32_t kRelativeBits = 20;
constexpr float kEps = 1e-6F;

uint32_t BlocksOf(const PackedMatrix& m) { return static_cast<uint32_t>(m.plan().blocks.size()); }

}  // namespace

Weights MakeExpertWeights(DType dtype, uint32_t rows, uint32_t cols, uint32_t seed) {
  return MakeWeights(dtype, rows, cols, seed, InfoOf(dtype).block_elements == 256 ? 0.002F : 0.01F);
}

void PrepareDown(Isa isa, DType dtype, const KPlan& plan, const std::vector<float>& x,
                 uint32_t rows, ActBuffer* out) {
  if (DownTerms(dtype) == ActTerms::kTwo) {
    PrepareTwoTerms(isa, plan, x.data(), plan.row_elements, 0, rows, out);
  } else {
    PrepareActs(isa, ActKindOf(dtype), plan, x.data(), plan.row_elements, 0, rows, out);
  }
}

MoeLayer::MoeLayer(const MoeShape& shape, uint32_t seed) : shape_(shape) {
  const KPlan over_hidden = ColumnPlan(shape.hidden);
  router_ = Pack(MakeWeights(DType::kBF16, shape.experts, shape.hidden, seed).view, over_hidden);
  for (uint32_t e = 0; e < shape.experts; ++e) {
    const uint32_t own = seed + 10 * e;
    gate_.push_back(
        Pack(MakeExpertWeights(shape.dtype, shape.ffn, shape.hidden, own + 1).view, over_hidden));
    up_.push_back(
        Pack(MakeExpertWeights(shape.dtype, shape.ffn, shape.hidden, own + 2).view, over_hidden));
    down_.push_back(MakeExpertWeights(shape.dtype, shape.hidden, shape.ffn, own + 3));
  }
}

MoeShare MoeLayer::Everything() const { return MoeShare(shape_.experts, {{0, units()}}); }

MoeOrder MoeLayer::Plain(uint32_t tokens) const {
  MoeOrder order{{std::vector<uint32_t>(tokens)}, std::vector<uint32_t>(shape_.experts)};
  std::iota(order.batches[0].begin(), order.batches[0].end(), 0U);
  std::iota(order.experts.begin(), order.experts.end(), 0U);
  return order;
}

MoeOrder MoeLayer::Shuffled(uint32_t tokens, std::mt19937& rng) const {
  MoeOrder order = Plain(tokens);
  std::shuffle(order.experts.begin(), order.experts.end(), rng);
  std::vector<uint32_t> all = order.batches[0];
  std::shuffle(all.begin(), all.end(), rng);
  order.batches.clear();
  for (size_t at = 0; at < all.size();) {
    const size_t n = std::min<size_t>(all.size() - at, 1 + rng() % 9);
    order.batches.emplace_back(all.begin() + at, all.begin() + at + n);
    at += n;
  }
  return order;
}

MoeFront MoeLayer::Front(Isa isa, const std::vector<float>& x, const MoeOrder& order) const {
  const size_t tokens = x.size() / shape_.hidden;
  const size_t pairs = tokens * shape_.top_k;
  MoeFront out;
  out.chosen.resize(pairs);
  out.gates.resize(pairs);
  out.shift.resize(tokens);
  out.ffn.resize(pairs * shape_.ffn);
  for (const auto& batch : order.batches) FrontBatch(isa, x, batch, order.experts, &out);
  return out;
}

void MoeLayer::FrontBatch(Isa isa, const std::vector<float>& x, const std::vector<uint32_t>& batch,
                          const std::vector<uint32_t>& experts, MoeFront* out) const {
  const auto n = static_cast<uint32_t>(batch.size());
  const uint32_t k = shape_.top_k;
  const ActKind kind = ActKindOf(shape_.dtype);
  std::vector<float> normed(size_t{n} * shape_.hidden);
  for (uint32_t r = 0; r < n; ++r) {
    out->shift[batch[r]] =
        kRelativeBits - RmsNorm(isa, &x[size_t{batch[r]} * shape_.hidden], nullptr, shape_.hidden,
                                kEps, &normed[size_t{r} * shape_.hidden]);
  }
  ActBuffer router_acts(n, BlocksOf(router_));
  PrepareActs(isa, ActKind::kBF16, router_.plan(), normed.data(), shape_.hidden, 0, n,
              &router_acts);
  std::vector<float> logits(size_t{n} * shape_.experts);
  MatmulColumn(isa, router_, router_acts, n, 0, router_.groups(), logits.data(), shape_.experts);
  std::vector<uint32_t> chosen(size_t{n} * k);
  std::vector<float> gates(size_t{n} * k);
  RouteTokens(isa, {shape_.experts, k, shape_.rule}, logits.data(), shape_.experts, 0, n,
              chosen.data(), gates.data());
  for (uint32_t r = 0; r < n; ++r) {
    std::copy_n(&chosen[size_t{r} * k], k, &out->chosen[size_t{batch[r]} * k]);
    std::copy_n(&gates[size_t{r} * k], k, &out->gates[size_t{batch[r]} * k]);
  }
  ExpertDispatch dispatch(n, k, 0, shape_.experts);
  dispatch.Assign(chosen.data(), gates.data(), n);
  ActBuffer acts(n, BlocksOf(gate_[0]));
  PrepareActs(isa, kind, gate_[0].plan(), normed.data(), shape_.hidden, 0, n, &acts);
  ActBuffer own(n, BlocksOf(gate_[0]));
  std::vector<float> g(size_t{n} * shape_.ffn);
  std::vector<float> u(g.size());
  for (uint32_t e : experts) {
    const auto tokens = dispatch.tokens(e);
    const auto rows = static_cast<uint32_t>(tokens.size());
    GatherActs(kind, acts, gate_[e].plan(), tokens.data(), 0, rows, &own);
    MatmulColumn(isa, gate_[e], own, rows, 0, gate_[e].groups(), g.data(), shape_.ffn);
    MatmulColumn(isa, up_[e], own, rows, 0, up_[e].groups(), u.data(), shape_.ffn);
    for (uint32_t r = 0; r < rows; ++r) {
      const uint32_t* slots = &chosen[size_t{tokens[r]} * k];
      const auto slot = static_cast<size_t>(std::find(slots, slots + k, e) - slots);
      const size_t pair = size_t{batch[tokens[r]]} * k + slot;
      GatedActivation(isa, Activation::kSilu, &g[size_t{r} * shape_.ffn],
                      &u[size_t{r} * shape_.ffn], shape_.ffn, &out->ffn[pair * shape_.ffn]);
    }
  }
}

MoeLayer::Rank::Rank(const MoeLayer& layer, const MoeShare& share)
    : layer_(&layer), share_(share), down_(share.size()) {
  for (size_t e = 0; e < share.size(); ++e) {
    if (share[e].empty()) continue;
    down_[e] = Pack(layer.down_[e].view, RowPlan(layer.shape_.ffn, kFfnUnit, kFfnUnit, share[e]));
  }
}

std::vector<float> MoeLayer::Rank::SliceOf(const float* ffn, uint32_t expert) const {
  std::vector<float> out;
  for (const UnitRange& range : share_[expert]) {
    const uint32_t end = std::min(range.end * kFfnUnit, layer_->shape_.ffn);
    out.insert(out.end(), ffn + range.begin * kFfnUnit, ffn + end);
  }
  return out;
}

void MoeLayer::Rank::AddExpert(Isa isa, const MoeFront& front, uint32_t expert,
                               const std::vector<uint32_t>& batch, MoeWidth width,
                               MoeTotals* out) const {
  const MoeShape& s = layer_->shape_;
  const PackedMatrix& w = *down_[expert];
  std::vector<uint32_t> token;
  std::vector<float> gate;
  std::vector<float> slices;
  for (uint32_t t : batch) {
    for (size_t pair = size_t{t} * s.top_k; pair < (size_t{t} + 1) * s.top_k; ++pair) {
      if (front.chosen[pair] != expert) continue;
      token.push_back(t);
      gate.push_back(front.gates[pair]);
      const std::vector<float> slice = SliceOf(&front.ffn[pair * s.ffn], expert);
      slices.insert(slices.end(), slice.begin(), slice.end());
    }
  }
  const auto rows = static_cast<uint32_t>(token.size());
  const ActTerms terms = DownTerms(s.dtype);
  const uint32_t rows_each = terms == ActTerms::kTwo ? 2 : 1;
  ActBuffer acts(rows_each * rows, BlocksOf(w));
  PrepareDown(isa, s.dtype, w.plan(), slices, rows, &acts);
  std::vector<uint8_t> wide(rows);
  for (uint32_t r = 0; r < rows; ++r) {
    const double bound = RowBound(ActKindOf(s.dtype), acts, w.plan(), rows_each * r,
                                  w.max_row_norm(), front.shift[token[r]]) *
                         std::fabs(gate[r]);
    out->bound[token[r]] += bound;
    wide[r] = width == MoeWidth::kAllWide || !(bound < kNarrowBound);
    out->any_wide |= wide[r] != 0;
  }
  const ExpertRows run{.rows = rows,
                       .token = token.data(),
                       .gate = gate.data(),
                       .wide = wide.data(),
                       .shift = front.shift.data()};
  const uint32_t cut = w.groups() / 3;  // as two threads would share them
  MatmulExpert(isa, w, acts, run, cut, w.groups(), out->totals.data(), s.hidden, terms);
  MatmulExpert(isa, w, acts, run, 0, cut, out->totals.data(), s.hidden, terms);
}

MoeTotals MoeLayer::Rank::Down(Isa isa, const MoeFront& front, const MoeOrder& order,
                               MoeWidth width) const {
  MoeTotals out;
  out.totals.resize(front.shift.size() * layer_->shape_.hidden);
  out.bound.resize(front.shift.size());
  for (const auto& batch : order.batches) {
    for (uint32_t e : order.experts) {
      if (down_[e].has_value()) AddExpert(isa, front, e, batch, width, &out);
    }
  }
  return out;
}

}  // namespace cleave
