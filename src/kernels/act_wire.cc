#include "kernels/act_wire.h"

#include <cstring>

#include "base/status.h"

namespace cleave {
namespace {

size_t ElementBytes(ActKind kind) {
  switch (kind) {
    case ActKind::kInt8:
      return sizeof(int8_t);
    case ActKind::kBF16:
      return sizeof(uint16_t);
    case ActKind::kF32:
      break;
  }
  return sizeof(float);
}

}  // namespace

size_t ActRowBytes(ActKind kind, size_t blocks) {
  return blocks * (32 * ElementBytes(kind) + (kind == ActKind::kInt8 ? sizeof(float) : 0));
}

void StoreActRow(ActKind kind, const ActBuffer& from, size_t blocks, uint32_t row, std::byte* out) {
  CLEAVE_CHECK(row < from.max_rows() && blocks <= from.max_blocks());
  const size_t first = size_t{row} * from.max_blocks();
  const size_t bytes = 32 * blocks * ElementBytes(kind);
  std::memcpy(out, from.q() + 32 * first * ElementBytes(kind), bytes);
  if (kind != ActKind::kInt8) return;
  std::memcpy(out + bytes, from.scale() + first, blocks * sizeof(float));
}

void LoadActRow(ActKind kind, const std::byte* in, size_t blocks, uint32_t row, ActBuffer* to) {
  CLEAVE_CHECK(row < to->max_rows() && blocks <= to->max_blocks());
  const size_t first = size_t{row} * to->max_blocks();
  const size_t bytes = 32 * blocks * ElementBytes(kind);
  std::memcpy(to->q() + 32 * first * ElementBytes(kind), in, bytes);
  if (kind != ActKind::kInt8) return;
  std::memcpy(to->scale() + first, in + bytes, blocks * sizeof(float));
  for (size_t block = first; block < first + blocks; ++block) {
    const int8_t* q = to->q() + 32 * block;
    int32_t low = 0;
    int32_t high = 0;
    for (size_t i = 0; i < 16; ++i) {
      low += q[i];
      high += q[16 + i];
    }
    to->sum()[block] = low + high;
    to->half_sum()[block] = low;
  }
}

}  // namespace cleave
