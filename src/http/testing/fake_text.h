#pragma once
// A tokenizer and a chat template for tests: ids 0 to 255 are bytes, words and special tokens
// follow. Longest match first; nothing else is clever.

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/jinja/jinja.h"
#include "model/tokenizer/tokenizer.h"

namespace cleave::testing {

inline constexpr int32_t kBos = 300;        // "<s>"
inline constexpr int32_t kEos = 301;        // "</s>"
inline constexpr int32_t kStart = 302;      // "<|im_start|>"
inline constexpr int32_t kEnd = 303;        // "<|im_end|>"
inline constexpr int32_t kVocabSize = 320;  // ids between words and the end stand for nothing

class FakeTokenizer final : public Tokenizer {
 public:
  [[nodiscard]] std::vector<int32_t> EncodePieces(std::span<const TextPiece> pieces,
                                                  bool add_special_tokens) const override;
  [[nodiscard]] std::string TokenBytes(int32_t id) const override;
  [[nodiscard]] std::string TokenText(int32_t id) const override;
  [[nodiscard]] std::string Decode(std::span<const int32_t> ids, SkipSpecial skip) const override;
  [[nodiscard]] bool StripsLeadingSpace() const override { return false; }
  [[nodiscard]] int32_t vocab_size() const override { return kVocabSize; }
  [[nodiscard]] bool IsSpecial(int32_t id) const override { return id >= kBos && id <= kEnd; }
  [[nodiscard]] std::optional<int32_t> IdOf(std::string_view token_text) const override;
  [[nodiscard]] std::optional<int32_t> bos_id() const override { return kBos; }
  [[nodiscard]] std::optional<int32_t> eos_id() const override { return kEos; }
  [[nodiscard]] std::string bos_text() const override { return "<s>"; }
  [[nodiscard]] std::string eos_text() const override { return "</s>"; }
  [[nodiscard]] size_t max_token_bytes() const override { return 12; }

 private:
  void DecodeNext(int32_t id, SkipSpecial skip, DecodeState* state,
                  std::string* out) const override;
  void DecodeEnd(UnfinishedCharacter last, DecodeState* state, std::string* out) const override;
};

// "<|im_start|>role\ncontent<|im_end|>\n" for each message, tools before them as JSON; refuses the
// role "bad".
std::unique_ptr<jinja::Template> MakeFakeTemplate();

}  // namespace cleave::testing
