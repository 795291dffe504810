#include "model/tokenizer/components.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "model/tokenizer/json_fields.h"
#include "model/tokenizer/reference_patterns.h"
#include "model/tokenizer/utf8.h"

namespace cleave::tok {
namespace {

using nlohmann::json;

Status UnknownType(std::string_view kind, std::string_view type, std::string_view known) {
  return Unsupported(fmt::format("tokenizer.json: {} type \"{:.100}\" is not supported (known: {})",
                                 kind, type, known));
}

// Far more than any tokenizer has; each may hold a compiled pattern.
constexpr size_t kMaxSteps = 100;
Status CheckSteps(size_t steps) {
  if (steps < kMaxSteps) return OkStatus();
  return Unsupported(fmt::format("tokenizer.json: more than {} steps in one component", kMaxSteps));
}

// {"String": text} or {"Regex": pattern}.
Result<Regex> ReadPattern(const json& component, std::string_view where) {
  const JsonFields pattern(JsonFields(component, where).At("pattern"), where);
  if (!pattern.At("Regex").is_null()) {
    ASSIGN_OR_RETURN(const std::string regex, pattern.String("Regex"));
    return Regex::Compile(regex);
  }
  ASSIGN_OR_RETURN(const std::string text, pattern.String("String"));
  return Regex::Literal(text);
}

// A text of exactly one character.
Result<std::string> ReadCharacter(const JsonFields& fields, const char* field) {
  ASSIGN_OR_RETURN(std::string text, fields.String(field));
  if (text.empty() || CharSize(text[0]) != text.size()) return fields.Wrong(field, "one character");
  return text;
}

Result<SplitBehavior> ReadBehavior(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const std::string name, fields.String("behavior"));
  constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kNames{{
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  }};
  for (const auto& [known, behavior] : kNames) {
    if (known == name) return behavior;
  }
  return UnknownType("split behavior", name,
                     "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

Status AddKnownSplit(std::string_view pattern, SplitBehavior behavior, SplitOn split_on,
                     PreTokenizer* out) {
  ASSIGN_OR_RETURN(Regex regex, Regex::Compile(pattern));
  out->AddSplit(std::move(regex), behavior, split_on);
  return OkStatus();
}

Status ReadByteLevel(const JsonFields& fields, PreTokenizer* out) {
  ASSIGN_OR_RETURN(const bool prefix_space, fields.Bool("add_prefix_space", true));
  ASSIGN_OR_RETURN(const bool use_regex, fields.Bool("use_regex", true));
  if (prefix_space) out->AddPrefixSpace();
  if (use_regex) {
    RETURN_IF_ERROR(AddKnownSplit(kGpt2Words, SplitBehavior::kIsolated, SplitOn::kMatches, out));
  }
  out->AddByteChars();
  return OkStatus();
}

Result<PrependScheme> ReadPrependScheme(const JsonFields& fields) {
  PrependScheme scheme = PrependScheme::kAlways;
  if (!fields.At("prepend_scheme").is_null()) {
    ASSIGN_OR_RETURN(const std::string name, fields.String("prepend_scheme"));
    if (name == "first") {
      scheme = PrependScheme::kFirst;
    } else if (name == "never") {
      scheme = PrependScheme::kNever;
    } else if (name != "always") {
      return UnknownType("prepend_scheme", name, "always, first, never");
    }
  }
  ASSIGN_OR_RETURN(const bool prefix_space, fields.Bool("add_prefix_space", true));
  if (!prefix_space) scheme = PrependScheme::kNever;
  return scheme;
}

Status ReadMetaspace(const JsonFields& fields, PreTokenizer* out) {
  ASSIGN_OR_RETURN(std::string replacement, ReadCharacter(fields, "replacement"));
  ASSIGN_OR_RETURN(const PrependScheme scheme, ReadPrependScheme(fields));
  ASSIGN_OR_RETURN(const bool split, fields.Bool("split", true));
  std::optional<Regex> pattern;
  if (split) {
    ASSIGN_OR_RETURN(pattern, Regex::Literal(replacement));
  }
  out->AddMetaspace(std::move(replacement), scheme, std::move(pattern));
  return OkStatus();
}

Status ReadSplit(const json& component, const JsonFields& fields, PreTokenizer* out) {
  ASSIGN_OR_RETURN(Regex pattern, ReadPattern(component, "Split"));
  ASSIGN_OR_RETURN(const SplitBehavior behavior, ReadBehavior(fields));
  ASSIGN_OR_RETURN(const bool invert, fields.Bool("invert", false));
  out->AddSplit(std::move(pattern), behavior, invert ? SplitOn::kGaps : SplitOn::kMatches);
  return OkStatus();
}

Status ReadDelimiter(const JsonFields& fields, PreTokenizer* out) {
  ASSIGN_OR_RETURN(const std::string delimiter, ReadCharacter(fields, "delimiter"));
  ASSIGN_OR_RETURN(Regex pattern, Regex::Literal(delimiter));
  out->AddSplit(std::move(pattern), SplitBehavior::kRemoved, SplitOn::kMatches);
  return OkStatus();
}

// Adds one decoder; the stages a decoder belongs to may only follow each other in order.
class DecoderChain {
 public:
  explicit DecoderChain(Decoder* out) : out_(out) {}

  Status Add(const json& component) {
    const JsonFields fields(component, "decoder");
    RETURN_IF_ERROR(CheckSteps(out_->size()));
    const Result<std::string> type = fields.String("type");
    if (!type.ok()) return type.status();
    if (*type != "Sequence") return AddOne(*type, component, fields);
    ASSIGN_OR_RETURN(const json* list, fields.List("decoders"));
    for (const json& part : *list) RETURN_IF_ERROR(Add(part));
    return OkStatus();
  }

 private:
  enum class Stage { kTokens, kFused, kBytes };

  Status AddOne(const std::string& type, const json& component, const JsonFields& fields) {
    if (stage_ == Stage::kBytes) return Order(type, "ByteLevel");
    if (type == "ByteLevel") {
      if (stage_ != Stage::kTokens) return Order(type, "Fuse");
      stage_ = Stage::kBytes;
      out_->set_byte_level();
      return OkStatus();
    }
    if (type == "Fuse") {
      stage_ = Stage::kFused;
      return OkStatus();
    }
    if (stage_ == Stage::kFused) return AddFused(type, fields);
    if (type == "ByteFallback") {
      if (!out_->KeepsByteTokens()) return Order(type, "a rewriting of <0xNN> texts");
      out_->set_byte_tokens(ByteTokenRule::kRunOrReplacement);
      return OkStatus();
    }
    if (type == "Replace") return AddReplace(component, fields);
    if (type == "Strip") return AddStrip(fields);
    if (type == "Metaspace") return AddMetaspace(fields);
    return UnknownType("decoder", type,
                       "Sequence, ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace");
  }

  static Status Order(std::string_view type, std::string_view after) {
    return Unsupported(
        fmt::format("tokenizer.json: decoder \"{:.100}\" after {} is not supported", type, after));
  }

  // After Fuse only the start of the text may be stripped: text is given out as it comes.
  Status AddFused(const std::string& type, const JsonFields& fields) {
    if (type != "Strip" || stripped_) return Order(type, "Fuse");
    ASSIGN_OR_RETURN(std::string content, ReadCharacter(fields, "content"));
    ASSIGN_OR_RETURN(const int32_t start, fields.Count("start"));
    ASSIGN_OR_RETURN(const int32_t stop, fields.Count("stop"));
    if (stop != 0) return Order("Strip with a stop", "Fuse");
    out_->set_strip_start(std::move(content), static_cast<size_t>(start));
    stripped_ = true;
    return OkStatus();
  }

  Status AddReplace(const json& component, const JsonFields& fields) {
    ASSIGN_OR_RETURN(std::string content, fields.String("content"));
    const JsonFields pattern(fields.At("pattern"), "Replace");
    if (!pattern.At("Regex").is_null()) {
      ASSIGN_OR_RETURN(Regex regex, ReadPattern(component, "Replace"));
      out_->AddReplace(std::move(regex), std::move(content));
      return OkStatus();
    }
    ASSIGN_OR_RETURN(std::string from, pattern.String("String"));
    if (from.empty()) return pattern.Wrong("String", "a text that is not empty");
    out_->AddReplaceText(std::move(from), std::move(content));
    return OkStatus();
  }

  Status AddStrip(const JsonFields& fields) {
    ASSIGN_OR_RETURN(std::string content, ReadCharacter(fields, "content"));
    ASSIGN_OR_RETURN(const int32_t start, fields.Count("start"));
    ASSIGN_OR_RETURN(const int32_t stop, fields.Count("stop"));
    out_->AddStrip(std::move(content), static_cast<size_t>(start), static_cast<size_t>(stop));
    return OkStatus();
  }

  Status AddMetaspace(const JsonFields& fields) {
    ASSIGN_OR_RETURN(std::string replacement, ReadCharacter(fields, "replacement"));
    ASSIGN_OR_RETURN(const PrependScheme scheme, ReadPrependScheme(fields));
    out_->AddMetaspace(std::move(replacement), scheme == PrependScheme::kNever
                                                   ? Decoder::FirstToken::kKeeps
                                                   : Decoder::FirstToken::kDrops);
    return OkStatus();
  }

  Decoder* out_;
  Stage stage_ = Stage::kTokens;
  bool stripped_ = false;
};

// The ids of one special token of a template.
Status AppendSpecial(const JsonFields& specials, const std::string& name,
                     std::vector<int32_t>* ids) {
  const JsonFields special(specials.At(name.c_str()), "a special token of the template");
  ASSIGN_OR_RETURN(const json* list, special.List("ids"));
  for (const json& id : *list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX) {
      return special.Wrong("ids", "a list of token ids");
    }
    ids->push_back(static_cast<int32_t>(id.get<uint64_t>()));
  }
  return OkStatus();
}

Status ReadTemplate(const JsonFields& fields, std::vector<int32_t>* prefix,
                    std::vector<int32_t>* suffix) {
  ASSIGN_OR_RETURN(const json* single, fields.List("single"));
  const JsonFields specials(fields.At("special_tokens"), "the post-processor");
  std::vector<int32_t> before;
  std::vector<int32_t> after;
  int texts = 0;
  for (const json& piece : *single) {
    const JsonFields parts(piece, "the post-processor's single");
    if (!parts.At("Sequence").is_null()) {
      ++texts;
      continue;
    }
    ASSIGN_OR_RETURN(const std::string name,
                     JsonFields(parts.At("SpecialToken"), "the template").String("id"));
    RETURN_IF_ERROR(AppendSpecial(specials, name, texts == 0 ? &before : &after));
  }
  if (texts != 1) {
    return Unsupported(fmt::format(
        "tokenizer.json: the template for a single text names the text {} times, not once", texts));
  }
  prefix->insert(prefix->begin(), before.begin(), before.end());
  suffix->insert(suffix->end(), after.begin(), after.end());
  return OkStatus();
}

// ["</s>", 2]
Result<int32_t> ReadNamedId(const JsonFields& fields, const char* field) {
  const json& pair = fields.At(field);
  if (!pair.is_array() || pair.size() != 2 || !pair[1].is_number_unsigned() ||
      pair[1].get<uint64_t>() > INT32_MAX) {
    return fields.Wrong(field, "a text and an id");
  }
  return static_cast<int32_t>(pair[1].get<uint64_t>());
}

}  // namespace

Status ReadNormalizer(const json& component, Normalizer* out) {
  if (component.is_null()) return OkStatus();
  RETURN_IF_ERROR(CheckSteps(out->size()));
  const JsonFields fields(component, "normalizer");
  ASSIGN_OR_RETURN(const std::string type, fields.String("type"));
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const json* list, fields.List("normalizers"));
    for (const json& part : *list) RETURN_IF_ERROR(ReadNormalizer(part, out));
  } else if (type == "NFC") {
    out->AddForm(NormalForm::kNfc);
  } else if (type == "NFD") {
    out->AddForm(NormalForm::kNfd);
  } else if (type == "NFKC") {
    out->AddForm(NormalForm::kNfkc);
  } else if (type == "NFKD") {
    out->AddForm(NormalForm::kNfkd);
  } else if (type == "Lowercase") {
    out->AddLowerCase();
  } else if (type == "ByteLevel") {
    out->AddByteChars();
  } else if (type == "Prepend") {
    ASSIGN_OR_RETURN(std::string prepend, fields.String("prepend"));
    out->AddPrepend(std::move(prepend));
  } else if (type == "Strip") {
    ASSIGN_OR_RETURN(const bool left, fields.Bool("strip_left", false));
    ASSIGN_OR_RETURN(const bool right, fields.Bool("strip_right", false));
    out->AddStrip(left, right);
  } else if (type == "Replace") {
    ASSIGN_OR_RETURN(Regex pattern, ReadPattern(component, "Replace"));
    ASSIGN_OR_RETURN(std::string content, fields.String("content"));
    out->AddReplace(std::move(pattern), std::move(content));
  } else {
    return UnknownType("normalizer", type,
                       "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, ByteLevel, Prepend, Strip, "
                       "Replace");
  }
  return OkStatus();
}

