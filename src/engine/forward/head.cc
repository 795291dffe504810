#include "engine/forward/head.h"

#include <algorithm>
#include <array>
#include <limits>

#include "kernels/vector_ops.h"

namespace cleave {
namespace {

constexpr MaxLogit kNoLogit{-std::numeric_limits<float>::infinity(), -1};

// The one that wins: greater, then lower id.
MaxLogit Better(MaxLogit a, MaxLogit b) {
  if (a.id < 0) return b;
  if (b.id < 0) return a;
  if (a.value != b.value) return a.value > b.value ? a : b;
  return a.id < b.id ? a : b;
}

}  // namespace

Head::Head(const RankContext& context, uint32_t max_rows)
    : context_(context),
      max_rows_(max_rows),
      vocab_(context.mine().vocab_rows),
      stages_(context, max_rows, std::array<const PackedMatrix*, 1>{&context.weights->head},
              RowStages::Norms::kWhole),
      slot_of_(max_rows),
      row_of_(max_rows),
      local_(static_cast<size_t>(max_rows) * vocab_.size()),
      highest_(max_rows),
      threads_(static_cast<size_t>(max_rows) * context.pool->size()) {
  if (context.comm.tp == nullptr) return;
  RankCoord coord = context.mine().coord;
  for (coord.tp = 0; coord.tp < context.layout->split.tp; ++coord.tp) {
    vocab_of_.push_back(context.layout->of(coord).vocab_rows);
  }
  sizes_.resize(vocab_of_.size());
  gathered_highest_.resize(static_cast<size_t>(max_rows) * vocab_of_.size());
  if (context.mine().coord.tp != 0) return;
  logits_.resize(static_cast<size_t>(max_rows) * context.config->vocab_size);
  gathered_.resize(logits_.size());
}

Status Head::Run(const float* x, std::span<const WantedRow> rows) {
  rows_ = rows;
  whole_ = static_cast<uint32_t>(std::count_if(
      rows.begin(), rows.end(), [](const WantedRow& r) { return r.use == RowUse::kLogits; }));
  uint32_t next_whole = 0;
  uint32_t next_highest = whole_;
  for (size_t i = 0; i < rows.size(); ++i) {
    slot_of_[i] = rows[i].use == RowUse::kLogits ? next_whole++ : next_highest++;
    row_of_[slot_of_[i]] = rows[i].row;
  }
  context_.pool->Run([&](uint32_t thread) { Multiply(x, thread); });
  const auto count = static_cast<uint32_t>(rows.size());
  for (uint32_t i = 0; i < count - whole_; ++i) {
    highest_[i] = kNoLogit;
    for (uint32_t thread = 0; thread < context_.pool->size(); ++thread) {
      highest_[i] = Better(highest_[i], threads_[static_cast<size_t>(thread) * max_rows_ + i]);
    }
  }
  if (context_.comm.tp == nullptr) return OkStatus();
  if (whole_ < count) RETURN_IF_ERROR(GatherHighest());
  return whole_ > 0 ? GatherLogits() : OkStatus();
}

void Head::Multiply(const float* x, uint32_t thread) {
  const auto count = static_cast<uint32_t>(rows_.size());
  const PackedMatrix& head = context_.weights->head;
  const std::array<const PackedMatrix*, 1> inputs{&head};
  RowStages::Stage& stage = stages_.Of(count, thread);
  stages_.Norm(&stage, x, row_of_.data(), count, context_.weights->final_norm, inputs,
               ActTerms::kTwo, thread);
  stages_.Column(head, stage, count, ActTerms::kTwo, local_.data(), thread);
  const ThreadPool::Share groups = context_.pool->ShareOf(head.groups(), thread);
  const uint32_t begin = groups.begin * kRowsPerGroup;
  const uint32_t end = std::min(groups.end * kRowsPerGroup, vocab_.size());
  const auto cap = static_cast<float>(context_.config->final_logit_softcap);
  for (uint32_t i = 0; cap != 0.0F && i < count; ++i) {
    SoftCapInPlace(context_.isa, &local_[static_cast<size_t>(i) * vocab_.size()] + begin, cap,
                   end - begin);
  }
  KeepHighest(begin, end, thread);
}

// The highest of this thread's columns, for the rows that want no more.
void Head::KeepHighest(uint32_t begin, uint32_t end, uint32_t thread) {
  for (auto slot = whole_; slot < rows_.size(); ++slot) {
    const float* row = &local_[static_cast<size_t>(slot) * vocab_.size()];
    MaxLogit max = begin < end ? FindMax(context_.isa, row + begin, end - begin) : kNoLogit;
    if (max.id >= 0) max.id += static_cast<int32_t>(vocab_.begin + begin);
    threads_[static_cast<size_t>(thread) * max_rows_ + slot - whole_] = max;
  }
}

Status Head::GatherHighest() {
  const size_t count = rows_.size() - whole_;
  std::fill(sizes_.begin(), sizes_.end(), count * sizeof(MaxLogit));
  const auto mine = std::as_bytes(std::span(highest_).first(count));
  RETURN_IF_ERROR(context_.comm.tp->AllGather(
      mine, sizes_, reinterpret_cast<std::byte*>(gathered_highest_.data())));
  for (size_t i = 0; i < count; ++i) {
    highest_[i] = kNoLogit;
    for (size_t member = 0; member < sizes_.size(); ++member) {
      highest_[i] = Better(highest_[i], gathered_highest_[member * count + i]);
    }
  }
  return OkStatus();
}

Status Head::GatherLogits() {
  for (size_t member = 0; member < sizes_.size(); ++member) {
    sizes_[member] = static_cast<uint64_t>(whole_) * vocab_of_[member].size() * sizeof(float);
  }
  const std::span<const float> mine(local_.data(), static_cast<size_t>(whole_) * vocab_.size());
  const bool reads = context_.mine().coord.tp == 0;
  RETURN_IF_ERROR(context_.comm.tp->AllGather(
      std::as_bytes(mine), sizes_,
      reads ? reinterpret_cast<std::byte*>(gathered_.data()) : nullptr));
  if (!reads) return OkStatus();
  const float* from = gathered_.data();
  for (const Range& vocab : vocab_of_) {
    for (uint32_t slot = 0; slot < whole_; ++slot, from += vocab.size()) {
      std::copy_n(from, vocab.size(),
                  &logits_[static_cast<size_t>(slot) * context_.config->vocab_size] + vocab.begin);
    }
  }
  return OkStatus();
}

RowResult Head::result(uint32_t i) {
  const uint32_t slot = slot_of_[i];
  if (rows_[i].use == RowUse::kHighest) return {.highest = highest_[slot - whole_]};
  std::vector<float>& whole = context_.comm.tp == nullptr ? local_ : logits_;
  return {.logits = &whole[static_cast<size_t>(slot) * context_.config->vocab_size]};
}

}  // namespace cleave
