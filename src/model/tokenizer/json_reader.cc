#include "model/tokenizer/json_reader.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace cleave::tok {
namespace {

using nlohmann::json;

constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxMergeBytes = size_t{1} << 30;

// Builds a document; where `big` is set, model.vocab and model.merges go there instead.
class Reader final : public nlohmann::json_sax<json> {
 public:
  // `bytes`: of the text.
  Reader(std::string_view name, size_t bytes, JsonTokenizer* big)
      : name_(name), bytes_(bytes), big_(big) {}

  [[nodiscard]] const Status& status() const { return status_; }
  json TakeRoot() { return std::move(root_); }

  bool null() override { return Value(nullptr); }
  bool boolean(bool value) override { return Value(value); }
  bool number_integer(number_integer_t value) override {
    if (mode_ == Mode::kVocab) return AddToken(value);
    return Value(value);
  }
  bool number_unsigned(number_unsigned_t value) override {
    constexpr auto kMost = static_cast<number_unsigned_t>(INT64_MAX);
    if (mode_ == Mode::kVocab) return AddToken(static_cast<int64_t>(std::min(value, kMost)));
    return Value(value);
  }
  bool number_float(number_float_t value, const string_t& /*text*/) override {
    return Value(value);
  }
  bool string(string_t& value) override {
    if (mode_ == Mode::kMerges) return MergeLine(value);
    if (mode_ == Mode::kMergePair) return MergePart(value);
    return Value(std::move(value));
  }
  bool binary(binary_t& /*value*/) override { return Fail("binary data"); }

  bool start_object(std::size_t /*elements*/) override {
    if (mode_ == Mode::kNone && big_ != nullptr && path_is_model_ && key_ == "vocab") {
      mode_ = Mode::kVocab;
      return Deeper();
    }
    if (mode_ == Mode::kSkip) return Deeper();
    if (mode_ != Mode::kNone) return Fail("an object inside model.vocab or model.merges");
    return Open(json::object());
  }
  bool key(string_t& value) override {
    key_ = std::move(value);
    if (open_.size() == 1 && mode_ == Mode::kNone) path_is_model_ = false;
    return true;
  }
  bool end_object() override { return Close(); }
  bool start_array(std::size_t /*elements*/) override {
    if (mode_ == Mode::kSkip) return Deeper();
    if (mode_ == Mode::kMerges) {
      mode_ = Mode::kMergePair;
      parts_ = 0;
      return Deeper();
    }
    if (mode_ != Mode::kNone) return Fail("a list inside model.vocab or a merge");
    if (big_ != nullptr && path_is_model_ && (key_ == "vocab" || key_ == "merges")) {
      mode_ = key_ == "vocab" ? Mode::kSkip : Mode::kMerges;
      if (mode_ == Mode::kSkip) big_->vocab_is_list = true;
      if (mode_ == Mode::kMerges) big_->has_merges = true;
      skip_from_ = depth_;
      return Deeper();
    }
    return Open(json::array());
  }
  bool end_array() override {
    if (mode_ == Mode::kMergePair) {
      if (parts_ != 2) return Fail(fmt::format("merge {} has {} parts, not 2", rank_, parts_));
      mode_ = Mode::kMerges;
      ++rank_;
      --depth_;
      return true;
    }
    return Close();
  }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    if (status_.ok()) {
      status_ =
          DataLoss(fmt::format("{}: not valid JSON at byte {} of {}", name_, position, bytes_));
    }
    return false;
  }

 private:
  enum class Mode { kNone, kVocab, kMerges, kMergePair, kSkip };

  bool Fail(std::string what) {
    status_ = DataLoss(fmt::format("{}: {}", name_, what));
    return false;
  }

  bool Deeper() {
    if (++depth_ > kMaxDepth) return Fail(fmt::format("nests deeper than {}", kMaxDepth));
    return true;
  }

  // Adds a value to the innermost open object or list.
  json* Place(json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    json& slot = parent[key_];
    slot = std::move(value);
    return &slot;
  }

  bool Value(json value) {
    if (mode_ == Mode::kSkip) return true;
    if (mode_ == Mode::kVocab)
      return Fail(fmt::format("the id of token \"{}\" is no integer", key_));
    if (mode_ != Mode::kNone) return Fail(fmt::format("merge {} is not made of texts", rank_));
    Place(std::move(value));
    return true;
  }

