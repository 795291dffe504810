// Filters that walk, order and regroup sequences.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>

#include "model/jinja/access.h"
#include "model/jinja/arguments.h"
#include "model/jinja/arithmetic.h"
#include "model/jinja/compare.h"
#include "model/jinja/failure.h"
#include "model/jinja/filters.h"
#include "model/jinja/methods.h"
#include "model/jinja/print.h"
#include "model/jinja/unicode.h"

namespace cleave::jinja {
namespace {

Value ListOf(Runtime& rt, std::vector<Value> items) {
  return MakeSequence(rt, SequenceKind::kList, std::move(items));
}
Value GeneratorOf(Runtime& rt, std::vector<Value> items) {
  return MakeSequence(rt, SequenceKind::kGenerator, std::move(items));
}

// What sorting compares: strings in lower case, unless case matters.
Value SortKey(Runtime& rt, const Value& value, bool case_sensitive) {
  const Text* text = value.text();
  if (text == nullptr || case_sensitive) return value;
  rt.PassOver(text->view().size() * 16);
  return Value(Transformed(rt, *text, MapCase(text->view(), CaseMapping::kLower)));
}

enum class Direction { kAscending, kDescending };

// Positions of `keys` in their stable order.
std::vector<size_t> Order(Runtime& rt, const std::vector<Value>& keys, Direction direction) {
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto less = [&](size_t a, size_t b) {
    if (direction == Direction::kDescending) std::swap(a, b);
    return Compare(rt, CompareOp::kLess, keys[a], keys[b]);
  };
  std::stable_sort(order.begin(), order.end(), less);
  return order;
}

std::vector<Value> Picked(const std::vector<Value>& items, const std::vector<size_t>& order) {
  std::vector<Value> out;
  out.reserve(items.size());
  for (const size_t i : order) out.push_back(items[i]);
  return out;
}

Value LengthFilter(Runtime& /*rt*/, const Value& input, CallArguments call) {
  const Arguments a("length", std::move(call), {});
  const auto length = Length(input);
  if (!length) Fail(fmt::format("object of type '{}' has no len()", TypeName(input)));
  return Value::Count(*length);
}

Value First(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("first", std::move(call), {});
  Cursor cursor(rt, input);
  if (auto item = cursor.Next()) return *std::move(item);
  return Value::UndefinedBecause("No first item, sequence was empty.");
}

// Python's reversed(): items from the back, of what has a length.
std::vector<Value> Reversed(Runtime& rt, const Value& input) {
  const Sequence* sequence = input.sequence();
  if (sequence != nullptr && !sequence->sized()) Fail("'generator' object is not reversible");
  std::vector<Value> items = Collect(rt, input);
  std::reverse(items.begin(), items.end());
  return items;
}

Value Last(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("last", std::move(call), {});
  const Sequence* sequence = input.sequence();
  if (sequence != nullptr && sequence->sized() && !sequence->items().empty()) {
    return sequence->items().back();
  }
  const std::vector<Value> items = Reversed(rt, input);
  if (!items.empty()) return items.front();
  return Value::UndefinedBecause("No last item, sequence was empty.");
}

Value Reverse(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("reverse", std::move(call), {});
  if (input.text() != nullptr) {
    return GetSlice(rt, input, None{}, None{}, Value(static_cast<Int>(-1)));
  }
  std::vector<Value> items = Collect(rt, input);
  std::reverse(items.begin(), items.end());
  const Sequence* sequence = input.sequence();
  const bool walked = sequence != nullptr && !sequence->sized();
  return walked ? ListOf(rt, std::move(items)) : GeneratorOf(rt, std::move(items));
}

Value List(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("list", std::move(call), {});
  return ListOf(rt, Collect(rt, input));
}

Value JoinFilter(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("join", std::move(call), {"d", "attribute"});
  std::vector<Value> items = Collect(rt, input);
  if (const Value* attribute = a.Find(1); attribute != nullptr && !attribute->IsNone()) {
    for (Value& item : items) item = AttributePath(rt, item, *attribute, nullptr);
  }
  const Value* separator = a.Find(0);
  const TextPtr text =
      separator != nullptr ? Str(rt, *separator) : MakeText(&rt, "", Origin::kTemplate);
  return Value(JoinTexts(rt, *text, items));
}

Value Items(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("items", std::move(call), {});
  std::vector<Value> items;
  if (!input.IsUndefined()) {
    if (input.dict() == nullptr) Fail("can only get item pairs from a mapping");
    for (const auto& [key, value] : input.dict()->entries()) {
      items.push_back(MakeSequence(rt, SequenceKind::kTuple, {key, value}));
    }
  }
  return GeneratorOf(rt, std::move(items));
}

Value DictSort(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("dictsort", std::move(call), {"case_sensitive", "by", "reverse"});
  const Text* given = a.TextOrNull(1);
  const std::string_view by = given == nullptr ? "key" : given->view();
  if (by != "key" && by != "value") Fail("You can only sort by either \"key\" or \"value\"");
  FailIfUndefined(input);
  if (input.dict() == nullptr) Fail(fmt::format("'{}' object has no items", TypeName(input)));
  std::vector<Value> pairs;
  std::vector<Value> keys;
  for (const auto& [key, value] : input.dict()->entries()) {
    pairs.push_back(MakeSequence(rt, SequenceKind::kTuple, {key, value}));
    keys.push_back(SortKey(rt, by == "key" ? key : value, a.TruthOr(0, false)));
  }
  const auto direction = a.IntegerOr(2, 0) != 0 ? Direction::kDescending : Direction::kAscending;
  return ListOf(rt, Picked(pairs, Order(rt, keys, direction)));
}

// "a,b.c" sorts by a, then by b.c: the key is a list, compared as Python compares lists.
Value SortKeys(Runtime& rt, const Value& item, const Value& attribute, bool case_sensitive) {
  std::vector<Value> keys;
  const Text* text = attribute.text();
  if (text == nullptr) {
    keys.push_back(SortKey(rt, AttributePath(rt, item, attribute, nullptr), case_sensitive));
    return ListOf(rt, std::move(keys));
  }
  std::string_view rest = text->view();
  while (true) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const Value path = MakeString(rt, rest.substr(0, comma));
    keys.push_back(SortKey(rt, AttributePath(rt, item, path, nullptr), case_sensitive));
    if (comma == rest.size()) break;
    rest.remove_prefix(comma + 1);
  }
  return ListOf(rt, std::move(keys));
}

Value Sort(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("sort", std::move(call), {"reverse", "case_sensitive", "attribute"});
  const std::vector<Value> items = Collect(rt, input);
  std::vector<Value> keys;
  keys.reserve(items.size());
  for (const Value& item : items) {
    keys.push_back(SortKeys(rt, item, a.Or(2, None{}), a.TruthOr(1, false)));
  }
  const auto direction = a.IntegerOr(0, 0) != 0 ? Direction::kDescending : Direction::kAscending;
  return ListOf(rt, Picked(items, Order(rt, keys, direction)));
}

Value Unique(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("unique", std::move(call), {"case_sensitive", "attribute"});
  std::set<std::string> seen;
  Lease lease(&rt);
  std::vector<Value> out;
  for (const Value& item : Collect(rt, input)) {
    const Value key =
        SortKey(rt, AttributePath(rt, item, a.Or(1, None{}), nullptr), a.TruthOr(0, false));
    std::string hash_key = HashKey(key);
    lease.GrowValues(hash_key.size());
    rt.PassOver(hash_key.size());
    if (seen.insert(std::move(hash_key)).second) out.push_back(item);
  }
  return GeneratorOf(rt, std::move(out));
}

Value Extreme(Runtime& rt, const Value& input, const Arguments& a, CompareOp better) {
  const std::vector<Value> items = Collect(rt, input);
  if (items.empty()) return Value::UndefinedBecause("No aggregated item, sequence was empty.");
  const auto key = [&](const Value& item) {
    return SortKey(rt, AttributePath(rt, item, a.Or(1, None{}), nullptr), a.TruthOr(0, false));
  };
  const Value* best = &items.front();
  Value best_key = key(*best);
  for (size_t i = 1; i < items.size(); ++i) {
    Value next_key = key(items[i]);
    if (!Compare(rt, better, next_key, best_key)) continue;
    best = &items[i];
    best_key = std::move(next_key);
  }
  return *best;
}

Value Min(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("min", std::move(call), {"case_sensitive", "attribute"});
  return Extreme(rt, input, a, CompareOp::kLess);
}
Value Max(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("max", std::move(call), {"case_sensitive", "attribute"});
  return Extreme(rt, input, a, CompareOp::kGreater);
}

Value Sum(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("sum", std::move(call), {"attribute", "start"});
  Value total = a.Or(1, Value::Count(0));
  if (total.text() != nullptr) Fail("sum() can't sum strings [use ''.join(seq) instead]");
  const Value attribute = a.Or(0, None{});
  for (const Value& item : Collect(rt, input)) {
    total = Apply(rt, BinaryOp::kAdd, total, AttributePath(rt, item, attribute, nullptr));
  }
  return total;
}

Value GroupBy(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("groupby", std::move(call), {"attribute", "default", "case_sensitive"});
  const Value& attribute = a.Required(0);
  const std::vector<Value> items = Collect(rt, input);
  std::vector<Value> keys;
  keys.reserve(items.size());
  for (const Value& item : items) {
    keys.push_back(SortKey(rt, AttributePath(rt, item, attribute, a.Find(1)), a.TruthOr(2, false)));
  }
  const std::vector<size_t> order = Order(rt, keys, Direction::kAscending);
  std::vector<Value> groups;
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    std::vector<Value> members;
    for (; end < order.size() && Equals(rt, keys[order[begin]], keys[order[end]]); ++end) {
      members.push_back(items[order[end]]);
    }
    if (end == begin) members.push_back(items[order[end++]]);  // a key unlike itself: nan
    // The group is named as its first member spells it.
    const Value name = AttributePath(rt, members.front(), attribute, a.Find(1));
    groups.push_back(
        MakeSequence(rt, SequenceKind::kGroup, {name, ListOf(rt, std::move(members))}));
    begin = end;
  }
  return ListOf(rt, std::move(groups));
}

