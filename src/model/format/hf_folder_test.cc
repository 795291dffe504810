#include "model/format/hf_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/format/model_folder.h"
#include "model/format/test_models.h"

namespace cleave {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_files::BuildSafetensors;
using testing_files::SafeTensorSpec;
using testing_files::TempFolder;
using testing_files::TinyConfig;
using testing_files::TinyTensors;

class HfFolder : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) const {
    std::ignore = folder_.Write(name, text);
  }
  // A whole Llama with an untied head.
  void WriteLlama(const std::string& prefix = "model.") const {
    Write("config.json", TinyConfig("LlamaForCausalLM").dump());
    auto specs = TinyTensors(2, prefix);
    specs.push_back({"lm_head.weight", {3, 8}});
    Write("model.safetensors", BuildSafetensors(specs));
  }
  [[nodiscard]] Result<std::unique_ptr<Checkpoint>> Open() const {
    return OpenCheckpoint(folder_.path());
  }
  // The message after the folder's path.
  [[nodiscard]] std::string Refusal(StatusCode code) const {
    const auto opened = Open();
    EXPECT_FALSE(opened.ok());
    EXPECT_EQ(opened.status().code(), code) << opened.status().ToString();
    const std::string& message = opened.status().message();
    EXPECT_TRUE(message.starts_with(folder_.path())) << message;
    return message.substr(std::min(message.size(), folder_.path().size()));
  }

  const TempFolder folder_;
};

TEST_F(HfFolder, OpensALlama) {
  WriteLlama();
  Write("tokenizer.json", "{\"model\": {}}");
  Write("tokenizer_config.json", R"({"chat_template": "from config"})");
  Write("generation_config.json", R"({"eos_token_id": [1, 2], "temperature": 0.5})");
  const auto opened = Open();
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  const Checkpoint& model = **opened;
  EXPECT_EQ(model.path(), folder_.path());
  EXPECT_TRUE(model.name().starts_with("cleave_format_"));
  EXPECT_EQ(model.tokenizer_source().kind, TokenizerSource::Kind::kHuggingFaceJson);
  EXPECT_EQ(model.tokenizer_source().tokenizer_json, "{\"model\": {}}");
  EXPECT_EQ(model.chat_template(), "from config");
  EXPECT_THAT(model.generation_defaults().eos_token_ids, ElementsAre(1, 2));
  EXPECT_EQ(model.generation_defaults().temperature, 0.5);
  EXPECT_THAT(model.Weight({WeightRole::kDown, 1})->shape, ElementsAre(8, 6));
  EXPECT_THAT(model.Weight({WeightRole::kHead})->shape, ElementsAre(3, 8));
  EXPECT_EQ(model.OrderOf({WeightRole::kQ, 0}), RowOrder::kPlain);
  EXPECT_EQ(model.Weight({WeightRole::kQNorm, 1}).status().message(),
            model.name() + ": the model has no tensor model.layers.1.self_attn.q_norm.weight");
  model.DropResidentPages();
}

TEST_F(HfFolder, ChoosesTheTemplate) {
  const auto chosen = [this](const std::string& config) {
    const auto found = HfChatTemplate(folder_.path(), config);
    EXPECT_TRUE(found.ok()) << found.status().ToString();
    return found.ok() ? *found : "";
  };
  const std::string list =
      R"({"chat_template": [{"name": "tool_use", "template": "tools"},
                            {"name": "default", "template": "plain"}]})";
  EXPECT_EQ(chosen(""), "");
  EXPECT_EQ(chosen("{}"), "");
  EXPECT_EQ(chosen(list), "plain");
  Write("chat_template.json", R"({"chat_template": "legacy"})");
  EXPECT_EQ(chosen(list), "legacy");
  Write("chat_template.jinja", "own file");
  EXPECT_EQ(chosen(list), "own file");
}

