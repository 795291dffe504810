#include "base/host.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace cleave {
namespace {

class Host : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/host_test";
    std::filesystem::remove_all(root_);
    Write("/proc/meminfo", "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    800 kB\n");
  }
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = root_ + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  std::string root_;
};

TEST_F(Host, TakesTheMachineWithoutCgroups) {
  const HostMemory memory = ReadHostMemory(root_);
  EXPECT_EQ(memory.total_bytes, 1000U * 1024);
  EXPECT_EQ(memory.available_bytes, 800U * 1024);
  EXPECT_EQ(memory.limited_by, "machine");
}

TEST_F(Host, TakesTheTightestCgroupAboveTheProcess) {
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  Write("/sys/fs/cgroup/a/memory.max", "500000\n");
  Write("/sys/fs/cgroup/a/memory.current", "100000\n");
  const HostMemory memory = ReadHostMemory(root_);
  EXPECT_EQ(memory.total_bytes, 500000U);
  EXPECT_EQ(memory.available_bytes, 400000U);
  EXPECT_EQ(memory.limited_by, "/sys/fs/cgroup/a/memory.max");
}

TEST_F(Host, ReadsTheOlderCgroupTree) {
  Write("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/x\n");
  Write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "600000\n");
  Write("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "590000\n");
  EXPECT_EQ(ReadHostMemory(root_).available_bytes, 10000U);
}

TEST_F(Host, CountsCoresWithinAffinityAndQuota) {
  const auto cores = static_cast<uint32_t>(UsableCores().size());
  EXPECT_GE(cores, 1U);
  Write("/proc/self/cgroup", "0::/a\n");
  Write("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
  EXPECT_EQ(UsableCoreCount(root_), cores);
  Write("/sys/fs/cgroup/a/cpu.max", "50000 100000\n");
  EXPECT_EQ(UsableCoreCount(root_), 1U);
}

}  // namespace
}  // namespace cleave
