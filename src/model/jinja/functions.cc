// The global names of templates: Jinja's own and those Hugging Face adds.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>

#include "model/jinja/access.h"
#include "model/jinja/arguments.h"
#include "model/jinja/failure.h"
#include "model/jinja/interpreter.h"
#include "model/jinja/numbers.h"
#include "model/jinja/print.h"

namespace cleave::jinja {
namespace {

using FunctionBody = Value (*)(Runtime& rt, CallArguments call);

class Function : public Object {
 public:
  Function(std::string_view name, FunctionBody body) : name_(name), body_(body) {}

  std::string_view type_name() const override { return "function"; }
  std::string Repr(Runtime& /*rt*/) override { return fmt::format("<function {}>", name_); }
  bool callable() const override { return true; }
  Value Call(Runtime& rt, CallArguments call) override { return body_(rt, std::move(call)); }

 private:
  std::string_view name_;
  FunctionBody body_;
};

Value Range(Runtime& rt, CallArguments call) {
  const Arguments a("range", std::move(call), {"", "", ""});
  const bool one = a.Find(1) == nullptr;
  const Int start = one ? 0 : a.RequiredInteger(0);
  const Int stop = a.RequiredInteger(one ? 0 : 1);
  const Int step = a.IntegerOr(2, 1);
  if (step == 0) Fail("range() arg 3 must not be zero");
  constexpr Int kMaxItems = 100'000;  // the sandbox's own bound
  constexpr Int kFar = static_cast<Int>(1) << 100;
  if (start > kFar || start < -kFar || stop > kFar || stop < -kFar) {
    FailBound("range() of numbers beyond 100 bits");
  }
  const Int span = step > 0 ? stop - start : start - stop;
  const Int stride = step > 0 ? step : -step;
  const Int count = span > 0 ? (span - 1) / stride + 1 : 0;
  if (count > kMaxItems) {
    FailBound(fmt::format("range() of {} items: at most {} are allowed", IntToString(count),
                          IntToString(kMaxItems)));
  }
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(count));
  for (Int i = 0; i < count; ++i) items.emplace_back(Value(static_cast<Int>(start + i * step)));
  std::string text = fmt::format("range({}, {}", IntToString(start), IntToString(stop));
  text += step == 1 ? ")" : fmt::format(", {})", IntToString(step));
  return Value(
      SequencePtr(std::make_shared<const Sequence>(rt, std::move(text), std::move(items))));
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): every function has this signature
Value MakeNamespace(Runtime& rt, CallArguments call) {
  auto names = std::make_shared<Namespace>();
  const DictPtr dict = DictFromArguments(rt, "namespace", call);
  for (const auto& [key, value] : dict->entries()) {
    if (const Text* name = key.text()) names->Set(name->view(), value);
  }
  rt.Keep(names);  // it may come to hold itself
  return Value(ObjectPtr(std::move(names)));
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): every function has this signature
Value MakeDict(Runtime& rt, CallArguments call) {
  return Value(DictFromArguments(rt, "dict", call));
}

Value RaiseException(Runtime& rt, CallArguments call) {
  const Arguments a("raise_exception", std::move(call), {"message"});
  throw Failure(StatusCode::kInvalidArgument, std::string(Str(rt, a.Required(0))->view()),
                Located::kYes);
}

struct LocalTime {
  std::tm calendar{};
  int64_t microseconds = 0;
};

// One directive ("%d", "%-d", "%f") of strftime.
std::string FormatTime(std::string_view directive, const LocalTime& now) {
  if (directive == "%f") return fmt::format("{:06}", now.microseconds);
  if (directive == "%z" || directive == "%Z") return "";  // Python's local time names no zone
  std::array<char, 256> buffer{};
  const std::string format(directive);
  const size_t size = std::strftime(buffer.data(), buffer.size(), format.c_str(), &now.calendar);
  return {buffer.data(), size};
}

LocalTime Now(const Runtime& rt) {
  LocalTime now;
  if (const auto fixed = rt.fixed_time_s()) {
    const auto seconds = static_cast<std::time_t>(*fixed);
    gmtime_r(&seconds, &now.calendar);
    return now;
  }
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  const int64_t all = std::chrono::duration_cast<std::chrono::microseconds>(since).count();
  constexpr int64_t kPerSecond = 1'000'000;
  const auto seconds = static_cast<std::time_t>(all / kPerSecond);
  localtime_r(&seconds, &now.calendar);
  now.microseconds = all % kPerSecond;
  return now;
}

Value StrftimeNow(Runtime& rt, CallArguments call) {
  const Arguments a("strftime_now", std::move(call), {"format"});
  const TextPtr& format = a.RequiredText(0);
  const LocalTime now = Now(rt);
  const std::string_view pattern = format->view();
  TextBuilder out(&rt);
  for (size_t pos = 0; pos < pattern.size();) {
    rt.Step();
    const size_t percent = std::min(pattern.find('%', pos), pattern.size());
    out.Append(*format, pos, percent);
    if (percent == pattern.size()) break;
    const size_t letter = pattern.find_first_not_of("-_0^#EO", percent + 1);
    if (letter == std::string_view::npos || letter - percent > 4) {
      out.Append(*format, percent, percent + 1);
      pos = percent + 1;
      continue;
    }
    out.Append(FormatTime(pattern.substr(percent, letter - percent + 1), now), format->origin());
    pos = letter + 1;
  }
  return Value(out.Finish());
}

// cycler(a, b): .next() goes round, .current looks, .reset() starts again.
class Cycler : public Object, public std::enable_shared_from_this<Cycler> {
 public:
  Cycler(std::vector<Value> items, uint32_t depth) : Object(depth), items_(std::move(items)) {}

