#include "base/host.h"

#include <hwloc.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>

namespace cleave {
namespace {

std::optional<std::string> ReadText(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<uint64_t> ReadNumber(const std::string& path) {
  const auto text = ReadText(path);
  if (!text) return std::nullopt;
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end == text->data()) return std::nullopt;
  return value;
}

// "MemTotal:  24000000 kB" of /proc/meminfo, in bytes.
std::optional<uint64_t> MemInfo(const std::string& text, const std::string& key) {
  const size_t at = text.find(key + ":");
  if (at == std::string::npos) return std::nullopt;
  std::istringstream line(text.substr(at + key.size() + 1));
  uint64_t kib = 0;
  line >> kib;
  return kib * 1024;
}

// Folders of this process's cgroup, from its own to the root, for the controller (v2: one tree).
std::vector<std::string> CgroupFolders(const std::string& root, const std::string& controller) {
  std::vector<std::string> folders;
  const auto text = ReadText(root + "/proc/self/cgroup");
  if (!text) return folders;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    const bool v2 = names.empty();
    if (!v2 && ("," + names + ",").find("," + controller + ",") == std::string::npos) continue;
    const std::string base = root + "/sys/fs/cgroup" + (v2 ? "" : "/" + controller);
    for (std::string path = line.substr(second + 1);;) {
      folders.push_back(base + (path == "/" ? "" : path));
      const size_t slash = path.rfind('/');
      if (slash == std::string::npos || path == "/") break;
      path = slash == 0 ? "/" : path.substr(0, slash);
    }
  }
  return folders;
}

}  // namespace

HostMemory ReadHostMemory(const std::string& root) {
  HostMemory memory;
  const std::string info = ReadText(root + "/proc/meminfo").value_or("");
  const auto pages = static_cast<uint64_t>(std::max(0L, ::sysconf(_SC_PHYS_PAGES)));
  const auto page_bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  memory.total_bytes = MemInfo(info, "MemTotal").value_or(pages * page_bytes);
  memory.available_bytes = MemInfo(info, "MemAvailable").value_or(memory.total_bytes);
  memory.limited_by = "machine";
  for (const std::string& folder : CgroupFolders(root, "memory")) {
    for (const char* file : {"/memory.max", "/memory.limit_in_bytes"}) {
      const auto limit = ReadNumber(folder + file);
      if (!limit || *limit >= memory.total_bytes) continue;
      memory.total_bytes = *limit;
      memory.limited_by = folder.substr(root.size()) + file;
      uint64_t used = ReadNumber(folder + "/memory.current")
                          .value_or(ReadNumber(folder + "/memory.usage_in_bytes").value_or(0));
      used = std::min(used, *limit);
      memory.available_bytes = std::min(memory.available_bytes, *limit - used);
    }
  }
  return memory;
}

std::vector<int> UsableCores() {
  std::vector<int> cores;
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) == 0) {
    hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (hwloc_topology_load(topology) == 0) {
      cpu_set_t allowed;
      CPU_ZERO(&allowed);
      ::sched_getaffinity(0, sizeof(allowed), &allowed);
      const int count = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
      for (int i = 0; i < count; ++i) {
        hwloc_obj_t core =
            hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, static_cast<unsigned>(i));
        for (int pu = hwloc_bitmap_first(core->cpuset); pu >= 0;
             pu = hwloc_bitmap_next(core->cpuset, pu)) {
          if (pu < CPU_SETSIZE && CPU_ISSET(pu, &allowed)) {
            cores.push_back(pu);
            break;
          }
        }
      }
    }
    hwloc_topology_destroy(topology);
  }
  if (cores.empty()) {
    const long online = std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN));
    for (long i = 0; i < online; ++i) cores.push_back(static_cast<int>(i));
  }
  std::sort(cores.begin(), cores.end());
  return cores;
}

uint32_t UsableCoreCount(const std::string& root) {
  auto count = static_cast<uint32_t>(UsableCores().size());
  for (const std::string& folder : CgroupFolders(root, "cpu")) {
    uint64_t quota = 0;
    uint64_t period = 0;
    if (const auto text = ReadText(folder + "/cpu.max")) {
      std::istringstream(*text) >> quota >> period;  // "max 100000" leaves quota at 0
    } else {
      quota = ReadNumber(folder + "/cpu.cfs_quota_us").value_or(0);  // "-1" is no number here
      period = ReadNumber(folder + "/cpu.cfs_period_us").value_or(0);
    }
    if (quota == 0 || period == 0) continue;
    const uint64_t whole = std::max<uint64_t>(1, quota / period);
    count = static_cast<uint32_t>(std::min<uint64_t>(count, whole));
  }
  return count;
}

}  // namespace cleave
