#include "kernels/attention_partial.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/attention_scratch.h"
#include "kernels/attention_steps.h"

namespace cleave {
namespace {

using attention::kBins;
using attention::kLanes;

template <typename Count>
Count LoadCount(const std::byte* at, uint32_t index) {
  Count x = 0;
  std::memcpy(&x, at + static_cast<size_t>(index) * sizeof x, sizeof x);
  return x;
}

template <typename Sum, typename Count>
void SetCounts(const std::byte* in, uint32_t n, Sum* sum) {
  for (uint32_t i = 0; i < n; ++i) sum[i] = LoadCount<Count>(in, i);
}

template <typename Sum, typename Count>
void AddCounts(const std::byte* in, uint32_t n, Sum* sum) {
  for (uint32_t i = 0; i < n; ++i) sum[i] += LoadCount<Count>(in, i);
}

template <typename Sum, typename Count>
void PutCounts(bool held, const std::byte* in, uint32_t n, Sum* sum) {
  if (held) {
    AddCounts<Sum, Count>(in, n, sum);
  } else {
    SetCounts<Sum, Count>(in, n, sum);
  }
}

uint64_t SlotBytes(PartialCode code, uint32_t head_dim) {
  return (uint64_t{head_dim} + 1) * (code.wide() ? sizeof(Int128) : sizeof(int64_t));
}

const std::byte* RecordBytes(PartialCode code, const int64_t* counts, const Int128* wide) {
  return code.wide() ? reinterpret_cast<const std::byte*>(wide)
                     : reinterpret_cast<const std::byte*>(counts);
}

}  // namespace

uint32_t PartialCode::CountingBins(int32_t highest) const {
  uint32_t bins = 0;
  for (uint32_t slot = 0; slot < kBins; ++slot) {
    const int64_t under = int64_t{highest} - top() + slot;
    if (Holds(slot) && under < int64_t{kBins}) ++bins;
  }
  return bins;
}

int32_t HighestBin(const PartialCode* codes, size_t stride, uint32_t count) {
  int32_t highest = std::numeric_limits<int32_t>::min();
  for (uint32_t i = 0; i < count; ++i) {
    const PartialCode code = codes[i * stride];
    if (code.Holds(0)) highest = std::max(highest, code.top());
  }
  return highest;
}

uint64_t PartialBytes(PartialCode code, int32_t highest, uint32_t head_dim) {
  return code.CountingBins(highest) * SlotBytes(code, head_dim);
}

void StorePartial(PartialCode code, int32_t highest, uint32_t head_dim, const int64_t* counts,
                  const Int128* wide, std::byte* out) {
  const uint64_t bytes = SlotBytes(code, head_dim);
  const std::byte* from = RecordBytes(code, counts, wide);
  uint32_t left = code.CountingBins(highest);
  for (uint32_t slot = 0; left > 0; ++slot) {
    if (!code.Holds(slot)) continue;
    std::memcpy(out, from + slot * bytes, bytes);
    out += bytes;
    --left;
  }
}

PartialSum::PartialSum(uint32_t head_dim)
    : head_dim_(head_dim),
      stride_(head_dim + kLanes),
      counts_(static_cast<size_t>(kBins + 1) * stride_),
      wide_(static_cast<size_t>(kBins) * stride_) {}

void PartialSum::Start(int32_t highest) {
  highest_ = highest;
  held_ = 0;
  is_wide_ = false;
  broken_ = false;
}

void PartialSum::AddSlot(uint32_t slot, PartialCode code, const std::byte* counts) {
  const uint32_t n = head_dim_ + 1;
  const bool held = Holds(slot);
  held_ |= 1U << slot;
  const size_t at = static_cast<size_t>(slot) * stride_;
  if (code.wide()) {
    PutCounts<Int128, Int128>(held, counts, n, wide_.data() + at);
  } else if (is_wide_) {
    PutCounts<Int128, int64_t>(held, counts, n, wide_.data() + at);
  } else {
    PutCounts<int64_t, int64_t>(held, counts, n, counts_.data() + at);
  }
}

void PartialSum::Widen() {
  for (uint32_t slot = 0; slot < kBins; ++slot) {
    if (!Holds(slot)) continue;
    const size_t at = static_cast<size_t>(slot) * stride_;
    std::copy_n(counts_.data() + at, head_dim_ + 1, wide_.data() + at);
  }
  is_wide_ = true;
}

void PartialSum::AddBins(PartialCode code, const std::byte* counts, Spacing spacing) {
  if (code.empty()) return;
  const int64_t first = int64_t{highest_} - code.top();
  broken_ = broken_ || code.broken() || first < 0;
  const uint32_t bins = broken_ ? 0 : code.CountingBins(highest_);
  if (bins == 0) return;
  if (code.wide() && !is_wide_) Widen();
  const uint64_t bytes = SlotBytes(code, head_dim_);
  uint32_t added = 0;
  for (uint32_t slot = 0; added < bins; ++slot) {
    if (!code.Holds(slot)) continue;
    const uint32_t index = spacing == Spacing::kPacked ? added : slot;
    AddSlot(static_cast<uint32_t>(first) + slot, code, counts + index * bytes);
    ++added;
  }
}

void PartialSum::Add(PartialCode code, const std::byte* wire) {
  AddBins(code, wire, Spacing::kPacked);
}

void PartialSum::AddRecord(PartialCode code, const int64_t* counts, const Int128* wide) {
  AddBins(code, RecordBytes(code, counts, wide), Spacing::kSlots);
}

void PartialSum::Finish(Isa isa, float* out) const {
  if (broken_ || held_ == 0) {
    std::fill_n(out, head_dim_, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  const auto slot_of = [&](const auto& counts, uint32_t slot) {
    return Holds(slot) ? counts.data() + static_cast<size_t>(slot) * stride_ : nullptr;
  };
  if (is_wide_) {
    FinishCounts(slot_of(wide_, 0), slot_of(wide_, 1), slot_of(wide_, 2), head_dim_, out);
    return;
  }
  const int64_t* high = slot_of(counts_, 0);
  const int64_t* middle = slot_of(counts_, 1);
  const int64_t* low = slot_of(counts_, 2);
  if (isa == Isa::kScalar) {
    FinishCounts(high, middle, low, head_dim_, out);
    return;
  }
  if (high == nullptr) high = counts_.data() + static_cast<size_t>(kBins) * stride_;
  attention::StepsFor(isa).finish(high, middle, low, head_dim_, head_dim_, out);
}

PartialCode PartialSum::Export(int64_t* counts, Int128* wide) const {
  if (broken_) return PartialCode::Broken();
  if (held_ == 0) return {};
  uint32_t top = 0;
  while (!Holds(top)) ++top;
  const size_t n = head_dim_ + 1;
  for (uint32_t slot = top; slot < kBins; ++slot) {
    if (!Holds(slot)) continue;
    const size_t from = static_cast<size_t>(slot) * stride_;
    const size_t to = (slot - top) * n;
    if (is_wide_) {
      std::copy_n(wide_.data() + from, n, wide + to);
    } else {
      std::copy_n(counts_.data() + from, n, counts + to);
    }
  }
  const int32_t bin = highest_ - static_cast<int32_t>(top);
  return is_wide_ ? PartialCode::Wide(bin, held_ >> top) : PartialCode::Narrow(bin, held_ >> top);
}

}  // namespace cleave
