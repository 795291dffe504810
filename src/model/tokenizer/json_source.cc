// A tokenizer from tokenizer.json and tokenizer_config.json.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "model/tokenizer/bpe.h"
#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/components.h"
#include "model/tokenizer/json_fields.h"
#include "model/tokenizer/json_reader.h"
#include "model/tokenizer/pipeline.h"
#include "model/tokenizer/sources.h"

namespace cleave::tok {
namespace {

using nlohmann::json;

Status CheckModelType(const JsonTokenizer& file, const JsonFields& model) {
  std::string type = "BPE";
  if (!model.At("type").is_null()) {
    ASSIGN_OR_RETURN(type, model.String("type"));
  }
  if (file.vocab_is_list) type = "Unigram";
  if (type != "BPE") {
    return Unsupported(
        fmt::format("tokenizer.json: model type \"{:.100}\" is not supported (known: BPE)", type));
  }
  for (const char* field : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const json& value = model.At(field);
    if (value.is_null() || value == "") continue;
    return Unsupported(fmt::format("tokenizer.json: {} of the model is not supported", field));
  }
  const json& dropout = model.At("dropout");
  if (!dropout.is_null() && dropout != 0) {
    return Unsupported("tokenizer.json: dropout of the model is not supported");
  }
  if (file.vocab->token_count() == 0) return DataLoss("tokenizer.json: the vocabulary is empty");
  // Without them every text would be single characters: other ids, and no error.
  if (!file.has_merges) return DataLoss("tokenizer.json: the model has no list of merges");
  return OkStatus();
}

Result<BpeOptions> ReadModelOptions(const JsonFields& model, const Vocab& vocab) {
  BpeOptions options;
  ASSIGN_OR_RETURN(options.ignore_merges, model.Bool("ignore_merges", false));
  ASSIGN_OR_RETURN(options.byte_fallback, model.Bool("byte_fallback", false));
  ASSIGN_OR_RETURN(options.fuse_unk, model.Bool("fuse_unk", false));
  if (!model.At("unk_token").is_null()) {
    ASSIGN_OR_RETURN(const std::string unk, model.String("unk_token"));
    options.unk_id = vocab.Find(unk);
    if (options.unk_id == kNoToken) {
      return DataLoss(
          fmt::format("tokenizer.json: unk_token \"{:.100}\" is not in the vocabulary", unk));
    }
  }
  return options;
}

Result<AddedToken> ReadAddedToken(const json& entry) {
  const JsonFields fields(entry, "an added token");
  AddedToken token;
  ASSIGN_OR_RETURN(token.text, fields.String("content"));
  ASSIGN_OR_RETURN(token.id, fields.Count("id"));
  ASSIGN_OR_RETURN(token.special, fields.Bool("special", false));
  ASSIGN_OR_RETURN(token.normalized, fields.Bool("normalized", !token.special));
  ASSIGN_OR_RETURN(token.lstrip, fields.Bool("lstrip", false));
  ASSIGN_OR_RETURN(token.rstrip, fields.Bool("rstrip", false));
  ASSIGN_OR_RETURN(token.single_word, fields.Bool("single_word", false));
  return token;
}

// The added tokens of both files. The reference library numbers them itself: as the model's
// vocabulary does, else onwards from the number of its tokens, whatever the file says.
class AddedTokenList {
 public:
  explicit AddedTokenList(Vocab* vocab)
      : vocab_(vocab), next_id_(static_cast<int64_t>(vocab->token_count())) {}

  // A token given again replaces the first, but stays special.
  Status Add(AddedToken token) {
    if (token.text.empty()) return OkStatus();
    token.id = vocab_->Find(token.text);
    if (token.id == kNoToken) {
      RETURN_IF_ERROR(vocab_->Add(next_id_, token.text));
      token.id = static_cast<int32_t>(next_id_++);
      added_only_.resize(static_cast<size_t>(vocab_->size()), false);
      added_only_[token.id] = true;
    }
    const auto [it, is_new] = index_of_id_.emplace(token.id, tokens_.size());
    if (is_new) {
      tokens_.push_back(std::move(token));
    } else {
      token.special = token.special || tokens_[it->second].special;
      tokens_[it->second] = std::move(token);
    }
    return OkStatus();
  }

  // A token of tokenizer_config.json: adds what tokenizer.json does not list, but nothing that the
  // model has no row for.
  Status AddListed(AddedToken token) {
    const int32_t id = vocab_->Find(token.text);
    if (index_of_id_.contains(id) || (id == kNoToken && token.id != next_id_)) return OkStatus();
    return Add(std::move(token));
  }

