// The for statement and its `loop` variable.
#include <fmt/core.h>

#include <deque>

#include "model/jinja/access.h"
#include "model/jinja/arguments.h"
#include "model/jinja/compare.h"
#include "model/jinja/failure.h"
#include "model/jinja/interpreter.h"

namespace cleave::jinja {
namespace {

// Items are drawn one by one, as Jinja does: a condition of the loop sees what the body has set
// so far, and only loop.last, nextitem and length look ahead.
class Loop : public Object, public std::enable_shared_from_this<Loop> {
 public:
  Loop(Interpreter& interpreter, const ForStatement& node, Value iterable, uint32_t depth,
       ScopePtr scope)
      : Object(DepthAbove(interpreter.runtime(), DepthOf(iterable))),
        interpreter_(interpreter),
        node_(node),
        iterable_(iterable),
        cursor_(interpreter.runtime(), std::move(iterable)),
        depth_(depth),
        scope_(std::move(scope)) {}

  // Moves to the next item; nothing at the end.
  std::optional<Value> Advance() {
    std::optional<Value> next = ahead_ ? std::exchange(ahead_, std::nullopt) : Draw();
    if (!next) return std::nullopt;
    ++taken_;
    before_ = std::exchange(current_, *next);
    return next;
  }

  // After the last iteration. A loop that a namespace still holds must not hold its scope, and with
  // that whatever came before; one that can be called again needs it to the end of the render.
  void Finish() {
    if (node_.recursive) {
      interpreter_.runtime().Keep(scope_);
    } else {
      scope_.reset();
    }
  }

  std::string_view type_name() const override { return "LoopContext"; }
  std::string Repr(Runtime& /*rt*/) override {
    return fmt::format("<LoopContext {}/{}>", taken_, LengthOfLoop());
  }
  bool callable() const override { return true; }
  std::optional<Value> Attribute(Runtime& rt, std::string_view name) override;

  // loop(items) runs a recursive loop once more, one level deeper.
  Value Call(Runtime& rt, CallArguments call) override {
    const Arguments a("loop", std::move(call), {"iterable"});
    if (!node_.recursive) Fail("the loop must have the 'recursive' marker to be called");
    TextBuilder out(&rt);
    interpreter_.RunLoop(node_, a.Required(0), depth_ + 1, scope_, out);
    return Value(out.Finish());
  }

  Value Cycle(const CallArguments& call) const {
    if (call.positional.empty()) Fail("no items for cycling given");
    return call.positional[(taken_ - 1) % call.positional.size()];
  }

  Value Changed(Runtime& rt, CallArguments call) {
    Value value = MakeSequence(rt, SequenceKind::kTuple, std::move(call.positional));
    if (!kept_) rt.Keep(shared_from_this());  // the value may lead back to this loop
    kept_ = true;
    if (!last_changed_.IsUndefined() && Equals(rt, last_changed_, value)) return Value(false);
    last_changed_ = std::move(value);
    return Value(true);
  }

  void Drop() override {
    last_changed_ = Value();
    before_ = Value();
    current_ = Value();
    ahead_.reset();
    pending_.clear();
    scope_.reset();
  }

 private:
  // The next item that the loop's condition lets through.
  std::optional<Value> Draw() {
    if (drained_) {
      if (pending_.empty()) return std::nullopt;
      Value value = std::move(pending_.front());
      pending_.pop_front();
      return value;
    }
    while (auto item = cursor_.Next()) {
      if (Passes(*item)) return item;
    }
    drained_ = true;
    return std::nullopt;
  }

  bool Passes(const Value& item) {
    if (node_.condition == nullptr) return true;
    const auto scope = std::make_shared<Scope>(scope_);
    interpreter_.Assign(node_.target, item, scope);
    return Truthy(interpreter_.Evaluate(*node_.condition, scope));
  }

  const std::optional<Value>& Ahead() {
    if (!ahead_) ahead_ = Draw();
    return ahead_;
  }

