#include "kernels/random_weights.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <random>

#include "base/status.h"

namespace cleave {
namespace {

void PutHalf(float v, std::byte* at) {
  const uint16_t h = FloatToHalf(v);
  std::memcpy(at, &h, sizeof h);
}

void FillBlock(DType dtype, std::mt19937* random, float scale, std::byte* block) {
  const DTypeInfo& info = InfoOf(dtype);
  std::mt19937& rng = *random;
  std::normal_distribution<float> normal;
  const float sign = rng() % 2 == 0 ? 1.0F : -1.0F;
  for (uint32_t i = 0; i < info.block_bytes; ++i) block[i] = static_cast<std::byte>(rng());
  const float d = sign * scale * (0.5F + std::fabs(normal(rng)));
  switch (dtype) {
    case DType::kF32: {
      const float v = normal(rng) * scale * 8;
      std::memcpy(block, &v, sizeof v);
      break;
    }
    case DType::kF16:
      PutHalf(normal(rng) * scale * 8, block);
      break;
    case DType::kBF16: {
      const uint16_t b = FloatToBFloat16(normal(rng) * scale * 8);
      std::memcpy(block, &b, sizeof b);
      break;
    }
    case DType::kQ41:
    case DType::kQ51:
      PutHalf(-8 * d, block + 2);
      PutHalf(d, block);
      break;
    case DType::kQ4K:
    case DType::kQ5K:
      PutHalf(d / 16, block);
      PutHalf(d / 2, block + 2);
      break;
    case DType::kQ80:
      PutHalf(d / 8, block);
      break;
    case DType::kQ6K:
      PutHalf(d / 64, block + 208);
      break;
    default:
      PutHalf(d, block);
  }
}

}  // namespace

std::vector<std::byte> RandomWeights(DType dtype, uint64_t rows, uint64_t cols, uint32_t seed,
                                     float scale) {
  const std::optional<uint64_t> row_bytes = RowBytes(dtype, cols);
  CLEAVE_CHECK(row_bytes.has_value());
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(rows * *row_bytes);
  for (size_t at = 0; at < bytes.size(); at += InfoOf(dtype).block_bytes) {
    FillBlock(dtype, &random, scale, bytes.data() + at);
  }
  return bytes;
}

std::vector<float> MakeActivations(uint32_t rows, uint32_t cols, uint32_t seed, float outlier) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(size_t{rows} * cols);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = normal(rng) * (i % 7 == 0 ? 4.0F : 0.5F);
    if (outlier != 0 && rng() % 61 == 0) x[i] = rng() % 2 == 0 ? outlier : -outlier;
  }
  return x;
}

}  // namespace cleave
