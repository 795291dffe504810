#include "model/tokenizer/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/rng.h"
#include "model/tokenizer/unicode_class.h"
#include "model/tokenizer/utf8.h"

namespace cleave::tok {

Result<AddedTokens> AddedTokens::Create(std::vector<AddedToken> tokens, Disallowed disallowed) {
  AddedTokens set;
  size_t bytes = 0;
  for (const AddedToken& token : tokens) {
    if (token.text.empty()) return DataLoss(fmt::format("added token {} has no text", token.id));
    if (token.text.size() > kMaxAddedTokenBytes) {
      return DataLoss(fmt::format("added token {} has {} bytes, more than {}", token.id,
                                  token.text.size(), kMaxAddedTokenBytes));
    }
    bytes += token.text.size();
    set.has_special_ = set.has_special_ || token.special;
  }
  set.tokens_ = std::move(tokens);
  set.disallowed_ = disallowed;
  set.edges_.resize(std::bit_ceil(std::max<size_t>(2 * bytes, 16)));
  set.token_at_node_.push_back(-1);
  for (size_t i = 0; i < set.tokens_.size(); ++i) {
    set.Insert(set.tokens_[i].text, static_cast<int32_t>(i));
  }
  return set;
}

size_t AddedTokens::EdgeSlot(uint32_t node, unsigned char byte) const {
  const size_t mask = edges_.size() - 1;
  size_t i = MixBits((uint64_t{node} << 8U) | byte) & mask;
  while (edges_[i].to != 0 && (edges_[i].node != node || edges_[i].byte != byte)) {
    i = (i + 1) & mask;
  }
  return i;
}

void AddedTokens::Insert(std::string_view text, int32_t index) {
  starts_[static_cast<unsigned char>(text[0])] = true;
  uint32_t node = 0;
  for (const char c : text) {
    Edge& edge = edges_[EdgeSlot(node, static_cast<unsigned char>(c))];
    if (edge.to == 0) {
      edge = {node, static_cast<uint32_t>(token_at_node_.size()), static_cast<unsigned char>(c)};
      token_at_node_.push_back(-1);
    }
    node = edge.to;
  }
  if (token_at_node_[node] < 0) token_at_node_[node] = index;
}

void AddedTokens::MatchesAt(std::string_view text, size_t at, std::vector<int32_t>* found) const {
  found->clear();
  uint32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    node = edges_[EdgeSlot(node, static_cast<unsigned char>(text[i]))].to;
    if (node == 0) return;
    if (token_at_node_[node] >= 0) found->push_back(token_at_node_[node]);
  }
}

bool AddedTokens::StandsAlone(std::string_view text, Span span) const {
  if (span.begin > 0 && IsWordChar(CodePointBefore(text, span.begin))) return false;
  size_t end = span.end;
  return end == text.size() || !IsWordChar(NextCodePoint(text, &end));
}

Span AddedTokens::WithBlanks(std::string_view text, Span span, const AddedToken& token,
                             size_t not_before) const {
  if (token.lstrip && span.begin > not_before) {
    span.begin -= TrailingBlanks(text.substr(not_before, span.begin - not_before));
  }
  if (token.rstrip) span.end += LeadingBlanks(text.substr(span.end));
  return span;
}

// At each place the longest token counts. One that may not stand there (a special token in user
// text, or beside a word character) leaves its text as text; a special token across the border of
// a parsed stretch gives way to a shorter one, so that user text can not hide a template's marker.
std::vector<AddedTokens::Found> AddedTokens::FindAll(std::string_view text,
                                                     const StretchOf& stretch_of) const {
  std::vector<Found> all;
  if (tokens_.empty()) return all;
  std::vector<int32_t> here;
  size_t done = 0;  // end of the match before
  size_t at = 0;
  while (at < text.size()) {
    size_t step = 1;
    if (starts_[static_cast<unsigned char>(text[at])]) MatchesAt(text, at, &here);
    // The search goes on behind the token itself: one inside the blanks it took still counts.
    for (; !here.empty(); here.pop_back()) {
      const AddedToken& token = tokens_[here.back()];
      const Span span{at, at + token.text.size()};
      if (token.special) {
        const Stretch stretch = stretch_of(span);
        if (stretch == Stretch::kBoth) continue;
        if (stretch == Stretch::kAsText && disallowed_ == Disallowed::kIgnore) continue;
        if (stretch == Stretch::kAsText) step = span.end - at;
        if (stretch == Stretch::kAsText) break;
      }
      step = span.end - at;
      if (token.single_word && !StandsAlone(text, span)) break;
      const Span taken = WithBlanks(text, span, token, done);
      all.push_back({taken, token.id});
      done = taken.end;
      break;
    }
    here.clear();
    at += step;
  }
  return all;
}

}  // namespace cleave::tok
