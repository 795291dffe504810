#include "model/jinja/methods.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "model/jinja/access.h"
#include "model/jinja/arguments.h"
#include "model/jinja/compare.h"
#include "model/jinja/failure.h"

namespace cleave::jinja {
namespace {

class BoundMethod : public Object {
 public:
  BoundMethod(const Runtime& rt, const Value& self, const Method* method)
      : Object(DepthAbove(rt, DepthOf(self))), self_(self), method_(method) {}

  std::string_view type_name() const override { return "method"; }
  bool callable() const override { return true; }
  Value Call(Runtime& rt, CallArguments arguments) override {
    return method_->function(rt, self_, std::move(arguments));
  }

 private:
  Value self_;
  const Method* method_;
};

Value DictGet(Runtime& /*rt*/, const Value& self, CallArguments call) {
  const Arguments a("get", std::move(call), {"", ""});
  const Value* found = self.dict()->Find(a.Required(0));
  return found != nullptr ? *found : a.Or(1, None{});
}

Value DictItems(Runtime& rt, const Value& self, CallArguments call) {
  const Arguments a("items", std::move(call), {});
  std::vector<Value> items;
  items.reserve(self.dict()->entries().size());
  for (const auto& [key, value] : self.dict()->entries()) {
    items.push_back(MakeSequence(rt, SequenceKind::kTuple, {key, value}));
  }
  return MakeSequence(rt, SequenceKind::kItems, std::move(items));
}

Value DictKeys(Runtime& rt, const Value& self, CallArguments call) {
  const Arguments a("keys", std::move(call), {});
  std::vector<Value> items;
  items.reserve(self.dict()->entries().size());
  for (const auto& entry : self.dict()->entries()) items.push_back(entry.first);
  return MakeSequence(rt, SequenceKind::kKeys, std::move(items));
}

Value DictValues(Runtime& rt, const Value& self, CallArguments call) {
  const Arguments a("values", std::move(call), {});
  std::vector<Value> items;
  items.reserve(self.dict()->entries().size());
  for (const auto& entry : self.dict()->entries()) items.push_back(entry.second);
  return MakeSequence(rt, SequenceKind::kValues, std::move(items));
}

Value Copy(Runtime& /*rt*/, const Value& self, CallArguments call) {
  const Arguments a("copy", std::move(call), {});
  return self;  // nothing changes it, so it is its own copy
}

Value SequenceIndex(Runtime& rt, const Value& self, CallArguments call) {
  const Arguments a("index", std::move(call), {"", "", ""});
  const auto& items = self.sequence()->items();
  const auto size = static_cast<Int>(items.size());
  const auto bound = [&](Int i) { return ToSize(std::min(size, i < 0 ? i + size : i)); };
  const size_t end = bound(a.IntegerOr(2, size));
  for (size_t i = bound(a.IntegerOr(1, 0)); i < end; ++i) {
    if (Equals(rt, items[i], a.Required(0))) return Value::Count(i);
  }
  Fail("the value is not in the list");
}

Value SequenceCount(Runtime& rt, const Value& self, CallArguments call) {
  const Arguments a("count", std::move(call), {""});
  size_t count = 0;
  for (const Value& item : self.sequence()->items()) {
    if (Equals(rt, item, a.Required(0))) ++count;
  }
  return Value::Count(count);
}

constexpr std::array<Method, 5> kDictMethods = {{{"copy", Copy},
                                                 {"get", DictGet},
                                                 {"items", DictItems},
                                                 {"keys", DictKeys},
                                                 {"values", DictValues}}};
constexpr std::array<Method, 3> kListMethods = {
    {{"copy", Copy}, {"count", SequenceCount}, {"index", SequenceIndex}}};
constexpr std::array<Method, 2> kTupleMethods = {
    {{"count", SequenceCount}, {"index", SequenceIndex}}};
constexpr std::array<std::string_view, 5> kDictMutators = {"clear", "pop", "popitem", "setdefault",
                                                           "update"};
constexpr std::array<std::string_view, 8> kListMutators = {"append", "clear",  "extend",  "insert",
                                                           "pop",    "remove", "reverse", "sort"};

template <typename Table>
const Method* FindIn(const Table& table, std::string_view name) {
  const auto at = std::find_if(table.begin(), table.end(),
                               [&](const Method& method) { return method.name == name; });
  return at == table.end() ? nullptr : &*at;
}

template <typename Names>
bool Has(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const Method* FindEntry(const Value& self, std::string_view name) {
  if (self.text() != nullptr) return FindTextMethod(name);
  if (self.dict() != nullptr) return FindIn(kDictMethods, name);
  const Sequence* sequence = self.sequence();
  if (sequence == nullptr) return nullptr;
  if (sequence->kind() == SequenceKind::kList) return FindIn(kListMethods, name);
  const bool tuple = sequence->is_tuple() || sequence->kind() == SequenceKind::kRange;
  return tuple ? FindIn(kTupleMethods, name) : nullptr;
}

bool IsMutator(const Value& self, std::string_view name) {
  if (self.dict() != nullptr) return Has(kDictMutators, name);
  const Sequence* sequence = self.sequence();
  return sequence != nullptr && sequence->kind() == SequenceKind::kList && Has(kListMutators, name);
}

std::optional<Value> GroupAttribute(const Value& self, std::string_view name) {
  const Sequence* sequence = self.sequence();
  if (sequence == nullptr || sequence->kind() != SequenceKind::kGroup) return std::nullopt;
  if (name == "grouper") return sequence->items()[0];
  if (name == "list") return sequence->items()[1];
  return std::nullopt;
}

}  // namespace

std::optional<Value> FindMethod(Runtime& rt, const Value& self, std::string_view name) {
  rt.Step();
  if (auto field = GroupAttribute(self, name)) return field;
  if (const Method* method = FindEntry(self, name)) {
    return Value(ObjectPtr(std::make_shared<BoundMethod>(rt, self, method)));
  }
  if (!IsMutator(self, name)) return std::nullopt;
  return Value::UndefinedBecause(fmt::format(
      "access to attribute '{}' of '{}' object is unsafe: templates may not change values", name,
      TypeName(self)));
}

}  // namespace cleave::jinja
