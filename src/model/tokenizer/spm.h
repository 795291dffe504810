#pragma once
// SpmModel: SentencePiece BPE as GGUF stores it. Any two neighbours whose joined text is a token
// may merge, the best score first; what is no token in the end becomes <0xNN> tokens.
//
// Owner: a tokenizer; const once made, any thread. The vocabulary is borrowed and outlives it.
// Fails: Create, on scores that are not numbers or when bytes can not be spelled.

#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/tokenizer/model.h"
#include "model/tokenizer/vocab.h"

namespace cleave::tok {

class SpmModel final : public TextModel {
 public:
  // scores: by id, as many as the vocabulary has ids.
  static Result<std::unique_ptr<SpmModel>> Create(const Vocab* vocab,
                                                  const std::vector<float>& scores, int32_t unk_id,
                                                  const TokenFlags& control);

  void EncodeWord(std::string_view word, Guard guard, MergeScratch* scratch,
                  std::vector<int32_t>* ids) const override;

 private:
  SpmModel(const Vocab* vocab, const TokenFlags& control);
  int32_t Find(std::string_view text, Guard guard) const;
  // Merges scratch->symbols, a stretch of `word`, and empties them.
  void Finish(std::string_view word, Guard guard, MergeScratch* scratch,
              std::vector<int32_t>* ids) const;

  const Vocab* vocab_;
  const TokenFlags control_;
  std::vector<uint32_t> keys_;  // by id; lower is a better score
  size_t max_token_bytes_ = 0;
  ByteTokens bytes_;
  int32_t unk_id_ = kNoToken;
  Neighbours neighbours_;
};

}  // namespace cleave::tok