TEST_F(HfFolder, RefusesATemplateOfAnotherKind) {
  EXPECT_EQ(HfChatTemplate(folder_.path(), R"({"chat_template": 3})").status().message(),
            "tokenizer_config.json: chat_template is neither a string nor a list");
}

TEST_F(HfFolder, FindsTensorsUnderEveryPrefix) {
  for (const std::string prefix : {"model.language_model.", "language_model.model.", ""}) {
    WriteLlama(prefix);
    const auto opened = Open();
    ASSERT_TRUE(opened.ok()) << prefix << opened.status().ToString();
    EXPECT_TRUE((*opened)->Has({WeightRole::kUp, 1}));
  }
}

TEST_F(HfFolder, OpensShardsOfAnIndex) {
  WriteLlama();
  std::filesystem::remove(folder_.path() + "/model.safetensors");
  auto specs = TinyTensors(2, "model.");
  specs.push_back({"lm_head.weight", {3, 8}});
  const std::vector<SafeTensorSpec> first(specs.begin(), specs.begin() + 10);
  const std::vector<SafeTensorSpec> second(specs.begin() + 10, specs.end());
  nlohmann::json index = {{"metadata", {{"total_size", 1}}}};
  for (const auto& spec : first) index["weight_map"][spec.name] = "a.safetensors";
  for (const auto& spec : second) index["weight_map"][spec.name] = "b.safetensors";
  Write("model.safetensors.index.json", index.dump());
  Write("a.safetensors", BuildSafetensors(first));
  EXPECT_EQ(Refusal(StatusCode::kNotFound),
            "/b.safetensors: no such file, but model.safetensors.index.json needs it; fetch the "
            "model again");
  Write("b.safetensors", BuildSafetensors({second.begin() + 1, second.end()}));
  EXPECT_EQ(Refusal(StatusCode::kDataLoss), "/b.safetensors: has no tensor " + second.front().name +
                                                ", where model.safetensors.index.json puts it");
  Write("b.safetensors", BuildSafetensors(second));
  ASSERT_TRUE(Open().ok()) << Open().status().ToString();
  const std::string damaged = BuildSafetensors(second);
  Write("b.safetensors", damaged.substr(0, damaged.size() / 2));
  EXPECT_THAT(Refusal(StatusCode::kDataLoss), HasSubstr("/b.safetensors: "));

  for (const std::string name : {"../b.safetensors", "/etc/passwd", "sub/b.safetensors", "b.bin"}) {
    index["weight_map"][second.front().name] = name;
    Write("model.safetensors.index.json", index.dump());
    EXPECT_THAT(Refusal(StatusCode::kInvalidArgument),
                HasSubstr("weight_map names \"" + name +
                          "\"; a .safetensors file of the same folder is wanted"));
  }
  index["weight_map"][second.front().name] = 7;
  Write("model.safetensors.index.json", index.dump());
  EXPECT_THAT(Refusal(StatusCode::kDataLoss), HasSubstr("weight_map gives no file for"));
  Write("model.safetensors.index.json", "{}");
  EXPECT_THAT(Refusal(StatusCode::kDataLoss), HasSubstr("weight_map is missing"));
}