Value Batch(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("batch", std::move(call), {"linecount", "fill_with"});
  const Int size = a.RequiredInteger(0);
  const Value fill = a.Or(1, None{});
  std::vector<Value> out;
  std::vector<Value> row;
  for (const Value& item : Collect(rt, input)) {
    if (static_cast<Int>(row.size()) == size) out.push_back(ListOf(rt, std::exchange(row, {})));
    row.push_back(item);
  }
  if (row.empty()) return GeneratorOf(rt, std::move(out));
  Lease lease(&rt);
  while (!fill.IsNone() && static_cast<Int>(row.size()) < size) {
    rt.Step();
    lease.GrowValues(sizeof(Value));
    row.push_back(fill);
  }
  out.push_back(ListOf(rt, std::move(row)));
  return GeneratorOf(rt, std::move(out));
}

Value SliceFilter(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("slice", std::move(call), {"slices", "fill_with"});
  const Int given = a.RequiredInteger(0);
  const std::vector<Value> items = Collect(rt, input);
  if (given == 0) Fail("integer division or modulo by zero");
  const Value fill = a.Or(1, None{});
  const size_t slices = ToSize(given);
  const size_t each = slices == 0 ? 0 : items.size() / slices;
  const size_t longer = slices == 0 ? 0 : items.size() % slices;
  std::vector<Value> out;
  size_t begin = 0;
  for (size_t i = 0; i < slices; ++i) {
    const size_t end = begin + each + (i < longer ? 1 : 0);
    std::vector<Value> part(items.begin() + static_cast<std::ptrdiff_t>(begin),
                            items.begin() + static_cast<std::ptrdiff_t>(end));
    if (!fill.IsNone() && i >= longer) part.push_back(fill);
    rt.Step();
    out.push_back(ListOf(rt, std::move(part)));
    begin = end;
  }
  return GeneratorOf(rt, std::move(out));
}

constexpr std::array<Filter, 17> kFilters = {{{"batch", Batch},
                                              {"count", LengthFilter},
                                              {"dictsort", DictSort},
                                              {"first", First},
                                              {"groupby", GroupBy},
                                              {"items", Items},
                                              {"join", JoinFilter},
                                              {"last", Last},
                                              {"length", LengthFilter},
                                              {"list", List},
                                              {"max", Max},
                                              {"min", Min},
                                              {"reverse", Reverse},
                                              {"slice", SliceFilter},
                                              {"sort", Sort},
                                              {"sum", Sum},
                                              {"unique", Unique}}};

}  // namespace

std::span<const Filter> ListFilters() { return kFilters; }

}  // namespace cleave::jinja