  size_t LengthOfLoop() {
    if (length_) return *length_;
    length_ = node_.condition == nullptr ? Length(iterable_) : std::nullopt;
    if (length_) return *length_;
    std::deque<Value> rest;
    while (auto item = Draw()) rest.push_back(*std::move(item));
    pending_ = std::move(rest);
    drained_ = true;
    length_ = pending_.size() + taken_ + (ahead_ ? 1 : 0);
    return *length_;
  }

  Interpreter& interpreter_;
  const ForStatement& node_;
  const Value iterable_;
  Cursor cursor_;
  const uint32_t depth_;
  ScopePtr scope_;  // where the for statement stands; null once the loop is finished
  size_t taken_ = 0;
  Value current_;
  Value before_;
  std::optional<Value> ahead_;
  std::optional<size_t> length_;
  bool drained_ = false;  // cursor_ is at its end and pending_ holds what is left
  std::deque<Value> pending_;
  bool kept_ = false;
  Value last_changed_;
};

class LoopMethod : public Object {
 public:
  enum class Kind { kCycle, kChanged };
  // shared: the method keeps its loop.
  LoopMethod(const Runtime& rt, std::shared_ptr<Loop> loop, Kind kind)
      : Object(DepthAbove(rt, loop->depth())), loop_(std::move(loop)), kind_(kind) {}

  std::string_view type_name() const override { return "method"; }
  bool callable() const override { return true; }
  Value Call(Runtime& rt, CallArguments call) override {
    if (!call.named.empty()) Fail("loop methods take no keyword arguments");
    if (kind_ == Kind::kCycle) return loop_->Cycle(call);
    return loop_->Changed(rt, std::move(call));
  }

 private:
  std::shared_ptr<Loop> loop_;
  Kind kind_;
};

std::optional<Value> Loop::Attribute(Runtime& rt, std::string_view name) {
  if (name == "index") return Value::Count(taken_);
  if (name == "index0") return Value::Count(taken_ - 1);
  if (name == "first") return Value(taken_ == 1);
  if (name == "last") return Value(!Ahead().has_value());
  if (name == "length") return Value::Count(LengthOfLoop());
  if (name == "revindex") return Value::Count(LengthOfLoop() - taken_ + 1);
  if (name == "revindex0") return Value::Count(LengthOfLoop() - taken_);
  if (name == "depth") return Value::Count(depth_ + 1);
  if (name == "depth0") return Value::Count(depth_);
  if (name == "previtem") {
    return taken_ > 1 ? before_ : Value::UndefinedBecause("there is no previous item");
  }
  if (name == "nextitem") {
    return Ahead() ? *Ahead() : Value::UndefinedBecause("there is no next item");
  }
  const auto method = [&](LoopMethod::Kind kind) {
    return Value(ObjectPtr(std::make_shared<LoopMethod>(rt, shared_from_this(), kind)));
  };
  if (name == "cycle") return method(LoopMethod::Kind::kCycle);
  if (name == "changed") return method(LoopMethod::Kind::kChanged);
  return std::nullopt;
}

}  // namespace

Flow Interpreter::RunLoop(const ForStatement& node, const Value& iterable, uint32_t depth,
                          const ScopePtr& scope, TextBuilder& out) {
  const auto loop = std::make_shared<Loop>(*this, node, iterable, depth, scope);
  bool finished_one = false;
  while (auto item = loop->Advance()) {
    rt_.Step();
    const auto inner = std::make_shared<Scope>(scope);
    inner->Set("loop", Value(ObjectPtr(loop)));
    Assign(node.target, *std::move(item), inner);
    const Flow flow = Execute(node.body, inner, out);
    if (flow == Flow::kBreak) break;
    // As in Jinja, iterations cut short do not keep the else part from running.
    finished_one = finished_one || flow == Flow::kNext;
  }
  loop->Finish();
  if (finished_one || node.otherwise.empty()) return Flow::kNext;
  return Execute(node.otherwise, std::make_shared<Scope>(scope), out);
}

}  // namespace cleave::jinja
