#include "model/tokenizer/spm.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "model/tokenizer/utf8.h"

namespace cleave::tok {
namespace {

// Floats in falling order as integers in rising order; -0 equals 0; never kNoMerge.
uint32_t KeyOfScore(float score) {
  const uint32_t bits = std::bit_cast<uint32_t>(score == 0.0F ? 0.0F : score);
  const uint32_t rising = (bits >> 31U) != 0 ? ~bits : bits | 0x80000000U;
  return ~rising;
}

}  // namespace

SpmModel::SpmModel(const Vocab* vocab, const TokenFlags& control)
    : vocab_(vocab), control_(control), bytes_(FindByteTokens(*vocab)), neighbours_(*vocab) {
  for (int32_t id = 0; id < vocab->size(); ++id) {
    max_token_bytes_ = std::max(max_token_bytes_, vocab->Text(id).size());
  }
}

Result<std::unique_ptr<SpmModel>> SpmModel::Create(const Vocab* vocab,
                                                   const std::vector<float>& scores, int32_t unk_id,
                                                   const TokenFlags& control) {
  if (scores.size() != static_cast<size_t>(vocab->size())) {
    return DataLoss(fmt::format("{} scores for {} tokens", scores.size(), vocab->size()));
  }
  std::unique_ptr<SpmModel> model(new SpmModel(vocab, control));
  for (size_t id = 0; id < scores.size(); ++id) {
    if (!std::isfinite(scores[id])) {
      return DataLoss(fmt::format("the score of token {} is not a finite number", id));
    }
    model->keys_.push_back(KeyOfScore(scores[id]));
  }
  model->unk_id_ = unk_id;
  if (unk_id == kNoToken && !model->bytes_.complete()) {
    return DataLoss(
        "the vocabulary has neither all 256 byte tokens (<0x00> to <0xFF>) nor an "
        "unknown token");
  }
  return model;
}

int32_t SpmModel::Find(std::string_view text, Guard guard) const {
  if (text.size() > max_token_bytes_) return kNoToken;
  const int32_t id = vocab_->Find(text);
  return guard == Guard::kNoControl && HasFlag(control_, id) ? kNoToken : id;
}

void SpmModel::EncodeWord(std::string_view word, Guard guard, MergeScratch* scratch,
                          std::vector<int32_t>* ids) const {
  scratch->symbols.clear();
  uint32_t last = 0;
  size_t pos = 0;
  while (pos < word.size()) {
    const size_t begin = pos;
    const uint32_t cp = NextCodePoint(word, &pos);
    if (begin > 0 && !neighbours_.Meet(last, cp)) Finish(word, guard, scratch, ids);
    scratch->symbols.push_back({.id = Find(word.substr(begin, pos - begin), guard),
                                .begin = static_cast<uint32_t>(begin),
                                .size = static_cast<uint32_t>(pos - begin),
                                .pair = {}});
    last = cp;
  }
  Finish(word, guard, scratch, ids);
}

void SpmModel::Finish(std::string_view word, Guard guard, MergeScratch* scratch,
                      std::vector<int32_t>* ids) const {
  MergeSymbols(scratch, [&](const Symbol& left, const Symbol& right) {
    const int32_t id = Find(word.substr(left.begin, left.size + right.size), guard);
    return id == kNoToken ? Candidate{} : Candidate{keys_[id], id};
  });
  for (const Symbol& symbol : scratch->symbols) {
    if (symbol.id != kNoToken) {
      ids->push_back(symbol.id);
      continue;
    }
    for (const char c : word.substr(symbol.begin, symbol.size)) {
      const int32_t byte = bytes_.ids[static_cast<unsigned char>(c)];
      const int32_t id = byte == kNoToken ? unk_id_ : byte;
      if (id != kNoToken) ids->push_back(id);
    }
  }
  scratch->symbols.clear();
}

}  // namespace cleave::tok
