#include "model/jinja/arguments.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "model/jinja/access.h"
#include "model/jinja/failure.h"
#include "model/jinja/print.h"

namespace cleave::jinja {

Arguments::Arguments(std::string_view function, CallArguments call,
                     std::initializer_list<std::string_view> names)
    : function_(function), names_(names), bound_(names.size()) {
  if (call.positional.size() > names_.size()) {
    Fail(fmt::format("{}() takes at most {} argument(s), got {}", function_, names_.size(),
                     call.positional.size()));
  }
  for (size_t i = 0; i < call.positional.size(); ++i) bound_[i] = std::move(call.positional[i]);
  for (auto& [name, value] : call.named) {
    const auto at = std::find(names_.begin(), names_.end(), name);
    if (at == names_.end() || name.empty()) {
      Fail(fmt::format("{}() takes no keyword argument '{}'", function_, name));
    }
    auto& slot = bound_[static_cast<size_t>(at - names_.begin())];
    if (slot) Fail(fmt::format("{}() got two values for argument '{}'", function_, name));
    slot = std::move(value);
  }
}

const Value* Arguments::Find(size_t i) const { return bound_[i] ? &*bound_[i] : nullptr; }

const Value& Arguments::Required(size_t i) const {
  if (!bound_[i]) Fail(fmt::format("{}() needs at least {} argument(s)", function_, i + 1));
  return *bound_[i];
}

Value Arguments::Or(size_t i, const Value& otherwise) const {
  return bound_[i] ? *bound_[i] : otherwise;
}

Int Arguments::IntegerOr(size_t i, Int otherwise) const {
  if (!bound_[i]) return otherwise;
  if (const Int* integer = bound_[i]->As<Int>()) return *integer;
  if (const bool* b = bound_[i]->As<bool>()) return *b ? 1 : 0;
  Fail(fmt::format("{}(): argument {} must be an integer, not '{}'", function_, i + 1,
                   TypeName(*bound_[i])));
}

Int Arguments::RequiredInteger(size_t i) const {
  FailIfUndefined(Required(i));
  return IntegerOr(i, 0);
}

bool Arguments::TruthOr(size_t i, bool otherwise) const {
  return bound_[i] ? Truthy(*bound_[i]) : otherwise;
}

const Text* Arguments::TextOrNull(size_t i) const {
  if (!bound_[i] || bound_[i]->IsNone()) return nullptr;
  return RequiredText(i).get();
}

const TextPtr& Arguments::RequiredText(size_t i) const {
  const Value& value = Required(i);
  FailIfUndefined(value);
  return NeedText(value, fmt::format("{}(): argument {}", function_, i + 1));
}

size_t ToSize(Int value) {
  constexpr Int kMost = std::numeric_limits<int64_t>::max();
  return static_cast<size_t>(std::clamp<Int>(value, 0, kMost));
}

}  // namespace cleave::jinja
