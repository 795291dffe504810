#include "kernels/act_wire.h"

#include <cstdint>
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

// Σ of 8 int8, as unsigned bytes with 128 added to each: pairs, then a product whose top 16 bits
// hold the four pairs' sum.
int32_t SumOf8(const int8_t* q) {
  uint64_t bytes = 0;
  std::memcpy(&bytes, q, sizeof bytes);
  bytes ^= 0x8080808080808080ULL;
  const uint64_t pairs = (bytes & 0x00FF00FF00FF00FFULL) + (bytes >> 8U & 0x00FF00FF00FF00FFULL);
  return static_cast<int32_t>(pairs * 0x0001000100010001ULL >> 48U) - 8 * 128;
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
    const int32_t low = SumOf8(q) + SumOf8(q + 8);
    to->sum()[block] = low + SumOf8(q + 16) + SumOf8(q + 24);
    to->half_sum()[block] = low;
  }
}

}  // namespace cleave
