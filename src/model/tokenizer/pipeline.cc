#include "model/tokenizer/pipeline.h"

#include <algorithm>
#include <utility>

#include "model/tokenizer/utf8.h"

namespace cleave::tok {
namespace {

// Where special tokens are parsed: byte ranges of the input, in order, not touching.
class ParsedStretches {
 public:
  void Append(size_t begin, size_t end, SpecialTokens special) {
    if (begin == end || special != SpecialTokens::kParse) return;
    if (!parsed_.empty() && parsed_.back().end == begin) {
      parsed_.back().end = end;
    } else {
      parsed_.push_back({begin, end});
    }
  }

  [[nodiscard]] AddedTokens::Stretch Of(Span span) const {
    // The first stretch that ends behind the span's begin.
    const auto it = std::upper_bound(parsed_.begin(), parsed_.end(), span.begin,
                                     [](size_t at, Span s) { return at < s.end; });
    if (it == parsed_.end() || it->begin >= span.end) return AddedTokens::Stretch::kAsText;
    const bool inside = it->begin <= span.begin && span.end <= it->end;
    return inside ? AddedTokens::Stretch::kParsed : AddedTokens::Stretch::kBoth;
  }

  // Borders of stretches strictly inside `span`.
  [[nodiscard]] std::vector<size_t> BordersIn(Span span) const {
    std::vector<size_t> borders;
    auto it = std::upper_bound(parsed_.begin(), parsed_.end(), span.begin,
                               [](size_t at, Span s) { return at < s.end; });
    for (; it != parsed_.end() && it->begin < span.end; ++it) {
      if (it->begin > span.begin) borders.push_back(it->begin);
      if (it->end < span.end) borders.push_back(it->end);
    }
    return borders;
  }

 private:
  std::vector<Span> parsed_;
};

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80; }

// All pieces as one text of valid UTF-8, and where special tokens are parsed in it. A character
// that a border cuts belongs to the piece in which it starts.
std::string JoinPieces(std::span<const TextPiece> pieces, ParsedStretches* stretches) {
  std::string text;
  std::string pending;
  for (const TextPiece& piece : pieces) {
    size_t begin = text.size();
    if (!pending.empty()) {
      // An unfinished character of the piece before may go on here.
      size_t taken = 0;
      while (taken < piece.text.size() && !pending.empty() && IsContinuation(piece.text[taken])) {
        pending.push_back(piece.text[taken++]);
        DrainLossy(&pending, &text);
      }
      if (taken == piece.text.size()) continue;
      if (!pending.empty()) text.append(kReplacementUtf8);
      begin = text.size();
      pending.assign(piece.text.substr(taken));
    } else {
      pending.append(piece.text);
    }
    DrainLossy(&pending, &text);
    stretches->Append(begin, text.size(), piece.special);
  }
  if (!pending.empty()) text.append(kReplacementUtf8);
  return text;
}

// Normalizing the text up to each border costs this many bytes at most; beyond it, and where the
// normalizer changes what stands before a border, all of the text counts as user text.
constexpr size_t kMaxBorderBytes = size_t{1} << 28;

}  // namespace

class PipelineTokenizer::Encoding {
 public:
  Encoding(const PipelineTokenizer& tokenizer, std::vector<int32_t>* ids)
      : p_(tokenizer.p_), ids_(ids) {}

  void Run(std::span<const TextPiece> pieces) {
    const std::string text = JoinPieces(pieces, &stretches_);
    if (!p_.raw_tokens) {
      Fragment(text, {0, text.size()});
      return;
    }
    const auto found =
        p_.raw_tokens->FindAll(text, [this](Span span) { return stretches_.Of(span); });
    size_t done = 0;
    for (const AddedTokens::Found& token : found) {
      if (done < token.span.begin) Fragment(text, {done, token.span.begin});
      ids_->push_back(token.id);
      done = token.span.end;
    }
    if (done < text.size()) Fragment(text, {done, text.size()});
  }

 private:
  // Text between added tokens.
  void Fragment(std::string_view text, Span span) {
    const std::string_view fragment = text.substr(span.begin, span.end - span.begin);
    const bool parsed = stretches_.Of(span) == AddedTokens::Stretch::kParsed;
    const Guard guard = parsed ? Guard::kNone : Guard::kNoControl;
    const auto position =
        span.begin == 0 ? PreTokenizer::Position::kStartOfText : PreTokenizer::Position::kLater;
    std::string normalized =
        p_.normalizer.empty() ? std::string(fragment) : p_.normalizer.Apply(fragment, &regex_);
    if (!p_.normalized_tokens) {
      Words(std::move(normalized), guard, position);
      return;
    }
    ParsedStretches stretches;
    if (p_.normalized_tokens->has_special()) stretches = Normalized(text, span, normalized);
    const auto found = p_.normalized_tokens->FindAll(
        normalized, [&stretches](Span match) { return stretches.Of(match); });
    size_t done = 0;
    for (const AddedTokens::Found& token : found) {
      if (done < token.span.begin) {
        Words(normalized.substr(done, token.span.begin - done), guard,
              done == 0 ? position : PreTokenizer::Position::kLater);
      }
      ids_->push_back(token.id);
      done = token.span.end;
    }
    if (done < normalized.size()) {
      Words(normalized.substr(done), guard, done == 0 ? position : PreTokenizer::Position::kLater);
    }
  }

