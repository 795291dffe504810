#include "base/fresh_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>
#include <vector>

namespace cleave {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

class FreshFileTest : public ::testing::Test {
 protected:
  FreshFileTest() : folder_(::testing::TempDir() + "fresh_file_" + std::to_string(::getpid())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  ~FreshFileTest() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }
  [[nodiscard]] std::string Read(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Age(const std::string& name) const {
    const struct timespec times[2] = {{.tv_sec = 1000, .tv_nsec = 0},
                                      {.tv_sec = 1000, .tv_nsec = 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, (folder_ + "/" + name).c_str(), times, 0), 0);
  }

  const std::string folder_;
};

TEST_F(FreshFileTest, AppearsWholeAndIsItsOwners) {
  auto file = FreshFile::Create(folder_, "a", 5);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  ASSERT_TRUE(file->WriteAt(3, Bytes("45")).ok());
  ASSERT_TRUE(file->WriteAt(0, Bytes("123")).ok());
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/a"));
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_THAT(Names(), ElementsAre("a"));
  EXPECT_EQ(Read("a"), "12345");
  struct stat info {};
  ASSERT_EQ(::stat((folder_ + "/a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
}

TEST_F(FreshFileTest, WithoutCommitNothingIsLeft) {
  {
    auto file = FreshFile::Create(folder_, "a", 5);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->WriteAt(0, Bytes("x")).ok());
    FreshFile moved = *std::move(file);
    EXPECT_EQ(Names().size(), 1U);
  }
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(FreshFileTest, TheLastOfTwoWritersWins) {
  auto one = FreshFile::Create(folder_, "a", 5);
  auto two = FreshFile::Create(folder_, "a", 5);
  ASSERT_TRUE(one.ok() && two.ok());
  ASSERT_TRUE(one->WriteAt(0, Bytes("one")).ok() && two->WriteAt(0, Bytes("two")).ok());
  ASSERT_TRUE(two->Commit().ok());
  EXPECT_EQ(Read("a"), "two");
  ASSERT_TRUE(one->Commit().ok());
  EXPECT_EQ(Read("a"), "one");
  EXPECT_THAT(Names(), ElementsAre("a"));
}

TEST_F(FreshFileTest, WhatAKilledWriterLeftIsRemovedByTheNext) {
  std::ofstream(folder_ + "/a.77-0.part") << "left";
  std::ofstream(folder_ + "/b.77-0.part") << "another name's";
  std::ofstream(folder_ + "/a.78-0.part") << "new: it may not be locked yet";
  Age("a.77-0.part");
  Age("b.77-0.part");
  auto writing = FreshFile::Create(folder_, "a", 5);
  ASSERT_TRUE(writing.ok());
  EXPECT_THAT(Names(), ::testing::Not(::testing::Contains("a.77-0.part")));
  EXPECT_EQ(Names().size(), 3U);
  // One that is old and locked is being written.
  for (const std::string& name : Names()) Age(name);
  ASSERT_TRUE(FreshFile::Create(folder_, "a", 5).ok());
  ASSERT_TRUE(writing->WriteAt(0, Bytes("whole")).ok());
  ASSERT_TRUE(writing->Commit().ok());
  EXPECT_EQ(Read("a"), "whole");
}

TEST_F(FreshFileTest, SaysWhatHasNoRoom) {
  const auto huge = FreshFile::Create(folder_, "a", uint64_t{1} << 60U);
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(huge.status().message(), HasSubstr(folder_ + "/a: 1152921504606846976 bytes, and "));
  EXPECT_THAT(huge.status().message(), HasSubstr(" to spare; its disk has "));
  const auto nowhere = FreshFile::Create(folder_ + "/none", "a", 5);
  EXPECT_EQ(nowhere.status().message(), folder_ + "/none: open: No such file or directory");
  std::ofstream(folder_ + "/file") << "x";
  const auto in_file = FreshFile::Create(folder_ + "/file", "a", 5);
  EXPECT_EQ(in_file.status().message(), folder_ + "/file: open: Not a directory");
  EXPECT_THAT(Names(), ElementsAre("file"));
}

TEST_F(FreshFileTest, ALimitOfTheProcessIsAnErrorNotItsEnd) {
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const struct rlimit small { .rlim_cur = 4096, .rlim_max = before.rlim_max };
  auto made_before = FreshFile::Create(folder_, "b", 8192);
  ASSERT_TRUE(made_before.ok());
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto refused = FreshFile::Create(folder_, "a", 8192);
  const Status written = made_before->WriteAt(0, std::vector<std::byte>(8192));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(refused.status().message(),
            folder_ + "/a: 8192 bytes; a file of this process may have 4096 (ulimit -f)");
  EXPECT_EQ(written.message(), folder_ + "/b: write: File too large");
}

}  // namespace
}  // namespace cleave
