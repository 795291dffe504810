#pragma once
// Decoder: from token texts back to text, one token at a time. Decoding a whole sequence is the
// same pushes in a row, so streamed and whole text are equal by construction.
//
// The order of the stages is fixed (it is the one every known decoder chain has):
//   1. rewriting of each token's text (Replace, Strip, Metaspace)
//   2. byte tokens <0xNN> -> bytes
//   3. byte-level characters -> bytes
//   4. blanks at the start of the whole text
// Owner: a tokenizer; const once made, any thread. The state belongs to one stream.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/regex.h"

namespace cleave {

struct DecodeState;
enum class UnfinishedCharacter;

namespace tok {

// What to make of <0xNN> tokens.
enum class ByteTokenRule {
  kAsText,            // nothing: they are text
  kRawBytes,          // bytes; ill-formed parts become U+FFFD each
  kRunOrReplacement,  // a run of them is text when all of it is valid, else one U+FFFD a token
};

class Decoder {
 public:
  // Steps of rewriting, in order. Those added before set_byte_tokens leave the text of a run of
  // byte tokens alone.
  void AddReplace(Regex pattern, std::string content);
  void AddReplaceText(std::string from, std::string content);
  void AddStrip(std::string character, size_t start, size_t stop);
  // `replacement` becomes a space; in the first token nothing, unless the scheme never prepends.
  enum class FirstToken { kKeeps, kDrops };
  void AddMetaspace(std::string replacement, FirstToken first);

  void set_byte_tokens(ByteTokenRule rule);
  void set_byte_level() { byte_level_ = true; }
  void set_separator(std::string separator) { separator_ = std::move(separator); }
  // Up to `count` of `character` are dropped where the text starts.
  void set_strip_start(std::string character, size_t count);

  [[nodiscard]] size_t size() const { return steps_.size(); }  // steps
  [[nodiscard]] bool byte_level() const { return byte_level_; }
  // Whether rewriting leaves the texts <0x00> to <0xFF> as they are, as Push takes for granted.
  [[nodiscard]] bool KeepsByteTokens() const;
  [[nodiscard]] bool strips_leading_space() const;

  // Bytes a token stands for in running text, not at its start.
  [[nodiscard]] std::string TokenBytes(std::string_view text) const;
  void Push(std::string_view text, DecodeState* state, std::string* out) const;
  void Finish(UnfinishedCharacter last, DecodeState* state, std::string* out) const;

 private:
  enum class Kind { kReplace, kReplaceText, kStrip, kMetaspace };
  struct Step {
    Kind kind = Kind::kReplace;
    std::optional<Regex> pattern = std::nullopt;
    std::string from = {};
    std::string content = {};
    size_t start = 0;
    size_t stop = 0;
    FirstToken first = FirstToken::kKeeps;
  };
  enum class Place { kStart, kLater };
  // `steps_` from `from_step` on.
  [[nodiscard]] std::string Rewrite(std::string_view text, Place place, size_t from_step) const;
  void EndRun(DecodeState* state, std::string* out) const;
  void Emit(std::string_view text, DecodeState* state, std::string* out) const;

  std::vector<Step> steps_;
  ByteTokenRule byte_tokens_ = ByteTokenRule::kAsText;
  size_t run_steps_from_ = 0;  // first step that rewrites runs of byte tokens, too
  bool byte_level_ = false;
  std::string separator_;
  std::string strip_character_;
  size_t strip_count_ = 0;
};

// The byte that "<0xNN>" stands for.
std::optional<char> ByteOfToken(std::string_view text);

}  // namespace tok
}  // namespace cleave