  bool Open(json value) {
    const bool model = open_.size() == 1 && key_ == "model" && value.is_object();
    open_.push_back(Place(std::move(value)));
    if (model) path_is_model_ = true;
    if (open_.size() > 2) path_is_model_ = false;
    return Deeper();
  }

  bool Close() {
    --depth_;
    if (mode_ == Mode::kSkip && depth_ > skip_from_) return true;
    if (mode_ != Mode::kNone) {
      mode_ = Mode::kNone;
      return true;
    }
    open_.pop_back();
    path_is_model_ =
        open_.size() == 2 && root_.contains("model") && open_.back() == &root_["model"];
    return true;
  }

  bool AddToken(int64_t id) {
    const Status status = big_->vocab->Add(id, key_);
    if (!status.ok()) status_ = status.Annotate(name_);
    return status.ok();
  }

  bool MergeLine(const std::string& line) {
    if (line.starts_with("#version")) return true;
    const size_t blank = line.find(' ');
    if (blank == std::string::npos || line.find(' ', blank + 1) != std::string::npos) {
      return Fail(
          fmt::format("merge {} (\"{:.100}\") is not two texts with a space between", rank_, line));
    }
    if (!AddMerge({line.data(), blank})) return false;
    if (!ExtendMerge(std::string_view(line).substr(blank + 1))) return false;
    ++rank_;
    return true;
  }

  bool MergePart(const std::string& text) {
    if (parts_ >= 2) return Fail(fmt::format("merge {} has more than 2 parts", rank_));
    return parts_++ == 0 ? AddMerge(text) : ExtendMerge(text);
  }

  bool AddMerge(std::string_view left) {
    const size_t begin = big_->merge_bytes.size();
    if (left.size() > kMaxMergeBytes - begin) return Fail("the merges are too long");
    big_->merge_bytes.append(left);
    big_->merges.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(left.size()), 0});
    return true;
  }

  bool ExtendMerge(std::string_view right) {
    if (right.size() > kMaxMergeBytes - big_->merge_bytes.size()) {
      return Fail("the merges are too long");
    }
    big_->merge_bytes.append(right);
    big_->merges.back().right_size = static_cast<uint32_t>(right.size());
    return true;
  }

  const std::string_view name_;
  const size_t bytes_;
  JsonTokenizer* const big_;
  Status status_;
  json root_;
  std::vector<json*> open_;  // the chain of open objects and lists of root_
  std::string key_;
  size_t depth_ = 0;
  size_t skip_from_ = 0;
  Mode mode_ = Mode::kNone;
  bool path_is_model_ = false;  // the innermost open object is the top level's "model"
  size_t rank_ = 0;
  size_t parts_ = 0;
};

Status Run(std::string_view text, Reader* reader) {
  const bool ok = json::sax_parse(text.begin(), text.end(), reader);
  if (!reader->status().ok()) return reader->status();
  return ok ? OkStatus() : DataLoss("the JSON text could not be read");
}

}  // namespace

std::vector<MergePair> JsonTokenizer::MergePairs() const {
  std::vector<MergePair> pairs;
  pairs.reserve(merges.size());
  const std::string_view bytes = merge_bytes;
  for (const MergePlace& place : merges) {
    pairs.push_back({bytes.substr(place.begin, place.left_size),
                     bytes.substr(place.begin + place.left_size, place.right_size)});
  }
  return pairs;
}

Result<JsonTokenizer> ReadTokenizerJson(std::string_view text) {
  JsonTokenizer tokenizer;
  // A vocabulary entry takes some 20 bytes of the file, merges included.
  tokenizer.vocab->Reserve(std::min<size_t>(text.size() / 40, kMaxTokenId), text.size() / 4);
  Reader reader("tokenizer.json", text.size(), &tokenizer);
  RETURN_IF_ERROR(Run(text, &reader));
  tokenizer.rest = std::make_unique<json>(reader.TakeRoot());
  if (!tokenizer.rest->is_object()) return DataLoss("tokenizer.json holds no object");
  return tokenizer;
}

Result<json> ReadSmallJson(std::string_view text, std::string_view name) {
  Reader reader(name, text.size(), nullptr);
  RETURN_IF_ERROR(Run(text, &reader));
  return reader.TakeRoot();
}

}  // namespace cleave::tok