  enum class Move { kNext, kReset };
  Value Turn(Move move) {
    if (move == Move::kReset) {
      pos_ = 0;
      return None{};
    }
    const size_t at = pos_;
    pos_ = (pos_ + 1) % items_.size();
    return items_[at];
  }

  std::string_view type_name() const override { return "Cycler"; }
  std::optional<Value> Attribute(Runtime& rt, std::string_view name) override;

 private:
  std::vector<Value> items_;
  size_t pos_ = 0;
};

class CyclerMethod : public Object {
 public:
  // shared: the method keeps its cycler.
  CyclerMethod(const Runtime& rt, std::shared_ptr<Cycler> cycler, Cycler::Move move)
      : Object(DepthAbove(rt, cycler->depth())), cycler_(std::move(cycler)), move_(move) {}

  std::string_view type_name() const override { return "method"; }
  bool callable() const override { return true; }
  Value Call(Runtime& /*rt*/, CallArguments call) override {
    const Arguments a("cycler", std::move(call), {});
    return cycler_->Turn(move_);
  }

 private:
  std::shared_ptr<Cycler> cycler_;
  Cycler::Move move_;
};

std::optional<Value> Cycler::Attribute(Runtime& rt, std::string_view name) {
  if (name == "current") return items_[pos_];
  const auto method = [&](Move move) {
    return Value(ObjectPtr(std::make_shared<CyclerMethod>(rt, shared_from_this(), move)));
  };
  if (name == "next") return method(Move::kNext);
  if (name == "reset") return method(Move::kReset);
  return std::nullopt;
}

Value MakeCycler(Runtime& rt, CallArguments call) {
  if (!call.named.empty()) Fail("cycler() takes no keyword arguments");
  if (call.positional.empty()) Fail("at least one item has to be provided");
  rt.Step(call.positional.size());
  uint32_t depth = 0;
  for (const Value& item : call.positional) {
    depth = std::max(depth, DepthAbove(rt, DepthOf(item)));
  }
  return Value(ObjectPtr(std::make_shared<Cycler>(std::move(call.positional), depth)));
}

// joiner(sep): called, gives nothing the first time and the separator after that.
class Joiner : public Object {
 public:
  Joiner(const Runtime& rt, const Value& separator)
      : Object(DepthAbove(rt, DepthOf(separator))), separator_(separator) {}

  std::string_view type_name() const override { return "Joiner"; }
  bool callable() const override { return true; }
  Value Call(Runtime& rt, CallArguments call) override {
    const Arguments a("joiner", std::move(call), {});
    if (std::exchange(used_, true)) return separator_;
    return MakeString(rt, "");
  }

 private:
  Value separator_;
  bool used_ = false;
};

Value MakeJoiner(Runtime& rt, CallArguments call) {
  const Arguments a("joiner", std::move(call), {"sep"});
  return Value(ObjectPtr(std::make_shared<Joiner>(rt, a.Or(0, MakeString(rt, ", ")))));
}

struct Builtin {
  std::string_view name;
  FunctionBody body;
};
constexpr std::array<Builtin, 7> kBuiltins = {{{"cycler", MakeCycler},
                                               {"dict", MakeDict},
                                               {"joiner", MakeJoiner},
                                               {"namespace", MakeNamespace},
                                               {"raise_exception", RaiseException},
                                               {"range", Range},
                                               {"strftime_now", StrftimeNow}}};

}  // namespace

DictPtr DictFromArguments(Runtime& rt, std::string_view function, const CallArguments& arguments) {
  auto dict = std::make_shared<Dict>(rt);
  if (arguments.positional.size() > 1) {
    Fail(fmt::format("{} expected at most 1 argument, got {}", function,
                     arguments.positional.size()));
  }
  for (const Value& given : arguments.positional) {
    FailIfUndefined(given);
    if (const Dict* source = given.dict()) {
      for (const auto& [key, value] : source->entries()) dict->Set(key, value);
      continue;
    }
    for (const Value& pair : Collect(rt, given)) {
      std::vector<Value> parts = Collect(rt, pair);
      if (parts.size() != 2) Fail(fmt::format("{}: expected pairs of key and value", function));
      dict->Set(std::move(parts[0]), std::move(parts[1]));
    }
  }
  for (const auto& [name, value] : arguments.named) dict->Set(name, value);
  return dict;
}

ScopePtr BuiltinScope(Runtime& /*rt*/) {
  auto scope = std::make_shared<Scope>(nullptr);
  for (const Builtin& builtin : kBuiltins) {
    scope->Set(builtin.name,
               Value(ObjectPtr(std::make_shared<Function>(builtin.name, builtin.body))));
  }
  return scope;
}

}  // namespace cleave::jinja
