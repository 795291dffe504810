#include "http/openai/choice.h"

#include <algorithm>
#include <utility>

namespace cleave::openai {

StopScan::StopScan(std::vector<std::string> stops, bool include_stop)
    : stops_(std::move(stops)), include_stop_(include_stop) {}

std::string StopScan::Push(std::string_view text, Look look) {
  if (stops_.empty()) return std::string(text);
  const size_t old = held_.size();
  held_ += text;
  size_t best_end = std::string::npos;
  size_t best_begin = 0;
  for (const std::string& stop : stops_) {
    if (look == Look::kNot) break;
    // The first match that completes in the new text.
    const size_t from = old >= stop.size() ? old - stop.size() + 1 : 0;
    size_t at = held_.find(stop, from);
    if (at == std::string::npos) continue;
    const size_t end = at + stop.size();
    if (end < best_end || (end == best_end && at < best_begin)) {
      best_end = end;
      best_begin = at;
      hit_ = stop;
    }
  }
  if (hit()) {
    std::string shown = held_.substr(0, include_stop_ ? best_end : best_begin);
    held_.clear();
    return shown;
  }
  const size_t keep = HeldBytes();
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return shown;
}

std::string StopScan::Rest() { return std::exchange(held_, std::string()); }

// The longest end of the text that begins a stop string.
size_t StopScan::HeldBytes() const {
  size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n) {
      if (std::string_view(held_).substr(held_.size() - n) == std::string_view(stop).substr(0, n)) {
        keep = n;
        break;
      }
    }
  }
  return keep;
}

Choice::Choice(const Tokenizer* tokenizer, const Generation& generation)
    : min_tokens_(generation.sampling.min_tokens),
      include_stop_(generation.include_stop),
      hidden_(generation.max_tokens && *generation.max_tokens == 0),
      detokenizer_(tokenizer, generation.skip_special ? SkipSpecial::kYes : SkipSpecial::kNo),
      stops_(generation.stop, generation.include_stop) {}

ChoiceDelta Choice::Push(SequenceOutput&& output) {
  ChoiceDelta delta;
  if (ended_) return delta;
  delta.cached_tokens = output.cached_tokens;
  delta.prompt_logprobs = std::move(output.prompt_logprobs);
  for (size_t i = 0; i < output.tokens.size() && !stops_.hit() && !hidden_; ++i) {
    TakeToken(&output, i, &delta);
  }
  if (stops_.hit()) {
    delta.ending = Ending::kStop;
    delta.stop_string = stops_.stop();
    delta.abort = output.finish == FinishReason::kNone;
    ended_ = true;
  } else if (output.finish != FinishReason::kNone) {
    End(output, &delta);
  }
  return delta;
}

void Choice::TakeToken(SequenceOutput* output, size_t index, ChoiceDelta* delta) {
  const int32_t id = output->tokens[index];
  ++token_count_;
  delta->tokens.push_back(id);
  if (index < output->logprobs.size()) {
    delta->logprobs.push_back(std::move(output->logprobs[index]));
  }
  // The id that ended the sequence is not part of the text unless the client wants it.
  const bool last = index + 1 == output->tokens.size();
  if (last && output->finish == FinishReason::kStop && !include_stop_) return;
  const auto look = token_count_ > min_tokens_ ? StopScan::Look::kYes : StopScan::Look::kNot;
  delta->text += stops_.Push(detokenizer_.Push(id), look);
}

void Choice::End(const SequenceOutput& output, ChoiceDelta* delta) {
  ended_ = true;
  const bool clean = output.finish == FinishReason::kStop || output.finish == FinishReason::kLength;
  if (!clean) {
    delta->ending = Ending::kError;
    delta->error = output.error.ok() ? Cancelled("the request was aborted") : output.error;
    return;
  }
  // What was held back until its last byte was known may still complete a stop string.
  if (!hidden_) {
    delta->text +=
        stops_.Push(detokenizer_.Flush(UnfinishedCharacter::kDropped), StopScan::Look::kYes);
    if (!stops_.hit()) delta->text += stops_.Rest();
  }
  delta->ending = Ending::kLength;
  if (stops_.hit()) {
    delta->ending = Ending::kStop;
    delta->stop_string = stops_.stop();
  } else if (output.finish == FinishReason::kStop) {
    delta->ending = Ending::kStop;
    delta->stop_token_id = output.stop_token_id;
  }
}

}  // namespace cleave::openai
