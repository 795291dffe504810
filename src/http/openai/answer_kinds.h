#pragma once
// What the answers of both routes have in common: a whole answer gathers what its choices say, a
// stream frames its events. Private to the folder.

#include <string>
#include <string_view>
#include <vector>

#include "http/openai/answer.h"
#include "http/openai/json.h"

namespace cleave::openai {

class WholeAnswer : public Answer {
 public:
  // `object` names the kind of the body; it outlives the answer.
  WholeAnswer(AnswerInput input, std::string_view object);
  void Add(uint32_t index, uint32_t token_count, ChoiceDelta&& delta, std::string* out) final;
  void Finish(std::string* out) final;

 protected:
  // An entry of the list of choices; called in their order.
  virtual void WriteChoice(uint32_t index, JsonWriter* json) = 0;
  // Keys of the body that only this kind has.
  virtual void WriteOwnKeys(JsonWriter* /*json*/) const {}

  const AnswerInput input_;
  std::vector<ChoiceDelta> choices_;  // everything said so far

 private:
  UsageCount usage_;
  const std::string_view object_;
};

class StreamAnswer : public Answer {
 public:
  // `object` names the kind of each chunk; it outlives the answer.
  StreamAnswer(AnswerInput input, std::string_view object);
  void Finish(std::string* out) final;

 protected:
  // Whether a chunk of it would show anything.
  [[nodiscard]] bool Shows(const ChoiceDelta& delta) const;
  // A chunk up to its open list of choices.
  JsonWriter Begin(std::string* out) const;
  // Ends a chunk whose list of choices is closed, with `usage` where every chunk shows it.
  void End(const Usage& usage, JsonWriter* json, std::string* out) const;

  const AnswerInput input_;
  UsageCount usage_;

 private:
  const std::string_view object_;
};

}  // namespace cleave::openai
