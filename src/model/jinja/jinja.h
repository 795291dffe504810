#pragma once
// A Jinja interpreter for what real chat templates use, rendered as Hugging Face's
// apply_chat_template does: trim_blocks and lstrip_blocks on, loop controls, tojson without HTML
// escaping, raise_exception, strftime_now, an immutable sandbox.
//
// A template is untrusted input: steps, nesting depth and output are bounded, and running past a
// bound is an error, not a hang. Compile once (const, any thread); Render keeps its own state.
// Fails: kInvalidArgument with line number for syntax, unknown names of filters and tests, type
// errors and raise_exception (its text); kResourceExhausted names the bound.
//
//   ASSIGN_OR_RETURN(auto t, jinja::Template::Compile(source));
//   ASSIGN_OR_RETURN(std::string text, t->Render({{"messages", messages}}));

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/status.h"

namespace cleave::jinja {

struct Limits {
  uint64_t max_steps = 5'000'000;          // nodes evaluated
  uint32_t max_depth = 200;                // nesting of expressions, blocks and macro calls
  uint64_t max_output_bytes = 64U << 20U;  // text and intermediate strings
  // What strftime_now shows, in seconds since 1970 and in UTC; without it, the clock's local time.
  std::optional<int64_t> fixed_time_s = std::nullopt;
};

// Output of a render, in order: stretches that came from the template's own text and stretches
// that came from the caller's strings (values in the context). Their concatenation is the text.
// A string built from both in an expression (a + b, ~, filters, set) keeps the origin of each part
// where that is known, and counts as user text where it is not. Literals in the template's
// expressions count as template text.
struct RenderedPiece {
  std::string text;
  bool from_template = true;
};

class Template {
 public:
  static Result<std::unique_ptr<Template>> Compile(std::string_view source, Limits limits = {});
  virtual ~Template() = default;

  // `context` is a JSON object; its members are the template's global names.
  // `constants` are names whose strings belong to the model and count as template text (bos_token,
  // eos_token); a member of `context` with the same name comes before one of them.
  [[nodiscard]] virtual Result<std::vector<RenderedPiece>> RenderPieces(
      const nlohmann::ordered_json& context, const nlohmann::ordered_json& constants) const = 0;
  [[nodiscard]] Result<std::vector<RenderedPiece>> RenderPieces(
      const nlohmann::ordered_json& context) const;
  [[nodiscard]] Result<std::string> Render(const nlohmann::ordered_json& context) const;
};

}  // namespace cleave::jinja
