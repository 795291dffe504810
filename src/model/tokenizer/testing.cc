#include "model/tokenizer/testing.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/rng.h"
#include "model/format/gguf_tokenizer.h"

namespace cleave::testing_tokenizer {
namespace {

constexpr NamedVocab kDownloaded[] = {
    {"deepseek-v3", "models/vocabs/deepseek-v3.json"},
    {"gemma-3", "models/vocabs/gemma-3.json"},
    {"ggml-aquila", "models/vocabs/ggml-vocab-aquila.gguf"},
    {"ggml-baichuan", "models/vocabs/ggml-vocab-baichuan.gguf"},
    {"ggml-command-r", "models/vocabs/ggml-vocab-command-r.gguf"},
    {"ggml-deepseek-coder", "models/vocabs/ggml-vocab-deepseek-coder.gguf"},
    {"ggml-deepseek-llm", "models/vocabs/ggml-vocab-deepseek-llm.gguf"},
    {"ggml-falcon", "models/vocabs/ggml-vocab-falcon.gguf"},
    {"ggml-gemma-4", "models/vocabs/ggml-vocab-gemma-4.gguf"},
    {"ggml-gpt-2", "models/vocabs/ggml-vocab-gpt-2.gguf"},
    {"ggml-gpt-neox", "models/vocabs/ggml-vocab-gpt-neox.gguf"},
    {"ggml-llama-bpe", "models/vocabs/ggml-vocab-llama-bpe.gguf"},
    {"ggml-llama-spm", "models/vocabs/ggml-vocab-llama-spm.gguf"},
    {"ggml-mpt", "models/vocabs/ggml-vocab-mpt.gguf"},
    {"ggml-phi-3", "models/vocabs/ggml-vocab-phi-3.gguf"},
    {"ggml-qwen2", "models/vocabs/ggml-vocab-qwen2.gguf"},
    {"ggml-qwen35", "models/vocabs/ggml-vocab-qwen35.gguf"},
    {"ggml-refact", "models/vocabs/ggml-vocab-refact.gguf"},
    {"ggml-starcoder", "models/vocabs/ggml-vocab-starcoder.gguf"},
    {"llama3", "models/vocabs/llama3.json"},
    {"llama4", "models/vocabs/llama4.json"},
    {"mistral-v1", "models/vocabs/mistral-v1.json"},
    {"mistral-v2", "models/vocabs/mistral-v2.json"},
    {"mistral-v3", "models/vocabs/mistral-v3.json"},
    {"mistral-v7", "models/vocabs/mistral-v7.json"},
    {"qwen2", "models/vocabs/qwen2.json"},
    {"qwen35", "models/vocabs/qwen35.json"},
    {"tekken-240718", "models/vocabs/tekken-240718.json"},
    {"tekken-240911", "models/vocabs/tekken-240911.json"},
    {"smollm2-gguf", "models/SmolLM2-135M-Instruct.Q4_1.gguf"},
    {"smollm2-json", "models/SmolLM2-135M-Instruct-bf16/tokenizer.json"},
    {"gemma-3-gguf", "models/gemma-3-270m-q4_k_m.gguf"},
};

uint32_t HexWord(std::string_view text) {
  uint32_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

std::string Unescaped(std::string_view line) {
  std::string out;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\') {
      out.push_back(line[i]);
      continue;
    }
    out.push_back(static_cast<char>(HexWord(line.substr(i + 2, 2))));
    i += 3;
  }
  return out;
}

void Note(std::string_view what, size_t index, size_t count, std::string* report) {
  if (count < 5) report->append(fmt::format("{} {}\n", what, index));
}

}  // namespace

