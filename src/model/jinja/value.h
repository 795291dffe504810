#pragma once
// Value: what an expression of a template evaluates to, with Python's types and meaning.
//
// Owner: values share what they refer to within one render; one thread.
// Lists, tuples and dicts never change once made (the sandbox is immutable); only Objects do.
// Integers are 128 bits wide, which holds every JSON integer; running over is an error.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "model/jinja/runtime.h"
#include "model/jinja/text.h"

namespace cleave::jinja {

__extension__ typedef __int128 Int;
// The one value beyond -kIntMax, whose negation does not fit, is never made.
constexpr Int kIntMax = ((static_cast<Int>(1) << 126) - 1) * 2 + 1;

class Dict;
class Object;
class Sequence;
// shared: values are copied freely between variables, lists and loops.
using SequencePtr = std::shared_ptr<const Sequence>;
using DictPtr = std::shared_ptr<const Dict>;
using ObjectPtr = std::shared_ptr<Object>;

struct Undefined {
  std::shared_ptr<const std::string> why;  // "'x' is undefined"; shared: copies of the value
};
struct None {};

class Value {
 public:
  Value() = default;                 // undefined
  Value(None none) : data_(none) {}  // NOLINT
  explicit Value(bool b) : data_(b) {}
  explicit Value(Int i) : data_(i) {}
  explicit Value(double d) : data_(d) {}
  Value(TextPtr text) : data_(std::move(text)) {}              // NOLINT
  Value(SequencePtr sequence) : data_(std::move(sequence)) {}  // NOLINT
  Value(DictPtr dict) : data_(std::move(dict)) {}              // NOLINT
  Value(ObjectPtr object) : data_(std::move(object)) {}        // NOLINT

  static Value UndefinedBecause(std::string why);
  static Value Count(size_t n) { return Value(static_cast<Int>(n)); }

  [[nodiscard]] bool IsUndefined() const { return std::holds_alternative<Undefined>(data_); }
  [[nodiscard]] bool IsNone() const { return std::holds_alternative<None>(data_); }
  template <typename T>
  [[nodiscard]] const T* As() const {
    return std::get_if<T>(&data_);
  }
  // Null unless the value is one.
  [[nodiscard]] const Text* text() const { return Pointee<TextPtr>(); }
  [[nodiscard]] const Sequence* sequence() const { return Pointee<SequencePtr>(); }
  [[nodiscard]] const Dict* dict() const { return Pointee<DictPtr>(); }
  [[nodiscard]] Object* object() const { return Pointee<ObjectPtr>(); }

  // Numbers, booleans and none carry their origin here; a Text carries its own.
  [[nodiscard]] Origin origin() const { return origin_; }
  [[nodiscard]] Value From(Origin origin) &&;

 private:
  template <typename P>
  [[nodiscard]] auto Pointee() const -> decltype(std::declval<const P&>().get()) {
    const P* p = std::get_if<P>(&data_);
    return p == nullptr ? nullptr : p->get();
  }

  std::variant<Undefined, None, bool, Int, double, TextPtr, SequencePtr, DictPtr, ObjectPtr> data_;
  Origin origin_ = Origin::kTemplate;
};

enum class SequenceKind : uint8_t {
  kList,
  kTuple,
  kGroup,  // tuple of groupby: .grouper and .list
  kRange,
  kKeys,  // views of a dict: sized, but not subscriptable
  kValues,
  kItems,
  kGenerator,  // can be walked once
};

class Sequence {
 public:
  Sequence(Runtime& rt, SequenceKind kind, std::vector<Value> items);
  // A range knows how it was written.
  Sequence(Runtime& rt, std::string range, std::vector<Value> items)
      : Sequence(rt, SequenceKind::kRange, std::move(items)) {
    range_ = std::move(range);
  }

