#pragma once
// Prepare: everything between a request's body and the engine that needs no socket: JSON, checks,
// template, tokenising. Runs on a worker thread; its cost is bounded by the body's size and the
// model's context. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "http/openai/answer.h"
#include "http/openai/error.h"
#include "http/openai/limits.h"
#include "http/openai/prompt.h"
#include "http/routes.h"

namespace cleave {

struct ServedText {
  openai::TextModel text;
  openai::RequestRules rules;
  bool prompt_tokens_details = false;
};

// One of the three.
struct Prepared {
  std::optional<openai::ApiError> error;
  std::string body;  // a finished answer
  // A generation: choice i of prompt p is sequences[p * n + i]; ids, seeds and arrival come later.
  std::vector<SequenceSpec> sequences;
  openai::AnswerInput answer;  // its id is the client's request_id, "" when there was none
  RouteId route = RouteId::kNone;
};

Prepared Prepare(RouteId route, const std::string& body, const ServedText& model);

}  // namespace cleave
