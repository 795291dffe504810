#include "model/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/newer_unicode.h"

namespace cleave::tok {
namespace {

// A stretch of a word: a match of the pattern, or what lies between two.
struct Piece {
  Span span;
  bool delimiter = false;
};

void CutPieces(Span word, const std::vector<Span>& matches, SplitOn split_on,
               std::vector<Piece>* pieces) {
  const bool match_is_delimiter = split_on == SplitOn::kMatches;
  pieces->clear();
  size_t done = word.begin;
  for (const Span& match : matches) {
    const Span span{word.begin + match.begin, word.begin + match.end};
    if (done != span.begin) pieces->push_back({{done, span.begin}, !match_is_delimiter});
    pieces->push_back({span, match_is_delimiter});
    done = span.end;
  }
  if (done != word.end) pieces->push_back({{done, word.end}, !match_is_delimiter});
}

// Joins each piece for which `joins(piece, before)` holds to the one before it.
template <typename Joins>
void JoinForward(const std::vector<Piece>& pieces, const Joins& joins, std::vector<Span>* words) {
  const size_t first = words->size();
  bool before = false;
  for (const Piece& piece : pieces) {
    if (joins(piece.delimiter, before) && words->size() > first) {
      words->back().end = piece.span.end;
    } else {
      words->push_back(piece.span);
    }
    before = piece.delimiter;
  }
}

void JoinToNext(const std::vector<Piece>& pieces, std::vector<Span>* words) {
  const size_t first = words->size();
  bool after = false;
  for (size_t i = pieces.size(); i-- > 0;) {
    const Piece& piece = pieces[i];
    if (piece.delimiter && !after && words->size() > first) {
      words->back().begin = piece.span.begin;
    } else {
      words->push_back(piece.span);
    }
    after = piece.delimiter;
  }
  std::reverse(words->begin() + static_cast<std::ptrdiff_t>(first), words->end());
}

void AppendWords(const std::vector<Piece>& pieces, SplitBehavior behavior,
                 std::vector<Span>* words) {
  switch (behavior) {
    case SplitBehavior::kRemoved:
      for (const Piece& piece : pieces) {
        if (!piece.delimiter) words->push_back(piece.span);
      }
      return;
    case SplitBehavior::kIsolated:
      for (const Piece& piece : pieces) words->push_back(piece.span);
      return;
    case SplitBehavior::kMergedWithPrevious:
      JoinForward(
          pieces, [](bool now, bool before) { return now && !before; }, words);
      return;
    case SplitBehavior::kContiguous:
      JoinForward(
          pieces, [](bool now, bool before) { return now == before; }, words);
      return;
    case SplitBehavior::kMergedWithNext:
      JoinToNext(pieces, words);
      return;
  }
}

void DropEmpty(std::vector<Span>* words) {
  words->erase(
      std::remove_if(words->begin(), words->end(), [](Span w) { return w.begin == w.end; }),
      words->end());
}

}  // namespace

void PreTokenizer::AddSplit(Regex pattern, SplitBehavior behavior, SplitOn split_on) {
  steps_.push_back({.kind = Kind::kSplit,
                    .pattern = std::move(pattern),
                    .behavior = behavior,
                    .split_on = split_on});
}

void PreTokenizer::AddMetaspace(std::string replacement, PrependScheme scheme,
                                std::optional<Regex> pattern) {
  steps_.push_back(
      {.kind = Kind::kMetaspace, .replacement = std::move(replacement), .scheme = scheme});
  if (pattern) AddSplit(std::move(*pattern), SplitBehavior::kMergedWithNext, SplitOn::kMatches);
}

void PreTokenizer::AddPrefixSpace() { steps_.push_back({.kind = Kind::kPrefixSpace}); }
void PreTokenizer::AddByteChars() { steps_.push_back({.kind = Kind::kByteChars}); }

bool PreTokenizer::DropLastByteChars() {
  if (steps_.empty() || steps_.back().kind != Kind::kByteChars) return false;
  steps_.pop_back();
  return true;
}

bool PreTokenizer::makes_byte_chars() const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const Step& step) { return step.kind == Kind::kByteChars; });
}

void PreTokenizer::Apply(Position position, RegexScratch* scratch, CutText* cut) const {
  for (const Step& step : steps_) {
    if (step.kind == Kind::kSplit) {
      Split(step, scratch, cut);
    } else {
      Rewrite(step, position, cut);
    }
  }
}

void PreTokenizer::Split(const Step& step, RegexScratch* scratch, CutText* cut) {
  std::string buffer;
  const std::string_view subject = ForMatching(cut->text, &buffer);
  std::vector<Span> words;
  std::vector<Span> matches;
  std::vector<Piece> pieces;
  words.reserve(cut->words.size());
  for (const Span& word : cut->words) {
    matches.clear();
    step.pattern->FindAll(subject.substr(word.begin, word.end - word.begin), scratch, &matches);
    CutPieces(word, matches, step.split_on, &pieces);
    AppendWords(pieces, step.behavior, &words);
  }
  DropEmpty(&words);
  cut->words = std::move(words);
}

void PreTokenizer::Rewrite(const Step& step, Position position, CutText* cut) {
  CutText out;
  out.text.reserve(cut->text.size() + cut->text.size() / 4);
  for (size_t i = 0; i < cut->words.size(); ++i) {
    const Span span = cut->words[i];
    const std::string_view word(cut->text.data() + span.begin, span.end - span.begin);
    const size_t begin = out.text.size();
    if (step.kind == Kind::kByteChars) {
      AppendByteChars(word, &out.text);
    } else if (step.kind == Kind::kPrefixSpace) {
      if (!word.starts_with(' ')) out.text.push_back(' ');
      out.text.append(word);
    } else {
      const bool first = i == 0 && position == Position::kStartOfText;
      const bool wanted =
          step.scheme == PrependScheme::kAlways || (step.scheme == PrependScheme::kFirst && first);
      if (wanted && !word.starts_with(' ') && !word.starts_with(step.replacement)) {
        out.text.append(step.replacement);
      }
      for (const char c : word) {
        if (c == ' ') {
          out.text.append(step.replacement);
        } else {
          out.text.push_back(c);
        }
      }
    }
    out.words.push_back({begin, out.text.size()});
  }
  *cut = std::move(out);
}

}  // namespace cleave::tok
