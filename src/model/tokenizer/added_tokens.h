#pragma once
// AddedTokens: finds token texts that are matched in the input before anything else is done to it
// (special tokens, user-defined tokens), leftmost first, the longest of those.
//
// Owner: a tokenizer; const once made, any thread. Text that no added token starts in costs one
// table look-up a byte; otherwise a walk down a trie, at most kMaxAddedTokenBytes long.
// Fails: Create, on a text that is empty or too long.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/tokenizer/regex.h"

namespace cleave::tok {

inline constexpr size_t kMaxAddedTokenBytes = 4096;

struct AddedToken {
  std::string text;
  int32_t id = -1;
  bool special = false;      // a control token
  bool normalized = false;   // matched in the normalized text
  bool lstrip = false;       // takes the white space before it, too
  bool rstrip = false;       // takes the white space behind it, too
  bool single_word = false;  // not beside a word character
};

// What a special token found where it is not allowed does to the text it covers.
enum class Disallowed {
  kConsume,  // covers it: no other token is found inside (HF tokenizers, encode_special_tokens)
  kIgnore,   // is as if it did not exist (llama.cpp, parse_special off)
};

class AddedTokens {
 public:
  static Result<AddedTokens> Create(std::vector<AddedToken> tokens, Disallowed disallowed);

  struct Found {
    Span span;
    int32_t id = -1;
  };
  // How much of a match text may stand where special tokens are parsed.
  enum class Stretch { kParsed, kAsText, kBoth };
  using StretchOf = std::function<Stretch(Span)>;

  // Matches in `text`, in order; stretch_of is asked about each special one. Only blanks that a
  // token took (rstrip) can overlap the next.
  [[nodiscard]] std::vector<Found> FindAll(std::string_view text,
                                           const StretchOf& stretch_of) const;
  [[nodiscard]] bool empty() const { return tokens_.empty(); }
  [[nodiscard]] bool has_special() const { return has_special_; }

 private:
  struct Edge {
    uint32_t node = 0;
    uint32_t to = 0;  // 0: a free slot
    unsigned char byte = 0;
  };

  AddedTokens() = default;
  void Insert(std::string_view text, int32_t index);
  [[nodiscard]] size_t EdgeSlot(uint32_t node, unsigned char byte) const;
  // Indices into tokens_ of the tokens that start at `at`, shortest first.
  void MatchesAt(std::string_view text, size_t at, std::vector<int32_t>* found) const;
  [[nodiscard]] bool StandsAlone(std::string_view text, Span span) const;
  [[nodiscard]] Span WithBlanks(std::string_view text, Span span, const AddedToken& token,
                                size_t not_before) const;

  std::vector<AddedToken> tokens_;
  Disallowed disallowed_ = Disallowed::kConsume;
  bool has_special_ = false;
  std::vector<Edge> edges_;             // a power of two, at most half full
  std::vector<int32_t> token_at_node_;  // index into tokens_ or -1; node 0 is the root
  bool starts_[256] = {};               // bytes that some token starts with
};

}  // namespace cleave::tok
