#pragma once
// Reaching into values: attributes, items, slices, iteration. One thread, the render's.
// As in Jinja, what is not there is undefined, and only using the undefined value fails.

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "model/jinja/value.h"

namespace cleave::jinja {

// Fails with the reason when the value is undefined.
void FailIfUndefined(const Value& value);

// value.name: Python's attributes (methods) first, then items.
Value GetAttribute(Runtime& rt, const Value& value, std::string_view name);
// value[key]: items first, then attributes.
Value GetItem(Runtime& rt, const Value& value, const Value& key);
// value[start:stop:step]; none for a part left out.
Value GetSlice(Runtime& rt, const Value& value, const Value& start, const Value& stop,
               const Value& step);
// Only Python's attributes; nothing when there is none.
std::optional<Value> FindAttribute(Runtime& rt, const Value& value, std::string_view name);

bool IsIterable(const Value& value);

// Walks a value as Python's iter() does: keys of a dict, characters of a string.
class Cursor {
 public:
  // Fails when the value is not iterable.
  Cursor(Runtime& rt, Value value);
  std::optional<Value> Next();

 private:
  Runtime& rt_;
  Value value_;
  size_t pos_ = 0;  // item, or byte of a string
};

std::vector<Value> Collect(Runtime& rt, const Value& value);

}  // namespace cleave::jinja
