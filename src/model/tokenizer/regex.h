#pragma once
// Regex: the patterns of tokenizer.json (Oniguruma, Ruby syntax) run by PCRE2's JIT.
//
// Owner: a normalizer, pre-tokenizer or decoder; const after Compile, any thread, each call with
// the caller's own RegexScratch. Fails: Compile, on patterns that PCRE2 can not express; matching
// never fails: when a pattern exceeds its limits (match steps, stack, heap) on some text, the rest
// of that text holds no match.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cleave::tok {

struct Span {
  size_t begin = 0;
  size_t end = 0;
};

// Working memory of matching, for one thread at a time.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  struct State;
  std::unique_ptr<State> state_;  // made by the first match
};

class Regex {
 public:
  static Result<Regex> Compile(std::string_view pattern);
  // A pattern that matches `text` itself.
  static Result<Regex> Literal(std::string_view text);

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // Appends the matches from left to right. `subject` is valid UTF-8, seen as a whole text: its
  // begin and end are what ^, $ and look-arounds see.
  void FindAll(std::string_view subject, RegexScratch* scratch, std::vector<Span>* matches) const;

 private:
  struct Code;
  explicit Regex(std::unique_ptr<Code> code);
  static Result<Regex> CompileWith(std::string_view pattern, std::string_view shown,
                                   unsigned options);

  std::unique_ptr<Code> code_;
};

// Oniguruma's spelling as PCRE2's, or kUnsupported naming the construct.
Result<std::string> PatternForPcre2(std::string_view pattern);

}  // namespace cleave::tok
