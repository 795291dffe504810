#include "engine/forward/expert_block.h"

#include <algorithm>
#include <cmath>

#include "kernels/vector_ops.h"

namespace cleave {
namespace {

uint32_t IndexOf(ActKind kind) { return static_cast<uint32_t>(kind); }

std::array<bool, 3> InputKindsOf(const LayerWeights& w) {
  std::array<bool, 3> used{};
  for (const ExpertWeights& expert : w.experts) {
    used[IndexOf(ActKindOf(expert.gate.dtype()))] = true;
    used[IndexOf(ActKindOf(expert.up.dtype()))] = true;
  }
  return used;
}

ActTerms DownTerms(const PackedMatrix& down) { return RowStages::TermsFor(down, ActTerms::kTwo); }

}  // namespace

ExpertBlock::ExpertBlock(const RankContext& context, uint32_t max_rows)
    : context_(context),
      sum_rule_(SumRuleOf(*context.config)),
      slots_(static_cast<uint32_t>(context.mine().experts.size())),
      columns_(context.mine().ffn_columns.size()),
      hidden_plan_(ColumnPlan(context.hidden_size())),
      dispatch_(max_rows, context.config->experts_per_token, 0, slots_),
      row_bound_(max_rows),
      row_wide_(max_rows) {
  const uint32_t most = std::min(context.config->experts_per_token, slots_);
  const uint32_t max_pairs = max_rows * most;
  gate_.resize(static_cast<size_t>(max_pairs) * columns_);
  up_.resize(gate_.size());
  bound_.resize(max_pairs);
  pair_wide_.resize(max_pairs);
  for (const LayerWeights& w : context.weights->layers) {
    input_kinds_.push_back(InputKindsOf(w));
    for (uint32_t kind = 0; kind < gathered_.size(); ++kind) {
      if (!input_kinds_.back()[kind] || gathered_[kind]) continue;
      gathered_[kind].emplace(max_pairs, static_cast<uint32_t>(hidden_plan_.blocks.size()));
    }
    for (const ExpertWeights& expert : w.experts) {
      std::optional<ActBuffer>& acts = hidden_[IndexOf(ActKindOf(expert.down.dtype()))];
      const uint32_t terms = DownTerms(expert.down) == ActTerms::kTwo ? 2 : 1;
      const auto blocks = static_cast<uint32_t>(expert.down.plan().blocks.size());
      if (!acts) acts.emplace(terms * max_pairs, blocks);
    }
  }
}

void ExpertBlock::Assign(const uint32_t* chosen, const float* gates, uint32_t rows) {
  dispatch_.Assign(chosen, gates, rows);
  rows_ = rows;
}

void ExpertBlock::CountTokens(std::vector<uint64_t>* tokens) const {
  const std::vector<uint32_t>& experts = context_.mine().experts;
  for (uint32_t slot = 0; slot < slots_; ++slot) {
    (*tokens)[experts[slot]] += dispatch_.tokens(slot).size();
  }
}

void ExpertBlock::Run(uint32_t layer, const Inputs& inputs, const int32_t* shift,
                      ThreadPool::Share columns, int64_t* totals, uint32_t thread) {
  const LayerWeights& w = context_.weights->layers[layer];
  Gather(layer, inputs, thread);
  context_.pool->Barrier();
  MakeHidden(w, thread);
  context_.pool->Barrier();
  PrepareHidden(w, shift, thread);
  context_.pool->Barrier();
  if (thread == 0) DecideWide();
  AddDown(w, shift, columns, totals, thread);
}

void ExpertBlock::Gather(uint32_t layer, const Inputs& inputs, uint32_t thread) {
  const ThreadPool::Share share = context_.pool->ShareOf(pairs(), thread);
  const uint32_t* rows = dispatch_.tokens(0).data();
  for (uint32_t kind = 0; kind < gathered_.size(); ++kind) {
    if (!input_kinds_[layer][kind]) continue;
    GatherActs(static_cast<ActKind>(kind), *inputs[kind], hidden_plan_, rows, share.begin,
               share.end, &*gathered_[kind]);
  }
}

void ExpertBlock::MakeHidden(const LayerWeights& w, uint32_t thread) {
  for (uint32_t slot = 0; slot < slots_; ++slot) {
    const auto rows = static_cast<uint32_t>(dispatch_.tokens(slot).size());
    if (rows == 0) continue;
    const ExpertWeights& e = w.experts[slot];
    const uint32_t first = dispatch_.first(slot);
    float* gate = &gate_[static_cast<size_t>(first) * columns_];
    float* up = &up_[static_cast<size_t>(first) * columns_];
    // gate and up have the same groups, so a thread finishes the columns it just made.
    const ThreadPool::Share groups = context_.pool->ShareOf(e.gate.groups(), thread);
    const auto multiply = [&](const PackedMatrix& m, float* y) {
      const ActBuffer& acts = *gathered_[IndexOf(ActKindOf(m.dtype()))];
      RowStages::ForGroups(context_, m, rows, thread, [&](uint32_t begin, uint32_t end) {
        MatmulColumn(context_.isa, m, acts, rows, begin, end, y, columns_, ActTerms::kOne, first);
      });
    };
    multiply(e.gate, gate);
    multiply(e.up, up);
    const uint32_t begin = groups.begin * kRowsPerGroup;
    const uint32_t end = std::min(groups.end * kRowsPerGroup, columns_);
    for (size_t at = begin; at < static_cast<size_t>(rows) * columns_; at += columns_) {
      GatedActivation(context_.isa, context_.config->activation, gate + at, up + at, end - begin,
                      gate + at);
    }
  }
}

void ExpertBlock::PrepareHidden(const LayerWeights& w, const int32_t* shift, uint32_t thread) {
  const ThreadPool::Share share = context_.pool->ShareOf(pairs(), thread);
  const uint32_t* tokens = dispatch_.tokens(0).data();
  const float* gates = dispatch_.gates(0).data();
  for (uint32_t slot = 0; slot < slots_; ++slot) {
    const uint32_t begin = std::max(share.begin, dispatch_.first(slot));
    const uint32_t end = std::min(share.end, dispatch_.first(slot + 1));
    if (begin >= end) continue;
    const PackedMatrix& down = w.experts[slot].down;
    const ActKind kind = ActKindOf(down.dtype());
    ActBuffer* acts = &*hidden_[IndexOf(kind)];
    const bool two = DownTerms(down) == ActTerms::kTwo;
    if (two) {
      PrepareTwoTerms(context_.isa, down.plan(), gate_.data(), columns_, begin, end, acts);
    } else {
      PrepareActs(context_.isa, kind, down.plan(), gate_.data(), columns_, begin, end, acts);
    }
    for (uint32_t pair = begin; pair < end; ++pair) {
      bound_[pair] = RowBound(kind, *acts, down.plan(), two ? 2 * pair : pair, down.max_row_norm(),
                              shift[tokens[pair]]) *
                     std::abs(static_cast<double>(gates[pair]));
      const bool narrow = !sum_rule_.absolute && bound_[pair] < kNarrowBound;
      pair_wide_[pair] = narrow ? 0 : 1;
    }
  }
}

void ExpertBlock::DecideWide() {
  std::fill_n(row_bound_.begin(), rows_, 0.0);
  const uint32_t* tokens = dispatch_.tokens(0).data();
  for (uint32_t pair = 0; pair < pairs(); ++pair) row_bound_[tokens[pair]] += bound_[pair];
  for (uint32_t row = 0; row < rows_; ++row) {
    const bool narrow = !sum_rule_.absolute && row_bound_[row] < kNarrowBound;
    row_wide_[row] = narrow ? 0 : 1;
  }
}

void ExpertBlock::AddDown(const LayerWeights& w, const int32_t* shift, ThreadPool::Share columns,
                          int64_t* totals, uint32_t thread) {
  const uint32_t size = context_.hidden_size();
  for (uint32_t row = 0; row < rows_; ++row) {
    int64_t* at = totals + static_cast<size_t>(row) * size;
    std::fill(at + columns.begin, at + columns.end, int64_t{0});
  }
  for (uint32_t slot = 0; slot < slots_; ++slot) {
    const std::span<const uint32_t> tokens = dispatch_.tokens(slot);
    if (tokens.empty()) continue;
    const PackedMatrix& down = w.experts[slot].down;
    const uint32_t first = dispatch_.first(slot);
    const ExpertRows rows{.rows = static_cast<uint32_t>(tokens.size()),
                          .first = first,
                          .token = tokens.data(),
                          .gate = dispatch_.gates(slot).data(),
                          .wide = &pair_wide_[first],
                          .shift = shift};
    const ActBuffer& acts = *hidden_[IndexOf(ActKindOf(down.dtype()))];
    RowStages::ForGroups(context_, down, rows.rows, thread, [&](uint32_t begin, uint32_t end) {
      MatmulExpert(context_.isa, down, acts, rows, begin, end, totals, size, DownTerms(down));
    });
  }
}

}  // namespace cleave