  // A special token by its text alone.
  Status AddNamed(std::string text) {
    const auto it = index_of_id_.find(vocab_->Find(text));
    if (it == index_of_id_.end()) return AddListed({.text = std::move(text), .special = true});
    tokens_[it->second].special = true;
    return OkStatus();
  }

  std::vector<AddedToken> TakeTokens() { return std::move(tokens_); }
  TokenFlags TakeAddedOnly() { return std::move(added_only_); }

 private:
  Vocab* vocab_;
  int64_t next_id_;
  std::vector<AddedToken> tokens_;
  std::unordered_map<int32_t, size_t> index_of_id_;
  TokenFlags added_only_;
};

Status ReadAddedTokens(const json& rest, AddedTokenList* out) {
  const json& list = JsonFields(rest, "tokenizer.json").At("added_tokens");
  if (list.is_null()) return OkStatus();
  if (!list.is_array()) return DataLoss("tokenizer.json: added_tokens is not a list");
  for (const json& entry : list) {
    ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(entry));
    const Status added = out->Add(std::move(token));
    if (!added.ok()) return added.Annotate("tokenizer.json: added_tokens");
  }
  return OkStatus();
}

// A text, or an object with the text as "content"; empty when there is none.
Result<std::string> SpecialText(const JsonFields& config, const char* field) {
  const json& value = config.At(field);
  if (value.is_null()) return std::string();
  if (value.is_object()) return JsonFields(value, field).String("content");
  return config.String(field);
}

// added_tokens_decoder, and the special tokens that are named.
Status ReadConfigTokens(const JsonFields& config, AddedTokenList* out) {
  const json& decoder = config.At("added_tokens_decoder");
  if (decoder.is_object()) {
    for (const auto& [id, entry] : decoder.items()) {
      if (!entry.is_object()) return config.Wrong("added_tokens_decoder", "an object of tokens");
      json numbered = entry;
      const bool is_number =
          !id.empty() && id.size() < 10 && id.find_first_not_of("0123456789") == std::string::npos;
      if (!is_number) return config.Wrong("added_tokens_decoder", "keyed by token ids");
      numbered["id"] = static_cast<uint64_t>(std::stoul(id));
      ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(numbered));
      RETURN_IF_ERROR(out->AddListed(std::move(token)));
    }
  }
  for (const char* field : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                            "cls_token", "mask_token"}) {
    ASSIGN_OR_RETURN(std::string text, SpecialText(config, field));
    if (!text.empty()) RETURN_IF_ERROR(out->AddNamed(std::move(text)));
  }
  for (const char* field : {"additional_special_tokens", "extra_special_tokens"}) {
    const json& list = config.At(field);
    if (!list.is_array()) continue;
    for (const json& entry : list) {
      if (entry.is_string()) RETURN_IF_ERROR(out->AddNamed(entry.get<std::string>()));
    }
  }
  return OkStatus();
}

// Splits the added tokens into those matched in raw and those matched in normalized text.
Status PlaceAddedTokens(std::vector<AddedToken> tokens, PipelineParts* parts) {
  RegexScratch scratch;
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  parts->control.assign(static_cast<size_t>(parts->vocab->size()), false);
  for (AddedToken& token : tokens) {
    if (token.special) parts->control[token.id] = true;
    if (!token.normalized) {
      raw.push_back(std::move(token));
      continue;
    }
    std::string text = parts->normalizer.Apply(token.text, &scratch);
    if (text != token.text) parts->shown_texts.emplace_back(token.id, text);
    token.text = std::move(text);
    if (!token.text.empty()) normalized.push_back(std::move(token));
  }
  std::sort(parts->shown_texts.begin(), parts->shown_texts.end());
  if (!raw.empty()) {
    ASSIGN_OR_RETURN(parts->raw_tokens, AddedTokens::Create(std::move(raw), Disallowed::kConsume));
  }
  if (!normalized.empty()) {
    ASSIGN_OR_RETURN(parts->normalized_tokens,
                     AddedTokens::Create(std::move(normalized), Disallowed::kConsume));
  }
  return OkStatus();
}

// Words may stay bytes up to the model when every byte has a token.
bool SpellsAllBytes(const Vocab& vocab) {
  for (unsigned b = 0; b < 256; ++b) {
    std::string spelled;
    AppendByteChars(std::string(1, static_cast<char>(b)), &spelled);
    if (vocab.Find(spelled) == kNoToken) return false;
  }
  return true;
}

