#include "plan/device_facts.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "plan/catalogue.h"

namespace cleave {
namespace {

constexpr double kMaxMemoryGb = 1e6;

Status AtMost(const DeviceFacts& device, const char* field, double value, double most) {
  if (value >= 0 && value <= most) return OkStatus();
  return InvalidArgument(fmt::format("device {}: {} is {}; it must be between 0 and {}",
                                     device.name, field, value, most));
}

// "96GB", "24 GiB": bytes; 0 when the text is none.
double MemoryOf(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !std::isfinite(value)) return 0;
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  if (unit == "GB" || unit == "gb" || unit == "G") return value * 1e9;
  if (unit == "GiB" || unit == "gib") return value * 1073741824.0;
  return 0;
}

Status BadCount(std::string_view text) {
  return InvalidArgument(
      fmt::format("--on '{:.80}': devices must be between 1 and {}; write "
                  "4x\"RTX 5090\", or 4x96GB for a device of that memory",
                  text, ClusterFacts::kMaxDevices));
}

struct CountAndName {
  int64_t count = 1;
  std::string_view name;
};

// "4x RTX 5090": a number before an x is the count.
Result<CountAndName> SplitCount(std::string_view text) {
  const size_t cross = text.find_first_not_of("-+.0123456789eEinfnaINFNA");
  if (cross == 0 || cross == std::string_view::npos || (text[cross] | 0x20) != 'x') {
    return CountAndName{.name = text};
  }
  CountAndName parts;
  const auto [end, error] = std::from_chars(text.data(), text.data() + cross, parts.count);
  if (error != std::errc() || end != text.data() + cross) return BadCount(text);
  parts.name = text.substr(cross + 1);
  return parts;
}

}  // namespace

uint64_t DeviceFacts::memory_bytes() const {
  const double bytes = memory_mib > 0 ? memory_mib * 1048576.0 : memory_gb * 1e9;
  return static_cast<uint64_t>(bytes);
}

Status CheckFacts(const DeviceFacts& device) {
  RETURN_IF_ERROR(AtMost(device, "memory_gb", device.memory_gb, kMaxMemoryGb));
  RETURN_IF_ERROR(AtMost(device, "memory_mib", device.memory_mib, kMaxMemoryGb * 1000));
  for (const double share : {device.eff_memory, device.eff_flops, device.eff_flops_8bit}) {
    RETURN_IF_ERROR(AtMost(device, "eff_*", share, 1));
  }
  return OkStatus();
}

Result<ClusterFacts> ParseCluster(const Catalogue& catalogue, std::string_view text,
                                  int64_t nodes) {
  if (nodes < 1 || nodes > ClusterFacts::kMaxDevices) {
    return InvalidArgument(fmt::format("--nodes is {}; it must be between 1 and {}", nodes,
                                       ClusterFacts::kMaxDevices));
  }
  ASSIGN_OR_RETURN(CountAndName parts, SplitCount(text));
  std::string_view name = parts.name;
  while (name.starts_with(' ') || name.starts_with('"')) name.remove_prefix(1);
  while (name.ends_with(' ') || name.ends_with('"')) name.remove_suffix(1);
  const int64_t count = parts.count;
  if (count < 1 || count > ClusterFacts::kMaxDevices || name.empty() ||
      count * nodes > ClusterFacts::kMaxDevices) {
    return BadCount(text);
  }
  ClusterFacts cluster;
  cluster.devices_per_node = static_cast<uint32_t>(count);
  cluster.nodes = static_cast<uint32_t>(nodes);
  if (const double bytes = MemoryOf(name); bytes > 0) {
    cluster.device.name = name;
    cluster.device.memory_gb = bytes / 1e9;
    cluster.device.source = "as given";
    RETURN_IF_ERROR(CheckFacts(cluster.device));
    return cluster;
  }
  ASSIGN_OR_RETURN(const DeviceFacts* device, catalogue.FindDevice(name));
  cluster.device = *device;
  return cluster;
}

}  // namespace cleave
