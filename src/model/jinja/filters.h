#pragma once
// The filters of Jinja that templates of text use, with the signatures Jinja gives them.
// One thread, the render's.

#include <span>
#include <string_view>

#include "model/jinja/value.h"

namespace cleave::jinja {

using FilterFunction = Value (*)(Runtime& rt, const Value& input, CallArguments arguments);

struct Filter {
  std::string_view name;
  FilterFunction function;
};

// Null when there is none; FilterProblem then says why.
const Filter* FindFilter(std::string_view name);
std::string FilterProblem(std::string_view name);

// The parts of the table, each in its own file.
std::span<const Filter> TextFilters();
std::span<const Filter> ListFilters();
std::span<const Filter> NumberFilters();
std::span<const Filter> SelectFilters();

// item.a.b for the attribute argument of map, sort, selectattr, …: parts are separated by dots,
// digits are list positions. `otherwise` replaces what is undefined, unless null or none.
Value AttributePath(Runtime& rt, const Value& item, const Value& path, const Value* otherwise);

}  // namespace cleave::jinja
