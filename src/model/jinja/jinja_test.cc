// The interface: errors with their lines, refusals, the context, one compiled template in threads.
#include "model/jinja/jinja.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

namespace cleave::jinja {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

Result<std::string> Run(std::string_view source, const Json& context = Json::object()) {
  ASSIGN_OR_RETURN(const auto compiled, Template::Compile(source));
  return compiled->Render(context);
}

std::string Text(std::string_view source, const Json& context = Json::object()) {
  const auto result = Run(source, context);
  return result.ok() ? *result : result.status().ToString();
}

Status Problem(std::string_view source, const Json& context = Json::object()) {
  return Run(source, context).status();
}

TEST(Jinja, RendersAChat) {
  const Json context = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                        {"add_generation_prompt", true}};
  EXPECT_EQ(Text("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
                 "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
                 context),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

struct ErrorCase {
  std::string source;
  std::string message;
};

TEST(Jinja, ErrorsNameTheLine) {
  const std::vector<ErrorCase> cases = {
      {"a\nb\n{{ 1 + }}", "line 3: unexpected end of print statement"},
      {"\n{% if x %}\n\n", "line 3: unexpected end of template: expected 'endif'"},
      {"\n{% nope %}", "line 2: unknown tag 'nope'"},
      {"\n\n{% include 'x' %}", "line 3: tag 'include' is not supported in chat templates"},
      {"\n{{ x|nope }}", "line 2: no filter named 'nope'"},
      {"{{ x|urlize }}", "line 1: filter 'urlize' is not supported in chat templates"},
      {"\n\n{{ x is nope }}", "line 3: no test named 'nope'"},
      {"a\n{# b", "line 2: missing end of comment tag"},
      {"\n{{ 'abc }}", "line 2: a string has no end"},
      {"\n{{ (1] }}", "line 2: unexpected ']', expected ')'"},
      {"{% break %}", "line 1: 'break' outside of a loop"},
      {"\n\n\n{{ missing.x }}", "line 4: 'missing' is undefined"},
      {"{{ 1 }}\n{{ 1 + 'a' }}", "line 2: unsupported operand type(s) for +: 'int' and 'str'"},
      {"\n{% for a in 5 %}{% endfor %}", "line 2: 'int' object is not iterable"},
      {"{{ {}.x.y }}", "line 1: 'dict object' has no attribute 'x'"},
      {"{{ [].append(1) }}", "line 1: access to attribute 'append' of 'list' object is unsafe"},
      {"{% set x.y = 1 %}", "line 1: cannot assign attribute on non-namespace object"},
      {"{{ 'a'.nope() }}", "line 1: 'str object' has no attribute 'nope'"},
      {"\n{% macro m() %}\n{{ 1/0 }}{% endmacro %}\n{{ m() }}", "line 3: division by zero"},
  };
  for (const ErrorCase& one : cases) {
    const Status status = Problem(one.source);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << one.source;
    EXPECT_THAT(status.message(), HasSubstr(one.message)) << one.source;
  }
}

TEST(Jinja, RaiseExceptionIsItsText) {
  const Status status = Problem("\n{{ raise_exception('roles must alternate') }}");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "roles must alternate");
}

TEST(Jinja, ContextMustBeAnObject) {
  EXPECT_EQ(Problem("x", Json::array()).message(), "the context of a template must be an object");
}

TEST(Jinja, ContextNamesComeBeforeGlobals) { EXPECT_EQ(Text("{{ range }}", {{"range", 5}}), "5"); }

TEST(Jinja, IntegersOfTheContextAreExact) {
  EXPECT_EQ(Text("{{ a }} {{ b }} {{ a + 1 }} {{ a * a }}", {{"a", UINT64_MAX}, {"b", INT64_MIN}}),
            "resource_exhausted: line 1: an integer needs more than 127 bits");
  EXPECT_EQ(Text("{{ a }} {{ b }} {{ a + 1 }}", {{"a", UINT64_MAX}, {"b", INT64_MIN}}),
            "18446744073709551615 -9223372036854775808 18446744073709551616");
}

TEST(Jinja, TextThatIsNotUtf8PassesThrough) {
  const Json context = {{"s", "a\xff\xc3"}};
  EXPECT_EQ(Text("{{ s }}|{{ s|length }}|{{ s[1:] }}|{{ s|upper }}|{{ s.split('a') }}", context),
            "a\xff\xc3|3|\xff\xc3|A\xff\xc3|['', '\\udcff\\udcc3']");
}

TEST(Jinja, StrftimeNowReadsTheClock) {
  const std::string year = Text("{{ strftime_now('%Y') }}");
  EXPECT_EQ(year.size(), 4U);
  EXPECT_GE(year, "2024");
}

TEST(Jinja, OneTemplateManyThreads) {
  const auto compiled = Template::Compile(
      "{% set ns = namespace(s='') %}{% for i in range(n) %}"
      "{% set ns.s = ns.s ~ i %}{% endfor %}{{ ns.s }}");
  ASSERT_TRUE(compiled.ok());
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < texts.size(); ++i) {
    threads.emplace_back([&compiled, &texts, i] {
      for (int round = 0; round < 20; ++round) {
        const auto text = (*compiled)->Render({{"n", 5 + i}});
        texts[i] = text.ok() ? *text : text.status().ToString();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(texts, (std::vector<std::string>{"01234", "012345", "0123456", "01234567"}));
}

}  // namespace
}  // namespace cleave::jinja
