#pragma once
// Reads tokenizer.json as a stream: the vocabulary and the merges (nearly all of the file) go
// straight into their tables, the rest becomes a small document.
// Called once a model; any thread. Fails: kDataLoss, with the place, on text that is not JSON or
// nests deeper than 64, and on vocabularies and merges of a wrong shape.

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/vocab.h"

namespace cleave::tok {

struct JsonTokenizer {
  std::unique_ptr<Vocab> vocab = std::make_unique<Vocab>();
  // Left and right texts of each merge, by rank.
  std::string merge_bytes;
  struct MergePlace {
    uint32_t begin = 0;
    uint32_t left_size = 0;
    uint32_t right_size = 0;
  };
  std::vector<MergePlace> merges;
  std::unique_ptr<nlohmann::json> rest;  // without model.vocab and model.merges
  bool vocab_is_list = false;            // as Unigram models have it; not read
  bool has_merges = false;               // a list of them, perhaps an empty one

  // Views into this object.
  [[nodiscard]] std::vector<MergePair> MergePairs() const;
};

Result<JsonTokenizer> ReadTokenizerJson(std::string_view text);
// A whole document, nesting at most 64 deep; `name` is what errors call it.
Result<nlohmann::json> ReadSmallJson(std::string_view text, std::string_view name);

}  // namespace cleave::tok
