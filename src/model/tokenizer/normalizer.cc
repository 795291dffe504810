#include "model/tokenizer/normalizer.h"

#include <utility>

#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/newer_unicode.h"

namespace cleave::tok {

std::string ReplaceAll(const Regex& pattern, std::string_view content, std::string_view text,
                       RegexScratch* scratch) {
  std::string buffer;
  std::vector<Span> matches;
  pattern.FindAll(ForMatching(text, &buffer), scratch, &matches);
  if (matches.empty()) return std::string(text);
  std::string out;
  size_t done = 0;
  for (const Span& match : matches) {
    out.append(text.substr(done, match.begin - done));
    out.append(content);
    done = match.end;
  }
  out.append(text.substr(done));
  return out;
}

void Normalizer::AddForm(NormalForm form) { steps_.push_back({.kind = Kind::kForm, .form = form}); }
void Normalizer::AddLowerCase() { steps_.push_back({.kind = Kind::kLowerCase}); }
void Normalizer::AddByteChars() { steps_.push_back({.kind = Kind::kByteChars}); }
void Normalizer::AddPrepend(std::string content) {
  steps_.push_back({.kind = Kind::kPrepend, .content = std::move(content)});
}
void Normalizer::AddReplace(Regex pattern, std::string content) {
  steps_.push_back(
      {.kind = Kind::kReplace, .pattern = std::move(pattern), .content = std::move(content)});
}
void Normalizer::AddStrip(bool left, bool right) {
  steps_.push_back({.kind = Kind::kStrip, .left = left, .right = right});
}

std::string Normalizer::Apply(std::string_view text, RegexScratch* scratch) const {
  std::string out(text);
  for (const Step& step : steps_) out = ApplyStep(step, std::move(out), scratch);
  return out;
}

std::string Normalizer::ApplyStep(const Step& step, std::string text, RegexScratch* scratch) {
  switch (step.kind) {
    case Kind::kForm:
      return Normalize(step.form, text);
    case Kind::kLowerCase:
      return LowerCase(text);
    case Kind::kByteChars: {
      std::string out;
      AppendByteChars(text, &out);
      return out;
    }
    case Kind::kPrepend:
      return text.empty() ? text : step.content + text;
    case Kind::kReplace:
      return ReplaceAll(*step.pattern, step.content, text, scratch);
    case Kind::kStrip:
      if (step.left) text.erase(0, LeadingBlanks(text));
      if (step.right) text.erase(text.size() - TrailingBlanks(text));
      return text;
  }
  return text;
}

}  // namespace cleave::tok