std::string ReadSource(const std::string& path) {
  std::ifstream file(std::string(CLEAVE_SOURCE_DIR "/") + path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

bool SourceExists(const std::string& path) {
  return std::filesystem::exists(std::string(CLEAVE_SOURCE_DIR "/") + path);
}

std::vector<std::string> TestStrings() {
  std::istringstream lines(ReadSource("src/model/tokenizer/testdata/strings.txt"));
  std::vector<std::string> strings;
  for (std::string line; std::getline(lines, line);) strings.push_back(Unescaped(line));
  return strings;
}

uint32_t HashOf(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return static_cast<uint32_t>(hash ^ (hash >> 32U));
}

uint32_t HashOf(const std::vector<int32_t>& ids) {
  return HashOf({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int32_t)});
}

std::vector<int32_t> RandomIds(uint64_t c, uint64_t vocab_size) {
  RngStream random(c);
  std::vector<int32_t> ids(random.Below(40));
  for (int32_t& id : ids) {
    const uint64_t top = random.Below(2) != 0 ? vocab_size : std::min<uint64_t>(vocab_size, 300);
    id = static_cast<int32_t>(random.Below(top));
  }
  return ids;
}

VocabCases ReadCases(const std::string& name) {
  std::istringstream lines(ReadSource("src/model/tokenizer/testdata/vocabs/" + name + ".txt"));
  VocabCases cases;
  std::string line;
  std::getline(lines, line);
  std::istringstream prefix(line.substr(std::min(line.size(), std::strlen("prefix"))));
  for (int32_t id = 0; prefix >> id;) cases.prefix.push_back(id);
  std::string word;
  lines >> word >> cases.vocab_size;
  std::getline(lines, line);
  constexpr size_t kStrings = 2000;
  while (std::getline(lines, line)) {
    const std::string_view view = line;
    const std::pair pair(HexWord(view.substr(0, 8)), HexWord(view.substr(9, 8)));
    (cases.encoded.size() < kStrings ? cases.encoded : cases.decoded).push_back(pair);
  }
  return cases;
}

Differences Compare(const Tokenizer& tokenizer, const VocabCases& cases,
                    const std::vector<std::string>& strings) {
  Differences found;
  for (size_t i = 0; i < strings.size() && i < cases.encoded.size(); ++i) {
    const bool same = HashOf(tokenizer.Encode(strings[i], {.add_special_tokens = false})) ==
                          cases.encoded[i].first &&
                      HashOf(tokenizer.Encode(strings[i], {.add_special_tokens = false,
                                                           .special = SpecialTokens::kAsText})) ==
                          cases.encoded[i].second;
    if (!same) Note("string", i, found.encoded++, &found.report);
  }
  for (size_t c = 0; c < cases.decoded.size(); ++c) {
    const std::vector<int32_t> ids = RandomIds(c, cases.vocab_size);
    const std::string all = tokenizer.Decode(ids, SkipSpecial::kNo);
    const std::string plain = tokenizer.Decode(ids, SkipSpecial::kYes);
    if (HashOf(all) != cases.decoded[c].first || HashOf(plain) != cases.decoded[c].second) {
      Note("sequence", c, found.decoded++, &found.report);
    }
    if (Streamed(tokenizer, ids, SkipSpecial::kNo) != all ||
        Streamed(tokenizer, ids, SkipSpecial::kYes) != plain) {
      Note("stream", c, found.streamed++, &found.report);
    }
  }
  return found;
}

Result<std::unique_ptr<Tokenizer>> TokenizerOfModel(const std::string& path) {
  if (path.ends_with(".json")) return FromJson(ReadSource(path));
  ASSIGN_OR_RETURN(const TokenizerSource source,
                   ReadGgufTokenizer(std::string(CLEAVE_SOURCE_DIR "/") + path));
  return Tokenizer::Create(source);
}

Result<std::unique_ptr<Tokenizer>> FromJson(std::string json, std::string config) {
  TokenizerSource source;
  source.tokenizer_json = std::move(json);
  source.tokenizer_config_json = std::move(config);
  return Tokenizer::Create(source);
}

std::string Streamed(const Tokenizer& tokenizer, std::span<const int32_t> ids, SkipSpecial skip) {
  StreamingDetokenizer stream(&tokenizer, skip);
  std::string out;
  for (const int32_t id : ids) out += stream.Push(id);
  return out + stream.Flush(UnfinishedCharacter::kReplaced);
}

std::span<const NamedVocab> DownloadedVocabs() { return kDownloaded; }

}  // namespace cleave::testing_tokenizer
