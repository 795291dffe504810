#include "model/tokenizer/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/rng.h"
#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/utf8.h"

namespace cleave::tok {
namespace {

uint64_t PairKey(int32_t left, int32_t right) {
  return (uint64_t{static_cast<uint32_t>(left)} << 32U) | static_cast<uint32_t>(right);
}

}  // namespace

void MergeTable::Reserve(size_t merges) {
  slots_.assign(std::bit_ceil(std::max<size_t>(2 * merges, 64)), Slot{});
}

size_t MergeTable::SlotOf(uint64_t pair) const {
  const size_t mask = slots_.size() - 1;
  size_t i = MixBits(pair) & mask;
  while (slots_[i].pair != pair && slots_[i].pair != kEmpty) i = (i + 1) & mask;
  return i;
}

void MergeTable::Set(int32_t left, int32_t right, Candidate merge) {
  const uint64_t pair = PairKey(left, right);
  slots_[SlotOf(pair)] = {pair, merge};
}

Candidate MergeTable::Find(int32_t left, int32_t right) const {
  return slots_[SlotOf(PairKey(left, right))].merge;
}

BpeModel::BpeModel(const Vocab* vocab, const BpeOptions& options, ModelTokens tokens)
    : vocab_(vocab),
      options_(options),
      tokens_(std::move(tokens)),
      fallback_(FindByteTokens(*vocab)) {
  for (unsigned b = 0; b < 256; ++b) {
    std::string spelled;
    AppendByteChars(std::string(1, static_cast<char>(b)), &spelled);
    byte_ids_[b] = vocab->Find(spelled);
  }
}

Result<std::unique_ptr<BpeModel>> BpeModel::Create(const Vocab* vocab,
                                                   const std::vector<MergePair>& merges,
                                                   const BpeOptions& options, ModelTokens tokens) {
  std::unique_ptr<BpeModel> model(new BpeModel(vocab, options, std::move(tokens)));
  RETURN_IF_ERROR(model->AddMerges(merges));
  return model;
}

// Vocabularies are mostly numbered in the order of their merges, or name a product several times
// in a row: those tokens are looked at first.
int32_t BpeModel::ProductOf(std::string_view text, int32_t last) const {
  for (const int32_t guess : {last, last + 1}) {
    if (vocab_->Text(guess) == text) return guess;
  }
  return vocab_->Find(text);
}

Status BpeModel::AddMerges(const std::vector<MergePair>& merges) {
  merges_.Reserve(merges.size());
  TokenFlags fallback(static_cast<size_t>(vocab_->size()), false);
  for (const int32_t id : fallback_.ids) {
    if (id != kNoToken) fallback[id] = true;
  }
  if (options_.unk_id != kNoToken) fallback[options_.unk_id] = true;
  bool merges_fallback = false;
  std::string product;
  int32_t id = kNoToken;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const MergePair& pair = merges[rank];
    product.assign(pair.left);
    product.append(pair.right);
    const int32_t left = vocab_->Find(pair.left);
    const int32_t right = vocab_->Find(pair.right);
    id = ProductOf(product, id);
    for (const auto& [text, found] : {std::pair(pair.left, left), std::pair(pair.right, right),
                                      std::pair(std::string_view(product), id)}) {
      if (found != kNoToken) continue;
      return DataLoss(
          fmt::format("merge {} (\"{}\" and \"{}\") names \"{}\", which is not in the "
                      "vocabulary",
                      rank, pair.left, pair.right, text));
    }
    merges_.Set(left, right, {static_cast<uint32_t>(rank), id});
    makes_control_ = makes_control_ || HasFlag(tokens_.control, id);
    merges_fallback = merges_fallback || fallback[left] || fallback[right];
  }
  if (options_.alphabet == BpeOptions::Alphabet::kCharacters && !merges_fallback) {
    neighbours_.emplace(*vocab_);
  }
  return OkStatus();
}

void BpeModel::EncodeWord(std::string_view word, Guard guard, MergeScratch* scratch,
                          std::vector<int32_t>* ids) const {
  if (word.empty()) return;
  if (options_.ignore_merges || options_.newlines_whole) {
    const int32_t whole = WholeWord(word, guard, scratch);
    if (whole != kNoToken) {
      ids->push_back(whole);
      return;
    }
  }
  if (options_.alphabet == BpeOptions::Alphabet::kBytes) {
    EncodeBytes(word, guard, scratch, ids);
  } else {
    EncodeCharacters(word, guard, scratch, ids);
  }
}

