// Compile and Render: the border where failures become Status values.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "model/jinja/failure.h"
#include "model/jinja/interpreter.h"
#include "model/jinja/jinja.h"
#include "model/jinja/json.h"
#include "model/jinja/lexer.h"
#include "model/jinja/parser.h"

namespace cleave::jinja {
namespace {

using Json = nlohmann::ordered_json;

Status ToStatus(const Failure& failure, uint32_t line) {
  if (failure.located() == Located::kYes) return {failure.code(), failure.message()};
  return {failure.code(), fmt::format("line {}: {}", line, failure.message())};
}

std::vector<RenderedPiece> ToPieces(const Text& text) {
  std::vector<RenderedPiece> pieces;
  const std::string_view all = text.view();
  size_t pos = 0;
  for (const ByteRange& range : text.user()) {
    if (range.begin > pos)
      pieces.push_back({std::string(all.substr(pos, range.begin - pos)), true});
    pieces.push_back({std::string(all.substr(range.begin, range.end - range.begin)), false});
    pos = range.end;
  }
  if (pos < all.size()) pieces.push_back({std::string(all.substr(pos)), true});
  return pieces;
}

// Members of a JSON object become names of `scope`.
Status AddNames(Runtime& rt, const Json& object, Origin origin, Scope& scope) {
  if (!object.is_object()) return InvalidArgument("the context of a template must be an object");
  for (auto member = object.begin(); member != object.end(); ++member) {
    scope.Set(member.key(), FromJson(rt, member.value(), origin));
  }
  return OkStatus();
}

class CompiledTemplate : public Template {
 public:
  CompiledTemplate(Body body, Limits limits) : body_(std::move(body)), limits_(limits) {}

  Result<std::vector<RenderedPiece>> RenderPieces(const Json& context,
                                                  const Json& constants) const override {
    Runtime rt(limits_);
    uint32_t line = 1;
    try {
      const auto globals = std::make_shared<Scope>(BuiltinScope(rt));
      RETURN_IF_ERROR(AddNames(rt, constants, Origin::kTemplate, *globals));
      RETURN_IF_ERROR(AddNames(rt, context, Origin::kUser, *globals));
      Interpreter interpreter(rt, globals);
      try {
        return ToPieces(*interpreter.Run(body_));
      } catch (...) {
        line = interpreter.line();
        throw;
      }
    } catch (const Failure& failure) {
      return ToStatus(failure, line);
    } catch (const std::bad_alloc&) {
      return ResourceExhausted("not enough memory to render the template");
    } catch (const std::exception& error) {
      return Internal(fmt::format("rendering a template: {}", error.what()));
    }
  }

 private:
  const Body body_;
  const Limits limits_;
};

}  // namespace

Result<std::unique_ptr<Template>> Template::Compile(std::string_view source, Limits limits) {
  try {
    return std::unique_ptr<Template>(
        std::make_unique<CompiledTemplate>(Parser(Lex(source), limits).ParseTemplate(), limits));
  } catch (const Failure& failure) {
    return ToStatus(failure, 1);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("not enough memory to compile the template");
  } catch (const std::exception& error) {
    return Internal(fmt::format("compiling a template: {}", error.what()));
  }
}

Result<std::vector<RenderedPiece>> Template::RenderPieces(const Json& context) const {
  return RenderPieces(context, Json::object());
}

Result<std::string> Template::Render(const Json& context) const {
  ASSIGN_OR_RETURN(const std::vector<RenderedPiece> pieces, RenderPieces(context));
  std::string text;
  for (const RenderedPiece& piece : pieces) text += piece.text;
  return text;
}

}  // namespace cleave::jinja
