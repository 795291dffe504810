#pragma once
// The API with a fake engine behind it and real sockets before it. For tests.

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "http/api.h"
#include "http/testing/fake_engine.h"
#include "http/testing/fake_text.h"
#include "http/testing/raw_client.h"
#include "metrics/metrics.h"

namespace cleave::testing {

using Json = nlohmann::ordered_json;

inline constexpr const char* kChat = "/v1/chat/completions";
inline constexpr const char* kCompletions = "/v1/completions";
inline constexpr const char* kHi = R"("messages":[{"role":"user","content":"hi"}])";

class ApiTest : public ::testing::Test {
 protected:
  ApiTest() : template_(MakeFakeTemplate()) {
    options_.port = 0;
    options_.served_model_names = {"tiny", "org/alias"};
    options_.access_log = false;
  }
  ~ApiTest() override {
    if (api_ != nullptr) api_->Stop();
  }

  // Listens, without a model.
  void Listen() {
    auto api = Api::Start(options_, &metrics_);
    ASSERT_TRUE(api.ok()) << api.status().ToString();
    api_ = std::move(api).value();
    engine_.set_sink([this](std::vector<SequenceOutput>&& o) { api_->OnOutputs(std::move(o)); });
  }
  // Listens and serves.
  void Serve() {
    Listen();
    ModelFacts facts;
    facts.model_name = "tiny";
    facts.max_model_len = 256;
    metrics_.AttachModel(facts);
    api_->SetModel({&engine_, &tokenizer_, template_.get(), defaults_, vocab_size_});
  }
  // Every sequence is answered with these tokens, one a step.
  void Script(const std::vector<int32_t>& tokens, FinishReason finish = FinishReason::kLength) {
    engine_.set_script([=](const SequenceSpec& spec) { return Steps(spec.id, tokens, finish); });
  }

  // The one sequence that runs goes on, 5000 letters a step, until it is aborted. Steps that all
  // came before the server looked would be one write, and nobody behind.
  void EmitUntilAborted() {
    ASSERT_TRUE(engine_.WaitSubmitted(1));
    const SequenceId id = engine_.submitted()[0].id;
    for (int i = 0; i < 5000 && engine_.aborted().empty(); ++i) {
      engine_.Emit({Step(id, std::vector<int32_t>(1000, 256))});
      if (i % 10 == 9) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_TRUE(engine_.WaitAborted(id));
  }

  RawResponse Post(std::string_view path, std::string_view body, std::string_view headers = {}) {
    return testing::Post(api_->port(), path, body, headers);
  }
  RawResponse Get(std::string_view path, std::string_view headers = {}) {
    return testing::Get(api_->port(), path, headers);
  }
  Json PostJson(std::string_view path, const std::string& fields) {
    return Json::parse(Post(path, "{" + fields + "}").body);
  }

  // The events of a stream's body; "" stands for what is no event.
  static std::vector<std::string> Events(const std::string& body) {
    std::vector<std::string> events;
    for (size_t at = 0; at < body.size();) {
      const size_t end = body.find("\n\n", at);
      if (end == std::string::npos || body.substr(at, 6) != "data: ") {
        events.emplace_back();
        break;
      }
      events.push_back(body.substr(at + 6, end - at - 6));
      at = end + 2;
    }
    return events;
  }
  // The text of choice `index`, deltas joined.
  static std::string JoinedText(const std::vector<std::string>& events, int index = 0) {
    std::string text;
    for (const std::string& event : events) {
      if (event == "[DONE]" || event.empty()) continue;
      const Json json = Json::parse(event);
      for (const Json& choice : json.value("choices", Json::array())) {
        if (choice["index"] != index) continue;
        text += choice.contains("delta") ? choice["delta"].value("content", "")
                                         : choice["text"].get<std::string>();
      }
    }
    return text;
  }

  ServerOptions options_;
  ServerMetrics metrics_;
  FakeTokenizer tokenizer_;
  std::unique_ptr<jinja::Template> template_;
  GenerationDefaults defaults_;
  int32_t vocab_size_ = 0;
  FakeEngine engine_;
  std::unique_ptr<Api> api_;
};

}  // namespace cleave::testing
