#pragma once
// What tokenizer.ggml.pre stands for: GGUF stores a name instead of the normalizer and the
// pre-tokenizer, which are those of the model's own tokenizer.json. So text is composed (NFC) where
// that composes it, and classes are Unicode's, where other readers of GGUF take short cuts.
// Called once a model; any thread. Fails: kUnsupported with the names we know.

#include <span>
#include <string_view>

#include "base/status.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/pre_tokenizer.h"

namespace cleave::tok {

struct GgufPre {
  enum class Alphabet {
    kBytes,       // words are bytes, spelled by byte-level characters
    kCharacters,  // spaces become U+2581, unknown characters <0xNN> tokens
  };
  Alphabet alphabet = Alphabet::kBytes;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  bool ignore_merges = false;
  bool newlines_whole = false;
  bool add_bos = false;  // unless the file says otherwise
};

Result<GgufPre> FindGgufPre(std::string_view name);

}  // namespace cleave::tok
