#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>

#include "model/checkpoint.h"
#include "model/format/hf_command.h"
#include "model/format/hub_cache.h"
#include "model/format/test_models.h"

namespace cleave {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_files::TempFolder;

constexpr const char* kCommit = "0123456789abcdef";

// Points every variable the lookup reads into a folder of its own, and puts them back.
class Resolve : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME",
                             "HOME", "PATH", "HF_HUB_OFFLINE", "FAKE_HUB"}) {
      const char* value = std::getenv(name);
      if (value != nullptr) saved_[name] = value;
      saved_.try_emplace(name);
      ::unsetenv(name);
    }
    ::setenv("HF_HOME", (folder_.path() + "/hf").c_str(), 1);
  }
  void TearDown() override {
    for (const auto& [name, value] : saved_) {
      if (value.has_value()) {
        ::setenv(name.c_str(), value->c_str(), 1);
      } else {
        ::unsetenv(name.c_str());
      }
    }
  }

  [[nodiscard]] std::string Repository() const { return folder_.path() + "/hf/hub/models--o--m"; }
  [[nodiscard]] std::string Snapshot() const { return Repository() + "/snapshots/" + kCommit; }
  void Write(const std::string& full, const std::string& text) const {
    std::ignore = folder_.Write(full.substr(folder_.path().size() + 1), text);
  }
  void WriteSnapshot(const std::vector<std::string>& files) const {
    Write(Repository() + "/refs/main", kCommit);
    for (const std::string& file : files) Write(Snapshot() + "/" + file, "x");
  }
  // An `hf` of our own, which notes its arguments and runs `body`.
  void InstallHf(const std::string& body) const {
    const std::string path = folder_.path() + "/bin/hf";
    Write(path, "#!/bin/sh\nprintf '%s\\n' \"$@\" > \"$FAKE_HUB/arguments\"\n" + body + "\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    ::setenv("PATH", (folder_.path() + "/bin:/usr/bin:/bin").c_str(), 1);
    ::setenv("FAKE_HUB", folder_.path().c_str(), 1);
  }
  static std::string Refusal(const std::string& argument, StatusCode code) {
    const auto found = ResolveModelPath(argument);
    EXPECT_FALSE(found.ok());
    EXPECT_EQ(found.status().code(), code) << found.status().ToString();
    return found.status().message();
  }

  const TempFolder folder_;

 private:
  std::map<std::string, std::optional<std::string>> saved_;
};

TEST_F(Resolve, LeavesFilesAndFoldersAsTheyAre) {
  const std::string file = folder_.Write("some.gguf", "x");
  EXPECT_EQ(*ResolveModelPath(file), file);
  EXPECT_EQ(*ResolveModelPath(folder_.path()), file);
  std::ignore = folder_.Write("config.json", "{}");
  std::ignore = folder_.Write("model.safetensors", "x");
  EXPECT_EQ(*ResolveModelPath(folder_.path()), folder_.path());
  EXPECT_EQ(Refusal("", StatusCode::kInvalidArgument), "the model argument is empty");
}

TEST_F(Resolve, TellsHubNamesFromOtherText) {
  EXPECT_EQ(ParseHubName("org/model-1.5_x")->repository, "org/model-1.5_x");
  EXPECT_EQ(ParseHubName("org/model:Q4_K_M")->quant, "Q4_K_M");
  for (const std::string text :
       {"model", "/org/model", "org/", "a/b/c", "../model", "org/..", "-o/m", "o/-m",
        "o/m:", "o/m:a/b", "o m/x", "o/m;ls", "o/m:--x", ".o/m", "o/a..b"}) {
    EXPECT_FALSE(ParseHubName(text).has_value()) << text;
  }
  EXPECT_EQ(Refusal("no/such/file.gguf", StatusCode::kNotFound),
            "no/such/file.gguf: no such file or folder, and not a Hub name (\"org/model\" or "
            "\"org/model:Q4_K_M\")");
}

TEST_F(Resolve, FindsTheCacheByItsVariables) {
  EXPECT_EQ(HubCacheFolder(), folder_.path() + "/hf/hub");
  ::unsetenv("HF_HOME");
  ::setenv("HOME", "/home/x", 1);
  EXPECT_EQ(HubCacheFolder(), "/home/x/.cache/huggingface/hub");
  ::setenv("XDG_CACHE_HOME", "/caches", 1);
  EXPECT_EQ(HubCacheFolder(), "/caches/huggingface/hub");
  ::setenv("HF_HUB_CACHE", "/hub", 1);
  EXPECT_EQ(HubCacheFolder(), "/hub");
}

