#pragma once
// Text: an immutable string that knows which of its bytes came from the caller.
//
// Owner: shared by the values that hold it. Threads: a literal of a compiled template is read by
// all renders; any other belongs to its render.
// Characters are code points; offsets named `byte` count bytes.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/jinja/runtime.h"

namespace cleave::jinja {

enum class Origin : uint8_t { kTemplate, kUser };
// Markup is what `safe` and `escape` give: adding a plain string to it escapes the plain one.
enum class Markup : uint8_t { kNo, kYes };

struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
};

class Text {
 public:
  [[nodiscard]] std::string_view view() const { return bytes_; }
  [[nodiscard]] size_t length() const { return length_; }  // code points
  [[nodiscard]] Markup markup() const { return markup_; }
  // Ranges of bytes from the caller: sorted, not empty, not touching.
  [[nodiscard]] const std::vector<ByteRange>& user() const { return user_; }
  [[nodiscard]] bool has_user() const { return !user_.empty(); }
  // kUser when any byte is.
  [[nodiscard]] Origin origin() const { return has_user() ? Origin::kUser : Origin::kTemplate; }
  [[nodiscard]] Origin OriginAt(size_t byte) const;
  // Byte where character `index` begins; index <= length().
  [[nodiscard]] size_t ByteOf(size_t index) const;
  // Character that begins at `byte`.
  [[nodiscard]] size_t CharacterAt(size_t byte) const;

 private:
  friend class TextBuilder;

  std::string bytes_;
  std::vector<ByteRange> user_;
  size_t length_ = 0;
  Markup markup_ = Markup::kNo;
  Lease lease_;
};

// shared: strings are values, copied between variables and lists without copying their bytes.
using TextPtr = std::shared_ptr<const Text>;

class TextBuilder {
 public:
  // Without a Runtime (nullptr) nothing is counted: for the compiled template's own text.
  explicit TextBuilder(Runtime* rt);

  void Append(std::string_view bytes, Origin origin);
  void Append(const Text& text) { Append(text, 0, text.view().size()); }
  void Append(const Text& text, size_t begin_byte, size_t end_byte);

  [[nodiscard]] size_t size() const { return text_->bytes_.size(); }
  [[nodiscard]] std::string_view view() const { return text_->bytes_; }
  // Hands the text out; the builder is then empty and must not be used again.
  TextPtr Finish(Markup markup = Markup::kNo);

 private:
  Runtime* rt_;
  std::shared_ptr<Text> text_;  // shared: becomes the TextPtr
};

// Where `needle` first stands at or after `from`, else npos. Linear in both sizes, which
// string_view::find is not.
size_t FindBytes(std::string_view text, std::string_view needle, size_t from);

TextPtr MakeText(Runtime* rt, std::string_view bytes, Origin origin, Markup markup = Markup::kNo);
// Bytes [begin, end) with their origins; the same object when that is all of it.
TextPtr SliceBytes(Runtime& rt, const TextPtr& text, size_t begin, size_t end);
TextPtr Join(Runtime& rt, const Text& a, const Text& b);
// A text that replaces `source` as a whole: keeps its ranges when the size is unchanged, else
// counts as user text if any of the source was.
TextPtr Transformed(Runtime& rt, const Text& source, std::string_view bytes);

}  // namespace cleave::jinja
