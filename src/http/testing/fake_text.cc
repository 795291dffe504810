#include "http/testing/fake_text.h"

#include <nlohmann/json.hpp>

#include "http/openai/json.h"

namespace cleave::testing {
namespace {

struct Word {
  int32_t id;
  std::string_view text;
};

constexpr Word kWords[] = {{256, "hello"},
                           {257, " world"},
                           {258, "STOP"},
                           {259, "ab"},
                           {260, "bc"},
                           {261, "\xF0\x9F"},
                           {262, "\x98\x80"},
                           {263, "\xE2\x82\xAC"},
                           {kBos, "<s>"},
                           {kEos, "</s>"},
                           {kStart, "<|im_start|>"},
                           {kEnd, "<|im_end|>"}};

using openai::Json;

class FakeTemplate final : public jinja::Template {
 public:
  [[nodiscard]] Result<std::vector<jinja::RenderedPiece>> RenderPieces(
      const nlohmann::ordered_json& context,
      const nlohmann::ordered_json& constants) const override {
    std::vector<jinja::RenderedPiece> out;
    if (context.contains("with_bos")) {
      out.push_back({constants["bos_token"].get<std::string>(), true});
    }
    if (!context.value("tools", Json()).is_null())
      out.push_back({context["tools"].dump() + "\n", false});
    for (const auto& message : context["messages"]) {
      if (message["role"] == "bad") return InvalidArgument("line 1: no such role");
      out.push_back({"<|im_start|>", true});
      out.push_back({message["role"].get<std::string>() + "\n", false});
      out.push_back({message["content"].get<std::string>(), false});
      out.push_back({"<|im_end|>\n", true});
    }
    if (context["add_generation_prompt"] == true) {
      out.push_back({"<|im_start|>assistant\n", true});
    }
    return out;
  }
};

}  // namespace

std::vector<int32_t> FakeTokenizer::EncodePieces(std::span<const TextPiece> pieces,
                                                 bool add_special_tokens) const {
  std::vector<int32_t> ids;
  if (add_special_tokens) ids.push_back(kBos);
  for (const TextPiece& piece : pieces) {
    std::string_view rest = piece.text;
    while (!rest.empty()) {
      Word best{static_cast<unsigned char>(rest[0]), rest.substr(0, 1)};
      for (const Word& word : kWords) {
        if (IsSpecial(word.id) && piece.special == SpecialTokens::kAsText) continue;
        if (word.text.size() > best.text.size() && rest.substr(0, word.text.size()) == word.text) {
          best = word;
        }
      }
      ids.push_back(best.id);
      rest.remove_prefix(best.text.size());
    }
  }
  return ids;
}

std::string FakeTokenizer::TokenBytes(int32_t id) const {
  if (id >= 0 && id < 256) return std::string(1, static_cast<char>(id));
  for (const Word& word : kWords) {
    if (word.id == id) return std::string(word.text);
  }
  return {};
}

std::string FakeTokenizer::TokenText(int32_t id) const { return TokenBytes(id); }

std::optional<int32_t> FakeTokenizer::IdOf(std::string_view token_text) const {
  for (const Word& word : kWords) {
    if (word.text == token_text) return word.id;
  }
  return std::nullopt;
}

std::string FakeTokenizer::Decode(std::span<const int32_t> ids, SkipSpecial skip) const {
  std::string out;
  DecodeState state;
  for (const int32_t id : ids) DecodeNext(id, skip, &state, &out);
  DecodeEnd(UnfinishedCharacter::kReplaced, &state, &out);
  return out;
}

void FakeTokenizer::DecodeNext(int32_t id, SkipSpecial skip, DecodeState* state,
                               std::string* out) const {
  if (skip == SkipSpecial::kYes && IsSpecial(id)) return;
  state->pending += TokenBytes(id);
  while (!state->pending.empty()) {
    const size_t n = openai::Utf8CharBytes(state->pending, 0);
    if (n == 0 && state->pending.size() < 4 &&
        static_cast<unsigned char>(state->pending[0]) > 193) {
      return;
    }
    *out += n == 0 ? "\xEF\xBF\xBD" : state->pending.substr(0, n);
    state->pending.erase(0, n == 0 ? 1 : n);
  }
}

void FakeTokenizer::DecodeEnd(UnfinishedCharacter last, DecodeState* state,
                              std::string* out) const {
  if (last == UnfinishedCharacter::kReplaced && !state->pending.empty()) *out += "\xEF\xBF\xBD";
  state->pending.clear();
}

std::unique_ptr<jinja::Template> MakeFakeTemplate() { return std::make_unique<FakeTemplate>(); }

}  // namespace cleave::testing