Status CheckIds(const std::vector<int32_t>& ids, const Vocab& vocab) {
  for (const int32_t id : ids) {
    if (vocab.Has(id)) continue;
    return DataLoss(
        fmt::format("tokenizer.json: the post-processor names id {}, which is not in "
                    "the vocabulary",
                    id));
  }
  return OkStatus();
}

// tokenizer_config.json: which tokens BOS and EOS are. Where it says whether they are added, that
// takes the place of the post-processor, as in the reference library.
Status ApplyConfig(const JsonFields& config, PipelineParts* parts) {
  ASSIGN_OR_RETURN(parts->bos_text, SpecialText(config, "bos_token"));
  ASSIGN_OR_RETURN(parts->eos_text, SpecialText(config, "eos_token"));
  const auto id_of = [parts](const std::string& special) -> std::optional<int32_t> {
    const int32_t id = parts->vocab->Find(special);
    return id == kNoToken ? std::nullopt : std::optional<int32_t>(id);
  };
  parts->bos_id = id_of(parts->bos_text);
  parts->eos_id = id_of(parts->eos_text);
  if (!config.Has("add_bos_token") && !config.Has("add_eos_token")) return OkStatus();
  ASSIGN_OR_RETURN(const bool add_bos, config.Bool("add_bos_token", false));
  ASSIGN_OR_RETURN(const bool add_eos, config.Bool("add_eos_token", false));
  parts->prefix.clear();
  parts->suffix.clear();
  if (add_bos && parts->bos_id) parts->prefix.push_back(*parts->bos_id);
  if (add_eos && parts->eos_id) parts->suffix.push_back(*parts->eos_id);
  return OkStatus();
}

Status ReadComponents(const json& rest, PipelineParts* parts) {
  const JsonFields fields(rest, "tokenizer.json");
  RETURN_IF_ERROR(ReadNormalizer(fields.At("normalizer"), &parts->normalizer));
  RETURN_IF_ERROR(ReadPreTokenizer(fields.At("pre_tokenizer"), &parts->pre_tokenizer));
  RETURN_IF_ERROR(ReadDecoder(fields.At("decoder"), &parts->decoder));
  return ReadPostProcessor(fields.At("post_processor"), &parts->prefix, &parts->suffix);
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> TokenizerFromJson(const TokenizerSource& source) {
  if (source.tokenizer_json.empty()) {
    return NotFound(
        "the model has no tokenizer.json; convert its tokenizer with "
        "AutoTokenizer.from_pretrained(…).save_pretrained(…)");
  }
  ASSIGN_OR_RETURN(JsonTokenizer file, ReadTokenizerJson(source.tokenizer_json));
  const json& rest = *file.rest;
  const JsonFields model(JsonFields(rest, "tokenizer.json").At("model"), "the model");
  RETURN_IF_ERROR(CheckModelType(file, model));
  PipelineParts parts;
  RETURN_IF_ERROR(ReadComponents(rest, &parts));
  ASSIGN_OR_RETURN(BpeOptions options, ReadModelOptions(model, *file.vocab));
  if (SpellsAllBytes(*file.vocab) && parts.pre_tokenizer.DropLastByteChars()) {
    options.alphabet = BpeOptions::Alphabet::kBytes;
  }
  json config_document = json::object();
  if (!source.tokenizer_config_json.empty()) {
    ASSIGN_OR_RETURN(config_document,
                     ReadSmallJson(source.tokenizer_config_json, "tokenizer_config.json"));
  }
  const JsonFields config(config_document, "tokenizer_config.json");
  AddedTokenList added(file.vocab.get());
  RETURN_IF_ERROR(ReadAddedTokens(rest, &added));
  RETURN_IF_ERROR(ReadConfigTokens(config, &added));
  parts.vocab = std::move(file.vocab);
  RETURN_IF_ERROR(PlaceAddedTokens(added.TakeTokens(), &parts));
  ASSIGN_OR_RETURN(parts.model, BpeModel::Create(parts.vocab.get(), file.MergePairs(), options,
                                                 {parts.control, added.TakeAddedOnly()}));
  RETURN_IF_ERROR(ApplyConfig(config, &parts));
  RETURN_IF_ERROR(CheckIds(parts.prefix, *parts.vocab));
  RETURN_IF_ERROR(CheckIds(parts.suffix, *parts.vocab));
  return std::unique_ptr<Tokenizer>(std::make_unique<PipelineTokenizer>(std::move(parts)));
}

}  // namespace cleave::tok
