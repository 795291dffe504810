// Damaged files of every kind: whatever the bytes, a reader answers with a Status or with a
// checkpoint whose every weight lies inside the file. Runs under the sanitizers too.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <span>

#include "base/rng.h"
#include "model/checkpoint.h"
#include "model/format/gguf_config.h"
#include "model/format/gguf_tokenizer.h"
#include "model/format/safetensors.h"
#include "model/format/test_models.h"

namespace cleave {
namespace {

using testing_files::AsBytes;
using testing_files::BuildSafetensors;
using testing_files::GgufWriter;
using testing_files::TempFolder;
using testing_files::TinyConfig;
using testing_files::TinyGguf;
using testing_files::TinyTensors;

constexpr int kRounds = 3000;

// Values that break unchecked arithmetic, in place of 1, 2, 4 or 8 bytes.
constexpr uint64_t kNasty[] = {0,
                               1,
                               0x7f,
                               0xff,
                               0x7fffffff,
                               0xffffffff,
                               0x7fffffffffffffff,
                               0xffffffffffffffff,
                               0x8000000000000000,
                               0x2000000000000000,
                               0xfffffffffffffff8};

void Mutate(RngStream* rng, std::string* bytes) {
  const uint64_t changes = 1 + rng->Below(4);
  for (uint64_t i = 0; i < changes && !bytes->empty(); ++i) {
    const size_t at = rng->Below(bytes->size());
    switch (rng->Below(4)) {
      case 0:
        (*bytes)[at] = static_cast<char>((*bytes)[at] ^ (1 << rng->Below(8)));
        break;
      case 1:
        (*bytes)[at] = static_cast<char>(rng->Next());
        break;
      case 2: {
        const uint64_t value = kNasty[rng->Below(std::size(kNasty))];
        const size_t width = std::min<size_t>(size_t{1} << rng->Below(4), bytes->size() - at);
        std::memcpy(bytes->data() + at, &value, width);
        break;
      }
      default:
        bytes->erase(at, 1 + rng->Below(16));
        break;
    }
  }
}

void ExpectInside(const TensorView& view, std::span<const std::byte> bytes) {
  const uint64_t size = view.rows() * RowBytes(view.dtype, view.cols()).value_or(0);
  ASSERT_LE(size, bytes.size());
  ASSERT_GE(view.data, bytes.data());
  ASSERT_LE(view.data + size, bytes.data() + bytes.size());
}

// True when the bytes were taken as a model. A copy on the heap: its end is guarded.
bool ReadGguf(const std::string& bytes) {
  const std::vector<char> copy(bytes.begin(), bytes.end());
  const std::span<const std::byte> view_of_copy = std::as_bytes(std::span(copy));
  const auto contents = ParseGguf(view_of_copy);
  if (!contents.ok()) {
    EXPECT_FALSE(contents.status().message().empty());
    return false;
  }
  for (const auto& [name, view] : contents->tensors) ExpectInside(view, view_of_copy);
  const auto config = GgufConfig(*contents);
  const auto tokenizer = GgufTokenizer(*contents);
  return config.ok() && tokenizer.ok() && GgufGeneration(*contents, *tokenizer).ok();
}

GgufWriter RichGguf() {
  GgufWriter writer =
      TinyGguf({.arch = "gemma3", .qk_norm = true, .post_norms = true, .merges = false});
  writer.Uint("gemma3.attention.sliding_window", 4);
  writer.Array("gemma3.attention.sliding_window_pattern", GgufType::kBool, 2, "\1\1");
  writer.Float("general.sampling.temp", 0.5F);
  writer.Strings("tokenizer.ggml.merges", {"a b", "b c"});
  return writer;
}

TEST(Mutation, TruncatedGgufIsRefusedAtEveryLength) {
  const std::string whole = RichGguf().Build();
  ASSERT_TRUE(ReadGguf(whole));
  for (size_t length = 0; length < whole.size(); ++length) {
    ASSERT_FALSE(ParseGguf(AsBytes(whole.substr(0, length))).ok()) << length;
  }
}

TEST(Mutation, DamagedGgufNeverHarms) {
  RngStream rng(1);
  const std::string whole = RichGguf().Build();
  int taken = 0;
  for (int i = 0; i < kRounds; ++i) {
    std::string bytes = whole;
    Mutate(&rng, &bytes);
    taken += ReadGguf(bytes) ? 1 : 0;
  }
  // Some damage is harmless, most is not.
  EXPECT_GT(taken, 0);
  EXPECT_LT(taken, kRounds / 2);
}

// Most bytes of a whole file are weights; here only what is parsed is damaged.
TEST(Mutation, DamagedGgufMetadataNeverHarms) {
  RngStream rng(2);
  GgufWriter writer = RichGguf();
  writer.tensors.clear();
  writer.data.clear();
  writer.F32("token_embd.weight", {8, 3});
  const std::string whole = writer.Build();
  for (int i = 0; i < 2 * kRounds; ++i) {
    std::string bytes = whole;
    Mutate(&rng, &bytes);
    ReadGguf(bytes);
  }
}

TEST(Mutation, DamagedSafetensorsNeverHarms) {
  RngStream rng(3);
  const std::string whole = BuildSafetensors(TinyTensors(1, "model."));
  int taken = 0;
  for (int i = 0; i < kRounds; ++i) {
    std::string bytes = whole;
    Mutate(&rng, &bytes);
    const std::vector<char> copy(bytes.begin(), bytes.end());
    const std::span<const std::byte> view_of_copy = std::as_bytes(std::span(copy));
    const auto parsed = ParseSafetensors(view_of_copy);
    if (!parsed.ok()) continue;
    ++taken;
    for (const auto& [name, tensor] : *parsed) {
      if (tensor.supported) ExpectInside(tensor.view, view_of_copy);
    }
  }
  EXPECT_GT(taken, 0);
  EXPECT_LT(taken, kRounds);
}

TEST(Mutation, DamagedFoldersNeverHarm) {
  const TempFolder folder;
  auto config = TinyConfig("LlamaForCausalLM");
  config["tie_word_embeddings"] = true;
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 8192}};
  const std::vector<std::pair<std::string, std::string>> files = {
      {"config.json", config.dump()},
      {"generation_config.json", R"({"eos_token_id": [1, 2], "temperature": 0.5, "top_k": 20})"},
      {"tokenizer_config.json",
       R"({"chat_template": [{"name": "default", "template": "hello"}]})"}};
  std::ignore = folder.Write("model.safetensors", BuildSafetensors(TinyTensors(2, "model.")));
  for (const auto& [name, text] : files) std::ignore = folder.Write(name, text);
  ASSERT_TRUE(OpenCheckpoint(folder.path()).ok());
  RngStream rng(4);
  for (const auto& [name, text] : files) {
    int refused = 0;
    for (int i = 0; i < 100; ++i) {
      std::string damaged = text;
      Mutate(&rng, &damaged);
      std::ignore = folder.Write(name, damaged);
      refused += OpenCheckpoint(folder.path()).ok() ? 0 : 1;
    }
    EXPECT_GT(refused, 20) << name;
    std::ignore = folder.Write(name, text);
  }
}

// A header that announces much must not make a reader take much.
TEST(Mutation, SmallFilesTakeLittleMemory) {
  rusage before{};
  ::getrusage(RUSAGE_SELF, &before);
  const std::string array = testing_files::Raw(GgufType::kFloat32) + testing_files::Raw(~0ULL / 8);
  GgufWriter writer = RichGguf();
  writer.Entry("k", GgufType::kArray, array);
  EXPECT_FALSE(ReadGguf(writer.Build()));
  EXPECT_FALSE(ReadGguf(TinyGguf({.layers = 0xffffffffU}).Build()));
  auto config = TinyConfig("LlamaForCausalLM");
  config["num_hidden_layers"] = 4294967295U;
  const TempFolder folder;
  std::ignore = folder.Write("config.json", config.dump());
  std::ignore = folder.Write("model.safetensors", testing_files::Raw<uint64_t>(16U << 20U));
  EXPECT_FALSE(OpenCheckpoint(folder.path()).ok());
  rusage after{};
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 64 * 1024) << "KiB";
}

}  // namespace
}  // namespace cleave
