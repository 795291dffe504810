#include "http/openai/prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace cleave::openai {
namespace {

// Every token stands for at most max_token_bytes, so longer text can not fit; said before the
// tokenizer sees it.
std::optional<ApiError> CheckBytes(size_t bytes, const TextModel& model,
                                   const RequestRules& rules) {
  const size_t most = model.tokenizer->max_token_bytes() * rules.max_model_len;
  if (bytes <= most) return std::nullopt;
  return BadRequest(
      fmt::format("This model's maximum context length is {} tokens. However, your prompt is {} "
                  "bytes long and can not fit in fewer tokens. Please reduce the length of the "
                  "input prompt.",
                  rules.max_model_len, bytes),
      "input_tokens");
}

// Cuts what follows the final message, so that the model goes on writing it.
bool CutAfter(const std::string& content, std::vector<jinja::RenderedPiece>* pieces) {
  std::string text;
  for (const auto& piece : *pieces) text += piece.text;
  std::string wanted = content;
  size_t at = text.rfind(wanted);
  if (at == std::string::npos) {  // templates may trim
    const size_t first = wanted.find_first_not_of(" \t\r\n");
    if (first == std::string::npos) return false;
    wanted = wanted.substr(first, wanted.find_last_not_of(" \t\r\n") - first + 1);
    at = text.rfind(wanted);
    if (at == std::string::npos) return false;
  }
  size_t left = at + wanted.size();
  for (auto& piece : *pieces) {
    piece.text.resize(std::min(piece.text.size(), left));
    left -= piece.text.size();
  }
  return true;
}

Parsed<std::vector<jinja::RenderedPiece>> Render(const ChatPrompt& chat, const TextModel& model) {
  std::unique_ptr<jinja::Template> own;
  const jinja::Template* chat_template = model.chat_template;
  if (!chat.chat_template.empty()) {
    auto compiled = jinja::Template::Compile(chat.chat_template);
    if (!compiled.ok()) return BadRequest(compiled.status().message(), "chat_template");
    own = std::move(compiled).value();
    chat_template = own.get();
  }
  if (chat_template == nullptr) {
    return BadRequest(
        "this model has no chat template; start the server with --chat-template, or "
        "use /v1/completions",
        "messages");
  }
  // The model's own: unlike the caller's strings they become the tokens they name.
  const Json constants = {{"bos_token", model.tokenizer->bos_text()},
                          {"eos_token", model.tokenizer->eos_text()}};
  auto rendered = chat_template->RenderPieces(*chat.context, constants);
  if (!rendered.ok()) {
    return BadRequest("the chat template refused the request: " + rendered.status().message(),
                      "messages");
  }
  auto pieces = std::move(rendered).value();
  if (chat.continue_final_message && !CutAfter(chat.final_content, &pieces)) {
    return BadRequest(
        "continue_final_message needs a template that shows the final message "
        "unchanged",
        "continue_final_message");
  }
  return pieces;
}

uint32_t WantedTokens(const Generation& g, uint32_t room, const RequestRules& rules) {
  // A completion without max_tokens has OpenAI's default in sampling; chat takes all the room.
  int64_t wanted = g.max_tokens.value_or(g.sampling.max_tokens);
  if (g.max_tokens && *g.max_tokens == 0) wanted = 1;  // echo only: one step, its token unseen
  if (!g.max_tokens) wanted = std::min<int64_t>(wanted, room);
  if (rules.defaults.max_new_tokens > 0) {
    wanted = std::min<int64_t>(wanted, rules.defaults.max_new_tokens);
  }
  return static_cast<uint32_t>(wanted);
}

std::optional<ApiError> CheckContext(size_t prompt_tokens, const Generation& g,
                                     const RequestRules& rules) {
  const uint64_t limit = rules.max_model_len;
  const uint64_t wanted = static_cast<uint64_t>(std::max<int64_t>(g.max_tokens.value_or(1), 1));
  if (prompt_tokens == 0) return BadRequest("the prompt holds no tokens", "prompt");
  if (prompt_tokens + wanted <= limit) return std::nullopt;
  if (!g.max_tokens) {
    return BadRequest(fmt::format("This model's maximum context length is {} tokens. However, your "
                                  "prompt contains {} input tokens, which leaves no room for "
                                  "output. Please reduce the length of the input prompt.",
                                  limit, prompt_tokens),
                      "input_tokens");
  }
  return BadRequest(
      fmt::format("This model's maximum context length is {} tokens. However, you requested {} "
                  "output tokens and your prompt contains {} input tokens, for a total of {} "
                  "tokens. Please reduce the length of the input prompt or the number of requested "
                  "output tokens.",
                  limit, wanted, prompt_tokens, prompt_tokens + wanted),
      wanted > limit ? g.max_tokens_field : std::string("input_tokens"));
}

void Truncate(const Generation& g, const RequestRules& rules, std::vector<int32_t>* ids) {
  if (!g.truncate_prompt_tokens) return;
  // -1 leaves room for what was asked to be generated.
  const int64_t room = std::max<int64_t>(1, static_cast<int64_t>(rules.max_model_len) -
                                                std::max<int64_t>(1, g.max_tokens.value_or(1)));
  const auto keep =
      static_cast<size_t>(*g.truncate_prompt_tokens < 0 ? room : *g.truncate_prompt_tokens);
  if (ids->size() <= keep) return;
  if (g.truncation_side == TruncationSide::kLeft) {
    ids->erase(ids->begin(), ids->end() - static_cast<std::ptrdiff_t>(keep));
  } else {
    ids->resize(keep);
  }
}

// A word is refused as it begins a text and as it follows a space, where that is another token.
std::vector<std::vector<int32_t>> WordsToIds(const std::vector<std::string>& words,
                                             const Tokenizer& tokenizer) {
  const EncodeOptions plain{.add_special_tokens = false, .special = SpecialTokens::kAsText};
  std::vector<std::vector<int32_t>> out;
  for (const std::string& word : words) {
    const size_t first = word.find_first_not_of(' ');
    const std::string bare = first == std::string::npos ? "" : word.substr(first);
    std::vector<int32_t> alone = tokenizer.Encode(bare, plain);
    std::vector<int32_t> spaced = tokenizer.Encode(" " + bare, plain);
    const bool other = !spaced.empty() && (alone.empty() || spaced[0] != alone[0]) &&
                       (alone.empty() || spaced.size() == alone.size());
    if (!alone.empty()) out.push_back(std::move(alone));
    if (other) out.push_back(std::move(spaced));
  }
  return out;
}

}  // namespace

