#include "engine/forward/row_stages.h"

#include <algorithm>

#include "engine/row_wire.h"
#include "kernels/vector_ops.h"

namespace cleave {
namespace {

uint32_t IndexOf(ActKind kind) { return static_cast<uint32_t>(kind); }

// kFloat where they do not all take one kind.
RowWire WireOf(std::span<const PackedMatrix* const> matrices) {
  const ActKind kind = ActKindOf(matrices[0]->dtype());
  for (const PackedMatrix* w : matrices) {
    if (ActKindOf(w->dtype()) != kind) return RowWire::kFloat;
  }
  return WireOf(kind);
}

}  // namespace

RowStages::Stage::Stage(uint32_t rows, uint32_t hidden_size)
    : hidden(static_cast<size_t>(rows) * hidden_size), shift(rows), wide(rows) {}

RowStages::RowStages(const RankContext& context, uint32_t max_rows,
                     std::span<const PackedMatrix* const> matrices, Norms norms)
    : context_(context), sum_rule_(SumRuleOf(*context.config)) {
  if (norms == Norms::kShared && context.comm.tp != nullptr) {
    exchange_ = std::make_unique<NormedRows>(context, max_rows);
  }
  uint32_t max_blocks = 0;
  std::array<bool, 3> used{};
  for (const PackedMatrix* m : matrices) {
    max_blocks = std::max(max_blocks, static_cast<uint32_t>(m->plan().blocks.size()));
    used[IndexOf(ActKindOf(m->dtype()))] = true;
  }
  const auto make = [&](uint32_t rows) {
    auto stage = std::make_unique<Stage>(rows, context.hidden_size());
    for (uint32_t kind = 0; kind < used.size(); ++kind) {
      const uint32_t terms = kind == IndexOf(ActKind::kInt8) ? 2 : 1;
      if (used[kind]) stage->prepared[kind].emplace(terms * rows, max_blocks);
    }
    return stage;
  };
  shared_ = make(max_rows);
  for (uint32_t thread = 0; thread < context.pool->size(); ++thread) {
    private_.push_back(make(kPrivateRows));
  }
}

RowStages::~RowStages() = default;

RowStages::Stage& RowStages::Of(uint32_t rows, uint32_t thread) {
  return rows <= kPrivateRows ? *private_[thread] : *shared_;
}

ThreadPool::Share RowStages::ShareOf(uint32_t rows, uint32_t thread) const {
  if (rows <= kPrivateRows) return {0, rows};
  return context_.pool->ShareOf(rows, thread);
}

void RowStages::Meet(uint32_t rows) {
  if (rows > kPrivateRows) context_.pool->Barrier();
}

ActTerms RowStages::TermsFor(const PackedMatrix& w, ActTerms wanted) {
  return ActKindOf(w.dtype()) == ActKind::kInt8 ? wanted : ActTerms::kOne;
}

const ActBuffer& RowStages::ActsFor(const Stage& stage, const PackedMatrix& w) {
  return *stage.prepared[IndexOf(ActKindOf(w.dtype()))];
}

void RowStages::Prepare(Stage* stage, const PackedMatrix& w, const float* source, size_t stride,
                        ActTerms terms, ThreadPool::Share rows) const {
  const ActKind kind = ActKindOf(w.dtype());
  ActBuffer* acts = &*stage->prepared[IndexOf(kind)];
  if (TermsFor(w, terms) == ActTerms::kTwo) {
    PrepareTwoTerms(context_.isa, w.plan(), source, stride, rows.begin, rows.end, acts);
  } else {
    PrepareActs(context_.isa, kind, w.plan(), source, stride, rows.begin, rows.end, acts);
  }
}

void RowStages::PrepareNormed(Stage* stage, std::span<const PackedMatrix* const> matrices,
                              ActTerms terms, ThreadPool::Share rows) const {
  std::array<bool, 3> done{};
  for (const PackedMatrix* w : matrices) {
    bool& prepared = done[IndexOf(ActKindOf(w->dtype()))];
    if (!prepared) {
      Prepare(stage, *w, stage->hidden.data(), context_.hidden_size(), terms, rows);
    }
    prepared = true;
  }
}

void RowStages::Norm(Stage* stage, const float* x, const uint32_t* row_of, uint32_t rows,
                     const std::vector<float>& norm, std::span<const PackedMatrix* const> matrices,
                     ActTerms terms, uint32_t thread) {
  const uint32_t size = context_.hidden_size();
  const Range own = exchange_ == nullptr ? Range{0, rows} : exchange_->OwnOf(rows);
  ThreadPool::Share share = ShareOf(own.size(), thread);
  share = {own.begin + share.begin, own.begin + share.end};
  for (uint32_t row = share.begin; row < share.end; ++row) {
    const size_t from = static_cast<size_t>(row_of == nullptr ? row : row_of[row]) * size;
    const int32_t exponent = RmsNorm(context_.isa, x + from, norm.data(), size, context_.norm_eps(),
                                     &stage->hidden[static_cast<size_t>(row) * size]);
    stage->shift[row] = sum_rule_.absolute ? kAbsoluteBits : kRelativeBits - exponent;
  }
  const bool whole = own.size() == rows;
  const RowWire wire = WireOf(matrices);
  if (whole || wire != RowWire::kFloat) PrepareNormed(stage, matrices, terms, share);
  if (!whole) GatherNormed(stage, matrices, terms, rows, wire, thread);
  Meet(rows);
}

void RowStages::GatherNormed(Stage* stage, std::span<const PackedMatrix* const> matrices,
                             ActTerms terms, uint32_t rows, RowWire wire, uint32_t thread) {
  const uint32_t rows_each = TermsFor(*matrices[0], terms) == ActTerms::kTwo ? 2 : 1;
  const NormedRows::Rows of{stage->hidden.data(), &stage->prepared, stage->shift.data()};
  exchange_->Gather(of, rows, wire, wire == RowWire::kFloat ? 1 : rows_each, thread);
  if (wire == RowWire::kFloat) PrepareNormed(stage, matrices, terms, ShareOf(rows, thread));
}

Status RowStages::status() const { return exchange_ == nullptr ? OkStatus() : exchange_->status(); }

WireCounts RowStages::normed_rows() const {
  return exchange_ == nullptr ? WireCounts{} : exchange_->counts();
}

void RowStages::PrepareSum(Stage* stage, const float* source, size_t stride, uint32_t rows,
                           const PackedMatrix& w, ActTerms terms, uint32_t thread) {
  const uint32_t rows_each = TermsFor(w, terms) == ActTerms::kTwo ? 2 : 1;
  const ThreadPool::Share share = ShareOf(rows, thread);
  Prepare(stage, w, source, stride, terms, share);
  const ActBuffer& acts = ActsFor(*stage, w);
  for (uint32_t row = share.begin; row < share.end; ++row) {
    const bool narrow =
        !sum_rule_.absolute && RowFitsInt32(ActKindOf(w.dtype()), acts, w.plan(), rows_each * row,
                                            w.max_row_norm(), stage->shift[row]);
    stage->wide[row] = narrow ? 0 : 1;
  }
  Meet(rows);
}

void RowStages::Column(const PackedMatrix& w, const Stage& stage, uint32_t rows, ActTerms terms,
                       float* y, uint32_t thread) const {
  ForGroups(context_, w, rows, thread, [&](uint32_t begin, uint32_t end) {
    MatmulColumn(context_.isa, w, ActsFor(stage, w), rows, begin, end, y, w.rows(),
                 TermsFor(w, terms));
  });
}

}  // namespace cleave
