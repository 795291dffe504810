// A tokenizer from the tokenizer.ggml.* fields of a GGUF file.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "model/tokenizer/bpe.h"
#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/gguf_pre.h"
#include "model/tokenizer/pipeline.h"
#include "model/tokenizer/sources.h"
#include "model/tokenizer/spm.h"

namespace cleave::tok {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
enum TokenType : int32_t { kUnknown = 2, kControl = 3, kUserDefined = 4 };

// Texts that end or steer generation: control tokens even where a converter marked them otherwise.
constexpr std::array<std::string_view, 41> kControlTexts{"<|eot_id|>",
                                                         "<|im_end|>",
                                                         "<|end|>",
                                                         "<|return|>",
                                                         "<|call|>",
                                                         "<|flush|>",
                                                         "<|calls|>",
                                                         "<end_of_turn>",
                                                         "<|endoftext|>",
                                                         "</s>",
                                                         "<|eom_id|>",
                                                         "<EOT>",
                                                         "_<EOT>",
                                                         "[EOT]",
                                                         "[EOS]",
                                                         "<|end_of_text|>",
                                                         "<end_of_utterance>",
                                                         "<eos>",
                                                         "<turn|>",
                                                         "<|tool_response>",
                                                         "<｜end▁of▁sentence｜>",
                                                         "<|fim_prefix|>",
                                                         "<fim-prefix>",
                                                         "<fim_prefix>",
                                                         "<｜fim▁begin｜>",
                                                         "<|fim_suffix|>",
                                                         "<fim-suffix>",
                                                         "<fim_suffix>",
                                                         "<｜fim▁hole｜>",
                                                         "<|fim_middle|>",
                                                         "<fim-middle>",
                                                         "<fim_middle>",
                                                         "<｜fim▁end｜>",
                                                         "<|fim_pad|>",
                                                         "<fim-pad>",
                                                         "<fim_pad>",
                                                         "<|fim_repo|>",
                                                         "<|repo_name|>",
                                                         "<fim-repo>",
                                                         "<reponame>",
                                                         "<|file_sep|>"};

Status CheckShape(const TokenizerSource& source) {
  const size_t tokens = source.tokens.size();
  if (tokens == 0) return DataLoss("tokenizer.ggml.tokens is empty");
  if (!source.token_types.empty() && source.token_types.size() != tokens) {
    return DataLoss(fmt::format("tokenizer.ggml.token_type has {} entries for {} tokens",
                                source.token_types.size(), tokens));
  }
  for (const auto& [name, id] : {std::pair("bos", source.bos_id), std::pair("eos", source.eos_id),
                                 std::pair("unknown", source.unk_id)}) {
    if (!id || (*id >= 0 && static_cast<size_t>(*id) < tokens)) continue;
    return DataLoss(fmt::format("tokenizer.ggml.{}_token_id is {}; the vocabulary has {} tokens",
                                name, *id, tokens));
  }
  return OkStatus();
}

Status AddTokens(const TokenizerSource& source, Vocab* vocab) {
  size_t bytes = 0;
  for (const std::string& token : source.tokens) bytes += token.size();
  vocab->Reserve(source.tokens.size(), std::min(bytes, kMaxVocabBytes));
  for (size_t id = 0; id < source.tokens.size(); ++id) {
    const std::string& text = source.tokens[id];
    const Status added =
        vocab->Add(static_cast<int64_t>(id), text.empty() ? fmt::format("[EMPTY_{}]", id) : text);
    if (!added.ok()) return added.Annotate("tokenizer.ggml.tokens");
  }
  return OkStatus();
}

int32_t TypeOf(const TokenizerSource& source, size_t id) {
  return source.token_types.empty() ? 1 : source.token_types[id];
}

// Gemma 4 and its like have a plain "</s>" of the web's markup beside their own end markers.
bool HasPlainEndMark(const Vocab& vocab) { return vocab.Find("<|tool_response>") != kNoToken; }

TokenFlags FindControl(const TokenizerSource& source, const Vocab& vocab) {
  TokenFlags control(source.tokens.size(), false);
  for (size_t id = 0; id < control.size(); ++id) {
    control[id] = TypeOf(source, id) == kControl || TypeOf(source, id) == kUnknown;
  }
  for (const std::string_view text : kControlTexts) {
    const int32_t id = vocab.Find(text);
    if (id == kNoToken || (text == "</s>" && HasPlainEndMark(vocab))) continue;
    control[id] = true;
  }
  if (source.token_types.empty()) {
    for (const auto& id : {source.bos_id, source.eos_id}) {
      if (id) control[*id] = true;
    }
  }
  return control;
}

// Phi-3's markers take the blanks behind them; GGUF has no field for that, so they are known by
// the placeholders only Phi-3 has.
bool TakesBlanksBehind(const Vocab& vocab, std::string_view text) {
  if (vocab.Find("<|placeholder1|>") == kNoToken) return false;
  return text != "<unk>" && text != "<s>" && text != "<|endoftext|>";
}

// Control, unknown and user-defined tokens are found before the text is cut.
Status AddMatched(const TokenizerSource& source, PipelineParts* parts) {
  std::vector<AddedToken> tokens;
  for (size_t id = 0; id < source.tokens.size(); ++id) {
    const bool control = parts->control[id];
    if (!control && TypeOf(source, id) != kUserDefined) continue;
    if (source.tokens[id].empty()) continue;
    tokens.push_back({.text = source.tokens[id],
                      .id = static_cast<int32_t>(id),
                      .special = control,
                      .rstrip = TakesBlanksBehind(*parts->vocab, source.tokens[id])});
  }
  if (tokens.empty()) return OkStatus();
  ASSIGN_OR_RETURN(parts->raw_tokens, AddedTokens::Create(std::move(tokens), Disallowed::kIgnore));
  return OkStatus();
}

void SetEnds(const TokenizerSource& source, bool bos_by_default, PipelineParts* parts) {
  parts->bos_id = source.bos_id;
  parts->eos_id = source.eos_id;
  if (parts->bos_id) parts->bos_text = source.tokens[*parts->bos_id];
  if (parts->eos_id) parts->eos_text = source.tokens[*parts->eos_id];
  if (source.add_bos.value_or(bos_by_default) && parts->bos_id) {
    parts->prefix.push_back(*parts->bos_id);
  }
  if (source.add_eos.value_or(false) && parts->eos_id) parts->suffix.push_back(*parts->eos_id);
}

// "left right"; the space that parts them is not the first character.
Result<std::vector<MergePair>> SplitMerges(const std::vector<std::string>& merges) {
  std::vector<MergePair> pairs;
  pairs.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string_view merge = merges[rank];
    const size_t blank = merge.find(' ', 1);
    if (blank == std::string_view::npos || blank + 1 == merge.size()) {
      return DataLoss(fmt::format(
          "tokenizer.ggml.merges: merge {} (\"{:.100}\") is not two texts with a space between",
          rank, merge));
    }
    pairs.push_back({merge.substr(0, blank), merge.substr(blank + 1)});
  }
  return pairs;
}

