#include "model/jinja/text.h"

#include <string.h>  // memmem

#include <algorithm>
#include <utility>

#include "model/jinja/unicode.h"

namespace cleave::jinja {
namespace {

// What a Text weighs besides its bytes.
constexpr uint64_t kTextBytes = sizeof(Text) + 32;

}  // namespace

size_t Text::ByteOf(size_t index) const {
  if (length_ == bytes_.size()) return index;
  size_t byte = 0;
  for (; index > 0; --index) byte += DecodeAt(bytes_, byte).size;
  return byte;
}

size_t Text::CharacterAt(size_t byte) const {
  if (length_ == bytes_.size()) return byte;
  return CountCodePoints(std::string_view(bytes_).substr(0, byte));
}

Origin Text::OriginAt(size_t byte) const {
  const auto range = std::lower_bound(user_.begin(), user_.end(), byte,
                                      [](const ByteRange& r, size_t at) { return r.end <= at; });
  const bool inside = range != user_.end() && range->begin <= byte;
  return inside ? Origin::kUser : Origin::kTemplate;
}

TextBuilder::TextBuilder(Runtime* rt) : rt_(rt), text_(std::make_shared<Text>()) {
  text_->lease_ = Lease(rt);
  text_->lease_.GrowValues(kTextBytes);
}

void TextBuilder::Append(std::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  text_->lease_.GrowText(bytes.size());  // asked before memory is taken
  if (rt_ != nullptr) rt_->PassOver(bytes.size());
  const size_t begin = text_->bytes_.size();
  text_->bytes_ += bytes;
  if (origin == Origin::kTemplate) return;
  auto& user = text_->user_;
  if (!user.empty() && user.back().end == begin) {
    user.back().end += bytes.size();
    return;
  }
  text_->lease_.GrowValues(sizeof(ByteRange));
  user.push_back({begin, begin + bytes.size()});
}

void TextBuilder::Append(const Text& text, size_t begin_byte, size_t end_byte) {
  const std::string_view all = text.view();
  size_t pos = begin_byte;
  auto range = std::lower_bound(text.user_.begin(), text.user_.end(), begin_byte,
                                [](const ByteRange& r, size_t byte) { return r.end <= byte; });
  for (; range != text.user_.end() && range->begin < end_byte; ++range) {
    const size_t from = std::max(range->begin, begin_byte);
    const size_t to = std::min(range->end, end_byte);
    Append(all.substr(pos, from - pos), Origin::kTemplate);
    Append(all.substr(from, to - from), Origin::kUser);
    pos = to;
  }
  if (pos < end_byte) Append(all.substr(pos, end_byte - pos), Origin::kTemplate);
}

TextPtr TextBuilder::Finish(Markup markup) {
  text_->length_ = CountCodePoints(text_->bytes_);
  text_->markup_ = markup;
  return std::exchange(text_, nullptr);
}

size_t FindBytes(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  if (from == text.size()) return std::string_view::npos;
  // glibc's memmem is the two-way algorithm.
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

TextPtr MakeText(Runtime* rt, std::string_view bytes, Origin origin, Markup markup) {
  TextBuilder out(rt);
  out.Append(bytes, origin);
  return out.Finish(markup);
}

TextPtr SliceBytes(Runtime& rt, const TextPtr& text, size_t begin, size_t end) {
  if (begin == 0 && end == text->view().size()) return text;
  TextBuilder out(&rt);
  if (begin < end) out.Append(*text, begin, end);
  return out.Finish(text->markup());
}

TextPtr Join(Runtime& rt, const Text& a, const Text& b) {
  TextBuilder out(&rt);
  out.Append(a);
  out.Append(b);
  return out.Finish();
}

TextPtr Transformed(Runtime& rt, const Text& source, std::string_view bytes) {
  TextBuilder out(&rt);
  if (bytes.size() != source.view().size()) {
    out.Append(bytes, source.origin());
    return out.Finish(source.markup());
  }
  size_t pos = 0;
  for (const ByteRange& range : source.user()) {
    out.Append(bytes.substr(pos, range.begin - pos), Origin::kTemplate);
    out.Append(bytes.substr(range.begin, range.end - range.begin), Origin::kUser);
    pos = range.end;
  }
  out.Append(bytes.substr(pos), Origin::kTemplate);
  return out.Finish(source.markup());
}

}  // namespace cleave::jinja
