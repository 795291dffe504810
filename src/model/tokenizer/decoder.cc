#include "model/tokenizer/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/utf8.h"

namespace cleave::tok {
namespace {

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// Drops up to `start` of `character` in front and up to `stop` behind.
std::string Stripped(std::string_view text, std::string_view character, size_t start, size_t stop) {
  for (; start > 0 && text.starts_with(character); --start) text.remove_prefix(character.size());
  for (; stop > 0 && text.ends_with(character); --stop) text.remove_suffix(character.size());
  return std::string(text);
}

std::string Replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t done = 0;
  for (size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, done)) {
    out.append(text.substr(done, at - done));
    out.append(to);
    done = at + from.size();
  }
  out.append(text.substr(done));
  return out;
}

void DropUnfinished(std::string* bytes) {
  for (size_t at = 0; at < bytes->size();) {
    const Utf8Unit unit = ScanUnit(std::string_view(*bytes).substr(at));
    if (unit.kind == UnitKind::kUnfinished) return bytes->resize(at);
    at += unit.size;
  }
}

}  // namespace

std::optional<char> ByteOfToken(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  const int high = HexValue(text[3]);
  const int low = HexValue(text[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

void Decoder::AddReplace(Regex pattern, std::string content) {
  steps_.push_back(
      {.kind = Kind::kReplace, .pattern = std::move(pattern), .content = std::move(content)});
}
void Decoder::AddReplaceText(std::string from, std::string content) {
  steps_.push_back(
      {.kind = Kind::kReplaceText, .from = std::move(from), .content = std::move(content)});
}
void Decoder::AddStrip(std::string character, size_t start, size_t stop) {
  steps_.push_back(
      {.kind = Kind::kStrip, .content = std::move(character), .start = start, .stop = stop});
}
void Decoder::AddMetaspace(std::string replacement, FirstToken first) {
  steps_.push_back({.kind = Kind::kMetaspace, .from = std::move(replacement), .first = first});
}

void Decoder::set_byte_tokens(ByteTokenRule rule) {
  byte_tokens_ = rule;
  run_steps_from_ = steps_.size();
}

bool Decoder::KeepsByteTokens() const {
  for (unsigned b = 0; b < 256; ++b) {
    const std::string text = fmt::format("<0x{:02X}>", b);
    if (Rewrite(text, Place::kLater, 0) != text) return false;
  }
  return true;
}

void Decoder::set_strip_start(std::string character, size_t count) {
  strip_character_ = std::move(character);
  strip_count_ = count;
}

bool Decoder::strips_leading_space() const {
  if (strip_count_ > 0 && strip_character_ == " ") return true;
  return std::any_of(steps_.begin(), steps_.end(), [](const Step& step) {
    return step.kind == Kind::kMetaspace && step.first == FirstToken::kDrops;
  });
}

std::string Decoder::Rewrite(std::string_view text, Place place, size_t from_step) const {
  std::string out(text);
  for (size_t i = from_step; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    switch (step.kind) {
      case Kind::kReplace: {
        RegexScratch scratch;
        if (IsValidUtf8(out)) out = ReplaceAll(*step.pattern, step.content, out, &scratch);
        break;
      }
      case Kind::kReplaceText:
        out = Replaced(out, step.from, step.content);
        break;
      case Kind::kStrip:
        out = Stripped(out, step.content, step.start, step.stop);
        break;
      case Kind::kMetaspace:
        out = Replaced(out, step.from,
                       place == Place::kStart && step.first == FirstToken::kDrops ? "" : " ");
        break;
    }
  }
  return out;
}

std::string Decoder::TokenBytes(std::string_view text) const {
  if (byte_tokens_ != ByteTokenRule::kAsText) {
    if (const std::optional<char> byte = ByteOfToken(text)) return std::string(1, *byte);
  }
  std::string rewritten = Rewrite(text, Place::kLater, 0);
  if (!byte_level_) return rewritten;
  std::optional<std::string> bytes = BytesOfByteChars(rewritten);
  return bytes ? std::move(*bytes) : rewritten;
}

void Decoder::Push(std::string_view text, DecodeState* state, std::string* out) const {
  const bool first = state->tokens++ == 0;
  if (!first) Emit(separator_, state, out);
  if (byte_tokens_ != ByteTokenRule::kAsText) {
    if (const std::optional<char> byte = ByteOfToken(text)) {
      if (byte_tokens_ == ByteTokenRule::kRunOrReplacement) {
        if (state->byte_run.empty()) state->run_at_start = first;
        state->byte_run.push_back(*byte);
      } else {
        Emit({&*byte, 1}, state, out);
      }
      return;
    }
  }
  EndRun(state, out);
  std::string rewritten = Rewrite(text, first ? Place::kStart : Place::kLater, 0);
  if (byte_level_) {
    if (std::optional<std::string> bytes = BytesOfByteChars(rewritten)) {
      rewritten = std::move(*bytes);
    }
  }
  Emit(rewritten, state, out);
}

void Decoder::EndRun(DecodeState* state, std::string* out) const {
  if (state->byte_run.empty()) return;
  const std::string run = std::exchange(state->byte_run, {});
  const Place place = state->run_at_start ? Place::kStart : Place::kLater;
  if (IsValidUtf8(run)) {
    Emit(Rewrite(run, place, run_steps_from_), state, out);
    return;
  }
  for (size_t i = 0; i < run.size(); ++i) {
    Emit(Rewrite(kReplacementUtf8, Place::kLater, run_steps_from_), state, out);
  }
}

void Decoder::Emit(std::string_view text, DecodeState* state, std::string* out) const {
  state->pending.append(text);
  if (state->stripped < strip_count_) {
    std::string whole;
    DrainLossy(&state->pending, &whole);
    std::string_view rest = whole;
    while (state->stripped < strip_count_ && rest.starts_with(strip_character_)) {
      rest.remove_prefix(strip_character_.size());
      ++state->stripped;
    }
    if (!rest.empty()) state->stripped = strip_count_;
    out->append(rest);
    return;
  }
  DrainLossy(&state->pending, out);
}

void Decoder::Finish(UnfinishedCharacter last, DecodeState* state, std::string* out) const {
  const bool dropped = last == UnfinishedCharacter::kDropped;
  if (dropped) DropUnfinished(&state->byte_run);
  EndRun(state, out);
  if (!dropped && !state->pending.empty()) out->append(kReplacementUtf8);
  *state = {};
}

}  // namespace cleave::tok
