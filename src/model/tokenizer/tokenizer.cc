#include "model/tokenizer/tokenizer.h"

#include "model/tokenizer/sources.h"

namespace cleave {

Result<std::unique_ptr<Tokenizer>> Tokenizer::Create(const TokenizerSource& source) {
  switch (source.kind) {
    case TokenizerSource::Kind::kHuggingFaceJson:
      return tok::TokenizerFromJson(source);
    case TokenizerSource::Kind::kGguf:
      return tok::TokenizerFromGguf(source);
  }
  return Internal("unknown kind of tokenizer source");
}

std::vector<int32_t> Tokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  const TextPiece piece{text, options.special};
  return EncodePieces({&piece, 1}, options.add_special_tokens);
}

StreamingDetokenizer::StreamingDetokenizer(const Tokenizer* tokenizer, SkipSpecial skip)
    : tokenizer_(tokenizer), skip_(skip) {}

std::string StreamingDetokenizer::Push(int32_t id) {
  std::string out;
  tokenizer_->DecodeNext(id, skip_, &state_, &out);
  return out;
}

std::string StreamingDetokenizer::Flush(UnfinishedCharacter last) {
  std::string out;
  tokenizer_->DecodeEnd(last, &state_, &out);
  return out;
}

}  // namespace cleave
