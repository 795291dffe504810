#pragma once
// Choice: one choice of a request, from the engine's tokens to text the client may see. It undoes
// tokens into whole characters, holds back what may become a stop string, cuts at the stop string
// that completes first, and counts what the client is shown.
//
// Owner: the request. Thread: the server's. After Push reported an end, further pushes are ignored.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "http/openai/request.h"
#include "model/tokenizer/tokenizer.h"

namespace cleave::openai {

enum class Ending {
  kNone,
  kStop,    // EOS, a stop id or a stop string
  kLength,  // max_tokens or the context
  kError,   // cut short: `error` says why
};

// What one engine output adds to a choice.
struct ChoiceDelta {
  std::string text;
  std::vector<int32_t> tokens;
  std::vector<TokenLogprobs> logprobs;  // one per token when asked for
  std::vector<TokenLogprobs> prompt_logprobs;
  Ending ending = Ending::kNone;
  // A stop string ended it: the engine does not know and has to be told.
  bool abort = false;
  std::string stop_string;     // the one that ended it
  int32_t stop_token_id = -1;  // likewise
  uint32_t cached_tokens = 0;
  Status error;
};

// Finds the stop string that completes first in a growing text. Of two that complete at the same
// character the longer one wins.
class StopScan {
 public:
  StopScan(std::vector<std::string> stops, bool include_stop);
  // Appends `text`; returns what is now certain to be shown. Matches are looked for only where they
  // complete in `text`; with Look::kNot (before min_tokens) there are none.
  enum class Look { kYes, kNot };
  std::string Push(std::string_view text, Look look);
  // What was held back, when the text ended without a stop string.
  std::string Rest();
  [[nodiscard]] bool hit() const { return !hit_.empty(); }
  [[nodiscard]] const std::string& stop() const { return hit_; }

 private:
  [[nodiscard]] size_t HeldBytes() const;

  const std::vector<std::string> stops_;
  const bool include_stop_;
  std::string held_;
  std::string hit_;
};

class Choice {
 public:
  Choice(const Tokenizer* tokenizer, const Generation& generation);
  ChoiceDelta Push(SequenceOutput&& output);
  [[nodiscard]] bool ended() const { return ended_; }
  // Tokens the client is billed: up to and with the one that ended it.
  [[nodiscard]] uint32_t token_count() const { return token_count_; }

 private:
  void TakeToken(SequenceOutput* output, size_t index, ChoiceDelta* delta);
  void End(const SequenceOutput& output, ChoiceDelta* delta);

  const uint32_t min_tokens_;
  const bool include_stop_;
  const bool hidden_;  // echo with max_tokens 0: the token made is not shown
  StreamingDetokenizer detokenizer_;
  StopScan stops_;
  uint32_t token_count_ = 0;
  bool ended_ = false;
};

}  // namespace cleave::openai