int32_t BpeModel::Find(std::string_view text, Guard guard) const {
  const int32_t id = vocab_->Find(text);
  if (HasFlag(tokens_.added_only, id)) return kNoToken;
  return guard == Guard::kNoControl && HasFlag(tokens_.control, id) ? kNoToken : id;
}

int32_t BpeModel::WholeWord(std::string_view word, Guard guard, MergeScratch* scratch) const {
  if (!options_.ignore_merges && word.find_first_not_of('\n') != std::string_view::npos) {
    return kNoToken;
  }
  std::string_view spelled = word;
  if (options_.alphabet == BpeOptions::Alphabet::kBytes) {
    scratch->text.clear();
    AppendByteChars(word, &scratch->text);
    spelled = scratch->text;
  }
  return Find(spelled, guard);
}

void BpeModel::EncodeBytes(std::string_view word, Guard guard, MergeScratch* scratch,
                           std::vector<int32_t>* ids) const {
  std::vector<Symbol>& symbols = scratch->symbols;
  symbols.clear();
  for (const char c : word) {
    const int32_t id = byte_ids_[static_cast<unsigned char>(c)];
    if (id != kNoToken) symbols.push_back({.id = id, .size = 1, .pair = {}});
  }
  Finish(guard, scratch, ids);
}

void BpeModel::StartCharacter(std::string_view character, Guard guard, uint32_t* unk_bytes,
                              std::vector<Symbol>* symbols) const {
  const auto bytes = static_cast<uint32_t>(character.size());
  const auto flush_unk = [&] {
    if (*unk_bytes > 0) symbols->push_back({.id = options_.unk_id, .size = *unk_bytes, .pair = {}});
    *unk_bytes = 0;
  };
  const int32_t id = Find(character, guard);
  if (id != kNoToken) {
    flush_unk();
    symbols->push_back({.id = id, .size = bytes, .pair = {}});
    return;
  }
  if (options_.byte_fallback) {
    const auto token = [this](char c) { return fallback_.ids[static_cast<unsigned char>(c)]; };
    if (std::all_of(character.begin(), character.end(),
                    [&](char c) { return token(c) != kNoToken; })) {
      for (const char c : character) symbols->push_back({.id = token(c), .size = 1, .pair = {}});
      return;
    }
  }
  if (options_.unk_id == kNoToken) return;
  if (!options_.fuse_unk) flush_unk();
  *unk_bytes += bytes;
}

void BpeModel::EncodeCharacters(std::string_view word, Guard guard, MergeScratch* scratch,
                                std::vector<int32_t>* ids) const {
  std::vector<Symbol>& symbols = scratch->symbols;
  symbols.clear();
  uint32_t unk_bytes = 0;
  uint32_t last = 0;
  size_t pos = 0;
  while (pos < word.size()) {
    const size_t begin = pos;
    const uint32_t cp = NextCodePoint(word, &pos);
    if (begin > 0 && unk_bytes == 0 && neighbours_ && !neighbours_->Meet(last, cp)) {
      Finish(guard, scratch, ids);
      symbols.clear();
    }
    StartCharacter(word.substr(begin, pos - begin), guard, &unk_bytes, &symbols);
    last = cp;
  }
  if (unk_bytes > 0) symbols.push_back({.id = options_.unk_id, .size = unk_bytes, .pair = {}});
  Finish(guard, scratch, ids);
}

void BpeModel::Finish(Guard guard, MergeScratch* scratch, std::vector<int32_t>* ids) const {
  if (guard == Guard::kNoControl && makes_control_) {
    MergeSymbols(scratch, [this](const Symbol& left, const Symbol& right) {
      const Candidate merge = merges_.Find(left.id, right.id);
      return HasFlag(tokens_.control, merge.id) ? Candidate{} : merge;
    });
  } else {
    MergeSymbols(scratch, [this](const Symbol& left, const Symbol& right) {
      return merges_.Find(left.id, right.id);
    });
  }
  for (const Symbol& symbol : scratch->symbols) ids->push_back(symbol.id);
}

}  // namespace cleave::tok
