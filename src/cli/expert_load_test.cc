// The file of --expert-load: what is read is what was written and counted, and what is no such file
// is refused by its name.

#include "cli/expert_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "cli/split_flags.h"

namespace cleave {
namespace {

using ::testing::HasSubstr;
constexpr auto kRead = ExpertLoadFile::Use::kRead;
constexpr auto kKeep = ExpertLoadFile::Use::kKeep;
namespace fs = std::filesystem;

class ExpertLoad : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  void Put(const std::string& text) { std::ofstream(path_) << text; }
  std::string Refusal(uint32_t experts = 3) {
    auto file = ExpertLoadFile::Open(path_, "m", experts, kRead);
    if (file.ok()) return "";
    EXPECT_EQ(file.status().code(), StatusCode::kInvalidArgument);
    return file.status().message();
  }
  ExpertTokens Tokens() {
    auto file = ExpertLoadFile::Open(path_, "m", 3, kRead);
    EXPECT_TRUE(file.ok()) << file.status().ToString();
    return file.ok() ? (*file)->tokens() : ExpertTokens();
  }
  const std::string folder_ = testing::TempDir() + "/expert_load_" + std::to_string(::getpid());
  const std::string path_ = folder_ + "/load.json";
};

TEST_F(ExpertLoad, AddsUpOverRuns) {
  EXPECT_EQ(Tokens(), ExpertTokens({0, 0, 0})) << "there is none yet";
  EXPECT_FALSE(fs::exists(path_));
  for (uint64_t run = 1; run <= 2; ++run) {
    auto file = ExpertLoadFile::Open(path_, "m", 3, kKeep);
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    (*file)->Follow([] { return ExpertTokens({1, 0, 7}); });
    file->reset();
    EXPECT_EQ(Tokens(), ExpertTokens({run, 0, 7 * run}));
  }
  // No other file is left beside it.
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(ExpertLoad, IsWrittenWhileItRuns) {
  std::atomic<uint64_t> counted{0};
  auto file = ExpertLoadFile::Open(path_, "m", 3, kKeep);
  ASSERT_TRUE(file.ok());
  (*file)->Follow([&] { return ExpertTokens({++counted, 0, 0}); }, std::chrono::milliseconds(1));
  while (counted < 3) std::this_thread::yield();
  EXPECT_GE(Tokens()[0], 2U) << "it ends with one more";
}

TEST_F(ExpertLoad, IsARegularFile) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(Refusal(), HasSubstr("it is no regular file"));
  auto folder = ExpertLoadFile::Open(folder_, "m", 3, kKeep);
  ASSERT_FALSE(folder.ok());
  EXPECT_THAT(folder.status().message(), HasSubstr("it is no regular file"));
  EXPECT_TRUE(fs::is_fifo(path_));
}

TEST_F(ExpertLoad, RefusesWhatIsNone) {
  for (const char* text :
       {"", "[]", "{", "{\"model\": \"m\"}", "{\"model\": 3, \"expert_tokens\": []}",
        "{\"model\": \"m\", \"expert_tokens\": 3}"}) {
    Put(text);
    EXPECT_THAT(Refusal(), HasSubstr("load.json: it is not {\"model\"")) << text;
  }
  Put("{\"model\": \"m\", \"expert_tokens\": [1, -2, 3]}");
  EXPECT_THAT(Refusal(), HasSubstr("holds what is no count"));
  Put("{\"model\": \"m\", \"expert_tokens\": [1, 2.5, 3]}");
  EXPECT_THAT(Refusal(), HasSubstr("holds what is no count"));
  Put("{\"model\": \"m\", \"expert_tokens\": [1, 2]}");
  EXPECT_THAT(Refusal(), HasSubstr("it counts 2 experts, the model has 3"));
  Put("{\"model\": \"other\", \"expert_tokens\": [1, 2, 3]}");
  EXPECT_THAT(Refusal(), HasSubstr("it is of model 'other', this one is 'm'"));
  Put(std::string(2 << 20, ' '));
  EXPECT_THAT(Refusal(), HasSubstr("larger than any such file"));
}

TEST_F(ExpertLoad, RefusesAFolderThatIsNowhere) {
  auto file = ExpertLoadFile::Open(folder_ + "/nowhere/load.json", "m", 3, kKeep);
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.status().message(), HasSubstr("can not write"));
}

TEST(EplbFlags, AreRedundantExperts) {
  SplitFlags flags;
  flags.enable_eplb = true;
  flags.eplb_config = "{\"num_redundant_experts\": 3}";
  EXPECT_EQ(flags.ToSplit()->redundant_experts, 3U);
  EXPECT_TRUE(flags.ToSplit()->experts_by_load);
  flags.redundant_experts = 2;
  EXPECT_THAT(flags.ToSplit().status().message(), HasSubstr("give one of them"));
  flags.redundant_experts = 0;
  flags.enable_eplb = false;
  EXPECT_THAT(flags.ToSplit().status().message(), HasSubstr("give --enable-eplb too"));
  for (const char* bad : {"{", "3", "{\"num_redundant_experts\": -1}", "{\"step_interval\": 3}",
                          "{\"num_redundant_experts\": 999999999999}"}) {
    flags.eplb_config = bad;
    EXPECT_THAT(flags.ToSplit().status().message(), HasSubstr("is what is known here")) << bad;
  }
  SplitFlags plain;
  EXPECT_FALSE(plain.ToSplit()->experts_by_load);
}

}  // namespace
}  // namespace cleave
