// Random damage to templates and contexts, by a fixed seed: always a text or a Status, within the
// bounds, never a crash or a fault of ours. Meant for the sanitizer builds as well.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "model/jinja/jinja.h"
#include "model/jinja/test_cases.h"

namespace cleave::jinja {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 40> kScraps = {"{{",
                                                      "}}",
                                                      "{%",
                                                      "%}",
                                                      "{#",
                                                      "#}",
                                                      "-",
                                                      "+",
                                                      "'",
                                                      "\"",
                                                      "\\",
                                                      "(",
                                                      ")",
                                                      "[",
                                                      "]",
                                                      "{",
                                                      "}",
                                                      "|",
                                                      ".",
                                                      ",",
                                                      ":",
                                                      "~",
                                                      "**",
                                                      " if ",
                                                      " else ",
                                                      " is ",
                                                      " not ",
                                                      " in ",
                                                      " for ",
                                                      "{% endif %}",
                                                      "{% for x in l %}",
                                                      "{% endfor %}",
                                                      "{% set a = ",
                                                      "{% macro m() %}",
                                                      "{{ loop",
                                                      "1e999",
                                                      "99999999999999999999",
                                                      "\xff",
                                                      "\xe2\x80",
                                                      "\n"};

std::string Mutated(std::string text, RngStream& rng, const std::vector<OracleCase>& others) {
  const uint64_t edits = 1 + rng.Below(4);
  for (uint64_t i = 0; i < edits; ++i) {
    const size_t at = rng.Below(text.size() + 1);
    switch (rng.Below(5)) {
      case 0:
        text.erase(at, 1 + rng.Below(8));
        break;
      case 1:
        text.insert(at, kScraps[rng.Below(kScraps.size())]);
        break;
      case 2:
        if (at < text.size()) text[at] = static_cast<char>(rng.Below(256));
        break;
      case 3:
        text.insert(at, text.substr(rng.Below(text.size() + 1), rng.Below(40)));
        break;
      default: {
        const std::string& other = others[rng.Below(others.size())].template_name;
        text.insert(at, other.substr(rng.Below(other.size() + 1), rng.Below(60)));
      }
    }
  }
  return text;
}

Json MutatedValue(const Json& value, RngStream& rng) {
  switch (rng.Below(12)) {
    case 0:
      return nullptr;
    case 1:
      return rng.Next();
    case 2:
      return "x\xff{{";
    case 3:
      return Json::array({value});
    default:
      break;
  }
  if (!value.is_structured()) return value;
  Json out = value;
  for (auto& member : out) {
    if (rng.Below(4) == 0) member = MutatedValue(member, rng);
  }
  return out;
}

// More rounds, another seed or other templates for a longer search.
std::string Setting(const char* name, const char* otherwise) {
  const char* given = std::getenv(name);
  return given == nullptr ? otherwise : given;
}

TEST(JinjaMutation, DamageNeverBreaksTheInterpreter) {
  const OracleCases oracle(
      Setting("CLEAVE_FUZZ_CASES", CLEAVE_SOURCE_DIR "/src/model/jinja/testdata/cases.json"));
  const uint64_t rounds = std::stoull(Setting("CLEAVE_FUZZ_ROUNDS", "20000"));
  ASSERT_FALSE(oracle.cases().empty());
  const Limits limits{.max_steps = 20'000, .max_depth = 60, .max_output_bytes = 1U << 18U};
  RngStream rng(std::stoull(Setting("CLEAVE_FUZZ_SEED", "1")));
  size_t rendered = 0;
  for (size_t round = 0; round < rounds; ++round) {
    const OracleCase& base = oracle.cases()[rng.Below(oracle.cases().size())];
    const std::string source = Mutated(base.template_name, rng, oracle.cases());
    const auto compiled = Template::Compile(source, limits);
    if (!compiled.ok()) {
      ASSERT_NE(compiled.status().code(), StatusCode::kInternal)
          << compiled.status().ToString() << "\n"
          << source;
      continue;
    }
    const bool damage = rng.Below(2) == 0;
    Json context = damage ? MutatedValue(*base.context, rng) : *base.context;
    if (!context.is_object()) context = Json::object({{"messages", context}});
    const auto pieces = (*compiled)->RenderPieces(context);
    if (!pieces.ok()) {
      ASSERT_NE(pieces.status().code(), StatusCode::kInternal) << pieces.status().ToString() << "\n"
                                                               << source;
      continue;
    }
    ++rendered;
    size_t bytes = 0;
    for (const RenderedPiece& piece : *pieces) bytes += piece.text.size();
    ASSERT_LE(bytes, limits.max_output_bytes) << source;
  }
  // The damage must leave enough templates alive to reach the evaluator.
  EXPECT_GT(rendered, rounds / 20);
}

}  // namespace
}  // namespace cleave::jinja
