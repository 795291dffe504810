#pragma once
// Arguments: the arguments of a call, bound to parameter names as Python binds them.
//
//   Arguments a("split", std::move(call), {"sep", "maxsplit"});
//   const Int most = a.IntegerOr(1, -1);
// An empty name makes a parameter positional only. Fails on too many, unknown and doubled ones.

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "model/jinja/value.h"

namespace cleave::jinja {

class Arguments {
 public:
  Arguments(std::string_view function, CallArguments call,
            std::initializer_list<std::string_view> names);

  // Null when not given. The others fail when the value has another type.
  [[nodiscard]] const Value* Find(size_t i) const;
  [[nodiscard]] const Value& Required(size_t i) const;
  [[nodiscard]] Value Or(size_t i, const Value& otherwise) const;
  [[nodiscard]] Int RequiredInteger(size_t i) const;
  [[nodiscard]] Int IntegerOr(size_t i, Int otherwise) const;
  [[nodiscard]] bool TruthOr(size_t i, bool otherwise) const;
  // Null when not given or none.
  [[nodiscard]] const Text* TextOrNull(size_t i) const;
  [[nodiscard]] const TextPtr& RequiredText(size_t i) const;

 private:
  std::string_view function_;
  std::vector<std::string_view> names_;
  std::vector<std::optional<Value>> bound_;
};

// Clamped to what a size can be; negative becomes 0.
size_t ToSize(Int value);

}  // namespace cleave::jinja
