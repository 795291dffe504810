#pragma once
// PreTokenizer: cuts normalized text into words, between which no token reaches.
// Owner: a tokenizer; const once made, any thread, each call with its caller's own scratch.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/regex.h"

namespace cleave::tok {

// What becomes of a delimiter (a match of the pattern).
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
// Whether the pattern finds delimiters, or what lies between them.
enum class SplitOn { kMatches, kGaps };
enum class PrependScheme { kFirst, kNever, kAlways };

// Text and the words cut from it, in order; words are never empty.
struct CutText {
  std::string text;
  std::vector<Span> words;
};

class PreTokenizer {
 public:
  void AddSplit(Regex pattern, SplitBehavior behavior, SplitOn split_on);
  // `replacement` for each space, and once in front as the scheme says; then, when `pattern` is
  // given (it matches the replacement), a cut before each.
  void AddMetaspace(std::string replacement, PrependScheme scheme, std::optional<Regex> pattern);
  void AddPrefixSpace();  // before each word that does not start with one
  void AddByteChars();    // each byte as its byte-level character

  [[nodiscard]] bool makes_byte_chars() const;
  [[nodiscard]] size_t size() const { return steps_.size(); }  // steps
  // Takes a last AddByteChars away: the model takes bytes itself. False when there is none.
  bool DropLastByteChars();

  enum class Position { kStartOfText, kLater };
  // `cut` holds the text as one word. `position`: where the text stood in the whole input.
  void Apply(Position position, RegexScratch* scratch, CutText* cut) const;

 private:
  enum class Kind { kSplit, kMetaspace, kPrefixSpace, kByteChars };
  struct Step {
    Kind kind = Kind::kSplit;
    std::optional<Regex> pattern = std::nullopt;
    SplitBehavior behavior = SplitBehavior::kIsolated;
    SplitOn split_on = SplitOn::kMatches;
    std::string replacement = {};
    PrependScheme scheme = PrependScheme::kNever;
  };
  static void Split(const Step& step, RegexScratch* scratch, CutText* cut);
  // Rewrites each word as `step` says.
  static void Rewrite(const Step& step, Position position, CutText* cut);

  std::vector<Step> steps_;
};

}  // namespace cleave::tok
