// Filters that apply another filter or a test to every item.
#include <fmt/core.h>

#include <array>

#include "model/jinja/access.h"
#include "model/jinja/failure.h"
#include "model/jinja/filters.h"
#include "model/jinja/print.h"
#include "model/jinja/tests.h"

namespace cleave::jinja {
namespace {

Value TakeNamed(CallArguments& call, std::string_view name) {
  for (auto at = call.named.begin(); at != call.named.end(); ++at) {
    if (at->first != name) continue;
    Value value = std::move(at->second);
    call.named.erase(at);
    return value;
  }
  return None{};
}

Value TakeFirst(CallArguments& call, std::string_view missing) {
  if (call.positional.empty()) Fail(std::string(missing));
  Value first = std::move(call.positional.front());
  call.positional.erase(call.positional.begin());
  return first;
}

Value Map(Runtime& rt, const Value& input, CallArguments call) {
  std::vector<Value> out;
  if (!Truthy(input)) return MakeSequence(rt, SequenceKind::kGenerator, {});
  const Value attribute = call.positional.empty() ? TakeNamed(call, "attribute") : Value(None{});
  if (!attribute.IsNone()) {
    const Value otherwise = TakeNamed(call, "default");
    if (!call.named.empty()) {
      Fail(fmt::format("map: unexpected keyword argument '{}'", call.named.front().first));
    }
    for (const Value& item : Collect(rt, input)) {
      out.push_back(AttributePath(rt, item, attribute, &otherwise));
    }
    return MakeSequence(rt, SequenceKind::kGenerator, std::move(out));
  }
  const Value name = TakeFirst(call, "map requires a filter argument");
  const std::string_view filter_name = NeedText(name, "the name of the filter")->view();
  const Filter* filter = FindFilter(filter_name);
  if (filter == nullptr) Fail(FilterProblem(filter_name));
  for (const Value& item : Collect(rt, input)) {
    const Nesting nesting(rt);
    out.push_back(filter->function(rt, item, call));
  }
  return MakeSequence(rt, SequenceKind::kGenerator, std::move(out));
}

enum class Keep { kMatching, kOthers };
enum class Subject { kItem, kAttribute };

template <Keep kKeep, Subject kSubject>
Value Select(Runtime& rt, const Value& input, CallArguments call) {
  if (!Truthy(input)) return MakeSequence(rt, SequenceKind::kGenerator, {});
  Value attribute = None{};
  if (kSubject == Subject::kAttribute) {
    attribute = TakeFirst(call, "missing parameter for attribute name");
  }
  const Test* test = nullptr;
  if (!call.positional.empty()) {
    const Value name = TakeFirst(call, "");
    const std::string_view test_name = NeedText(name, "the name of the test")->view();
    test = FindTest(test_name);
    if (test == nullptr) Fail(fmt::format("no test named '{}'", test_name.substr(0, 80)));
  }
  std::vector<Value> out;
  for (const Value& item : Collect(rt, input)) {
    const Value subject = AttributePath(rt, item, attribute, nullptr);
    const bool matches = test == nullptr ? Truthy(subject) : test->function(rt, subject, call);
    if (matches == (kKeep == Keep::kMatching)) out.push_back(item);
  }
  return MakeSequence(rt, SequenceKind::kGenerator, std::move(out));
}

constexpr std::array<Filter, 5> kFilters = {
    {{"map", Map},
     {"reject", Select<Keep::kOthers, Subject::kItem>},
     {"rejectattr", Select<Keep::kOthers, Subject::kAttribute>},
     {"select", Select<Keep::kMatching, Subject::kItem>},
     {"selectattr", Select<Keep::kMatching, Subject::kAttribute>}}};

}  // namespace

std::span<const Filter> SelectFilters() { return kFilters; }

}  // namespace cleave::jinja