  [[nodiscard]] SequenceKind kind() const { return kind_; }
  [[nodiscard]] const std::vector<Value>& items() const { return items_; }
  [[nodiscard]] const std::string& range() const { return range_; }  // empty for a part of one
  [[nodiscard]] uint32_t depth() const { return depth_; }            // 1 + the deepest item's
  [[nodiscard]] bool subscriptable() const { return kind_ <= SequenceKind::kRange; }
  [[nodiscard]] bool sized() const { return kind_ != SequenceKind::kGenerator; }
  [[nodiscard]] bool is_tuple() const {
    return kind_ == SequenceKind::kTuple || kind_ == SequenceKind::kGroup;
  }
  [[nodiscard]] bool hashable() const { return hashable_; }
  // Next item nobody has taken from a generator yet; null at its end.
  [[nodiscard]] const Value* Take() const;

 private:
  SequenceKind kind_;
  std::string range_;
  bool hashable_ = false;
  uint32_t depth_ = 1;
  mutable size_t taken_ = 0;  // generators only: walking one is what uses it up
  std::vector<Value> items_;
  Lease lease_;
};

class Dict {
 public:
  explicit Dict(Runtime& rt) : rt_(rt), lease_(&rt) {}

  // While it is being made. A key that is there already keeps its place and gets the new value.
  void Set(Value key, Value value);
  void Set(std::string_view key, Value value);

  [[nodiscard]] const std::vector<std::pair<Value, Value>>& entries() const { return entries_; }
  // Null when absent. Fails on keys that Python cannot hash.
  [[nodiscard]] const Value* Find(const Value& key) const;
  [[nodiscard]] const Value* Find(std::string_view key) const;
  [[nodiscard]] uint32_t depth() const { return depth_; }

 private:
  [[nodiscard]] std::optional<size_t> PositionOf(const std::string& hash_key) const;
  void Insert(std::string hash_key, Value key, Value value);

  Runtime& rt_;
  uint32_t depth_ = 1;
  std::vector<std::pair<Value, Value>> entries_;
  // HashKey of a key -> index in entries_. Ordered: keys come from callers, who could make a hash
  // table slow.
  std::map<std::string, size_t> positions_;
  Lease lease_;
};

struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Everything else: functions, macros, bound methods, namespaces, the loop variable.
// Chains of values come apart by recursion, so their length is bounded: an object that holds values
// says how deep they are, or the Runtime keeps it to the end (then its depth is 0).
class Object : public Droppable {
 public:
  explicit Object(uint32_t depth = 0) : depth_(depth) {}
  [[nodiscard]] uint32_t depth() const { return depth_; }
  [[nodiscard]] virtual std::string_view type_name() const = 0;
  [[nodiscard]] virtual std::string Repr(Runtime& rt);
  // Nothing when there is no such attribute.
  [[nodiscard]] virtual std::optional<Value> Attribute(Runtime& rt, std::string_view name);
  [[nodiscard]] virtual bool callable() const { return false; }
  virtual Value Call(Runtime& rt, CallArguments arguments);

 private:
  uint32_t depth_;
};

// Python's name of the type: "str", "dict", "NoneType".
std::string_view TypeName(const Value& value);
bool Truthy(const Value& value);
// Nothing when Python's len() would refuse.
std::optional<size_t> Length(const Value& value);
bool IsHashable(const Value& value);
// A string that two values share when Python takes them for the same key (1, 1.0 and True are).
std::string HashKey(const Value& value);
// Nesting depth of what holds values; 0 for anything else.
uint32_t DepthOf(const Value& value);
// The depth of something that holds values up to `depth` deep; fails beyond max_depth.
uint32_t DepthAbove(const Runtime& rt, uint32_t depth);
// kUser when any string or number in it is from the caller.
Origin OriginOf(Runtime& rt, const Value& value);

Value MakeString(Runtime& rt, std::string_view bytes, Origin origin = Origin::kTemplate);
Value MakeSequence(Runtime& rt, SequenceKind kind, std::vector<Value> items);

}  // namespace cleave::jinja