  // The parsed stretches of a fragment in its normalized text.
  ParsedStretches Normalized(std::string_view text, Span span, std::string_view normalized) {
    ParsedStretches stretches;
    std::vector<size_t> borders = stretches_.BordersIn(span);
    if (borders.size() * (span.end - span.begin) > kMaxBorderBytes) return stretches;
    borders.push_back(span.end);
    size_t begin = span.begin;
    size_t normalized_begin = 0;
    for (const size_t border : borders) {
      size_t normalized_end = normalized.size();
      if (border != span.end) {
        const std::string before =
            p_.normalizer.Apply(text.substr(span.begin, border - span.begin), &regex_);
        if (!normalized.starts_with(before)) return {};
        normalized_end = before.size();
      }
      const bool parsed = stretches_.Of({begin, border}) == AddedTokens::Stretch::kParsed;
      stretches.Append(normalized_begin, std::max(normalized_begin, normalized_end),
                       parsed ? SpecialTokens::kParse : SpecialTokens::kAsText);
      begin = border;
      normalized_begin = std::max(normalized_begin, normalized_end);
    }
    return stretches;
  }

  void Words(std::string text, Guard guard, PreTokenizer::Position position) {
    if (text.empty()) return;
    const size_t size = text.size();
    CutText cut{std::move(text), {{0, size}}};
    p_.pre_tokenizer.Apply(position, &regex_, &cut);
    for (const Span& word : cut.words) {
      p_.model->EncodeWord(std::string_view(cut.text).substr(word.begin, word.end - word.begin),
                           guard, &merge_, ids_);
    }
  }

  const PipelineParts& p_;
  std::vector<int32_t>* ids_;
  ParsedStretches stretches_;
  RegexScratch regex_;
  MergeScratch merge_;
};

PipelineTokenizer::PipelineTokenizer(PipelineParts parts) : p_(std::move(parts)) {
  for (int32_t id = 0; id < p_.vocab->size(); ++id) {
    // A spelled token is no shorter than what it stands for.
    if (p_.vocab->Text(id).size() <= max_token_bytes_) continue;
    max_token_bytes_ = std::max(max_token_bytes_, TokenBytes(id).size());
  }
}

std::vector<int32_t> PipelineTokenizer::EncodePieces(std::span<const TextPiece> pieces,
                                                     bool add_special_tokens) const {
  std::vector<int32_t> ids;
  if (add_special_tokens) ids = p_.prefix;
  Encoding(*this, &ids).Run(pieces);
  if (add_special_tokens) ids.insert(ids.end(), p_.suffix.begin(), p_.suffix.end());
  return ids;
}

std::string_view PipelineTokenizer::ShownText(int32_t id) const {
  const auto it = std::lower_bound(
      p_.shown_texts.begin(), p_.shown_texts.end(), id,
      [](const std::pair<int32_t, std::string>& entry, int32_t x) { return entry.first < x; });
  if (it != p_.shown_texts.end() && it->first == id) return it->second;
  return p_.vocab->Text(id);
}

std::string PipelineTokenizer::TokenBytes(int32_t id) const {
  if (!p_.vocab->Has(id)) return {};
  return p_.decoder.TokenBytes(ShownText(id));
}

std::string PipelineTokenizer::TokenText(int32_t id) const {
  return std::string(p_.vocab->Text(id));
}

std::optional<int32_t> PipelineTokenizer::IdOf(std::string_view token_text) const {
  const int32_t id = p_.vocab->Find(token_text);
  if (id == kNoToken) return std::nullopt;
  return id;
}

void PipelineTokenizer::DecodeNext(int32_t id, SkipSpecial skip, DecodeState* state,
                                   std::string* out) const {
  if (!p_.vocab->Has(id)) return;
  const std::string_view text = ShownText(id);
  // The reference library skips by text: a special token that a normalizer changed is shown.
  const bool skipped = IsSpecial(id) && text == p_.vocab->Text(id);
  if (skip == SkipSpecial::kYes && skipped) return;
  p_.decoder.Push(text, state, out);
}

void PipelineTokenizer::DecodeEnd(UnfinishedCharacter last, DecodeState* state,
                                  std::string* out) const {
  p_.decoder.Finish(last, state, out);
}

std::string PipelineTokenizer::Decode(std::span<const int32_t> ids, SkipSpecial skip) const {
  std::string out;
  DecodeState state;
  for (const int32_t id : ids) DecodeNext(id, skip, &state, &out);
  DecodeEnd(UnfinishedCharacter::kReplaced, &state, &out);
  return out;
}

}  // namespace cleave::tok
