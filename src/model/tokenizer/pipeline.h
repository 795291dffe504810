#pragma once
// PipelineTokenizer: the stages of a tokenizer, whatever file they were read from.
//
//   text -> added tokens matched in raw text -> normalizer -> added tokens matched in normalized
//   text -> pre-tokenizer -> model -> ids -> special tokens in front and behind
//
// Owner: the caller of Tokenizer::Create; const once made, any thread (what a call needs to write
// lives in the call).

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/decoder.h"
#include "model/tokenizer/model.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/vocab.h"

namespace cleave::tok {

struct PipelineParts {
  // Every token, added ones too.
  std::unique_ptr<Vocab> vocab;
  TokenFlags control;
  std::optional<AddedTokens> raw_tokens;
  std::optional<AddedTokens> normalized_tokens;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<TextModel> model;
  Decoder decoder;
  // What decoding shows for an id where that is not its text (a normalized added token).
  std::vector<std::pair<int32_t, std::string>> shown_texts;
  std::vector<int32_t> prefix;  // ids in front of a text with special tokens
  std::vector<int32_t> suffix;
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  std::string bos_text;
  std::string eos_text;
};

class PipelineTokenizer final : public Tokenizer {
 public:
  explicit PipelineTokenizer(PipelineParts parts);

  std::vector<int32_t> EncodePieces(std::span<const TextPiece> pieces,
                                    bool add_special_tokens) const override;
  std::string TokenBytes(int32_t id) const override;
  std::string TokenText(int32_t id) const override;
  std::string Decode(std::span<const int32_t> ids, SkipSpecial skip) const override;
  bool StripsLeadingSpace() const override { return p_.decoder.strips_leading_space(); }

  int32_t vocab_size() const override { return p_.vocab->size(); }
  bool IsSpecial(int32_t id) const override { return HasFlag(p_.control, id); }
  std::optional<int32_t> IdOf(std::string_view token_text) const override;
  std::optional<int32_t> bos_id() const override { return p_.bos_id; }
  std::optional<int32_t> eos_id() const override { return p_.eos_id; }
  std::string bos_text() const override { return p_.bos_text; }
  std::string eos_text() const override { return p_.eos_text; }
  size_t max_token_bytes() const override { return max_token_bytes_; }

 private:
  class Encoding;  // one call of EncodePieces

  void DecodeNext(int32_t id, SkipSpecial skip, DecodeState* state,
                  std::string* out) const override;
  void DecodeEnd(UnfinishedCharacter last, DecodeState* state, std::string* out) const override;
  std::string_view ShownText(int32_t id) const;

  const PipelineParts p_;
  size_t max_token_bytes_ = 0;
};

}  // namespace cleave::tok