Status BuildBpe(const TokenizerSource& source, GgufPre pre, PipelineParts* parts) {
  BpeOptions options;
  options.ignore_merges = pre.ignore_merges;
  options.newlines_whole = pre.newlines_whole;
  parts->normalizer = std::move(pre.normalizer);
  parts->pre_tokenizer = std::move(pre.pre_tokenizer);
  if (pre.alphabet == GgufPre::Alphabet::kCharacters) {
    options.byte_fallback = true;
    options.unk_id = source.unk_id.value_or(kNoToken);
    parts->decoder.AddReplaceText(std::string(kSpaceMark), " ");
    parts->decoder.set_byte_tokens(ByteTokenRule::kRawBytes);
  } else {
    // Falcon's later cuts see byte-level characters; elsewhere the model takes bytes itself.
    if (!parts->pre_tokenizer.makes_byte_chars()) options.alphabet = BpeOptions::Alphabet::kBytes;
    parts->decoder.set_byte_level();
  }
  ASSIGN_OR_RETURN(const std::vector<MergePair> merges, SplitMerges(source.merges));
  ASSIGN_OR_RETURN(parts->model,
                   BpeModel::Create(parts->vocab.get(), merges, options, {parts->control, {}}));
  SetEnds(source, pre.add_bos, parts);
  return OkStatus();
}

Status BuildSpm(TokenizerSource source, PipelineParts* parts) {
  const auto id_or = [&source](std::optional<int32_t> id, int32_t usual) {
    return id || static_cast<size_t>(usual) >= source.tokens.size() ? id : usual;
  };
  source.bos_id = id_or(source.bos_id, 1);
  source.eos_id = id_or(source.eos_id, 2);
  source.unk_id = id_or(source.unk_id, 0);
  if (source.add_space_prefix.value_or(true)) {
    parts->normalizer.AddPrepend(" ");
    parts->decoder.set_strip_start(" ", 1);
  }
  ASSIGN_OR_RETURN(Regex space, Regex::Literal(" "));
  parts->normalizer.AddReplace(std::move(space), std::string(kSpaceMark));
  parts->decoder.AddReplaceText(std::string(kSpaceMark), " ");
  parts->decoder.set_byte_tokens(ByteTokenRule::kRawBytes);
  ASSIGN_OR_RETURN(parts->model,
                   SpmModel::Create(parts->vocab.get(), source.scores,
                                    source.unk_id.value_or(kNoToken), parts->control));
  SetEnds(source, /*bos_by_default=*/true, parts);
  return OkStatus();
}

Status BuildModel(const TokenizerSource& source, PipelineParts* parts) {
  if (source.gguf_model == "llama") return BuildSpm(source, parts);
  if (source.gguf_model == "gpt2" || source.gguf_model == "gemma4") {
    ASSIGN_OR_RETURN(GgufPre pre,
                     FindGgufPre(source.gguf_model == "gemma4" ? "gemma4" : source.gguf_pre));
    return BuildBpe(source, std::move(pre), parts);
  }
  return Unsupported(
      fmt::format("tokenizer.ggml.model \"{:.100}\" is not supported (known: gpt2, gemma4, llama)",
                  source.gguf_model));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> TokenizerFromGguf(const TokenizerSource& source) {
  RETURN_IF_ERROR(CheckShape(source));
  PipelineParts parts;
  parts.vocab = std::make_unique<Vocab>();
  RETURN_IF_ERROR(AddTokens(source, parts.vocab.get()));
  parts.control = FindControl(source, *parts.vocab);
  RETURN_IF_ERROR(AddMatched(source, &parts));
  RETURN_IF_ERROR(BuildModel(source, &parts));
  return std::unique_ptr<Tokenizer>(std::make_unique<PipelineTokenizer>(std::move(parts)));
}

}  // namespace cleave::tok
