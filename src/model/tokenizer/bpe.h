#pragma once
// BpeModel: merges by rank, over bytes (byte-level vocabularies) or characters.
//
// Owner: a tokenizer; const once made, any thread. The vocabulary is borrowed and outlives it.
// Fails: Create, when a merge names a token that is not there.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/tokenizer/model.h"
#include "model/tokenizer/vocab.h"

namespace cleave::tok {

// (left, right) -> rank and product; open addressing, at most half full.
class MergeTable {
 public:
  void Reserve(size_t merges);
  // A pair given again keeps the later rank.
  void Set(int32_t left, int32_t right, Candidate merge);
  [[nodiscard]] Candidate Find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t pair = kEmpty;
    Candidate merge;
  };
  static constexpr uint64_t kEmpty = UINT64_MAX;
  [[nodiscard]] size_t SlotOf(uint64_t pair) const;

  std::vector<Slot> slots_;
};

struct BpeOptions {
  // Words are raw bytes, each of which the vocabulary spells as its byte-level character.
  enum class Alphabet { kCharacters, kBytes };
  Alphabet alphabet = Alphabet::kCharacters;
  bool ignore_merges = false;   // a word that is a token is that token
  bool byte_fallback = false;   // unknown characters become <0xNN> tokens
  bool fuse_unk = false;        // neighbouring unknown characters become one unknown token
  bool newlines_whole = false;  // a word of newlines that is a token is that token
  int32_t unk_id = kNoToken;    // kNoToken: unknown characters vanish
};

// One merge, as views of text that lives through Create.
struct MergePair {
  std::string_view left;
  std::string_view right;
};

class BpeModel final : public TextModel {
 public:
  static Result<std::unique_ptr<BpeModel>> Create(const Vocab* vocab,
                                                  const std::vector<MergePair>& merges,
                                                  const BpeOptions& options, ModelTokens tokens);

  void EncodeWord(std::string_view word, Guard guard, MergeScratch* scratch,
                  std::vector<int32_t>* ids) const override;

 private:
  BpeModel(const Vocab* vocab, const BpeOptions& options, ModelTokens tokens);
  int32_t ProductOf(std::string_view text, int32_t last) const;
  Status AddMerges(const std::vector<MergePair>& merges);

  // The model's own token of this text that `guard` allows.
  int32_t Find(std::string_view text, Guard guard) const;
  // The id when the word is a token that stands for itself without merging; else kNoToken.
  int32_t WholeWord(std::string_view word, Guard guard, MergeScratch* scratch) const;
  void EncodeBytes(std::string_view word, Guard guard, MergeScratch* scratch,
                   std::vector<int32_t>* ids) const;
  void EncodeCharacters(std::string_view word, Guard guard, MergeScratch* scratch,
                        std::vector<int32_t>* ids) const;
  // Adds what `character` starts as; *unk_bytes counts pending unknown bytes.
  void StartCharacter(std::string_view character, Guard guard, uint32_t* unk_bytes,
                      std::vector<Symbol>* symbols) const;
  void Finish(Guard guard, MergeScratch* scratch, std::vector<int32_t>* ids) const;

  const Vocab* vocab_;
  const BpeOptions options_;
  const ModelTokens tokens_;
  bool makes_control_ = false;  // some merge makes a control token
  MergeTable merges_;
  int32_t byte_ids_[256] = {};  // kBytes: the token of each byte, or kNoToken
  ByteTokens fallback_{};
  // Absent where merges of byte or unknown tokens could reach across any border.
  std::optional<Neighbours> neighbours_;
};

}  // namespace cleave::tok
