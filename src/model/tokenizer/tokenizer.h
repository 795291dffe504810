#pragma once
// Tokenizer: text to token ids and back, for byte-level BPE and SentencePiece BPE vocabularies.
//
// Built once from a TokenizerSource (tokenizer.json or GGUF), then const; any thread.
// Encode never fails on text: bytes that are not UTF-8 become U+FFFD first, as the reference
// libraries' string types force. Ids out of range are an error of the caller, reported as a Status.
//
// Special tokens: with SpecialTokens::kParse the texts of added and control tokens in the input
// become their ids (chat templates, raw completions); with kAsText control tokens are never
// produced: user text can not create one.
//
//   ASSIGN_OR_RETURN(auto tok, Tokenizer::Create(checkpoint->tokenizer_source()));
//   std::vector<int32_t> ids = tok->Encode("Hello", {.add_special_tokens = true});
//   std::string text = tok->Decode(ids, SkipSpecial::kYes);

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/checkpoint.h"

namespace cleave {

enum class SpecialTokens { kParse, kAsText };
enum class SkipSpecial { kNo, kYes };
struct DecodeState;

struct EncodeOptions {
  bool add_special_tokens = true;  // BOS/EOS (or the post-processor's template) as the model asks
  SpecialTokens special = SpecialTokens::kParse;
};

// A prompt in pieces: literal template text and user text, so that user text can be kept from
// forming control tokens while the template's own markers do. Pieces are encoded as one string
// (merges cross borders of pieces); only special-token matching respects the borders.
struct TextPiece {
  std::string_view text;
  SpecialTokens special = SpecialTokens::kParse;
};

// What to make of a character whose last bytes never came. Bytes that nothing can complete are
// U+FFFD at once and in any case.
enum class UnfinishedCharacter {
  kReplaced,  // U+FFFD: what Decode gives
  kDropped,   // nothing, as in vLLM's answers: the model was cut off while it wrote the character
};

class Tokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> Create(const TokenizerSource& source);
  virtual ~Tokenizer() = default;

  [[nodiscard]] std::vector<int32_t> Encode(std::string_view text,
                                            const EncodeOptions& options) const;
  [[nodiscard]] virtual std::vector<int32_t> EncodePieces(std::span<const TextPiece> pieces,
                                                          bool add_special_tokens) const = 0;

  // Bytes of one token as it appears in running text (byte-level and <0xNN> tokens give raw bytes,
  // possibly half a character). Empty for ids out of range.
  [[nodiscard]] virtual std::string TokenBytes(int32_t id) const = 0;
  // The token as the vocabulary spells it ("Ġhello", "▁hello", "<|im_end|>"); /tokenize shows it.
  [[nodiscard]] virtual std::string TokenText(int32_t id) const = 0;
  // Whole sequence; invalid UTF-8 becomes U+FFFD as the reference libraries do.
  [[nodiscard]] virtual std::string Decode(std::span<const int32_t> ids,
                                           SkipSpecial skip) const = 0;
  // Drops a sequence's first space where the vocabulary's decoder does (SentencePiece): streaming
  // detokenisers ask whether a first token at the start of text loses its leading space.
  [[nodiscard]] virtual bool StripsLeadingSpace() const = 0;

  [[nodiscard]] virtual int32_t vocab_size() const = 0;        // ids are in [0, vocab_size)
  [[nodiscard]] virtual bool IsSpecial(int32_t id) const = 0;  // control / special added tokens
  [[nodiscard]] virtual std::optional<int32_t> IdOf(std::string_view token_text) const = 0;
  [[nodiscard]] virtual std::optional<int32_t> bos_id() const = 0;
  [[nodiscard]] virtual std::optional<int32_t> eos_id() const = 0;
  [[nodiscard]] virtual std::string bos_text() const = 0;  // "" when none; chat templates use it
  [[nodiscard]] virtual std::string eos_text() const = 0;
  // Most bytes any token stands for: bounds tokenizer work before it is done.
  [[nodiscard]] virtual size_t max_token_bytes() const = 0;

 private:
  friend class StreamingDetokenizer;
  // One step of Decode, and its end.
  virtual void DecodeNext(int32_t id, SkipSpecial skip, DecodeState* state,
                          std::string* out) const = 0;
  virtual void DecodeEnd(UnfinishedCharacter last, DecodeState* state, std::string* out) const = 0;
};

// What decoding carries from token to token of one stream.
struct DecodeState {
  std::string pending;   // bytes of an unfinished character, at most 3
  std::string byte_run;  // a run of byte tokens that is not over: its end decides what it is
  bool run_at_start = false;
  size_t stripped = 0;  // characters dropped at the start of the text
  size_t tokens = 0;    // tokens that were shown
};

// Turns a growing token sequence into text without ever emitting half a character: all pushes and
// the Flush (kReplaced) together give what Decode gives for the whole sequence. One per choice;
// owned by its stream; one thread. Where the reference decoder judges a run of byte tokens as a
// whole (tokenizer.json with ByteFallback), the run is held back until it ends.
class StreamingDetokenizer {
 public:
  StreamingDetokenizer(const Tokenizer* tokenizer, SkipSpecial skip);
  // Text that became final with this token; may be empty while a character is incomplete.
  std::string Push(int32_t id);
  // What is still held back at the end of the stream.
  std::string Flush(UnfinishedCharacter last);

 private:
  const Tokenizer* tokenizer_;
  SkipSpecial skip_;
  DecodeState state_;
};

}  // namespace cleave