Status ReadPreTokenizer(const json& component, PreTokenizer* out) {
  if (component.is_null()) return OkStatus();
  RETURN_IF_ERROR(CheckSteps(out->size()));
  const JsonFields fields(component, "pre_tokenizer");
  ASSIGN_OR_RETURN(const std::string type, fields.String("type"));
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const json* list, fields.List("pretokenizers"));
    for (const json& part : *list) RETURN_IF_ERROR(ReadPreTokenizer(part, out));
    return OkStatus();
  }
  if (type == "ByteLevel") return ReadByteLevel(fields, out);
  if (type == "Split") return ReadSplit(component, fields, out);
  if (type == "Metaspace") return ReadMetaspace(fields, out);
  if (type == "CharDelimiterSplit" || type == "Delimiter") return ReadDelimiter(fields, out);
  if (type == "Digits") {
    ASSIGN_OR_RETURN(const bool single, fields.Bool("individual_digits", false));
    return AddKnownSplit(kNumber, single ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
                         SplitOn::kMatches, out);
  }
  if (type == "Punctuation") {
    SplitBehavior behavior = SplitBehavior::kIsolated;
    if (!fields.At("behavior").is_null()) {
      ASSIGN_OR_RETURN(behavior, ReadBehavior(fields));
    }
    return AddKnownSplit(kPunctuation, behavior, SplitOn::kMatches, out);
  }
  if (type == "Whitespace") {
    return AddKnownSplit(kWordsAndMarks, SplitBehavior::kRemoved, SplitOn::kGaps, out);
  }
  if (type == "WhitespaceSplit") {
    return AddKnownSplit(R"(\s)", SplitBehavior::kRemoved, SplitOn::kMatches, out);
  }
  return UnknownType("pre_tokenizer", type,
                     "Sequence, ByteLevel, Split, Metaspace, Digits, Punctuation, Whitespace, "
                     "WhitespaceSplit, CharDelimiterSplit");
}

Status ReadDecoder(const json& component, Decoder* out) {
  if (component.is_null()) {
    out->set_separator(" ");
    return OkStatus();
  }
  return DecoderChain(out).Add(component);
}

Status ReadPostProcessor(const json& component, std::vector<int32_t>* prefix,
                         std::vector<int32_t>* suffix) {
  if (component.is_null()) return OkStatus();
  const JsonFields fields(component, "post_processor");
  ASSIGN_OR_RETURN(const std::string type, fields.String("type"));
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const json* list, fields.List("processors"));
    for (const json& part : *list) RETURN_IF_ERROR(ReadPostProcessor(part, prefix, suffix));
    return OkStatus();
  }
  if (type == "ByteLevel") return OkStatus();  // moves offsets only
  if (type == "TemplateProcessing") return ReadTemplate(fields, prefix, suffix);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    ASSIGN_OR_RETURN(const int32_t before, ReadNamedId(fields, "cls"));
    ASSIGN_OR_RETURN(const int32_t behind, ReadNamedId(fields, "sep"));
    prefix->insert(prefix->begin(), before);
    suffix->push_back(behind);
    return OkStatus();
  }
  return UnknownType("post_processor", type,
                     "Sequence, ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing");
}

}  // namespace cleave::tok
