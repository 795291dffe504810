#include "engine/forward/row_sum.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "kernels/vector_ops.h"

namespace cleave {
namespace {

// Columns turned back to floats at a time.
constexpr uint32_t kPiece = 256;

// Columns [begin, end) of the product that a thread makes.
struct Columns {
  uint32_t begin;
  uint32_t end;
};

// totals [rows, D] = stage·wᵀ in quanta, in the columns returned.
Columns Multiply(const RankContext& context, const PackedMatrix& w, const RowStages::Stage& stage,
                 uint32_t rows, ActTerms terms, int64_t* totals, uint32_t thread) {
  const uint32_t size = context.hidden_size();
  const ThreadPool::Share groups = context.pool->ShareOf(w.groups(), thread);
  MatmulRow(context.isa, w, RowStages::ActsFor(stage, w), rows, stage.shift.data(),
            stage.wide.data(), groups.begin, groups.end, totals, size,
            RowStages::TermsFor(w, terms));
  return {groups.begin * kRowsPerGroup, std::min(groups.end * kRowsPerGroup, size)};
}

// x += norm(y) for this thread's rows.
void AddNormed(const RankContext& context, const std::vector<float>& post_norm, uint32_t rows,
               float* y, float* x, uint32_t thread) {
  const uint32_t size = context.hidden_size();
  const ThreadPool::Share share = context.pool->ShareOf(rows, thread);
  for (uint32_t row = share.begin; row < share.end; ++row) {
    const size_t at = static_cast<size_t>(row) * size;
    RmsNorm(context.isa, y + at, post_norm.data(), size, context.norm_eps(), y + at);
    AddInPlace(context.isa, x + at, y + at, size);
  }
  context.pool->Barrier();
}

class LocalRowSum final : public RowSum {
 public:
  explicit LocalRowSum(const RankContext& context)
      : context_(context),
        totals_(static_cast<size_t>(context.max_batch_tokens) * context.hidden_size()) {
    if (context.config->post_norms) y_.resize(totals_.size());
  }

  void Add(const PackedMatrix& w, const RowStages::Stage& stage, uint32_t rows,
           const std::vector<float>& post_norm, ActTerms terms, float* x,
           uint32_t thread) override {
    const uint32_t size = context_.hidden_size();
    const Columns columns = Multiply(context_, w, stage, rows, terms, totals_.data(), thread);
    for (uint32_t row = 0; row < rows; ++row) {
      const size_t start = static_cast<size_t>(row) * size + columns.begin;
      if (post_norm.empty()) {
        AddTotals(stage.shift[row], start, columns.end - columns.begin, x);
      } else {
        QuantaToFloat(context_.isa, &totals_[start], stage.shift[row], columns.end - columns.begin,
                      &y_[start]);
      }
    }
    context_.pool->Barrier();
    if (!post_norm.empty()) AddNormed(context_, post_norm, rows, y_.data(), x, thread);
  }

 private:
  void AddTotals(int32_t shift, size_t start, uint32_t count, float* x) const {
    alignas(64) std::array<float, kPiece> piece;
    for (uint32_t done = 0; done < count; done += kPiece) {
      const auto n = std::min<uint32_t>(kPiece, count - done);
      QuantaToFloat(context_.isa, &totals_[start + done], shift, n, piece.data());
      AddInPlace(context_.isa, x + start + done, piece.data(), n);
    }
  }

  const RankContext& context_;
  std::vector<int64_t> totals_;  // [T, D]
  std::vector<float> y_;         // [T, D] with post norms
};

class GroupRowSum final : public RowSum {
 public:
  explicit GroupRowSum(const RankContext& context)
      : context_(context),
        totals_(static_cast<size_t>(context.max_batch_tokens) * context.hidden_size()),
        y_(totals_.size()) {}

  void Add(const PackedMatrix& w, const RowStages::Stage& stage, uint32_t rows,
           const std::vector<float>& post_norm, ActTerms terms, float* x,
           uint32_t thread) override {
    const uint32_t size = context_.hidden_size();
    const Columns columns = Multiply(context_, w, stage, rows, terms, totals_.data(), thread);
    context_.pool->Barrier();
    if (thread == 0) Reduce(stage, rows);
    context_.pool->Barrier();
    if (!post_norm.empty()) {
      AddNormed(context_, post_norm, rows, y_.data(), x, thread);
      return;
    }
    for (uint32_t row = 0; row < rows; ++row) {
      const size_t start = static_cast<size_t>(row) * size + columns.begin;
      AddInPlace(context_.isa, x + start, &y_[start], columns.end - columns.begin);
    }
    context_.pool->Barrier();
  }

  [[nodiscard]] Status status() const override { return status_; }
  [[nodiscard]] uint64_t wide_rows() const override { return wide_rows_; }

 private:
  void Reduce(const RowStages::Stage& stage, uint32_t rows) {
    if (!status_.ok()) return;
    wide_rows_ += std::accumulate(stage.wide.begin(), stage.wide.begin() + rows, uint64_t{0});
    status_ = context_.comm.tp->AllReduce({.rows = rows,
                                           .columns = context_.hidden_size(),
                                           .totals = totals_.data(),
                                           .stride = context_.hidden_size(),
                                           .wide = stage.wide.data(),
                                           .shift = stage.shift.data()},
                                          y_.data(), context_.hidden_size());
  }

  const RankContext& context_;
  Status status_;
  uint64_t wide_rows_ = 0;
  std::vector<int64_t> totals_;  // [T, D]
  std::vector<float> y_;         // [T, D]
};

}  // namespace

std::unique_ptr<RowSum> MakeRowSum(const RankContext& context) {
  if (context.comm.tp == nullptr) return std::make_unique<LocalRowSum>(context);
  return std::make_unique<GroupRowSum>(context);
}

}  // namespace cleave
