#include "model/tokenizer/gguf_pre.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "model/tokenizer/reference_patterns.h"

namespace cleave::tok {
namespace {

constexpr SplitBehavior kIsolated = SplitBehavior::kIsolated;
constexpr SplitBehavior kContiguous = SplitBehavior::kContiguous;

// A cut by a pattern; an empty pattern: bytes become byte-level characters here.
struct Cut {
  std::string_view pattern;
  SplitBehavior behavior = kIsolated;
};
constexpr Cut kByteChars{""};

constexpr Cut kGpt2[] = {{kGpt2Words}};
constexpr Cut kDigitsGpt2[] = {{kNumber}, {kGpt2Words}};

// cl100k as Llama 3 has it; with single digits as Qwen 2; with marks in words as Qwen 3.5.
constexpr Cut kLlama3[] = {{R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
                            R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}};
constexpr Cut kQwen2[] = {{R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
                           R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}};
constexpr Cut kQwen35[] = {{R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
                            R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}};

// o200k; Mistral's tekken is o200k without contractions and with single digits.
constexpr Cut kO200k[] = {
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
     R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
     R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}};
constexpr Cut kTekken[] = {
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
     R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
     R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}};

// Cased letters of an older Unicode, range by range.
constexpr std::string_view kDeepseekLetters =
    R"(\s?[)"
    R"(A-Za-z\x{00B5}\x{00C0}-\x{00D6}\x{00D8}-\x{00F6}\x{00F8}-\x{01BA}\x{01BC}-\x{01BF})"
    R"(\x{01C4}-\x{0293}\x{0295}-\x{02AF}\x{0370}-\x{0373}\x{0376}\x{0377}\x{037B}-\x{037D})"
    R"(\x{037F}\x{0386}\x{0388}-\x{038A}\x{038C}\x{038E}-\x{03A1}\x{03A3}-\x{03F5})"
    R"(\x{03F7}-\x{0481}\x{048A}-\x{052F}\x{0531}-\x{0556}\x{10A0}-\x{10C5})"
    R"(\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF})"
    R"(\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15})"
    R"(\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B})"
    R"(\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4})"
    R"(\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC})"
    R"(\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115})"
    R"(\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139})"
    R"(\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B})"
    R"(\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B})"
    R"(\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF})"
    R"(\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A})"
    R"(\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2})"
    R"(\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943})"
    R"(]+)";
constexpr std::string_view kDeepseekCjk =
    R"([\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";
constexpr Cut kDeepseekLlm[] = {
    {R"([\r\n])"},
    {kDeepseekLetters},
    {R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)"},
    {R"(\s+$)"},
    {kDeepseekCjk},
    {kNumber}};
constexpr Cut kDeepseekCoder[] = {
    {R"([\r\n])"}, {R"(\s?\p{L}+)"}, {R"(\s?\p{P}+)"}, {kDeepseekCjk}, {kNumber}};
constexpr Cut kDeepseekV3[] = {
    {R"(\p{N}{1,3})"},
    {R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)"},
    {R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
     R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}};

// Digits are looked for among the byte-level characters, as the model's own tokenizer does.
constexpr Cut kFalcon[] = {{kPunctuation, kContiguous},
                           {kGpt2Words},
                           kByteChars,
                           {kNumber, kContiguous},
                           {R"([0-9][0-9][0-9])"}};
// What a file without a name gets.
constexpr Cut kDefault[] = {
    {R"([\p{P}\$\+<=>\^~\|]+)"}, {kGpt2Words}, {R"(\p{N}+)"}, {R"([0-9][0-9][0-9])"}};
// Merges run over whole lines.
constexpr Cut kLines[] = {{R"([^\n]+|[\n]+)"}};

enum Trait : unsigned {
  kNfc = 1U,           // text is composed first
  kIgnoreMerges = 2U,  // words that are tokens stay whole
  kAddBos = 4U,        // BOS unless the file says otherwise
  kCharacters = 8U,    // see GgufPre::Alphabet
};

struct Known {
  std::string_view name;
  std::span<const Cut> cuts;
  unsigned traits = 0;
};

constexpr Known kKnown[] = {
    {"", kDefault},
    {"chatglm-bpe", kLlama3},
    {"command-r", kDigitsGpt2, kNfc},
    {"dbrx", kLlama3},
    {"deepseek-coder", kDeepseekCoder},
    {"deepseek-llm", kDeepseekLlm},
    {"deepseek-r1-qwen", kQwen2, kNfc},
    {"deepseek-v3", kDeepseekV3},
    {"default", kDefault},
    {"falcon", kFalcon},
    {"falcon3", kLlama3, kIgnoreMerges | kAddBos},
    {"gemma4", kLines, kCharacters | kAddBos},
    {"glm4", kLlama3, kIgnoreMerges},
    {"gpt-2", kGpt2},
    {"gpt-4o", kO200k},
    {"llama-bpe", kLlama3, kIgnoreMerges | kAddBos},
    {"llama-v3", kLlama3, kIgnoreMerges | kAddBos},
    {"llama3", kLlama3, kIgnoreMerges | kAddBos},
    {"llama4", kO200k},
    {"mpt", kGpt2, kNfc},
    {"olmo", kGpt2, kNfc},
    {"phi-2", kGpt2},
    {"qwen2", kQwen2, kNfc},
    {"qwen35", kQwen35, kNfc},
    {"refact", kDigitsGpt2},
    {"smaug-bpe", kLlama3},
    {"smollm", kDigitsGpt2},
    {"stablelm2", kQwen2, kNfc},
    {"starcoder", kDigitsGpt2},
    {"tekken", kTekken, kIgnoreMerges | kAddBos},
};

Status AddCuts(std::span<const Cut> cuts, PreTokenizer* out) {
  for (const Cut& cut : cuts) {
    if (cut.pattern.empty()) {
      out->AddByteChars();
      continue;
    }
    ASSIGN_OR_RETURN(Regex pattern, Regex::Compile(cut.pattern));
    out->AddSplit(std::move(pattern), cut.behavior, SplitOn::kMatches);
  }
  return OkStatus();
}

}  // namespace

Result<GgufPre> FindGgufPre(std::string_view name) {
  const auto* known = std::find_if(std::begin(kKnown), std::end(kKnown),
                                   [&](const Known& k) { return k.name == name; });
  if (known == std::end(kKnown)) {
    std::string names;
    for (const Known& k : kKnown) {
      if (!k.name.empty()) names.append(names.empty() ? "" : ", ").append(k.name);
    }
    return Unsupported(
        fmt::format("tokenizer.ggml.pre \"{:.100}\" is not supported (known: {})", name, names));
  }
  GgufPre pre;
  pre.ignore_merges = (known->traits & kIgnoreMerges) != 0;
  pre.add_bos = (known->traits & kAddBos) != 0;
  if ((known->traits & kNfc) != 0) pre.normalizer.AddForm(NormalForm::kNfc);
  RETURN_IF_ERROR(AddCuts(known->cuts, &pre.pre_tokenizer));
  if ((known->traits & kCharacters) != 0) {
    pre.alphabet = GgufPre::Alphabet::kCharacters;
    pre.newlines_whole = true;
    ASSIGN_OR_RETURN(Regex space, Regex::Literal(" "));
    pre.normalizer.AddReplace(std::move(space), "\xE2\x96\x81");
  }
  return pre;
}

}  // namespace cleave::tok
