#include "engine/forward/embedder.h"

#include <algorithm>

#include "kernels/vector_ops.h"

namespace cleave {

Embedder::Embedder(const RankContext& context) : context_(context) {
  if (context.comm.tp == nullptr) return;
  RankCoord coord = context.mine().coord;
  for (coord.tp = 0; coord.tp < context.layout->split.tp; ++coord.tp) {
    owner_ends_.push_back(context.layout->of(coord).vocab_rows.end);
  }
  mine_.resize(static_cast<size_t>(context.max_batch_tokens) * context.hidden_size());
  all_.resize(mine_.size());
  sizes_.resize(owner_ends_.size());
}

void Embedder::ReadRow(int32_t token_id, float* out) const {
  const TensorView& table = context_.weights->embedding;
  const uint32_t size = context_.hidden_size();
  const uint64_t row_bytes = RowBytes(table.dtype, size).value_or(0);
  DequantiseRow(table.dtype, table.data + static_cast<uint64_t>(token_id) * row_bytes, size, out);
  const double scale = context_.config->embedding_scale;
  if (scale != 1.0) ScaleInPlace(context_.isa, out, static_cast<float>(scale), size);
}

void Embedder::Run(const StepRows& step, float* x, uint32_t thread) {
  const uint32_t size = context_.hidden_size();
  if (context_.comm.tp == nullptr) {
    const ThreadPool::Share rows = context_.pool->ShareOf(step.tokens, thread);
    for (uint32_t row = rows.begin; row < rows.end; ++row) {
      ReadRow(step.token_ids[row], x + static_cast<size_t>(row) * size);
    }
  } else if (thread == 0 && status_.ok()) {
    Gather(step, x);
  }
  context_.pool->Barrier();
}

void Embedder::Gather(const StepRows& step, float* x) {
  const uint32_t size = context_.hidden_size();
  const auto owner_of = [this](int32_t id) {
    return static_cast<size_t>(
        std::upper_bound(owner_ends_.begin(), owner_ends_.end(), static_cast<uint32_t>(id)) -
        owner_ends_.begin());
  };
  const uint32_t me = context_.mine().coord.tp;
  std::fill(sizes_.begin(), sizes_.end(), 0);
  uint32_t held = 0;
  for (const int32_t id : step.token_ids) {
    const size_t owner = owner_of(id);
    sizes_[owner] += size * sizeof(float);
    if (owner == me) ReadRow(id, &mine_[static_cast<size_t>(held++) * size]);
  }
  const std::span<const float> rows(mine_.data(), static_cast<size_t>(held) * size);
  status_ = context_.comm.tp->AllGather(std::as_bytes(rows), sizes_,
                                        reinterpret_cast<std::byte*>(all_.data()));
  if (!status_.ok()) return;
  for (uint64_t start = 0; uint64_t & bytes : sizes_) {  // where each owner's rows begin
    const uint64_t next = start + bytes;
    bytes = start;
    start = next;
  }
  for (uint32_t row = 0; row < step.tokens; ++row) {
    uint64_t& from = sizes_[owner_of(step.token_ids[row])];
    std::copy_n(&all_[from / sizeof(float)], size, x + static_cast<size_t>(row) * size);
    from += size * sizeof(float);
  }
}

}  // namespace cleave