Parsed<Prompt> ChatToPrompt(const ChatPrompt& chat, const TextModel& model,
                            const RequestRules& rules) {
  auto rendered = Render(chat, model);
  if (!rendered.ok()) return rendered.error();
  Prompt prompt;
  std::vector<TextPiece> pieces;
  for (const auto& piece : rendered.value()) {
    prompt.text += piece.text;
    // What the user wrote never becomes a control token.
    pieces.push_back(
        {piece.text, piece.from_template ? SpecialTokens::kParse : SpecialTokens::kAsText});
  }
  if (auto error = CheckBytes(prompt.text.size(), model, rules)) return *std::move(error);
  prompt.ids = model.tokenizer->EncodePieces(pieces, chat.add_special_tokens);
  return prompt;
}

Parsed<Prompt> TextToPrompt(const TextOrIds& given, bool add_special_tokens, const TextModel& model,
                            const RequestRules& rules) {
  if (!given.is_text) return Prompt{given.ids, {}};
  if (auto error = CheckBytes(given.text.size(), model, rules)) return *std::move(error);
  Prompt prompt;
  prompt.text = given.text;
  prompt.ids = model.tokenizer->Encode(
      given.text, {.add_special_tokens = add_special_tokens, .special = SpecialTokens::kParse});
  return prompt;
}

Parsed<std::vector<SequenceSpec>> MakeSequences(Prompt* prompt, uint32_t prompt_index,
                                                const Generation& generation,
                                                const TextModel& model, const RequestRules& rules) {
  Truncate(generation, rules, &prompt->ids);
  // A vocabulary larger than the model's embedding, as mismatched files have.
  for (const int32_t id : prompt->ids) {
    if (id >= 0 && id < rules.vocab_size) continue;
    return BadRequest(
        fmt::format("the prompt holds token {}; the model has {}", id, rules.vocab_size), "prompt");
  }
  if (auto error = CheckContext(prompt->ids.size(), generation, rules)) return *std::move(error);
  SequenceSpec spec;
  spec.prompt = prompt->ids;
  spec.sampling = generation.sampling;
  const auto room = static_cast<uint32_t>(rules.max_model_len - prompt->ids.size());
  spec.sampling.max_tokens = WantedTokens(generation, room, rules);
  if (spec.sampling.min_tokens > spec.sampling.max_tokens) {
    return BadRequest(fmt::format("min_tokens must be at most the tokens that can be generated "
                                  "({}), got {}",
                                  spec.sampling.max_tokens, spec.sampling.min_tokens),
                      "min_tokens");
  }
  spec.sampling.bad_words = WordsToIds(generation.bad_words, *model.tokenizer);
  spec.sampling.prompt_index = prompt_index;
  spec.priority = generation.priority;
  spec.cache_salt = generation.cache_salt;
  std::vector<SequenceSpec> specs;
  for (uint32_t choice = 0; choice + 1 < generation.n; ++choice) specs.push_back(spec);
  specs.push_back(std::move(spec));
  for (uint32_t choice = 0; choice < generation.n; ++choice) {
    specs[choice].sampling.choice_index = choice;
    if (choice > 0) specs[choice].sampling.prompt_logprobs = -1;  // once a prompt is enough
  }
  return specs;
}

}  // namespace cleave::openai
