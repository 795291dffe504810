#include "model/format/gguf_tokenizer.h"

#include <fmt/format.h>

#include "base/mapped_file.h"

namespace cleave {
namespace {

Status CheckLength(std::string_view key, size_t length, size_t tokens) {
  if (length == 0 || length == tokens) return OkStatus();
  return DataLoss(
      fmt::format("tokenizer.ggml.{} has {} entries for {} tokens", key, length, tokens));
}

// An id of the vocabulary, or nothing: files also write -1 or 2^32 - 1 for "none".
Result<std::optional<int32_t>> TokenId(GgufFields* fields, std::string_view key, size_t tokens) {
  const auto id = fields->Int(key);
  if (!id.has_value() || *id == -1 || *id == 0xffffffffLL) return std::optional<int32_t>();
  if (*id < 0 || static_cast<uint64_t>(*id) >= tokens) {
    return DataLoss(fmt::format("{} is {}; the vocabulary has {} tokens", key, *id, tokens));
  }
  return std::optional<int32_t>(static_cast<int32_t>(*id));
}

}  // namespace

Result<TokenizerSource> GgufTokenizer(const GgufContents& contents) {
  GgufFields fields(contents);
  TokenizerSource source;
  source.kind = TokenizerSource::Kind::kGguf;
  const auto model = fields.String("tokenizer.ggml.model");
  source.gguf_model = model.value_or("");
  source.gguf_pre = fields.String("tokenizer.ggml.pre").value_or("");
  source.tokens = fields.Strings("tokenizer.ggml.tokens");
  source.scores = fields.Floats("tokenizer.ggml.scores");
  source.token_types = fields.Ints("tokenizer.ggml.token_type");
  source.merges = fields.Strings("tokenizer.ggml.merges");
  source.add_bos = fields.Bool("tokenizer.ggml.add_bos_token");
  source.add_eos = fields.Bool("tokenizer.ggml.add_eos_token");
  source.add_space_prefix = fields.Bool("tokenizer.ggml.add_space_prefix");
  RETURN_IF_ERROR(fields.status());
  const size_t tokens = source.tokens.size();
  if (!model.has_value() || tokens == 0) {
    return DataLoss("the file has no tokenizer: tokenizer.ggml.model and .tokens are needed");
  }
  // Without them every text would be single bytes: other ids, and no error.
  const bool needs_merges = source.gguf_model == "gpt2" || source.gguf_model == "gemma4";
  if (needs_merges && !contents.metadata.contains("tokenizer.ggml.merges")) {
    return DataLoss(
        fmt::format("metadata key tokenizer.ggml.merges is missing; a {} vocabulary needs it",
                    source.gguf_model));
  }
  RETURN_IF_ERROR(CheckLength("scores", source.scores.size(), tokens));
  RETURN_IF_ERROR(CheckLength("token_type", source.token_types.size(), tokens));
  ASSIGN_OR_RETURN(source.bos_id, TokenId(&fields, "tokenizer.ggml.bos_token_id", tokens));
  ASSIGN_OR_RETURN(source.eos_id, TokenId(&fields, "tokenizer.ggml.eos_token_id", tokens));
  ASSIGN_OR_RETURN(source.unk_id, TokenId(&fields, "tokenizer.ggml.unknown_token_id", tokens));
  ASSIGN_OR_RETURN(source.pad_id, TokenId(&fields, "tokenizer.ggml.padding_token_id", tokens));
  RETURN_IF_ERROR(fields.status());
  return source;
}

Result<TokenizerSource> ReadGgufTokenizer(const std::string& path) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  auto contents = ParseGguf(file.bytes());
  if (!contents.ok()) return contents.status().Annotate(path);
  auto source = GgufTokenizer(*contents);
  if (!source.ok()) return source.status().Annotate(path);
  return source;
}

}  // namespace cleave
