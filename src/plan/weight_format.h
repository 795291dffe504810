#pragma once
// WeightFormat: how many bits a parameter takes, scales counted. Pure values; any thread.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cleave {

struct WeightFormat {
  std::string name = "bf16";
  double linear_bits = 16;     // attention, dense FFN
  double expert_bits = 16;     // routed experts
  double embedding_bits = 16;  // embedding and head
  // FFN columns of a rank must be a multiple of it, else blocks of scales would be cut; 0: any.
  uint32_t block_columns = 0;
  double least_compute_capability = 0;  // of NVIDIA devices that multiply it; 0: all
  std::string source = "16 bits";
  bool operator==(const WeightFormat&) const = default;
};

// All that have a name, widest first.
const std::vector<WeightFormat>& WeightFormats();
// By name, in any case of letters; kNotFound says which there are.
Result<WeightFormat> FindWeightFormat(std::string_view name);

// Bytes of an element of keys and values: auto and bf16 2, fp8 1, …; kNotFound likewise.
Result<double> KvElementBytes(std::string_view name);

}  // namespace cleave