TEST_F(HfFolder, NamesWhatIsMissingOrOfAnotherShape) {
  Write("config.json", TinyConfig("LlamaForCausalLM").dump());
  EXPECT_EQ(Refusal(StatusCode::kNotFound),
            ": has neither model.safetensors nor model.safetensors.index.json");
  Write("pytorch_model.bin", "x");
  EXPECT_EQ(Refusal(StatusCode::kUnsupported),
            ": has pytorch_model.bin but no model.safetensors; save the model as safetensors with "
            "transformers");
  auto specs = TinyTensors(2, "model.");
  Write("model.safetensors", BuildSafetensors(specs));
  EXPECT_EQ(Refusal(StatusCode::kDataLoss),
            ": tensor lm_head.weight is missing; a LlamaForCausalLM model of this config needs it");
  specs.push_back({"lm_head.weight", {4, 8}});
  Write("model.safetensors", BuildSafetensors(specs));
  EXPECT_EQ(Refusal(StatusCode::kDataLoss),
            ": tensor lm_head.weight has shape [4, 8]; the config implies [3, 8]");
  specs.back() = {"lm_head.weight", {3, 8}, "F8_E5M2", 1};
  Write("model.safetensors", BuildSafetensors(specs));
  EXPECT_EQ(Refusal(StatusCode::kUnsupported),
            ": tensor lm_head.weight is stored as F8_E5M2, which is not supported; supported are "
            "F32, F16, BF16");
  specs.back() = {"lm_head.weight", {3, 8}};
  specs.push_back({"model.layers.0.self_attn.o_proj.bias", {8}});
  Write("model.safetensors", BuildSafetensors(specs));
  EXPECT_THAT(Refusal(StatusCode::kUnsupported),
              HasSubstr("tensor model.layers.0.self_attn.o_proj.bias has no place"));
  specs = TinyTensors(3, "model.");
  specs.push_back({"lm_head.weight", {3, 8}});
  Write("model.safetensors", BuildSafetensors(specs));
  EXPECT_THAT(Refusal(StatusCode::kUnsupported),
              HasSubstr("has no place in a LlamaForCausalLM model of 2 layers"));
}

TEST_F(HfFolder, TiedModelsNeedNoHead) {
  auto config = TinyConfig("LlamaForCausalLM");
  config["tie_word_embeddings"] = true;
  Write("config.json", config.dump());
  Write("model.safetensors", BuildSafetensors(TinyTensors(2, "model.")));
  const auto opened = Open();
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  EXPECT_FALSE((*opened)->Has({WeightRole::kHead}));
}

TEST_F(HfFolder, RefusesDamagedJson) {
  WriteLlama();
  Write("config.json", "{");
  EXPECT_EQ(Refusal(StatusCode::kDataLoss), ": config.json: not valid JSON at byte 2 of 1");
  Write("config.json", std::string(5U << 20U, ' '));
  EXPECT_EQ(Refusal(StatusCode::kResourceExhausted),
            "/config.json: file is 5242880 bytes; at most 4194304 are read");
  WriteLlama();
  Write("generation_config.json", "[]");
  EXPECT_EQ(Refusal(StatusCode::kDataLoss), ": generation_config.json: not a JSON object");
}

TEST_F(HfFolder, OpensTheOnlyGgufAndListsSeveral) {
  EXPECT_EQ(Refusal(StatusCode::kNotFound),
            ": no model in this folder: neither config.json nor a .gguf file");
  Write("one.gguf", testing_files::TinyGguf({}).Build());
  ASSERT_TRUE(Open().ok()) << Open().status().ToString();
  EXPECT_EQ((*Open())->path(), folder_.path() + "/one.gguf");
  // A repository of .gguf files often holds a config.json too.
  Write("config.json", R"({"model_type": "llama"})");
  EXPECT_TRUE(Open().ok());
  Write("two.gguf", "x");
  EXPECT_EQ(Refusal(StatusCode::kInvalidArgument),
            ": holds 2 .gguf files; name one of one.gguf, two.gguf");
}

TEST_F(HfFolder, SaysWhatCanBeOpened) {
  const std::string text = folder_.Write("readme.md", "hello");
  EXPECT_EQ(OpenCheckpoint(text).status().message(),
            text +
                ": not a GGUF file: it does not start with \"GGUF\"; a .gguf file or a folder with "
                "config.json and safetensors can be opened");
  const std::string weights = folder_.Write("model.safetensors", "x");
  EXPECT_EQ(OpenCheckpoint(weights).status().message(),
            weights + ": give the folder that holds it together with config.json");
  EXPECT_EQ(OpenCheckpoint(folder_.path() + "/none").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace cleave
