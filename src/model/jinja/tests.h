#pragma once
// Jinja's tests: `value is name(arguments)`. One thread, the render's.

#include <string_view>

#include "model/jinja/value.h"

namespace cleave::jinja {

using TestFunction = bool (*)(Runtime& rt, const Value& subject, CallArguments arguments);

struct Test {
  std::string_view name;
  TestFunction function;
};

// Null when there is none.
const Test* FindTest(std::string_view name);

}  // namespace cleave::jinja
