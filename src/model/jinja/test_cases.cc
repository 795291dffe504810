#include "model/jinja/test_cases.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>

#include "model/jinja/jinja.h"

namespace cleave::jinja {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kOracleTimeS = 1'767'323'045;  // NOW of jinja_cases.py

Result<std::string> CompileAndRender(const std::string& source, const Json& context) {
  Limits limits;
  limits.fixed_time_s = kOracleTimeS;
  ASSIGN_OR_RETURN(const std::unique_ptr<Template> compiled, Template::Compile(source, limits));
  return compiled->Render(context);
}

std::string FirstDifference(const std::string& expected, const std::string& got) {
  const auto [e, g] = std::mismatch(expected.begin(), expected.end(), got.begin(), got.end());
  const auto at = static_cast<size_t>(e - expected.begin());
  const size_t from = at > 30 ? at - 30 : 0;
  return fmt::format(
      "differs at byte {}:\n  expected …{}\n  got      …{}", at,
      Json(expected.substr(from, 100)).dump(-1, ' ', false, Json::error_handler_t::replace),
      Json(got.substr(from, 100)).dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

OracleCases::OracleCases(const std::string& path) {
  std::ifstream in(path);
  const Json all = Json::parse(in, nullptr, false);
  if (!all.is_object()) return;
  for (const Json& named : all["contexts"]) contexts_[named["name"]] = named["context"];
  for (const Json& given : all["cases"]) {
    OracleCase one;
    one.template_name = given["template"];
    const std::string context = given["context"];
    one.label = fmt::format("{} with {}", given.value("group", one.template_name), context);
    one.context = &contexts_[context];
    one.fails = given.contains("error");
    one.text = given.value("text", "");
    one.error = given.value("error", "");
    cases_.push_back(std::move(one));
  }
}

std::string Difference(const OracleCase& expected, const std::string& source) {
  const Result<std::string> got = CompileAndRender(source, *expected.context);
  if (!got.ok()) {
    if (!expected.fails) return "fails: " + got.status().ToString();
    const bool ours = got.status().code() == StatusCode::kInternal;
    return ours ? "fails otherwise: " + got.status().ToString() : "";
  }
  if (expected.fails) {
    return fmt::format("should fail ({}), got {}", expected.error, got->substr(0, 200));
  }
  return *got == expected.text ? "" : FirstDifference(expected.text, *got);
}

}  // namespace cleave::jinja
