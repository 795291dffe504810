#pragma once
// DeviceFacts: what is known of a device, and ClusterFacts: how many there are. Pure values; any
// thread. A number that is 0 is not known.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cleave {

struct DeviceFacts {
  std::string name;
  std::vector<std::string> also;
  bool is_cpu = false;
  double memory_gb = 0;   // as sold
  double memory_mib = 0;  // as its driver shows it
  double bandwidth_gb_s = 0;
  double bf16_tflops = 0;  // dense, as all
  double fp8_tflops = 0;
  double int8_tops = 0;
  double fp4_tflops = 0;
  std::string link;
  double link_bidir_gb_s = 0;
  uint32_t pcie_gen = 0;
  std::string compute_capability;  // "8.9"; of AMD "gfx942"
  double tdp_w = 0;
  double l2_mb = 0;
  double eff_memory = 0;  // shares of the peak that matrix products reach
  double eff_flops = 0;
  double eff_flops_8bit = 0;
  std::string source;
  std::string note;

  // What the driver shows, else what is sold.
  [[nodiscard]] uint64_t memory_bytes() const;
};

// kInvalidArgument: the field, its value and its limit.
Status CheckFacts(const DeviceFacts& device);

struct ClusterFacts {
  static constexpr uint32_t kMaxDevices = 1U << 20U;
  DeviceFacts device;
  uint32_t devices_per_node = 1;
  uint32_t nodes = 1;
  [[nodiscard]] uint32_t devices() const { return devices_per_node * nodes; }
};

class Catalogue;
// 4x"RTX 5090", 4xL40S, "H100 SXM", 4x96GB (a device of which only the memory is known, in 10⁹ B).
// `nodes` have so many each. kInvalidArgument, or kNotFound with the nearest names.
Result<ClusterFacts> ParseCluster(const Catalogue& catalogue, std::string_view text, int64_t nodes);

}  // namespace cleave
