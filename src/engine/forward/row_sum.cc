#include "engine/forward/row_sum.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "engine/forward/row_share.h"
#include "kernels/vector_ops.h"

namespace cleave {
namespace {

// Columns turned back to floats at a time.
constexpr uint32_t kPiece = 256;

size_t TeamFloats(const RankContext& context) {
  return static_cast<size_t>(context.max_batch_tokens) * context.hidden_size();
}

class LocalRowSum final : public RowSum {
 public:
  explicit LocalRowSum(const RankContext& context) : RowSum(context) {
    if (context.config->post_norms) y_.resize(TeamFloats(context));
  }

  void AddTotals(const RowQuanta& quanta, uint32_t rows, const std::vector<float>& post_norm,
                 float* x, uint32_t thread) override {
    const uint32_t size = context_.hidden_size();
    const ThreadPool::Share columns = ColumnsOf(thread);
    const uint32_t count = columns.end - columns.begin;
    for (uint32_t row = 0; row < rows; ++row) {
      const size_t start = static_cast<size_t>(row) * size + columns.begin;
      if (post_norm.empty()) {
        AddRow(quanta.shift[row], start, count, x);
      } else {
        QuantaToFloat(context_.isa, &totals_[start], quanta.shift[row], count, &y_[start]);
      }
    }
    context_.pool->Barrier();
    if (!post_norm.empty()) AddNormedRows(context_, post_norm, {0, rows}, y_.data(), x, thread);
  }

 private:
  void AddRow(int32_t shift, size_t start, uint32_t count, float* x) const {
    alignas(64) std::array<float, kPiece> piece;
    for (uint32_t done = 0; done < count; done += kPiece) {
      const auto n = std::min<uint32_t>(kPiece, count - done);
      QuantaToFloat(context_.isa, &totals_[start + done], shift, n, piece.data());
      AddInPlace(context_.isa, x + start + done, piece.data(), n);
    }
  }

  std::vector<float> y_;  // [T, D] with post norms
};

class GroupRowSum final : public RowSum {
 public:
  explicit GroupRowSum(const RankContext& context)
      : RowSum(context), share_(context, Axis::kTp), y_(TeamFloats(context)) {}

  void AddTotals(const RowQuanta& quanta, uint32_t rows, const std::vector<float>& post_norm,
                 float* x, uint32_t thread) override {
    context_.pool->Barrier();
    if (thread == 0 && status_.ok()) status_ = Reduce(quanta, rows);
    context_.pool->Barrier();
    const Range own = share_.OwnOf(rows);
    if (!post_norm.empty()) {
      AddNormedRows(context_, post_norm, own, y_.data(), x, thread);
      return;
    }
    const uint32_t size = context_.hidden_size();
    const ThreadPool::Share columns = ColumnsOf(thread);
    for (uint32_t row = own.begin; row < own.end; ++row) {
      const size_t start = static_cast<size_t>(row) * size + columns.begin;
      AddInPlace(context_.isa, x + start, &y_[start], columns.end - columns.begin);
    }
    context_.pool->Barrier();
  }

  [[nodiscard]] Status status() const override { return status_; }
  [[nodiscard]] uint64_t wide_rows() const override { return wide_rows_; }

 private:
  Status Reduce(const RowQuanta& quanta, uint32_t rows) {
    const uint32_t size = context_.hidden_size();
    const IntegerRows mine{.rows = rows,
                           .columns = size,
                           .totals = totals_.data(),
                           .stride = size,
                           .wide = quanta.wide,
                           .shift = quanta.shift};
    const auto wide_in = [&](Range part) {
      return std::accumulate(quanta.wide + part.begin, quanta.wide + part.end, uint64_t{0});
    };
    wide_rows_ += wide_in({0, rows});
    if (!share_.Shares(rows)) return context_.comm.tp->AllReduce(mine, y_.data(), size);
    wide_rows_ -= wide_in(share_.OwnOf(rows));
    return context_.comm.tp->ReduceScatter(mine, share_.PartsOf(rows), y_.data(), size);
  }

  RowShare share_;
  Status status_;
  uint64_t wide_rows_ = 0;
  std::vector<float> y_;  // [T, D]
};

}  // namespace

RowSum::RowSum(const RankContext& context)
    : context_(context),
      totals_(static_cast<size_t>(context.max_step_rows()) * context.hidden_size()) {}

ThreadPool::Share RowSum::ColumnsOf(uint32_t thread) const {
  const uint32_t size = context_.hidden_size();
  const uint32_t groups = (size + kRowsPerGroup - 1) / kRowsPerGroup;
  const ThreadPool::Share share = context_.pool->ShareOf(groups, thread);
  return {share.begin * kRowsPerGroup, std::min(share.end * kRowsPerGroup, size)};
}

void RowSum::Add(const PackedMatrix& w, const RowStages::Stage& stage, uint32_t rows,
                 const std::vector<float>& post_norm, ActTerms terms, float* x, uint32_t thread) {
  RowStages::ForGroups(context_, w, rows, thread, [&](uint32_t begin, uint32_t end) {
    MatmulRow(context_.isa, w, RowStages::ActsFor(stage, w), rows, stage.shift.data(),
              stage.wide.data(), begin, end, totals_.data(), context_.hidden_size(),
              RowStages::TermsFor(w, terms));
  });
  AddTotals({.shift = stage.shift.data(), .wide = stage.wide.data()}, rows, post_norm, x, thread);
}

void AddNormedRows(const RankContext& context, const std::vector<float>& post_norm, Range rows,
                   float* y, float* x, uint32_t thread) {
  const uint32_t size = context.hidden_size();
  const ThreadPool::Share share = context.pool->ShareOf(rows.size(), thread);
  for (uint32_t i = share.begin; i < share.end; ++i) {
    const size_t at = static_cast<size_t>(rows.begin + i) * size;
    RmsNorm(context.isa, y + at, post_norm.data(), size, context.norm_eps(), y + at);
    AddInPlace(context.isa, x + at, y + at, size);
  }
  context.pool->Barrier();
}

std::unique_ptr<RowSum> MakeRowSum(const RankContext& context) {
  if (context.comm.tp == nullptr) return std::make_unique<LocalRowSum>(context);
  return std::make_unique<GroupRowSum>(context);
}

}  // namespace cleave
