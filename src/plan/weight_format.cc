#include "plan/weight_format.h"

#include <fmt/format.h>

#include <array>

#include "base/nearest.h"

namespace cleave {
namespace {

// A block of n weights of b bits with s bits of scales: b + s / n.
constexpr double kFp8Block = 8.0 + 32.0 / (128 * 128);
constexpr double kGroup128 = 4.0 + (16.0 + 4.0) / 128;  // fp16 scale, 4-bit zero
constexpr double kMxfp4 = 4.0 + 8.0 / 32;
constexpr double kNvfp4 = 4.0 + 8.0 / 16;

struct KvType {
  std::string_view name;
  double bytes;
};
constexpr std::array<KvType, 9> kKvTypes = {{{"auto", 2},
                                             {"bf16", 2},
                                             {"bfloat16", 2},
                                             {"f16", 2},
                                             {"float16", 2},
                                             {"f32", 4},
                                             {"fp8", 1},
                                             {"fp8_e4m3", 1},
                                             {"fp8_e5m2", 1}}};

std::string Lower(std::string_view word) {
  std::string lower(word);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  return lower;
}

Status Unknown(std::string_view what, std::string_view name, const std::vector<std::string>& all) {
  const std::string nearest = Nearest(Lower(name), all);
  return NotFound(fmt::format("{} '{:.80}' is not known; {}known are {}", what, name,
                              nearest.empty() ? "" : fmt::format("did you mean {}? ", nearest),
                              fmt::join(all, ", ")));
}

}  // namespace

const std::vector<WeightFormat>& WeightFormats() {
  static const std::vector<WeightFormat> formats = {
      {"fp32", 32, 32, 32, 0, 0, "32 bits"},
      {"bf16", 16, 16, 16, 0, 0, "16 bits"},
      {"fp16", 16, 16, 16, 0, 0, "16 bits"},
      {"q8_0", 8.5, 8.5, 8.5, 0, 0, "fp16 scale for 32 int8"},
      {"fp8", kFp8Block, kFp8Block, 16, 128, 8.9, "fp32 scale for 128 x 128; embeddings bf16"},
      {"fp8-channel", 8, 8, 16, 0, 8.9, "a scale for each row, not counted; embeddings bf16"},
      {"fp8-all", 8, 8, 8, 0, 8.9, "embeddings too, as tables that count a byte a parameter"},
      {"int8", 8, 8, 16, 0, 0, "a scale for each row, not counted; embeddings bf16"},
      {"q5_k_m", 5.7, 5.7, 5.7, 0, 0, "mean over such files"},
      {"q4_k_m", 4.85, 4.85, 4.85, 0, 0, "mean over such files"},
      {"nvfp4", kNvfp4, kNvfp4, 16, 16, 10, "fp8 scale for 16; embeddings bf16"},
      {"mxfp4", kMxfp4, kMxfp4, 16, 0, 0, "8-bit exponent for 32; embeddings bf16"},
      {"mxfp4-experts", 16, kMxfp4, 16, 0, 0, "experts as mxfp4, the rest bf16"},
      {"awq", kGroup128, kGroup128, 16, 128, 0, "fp16 scale, 4-bit zero for 128; embeddings fp16"},
      {"gptq", kGroup128, kGroup128, 16, 128, 0, "fp16 scale, 4-bit zero for 128; embeddings fp16"},
  };
  return formats;
}

Result<WeightFormat> FindWeightFormat(std::string_view name) {
  const std::string wanted = Lower(name);
  std::vector<std::string> all;
  for (const WeightFormat& format : WeightFormats()) {
    if (format.name == wanted) return format;
    all.push_back(format.name);
  }
  return Unknown("format of weights", name, all);
}

Result<double> KvElementBytes(std::string_view name) {
  const std::string wanted = Lower(name);
  std::vector<std::string> all;
  for (const KvType& type : kKvTypes) {
    if (type.name == wanted) return type.bytes;
    all.emplace_back(type.name);
  }
  return Unknown("type of KV", name, all);
}

}  // namespace cleave