TEST_F(Resolve, FindsASnapshot) {
  WriteSnapshot({"config.json", "model.safetensors"});
  EXPECT_EQ(*ResolveModelPath("o/m"), Snapshot());
  // Newlines after the commit, as some tools write them.
  Write(Repository() + "/refs/main", std::string(kCommit) + "\n");
  EXPECT_EQ(*ResolveModelPath("o/m"), Snapshot());
  std::filesystem::remove(Repository() + "/refs/main");
  EXPECT_EQ(*ResolveModelPath("o/m"), Snapshot());
  Write(Repository() + "/refs/main", "../../../etc");
  EXPECT_EQ(Refusal("o/m", StatusCode::kDataLoss),
            Repository() + "/refs/main: does not name a commit");
}

TEST_F(Resolve, FindsAQuantByName) {
  WriteSnapshot({"m.Q4_K_M.gguf"});
  EXPECT_EQ(*ResolveModelPath("o/m"), Snapshot() + "/m.Q4_K_M.gguf");
  WriteSnapshot({"m-Q4_K.gguf", "m-q8_0.gguf"});
  EXPECT_EQ(*ResolveModelPath("o/m:Q4_K_M"), Snapshot() + "/m.Q4_K_M.gguf");
  EXPECT_EQ(*ResolveModelPath("o/m:Q4_K"), Snapshot() + "/m-Q4_K.gguf");
  EXPECT_EQ(*ResolveModelPath("o/m:Q8_0"), Snapshot() + "/m-q8_0.gguf");
  EXPECT_THAT(
      Refusal("o/m", StatusCode::kInvalidArgument),
      HasSubstr("holds 3 .gguf files; name one of m-Q4_K.gguf, m-q8_0.gguf, m.Q4_K_M.gguf"));
  WriteSnapshot({"n-q8_0.gguf"});
  EXPECT_THAT(Refusal("o/m:Q8_0", StatusCode::kInvalidArgument),
              HasSubstr("2 .gguf files fit Q8_0; name a file"));
}

TEST_F(Resolve, SaysBothWaysOut) {
  EXPECT_EQ(Refusal("o/m", StatusCode::kNotFound),
            "o/m: not in the Hugging Face cache (" + folder_.path() +
                "/hf/hub), and the `hf` command is not on PATH; either `pip install "
                "huggingface_hub` and `hf download o/m`, or give the path of a .gguf file or of a "
                "folder with config.json");
  InstallHf("exit 1");
  ::setenv("HF_HUB_OFFLINE", "1", 1);
  EXPECT_THAT(Refusal("o/m", StatusCode::kNotFound), HasSubstr("HF_HUB_OFFLINE is set"));
}

TEST_F(Resolve, FetchesWithTheCommand) {
  // A cache with half a model in it: an earlier fetch was stopped.
  WriteSnapshot({"config.json"});
  InstallHf("echo here > '" + Snapshot() + "/model.safetensors'");
  EXPECT_EQ(*ResolveModelPath("o/m"), Snapshot());
  std::ifstream arguments(folder_.path() + "/arguments");
  std::vector<std::string> lines;
  for (std::string line; std::getline(arguments, line);) lines.push_back(line);
  EXPECT_THAT(lines,
              ElementsAre("download", "o/m", "--include", "*.[sj]*", "--exclude", "consolidated*"));
  EXPECT_THAT(FetchArguments({"o/m", "Q4_0"}),
              ElementsAre("download", "o/m", "--include", "*Q4_0*.gguf"));
}

TEST_F(Resolve, SaysHowTheCommandFailed) {
  InstallHf("exit 3");
  EXPECT_EQ(Refusal("o/m", StatusCode::kUnavailable),
            "o/m: `hf download o/m` failed with exit code 3");
  InstallHf("kill -9 $$");
  EXPECT_EQ(Refusal("o/m", StatusCode::kUnavailable),
            "o/m: `hf download o/m` was stopped by signal 9");
  InstallHf("exit 0");
  EXPECT_EQ(Refusal("o/m", StatusCode::kNotFound),
            "o/m: fetched, but " + Repository() +
                ": not in the cache; for a repository of .gguf files add which, as in "
                "\"o/m:Q4_K_M\"");
}

}  // namespace
}  // namespace cleave
