#pragma once
// Prompts: from what a request holds (messages, text, ids) to token ids within the model's context.
// Pure but for the work it takes, which is bounded before it is done: call it on a worker thread.

#include <cstdint>
#include <string>
#include <vector>

#include "engine/request.h"
#include "http/openai/request.h"
#include "model/jinja/jinja.h"
#include "model/tokenizer/tokenizer.h"

namespace cleave::openai {

// The served model as text sees it. Pointers are borrowed and outlive every request.
struct TextModel {
  const Tokenizer* tokenizer = nullptr;
  const jinja::Template* chat_template = nullptr;  // null: the model has none
};

struct Prompt {
  std::vector<int32_t> ids;
  std::string text;  // what was encoded; empty for a prompt given as ids
};

Parsed<Prompt> ChatToPrompt(const ChatPrompt& chat, const TextModel& model,
                            const RequestRules& rules);
Parsed<Prompt> TextToPrompt(const TextOrIds& given, bool add_special_tokens, const TextModel& model,
                            const RequestRules& rules);

// Truncates as asked, checks the context length, and makes the specs of the prompt's n choices: all
// but id, arrival and seed filled in.
Parsed<std::vector<SequenceSpec>> MakeSequences(Prompt* prompt, uint32_t prompt_index,
                                                const Generation& generation,
                                                const TextModel& model, const RequestRules& rules);

}  // namespace cleave::openai
