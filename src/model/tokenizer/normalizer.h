#pragma once
// Normalizer: rewrites text before it is cut into words.
// Owner: a tokenizer; const once made, any thread, each call with its caller's own scratch.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/regex.h"
#include "model/tokenizer/unicode_class.h"

namespace cleave::tok {

class Normalizer {
 public:
  // One rewriting; steps run in the order in which they were added.
  void AddForm(NormalForm form);
  void AddLowerCase();
  void AddByteChars();                   // each byte as its byte-level character
  void AddPrepend(std::string content);  // before text that is not empty
  void AddReplace(Regex pattern, std::string content);
  void AddStrip(bool left, bool right);

  [[nodiscard]] size_t size() const { return steps_.size(); }  // steps
  [[nodiscard]] bool empty() const { return steps_.empty(); }
  // Valid UTF-8 in and out.
  [[nodiscard]] std::string Apply(std::string_view text, RegexScratch* scratch) const;

 private:
  enum class Kind { kForm, kLowerCase, kByteChars, kPrepend, kReplace, kStrip };
  struct Step {
    Kind kind = Kind::kForm;
    NormalForm form = NormalForm::kNfc;
    std::optional<Regex> pattern = std::nullopt;
    std::string content = {};
    bool left = false;
    bool right = false;
  };
  static std::string ApplyStep(const Step& step, std::string text, RegexScratch* scratch);

  std::vector<Step> steps_;
};

// `text` with each match of `pattern` replaced.
std::string ReplaceAll(const Regex& pattern, std::string_view content, std::string_view text,
                       RegexScratch* scratch);

}  // namespace cleave::tok
