#pragma once
// For tests: the strings and hashes that tools/oracle/tokenizer_cases.py made, and small
// vocabularies written in place.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/checkpoint.h"
#include "model/tokenizer/tokenizer.h"

namespace cleave::testing_tokenizer {

// A file under the source folder; empty when it is not there.
std::string ReadSource(const std::string& path);
bool SourceExists(const std::string& path);

// The 2,000 strings, unescaped.
std::vector<std::string> TestStrings();

// FNV-1a folded to 32 bits, as tokenizer_hash.py.
uint32_t HashOf(std::string_view bytes);
uint32_t HashOf(const std::vector<int32_t>& ids);

// The ids of random sequence `c` for a vocabulary, as tokenizer_cases.py draws them.
std::vector<int32_t> RandomIds(uint64_t c, uint64_t vocab_size);

struct VocabCases {
  std::vector<int32_t> prefix;
  uint64_t vocab_size = 0;
  std::vector<std::pair<uint32_t, uint32_t>> encoded;  // by string: parsed, as text
  std::vector<std::pair<uint32_t, uint32_t>> decoded;  // by sequence: all, without special tokens
};
VocabCases ReadCases(const std::string& name);

// How many results differ from `cases`, with the first few named in *report.
struct Differences {
  size_t encoded = 0;
  size_t decoded = 0;
  size_t streamed = 0;
  std::string report;
};
Differences Compare(const Tokenizer& tokenizer, const VocabCases& cases,
                    const std::vector<std::string>& strings);

// A file under models/, by its ending.
Result<std::unique_ptr<Tokenizer>> TokenizerOfModel(const std::string& path);

Result<std::unique_ptr<Tokenizer>> FromJson(std::string json, std::string config = "");
// Decoded one token at a time.
std::string Streamed(const Tokenizer& tokenizer, std::span<const int32_t> ids, SkipSpecial skip);

// Names of all vocabularies with cases, and where each lies.
struct NamedVocab {
  std::string_view name;
  std::string_view path;
};
std::span<const NamedVocab> DownloadedVocabs();

}  // namespace cleave::testing_tokenizer
