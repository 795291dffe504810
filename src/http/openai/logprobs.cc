#include "http/openai/logprobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace cleave::openai {
namespace {

std::string TokenRawBytes(int32_t id, const TokenNames& names) {
  std::string bytes = names.tokenizer->TokenBytes(id);
  return bytes.empty() ? names.tokenizer->TokenText(id) : bytes;
}

void WriteChatEntry(const TokenLogprob& entry, const TokenNames& names, JsonWriter* json) {
  json->Key("token").String(TokenName(entry.id, names));
  json->Key("logprob").Float(entry.logprob);
  json->Key("bytes").BeginArray();
  for (const char c : TokenRawBytes(entry.id, names)) json->Int(static_cast<unsigned char>(c));
  json->EndArray();
}

bool Holds(const std::vector<TokenLogprob>& top, int32_t id) {
  return std::any_of(top.begin(), top.end(), [id](const TokenLogprob& t) { return t.id == id; });
}

void WriteTop(const TokenLogprobs& token, const TokenNames& names, JsonWriter* json) {
  json->BeginObject();
  for (const TokenLogprob& t : token.top) json->Key(TokenName(t.id, names)).Float(t.logprob);
  if (!Holds(token.top, token.chosen.id)) {
    json->Key(TokenName(token.chosen.id, names)).Float(token.chosen.logprob);
  }
  json->EndObject();
}

void WritePromptEntry(const TokenLogprob& entry, const TokenNames& names, JsonWriter* json) {
  json->Key(std::to_string(entry.id)).BeginObject();
  json->Key("logprob").Float(entry.logprob);
  json->Key("rank").Int(entry.rank);
  json->Key("decoded_token").String(TokenName(entry.id, {names.tokenizer, false}));
  json->EndObject();
}

}  // namespace

std::string TokenName(int32_t id, const TokenNames& names) {
  if (names.as_ids) return fmt::format("token_id:{}", id);
  std::string bytes = TokenRawBytes(id, names);
  if (IsUtf8(bytes)) return bytes;
  std::string name = "bytes:";
  for (const char c : bytes) {
    fmt::format_to(std::back_inserter(name), "\\x{:02x}", static_cast<unsigned char>(c));
  }
  return name;
}

void WriteChatLogprobs(std::span<const TokenLogprobs> logprobs, const TokenNames& names,
                       JsonWriter* json) {
  json->BeginObject().Key("content").BeginArray();
  for (const TokenLogprobs& token : logprobs) {
    json->BeginObject();
    WriteChatEntry(token.chosen, names, json);
    json->Key("top_logprobs").BeginArray();
    for (const TokenLogprob& t : token.top) {
      json->BeginObject();
      WriteChatEntry(t, names, json);
      json->EndObject();
    }
    json->EndArray().EndObject();
  }
  json->EndArray().EndObject();
}

void WriteCompletionLogprobs(const CompletionLogprobs& logprobs, const TokenNames& names,
                             size_t* offset, JsonWriter* json) {
  std::vector<std::string> texts;
  if (logprobs.unknown_first) texts.push_back(TokenName(*logprobs.unknown_first, names));
  for (const auto& token : logprobs.tokens) texts.push_back(TokenName(token.chosen.id, names));

  json->BeginObject().Key("text_offset").BeginArray();
  for (const std::string& text : texts) {
    json->Int(static_cast<int64_t>(*offset));
    *offset += CountCharacters(text);
  }
  json->EndArray().Key("token_logprobs").BeginArray();
  if (logprobs.unknown_first) json->Null();
  for (const auto& token : logprobs.tokens) json->Float(token.chosen.logprob);
  json->EndArray().Key("tokens").BeginArray();
  for (const std::string& text : texts) json->String(text);
  json->EndArray().Key("top_logprobs").BeginArray();
  if (logprobs.unknown_first) json->Null();
  for (const auto& token : logprobs.tokens) WriteTop(token, names, json);
  json->EndArray().EndObject();
}

void WritePromptLogprobs(const std::vector<TokenLogprobs>& logprobs, const TokenNames& names,
                         JsonWriter* json) {
  if (logprobs.empty()) {
    json->Null();
    return;
  }
  json->BeginArray().Null();
  for (const TokenLogprobs& token : logprobs) {
    json->BeginObject();
    WritePromptEntry(token.chosen, names, json);
    for (const TokenLogprob& t : token.top) {
      if (t.id != token.chosen.id) WritePromptEntry(t, names, json);
    }
    json->EndObject();
  }
  json->EndArray();
}

void WriteIds(std::span<const int32_t> ids, JsonWriter* json) {
  json->BeginArray();
  for (const int32_t id : ids) json->Int(id);
  json->EndArray();
}

}  // namespace cleave::openai
