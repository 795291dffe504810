// Untrusted templates: every bound is an error that names it, and nothing leaks or hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/jinja/jinja.h"

namespace cleave::jinja {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

Status Outcome(const std::string& source, const Json& context = Json::object(),
               Limits limits = {}) {
  const auto compiled = Template::Compile(source, limits);
  if (!compiled.ok()) return compiled.status();
  return (*compiled)->Render(context).status();
}

std::string Repeat(std::string_view text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

void ExpectBound(const std::string& source, const std::string& bound,
                 const Json& context = Json::object(), Limits limits = {}) {
  const Status status = Outcome(source, context, limits);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString() << "\n"
                                                           << source.substr(0, 200);
  EXPECT_THAT(status.message(), HasSubstr(bound)) << source.substr(0, 200);
}

TEST(JinjaBounds, Steps) {
  const std::string loops =
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
  ExpectBound(loops, "max_steps");
  ExpectBound("{% for a in range(100) %}{{ a }}{% endfor %}", "max_steps = 50", Json::object(),
              {.max_steps = 50});
  ExpectBound("{% for a in range(100000) %}{{ s.count('x') }}{% endfor %}", "max_steps",
              {{"s", std::string(1U << 14U, 'x')}});
  ExpectBound("{% for a in range(100000) %}{% if l == m %}{% endif %}{% endfor %}", "max_steps",
              {{"l", Json(std::vector<int>(1000, 1))}, {"m", Json(std::vector<int>(1000, 1))}});
  ExpectBound("{{ s.rfind(n) }}", "max_steps",
              {{"s", std::string(1U << 20U, 'x')}, {"n", std::string(1U << 19U, 'y')}});
}

TEST(JinjaBounds, OutputAndStrings) {
  ExpectBound("{{ 'a' * 10 ** 9 }}", "max_output_bytes");
  ExpectBound("{{ 'a' * 10 ** 30 }}", "bytes");
  ExpectBound("{{ 'aaaaaaaaaaaa' }}", "max_output_bytes = 10", Json::object(),
              {.max_output_bytes = 10});
  ExpectBound(
      "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}"
      "{% endfor %}",
      "max_output_bytes");
  ExpectBound("{% for i in range(100000) %}{{ s }}{% endfor %}", "max_output_bytes",
              {{"s", std::string(10000, 'x')}});
  ExpectBound("{{ s|replace('x', s) }}", "max_output_bytes", {{"s", std::string(20000, 'x')}});
  ExpectBound("{{ s|list|join(s) }}", "max_output_bytes", {{"s", std::string(20000, 'x')}});
  ExpectBound("{{ '%1000000000d' % 1 }}", "width");
  ExpectBound("{{ '{:1000000000}'.format(1) }}", "width");
  ExpectBound("{{ '%.1000000000f' % 1 }}", "precision");
  ExpectBound("{{ s|tojson(ensure_ascii=true) }}", "max_output_bytes",
              {{"s", std::string(2000, '\1')}}, {.max_output_bytes = 10000});
  EXPECT_TRUE(Outcome("{{ 'a' * 1000 }}", Json::object(), {.max_output_bytes = 2000}).ok());
}

TEST(JinjaBounds, RangesAndLists) {
  ExpectBound("{% for a in range(10 ** 12) %}{% endfor %}", "range() of 1000000000000 items");
  ExpectBound("{{ range(100001) }}", "at most 100000 are allowed");
  EXPECT_TRUE(Outcome("{{ range(100000)|length }}").ok());
  ExpectBound("{{ [0] * 10 ** 9 }}", "max_steps");
  ExpectBound("{{ 'ab'|batch(10 ** 12, 'x')|list }}", "max_steps");
  ExpectBound("{{ 'ab'|slice(10 ** 12)|list }}", "bytes of values");
  ExpectBound(
      "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}"
      "{% endfor %}",
      "max_steps");
  ExpectBound("{{ 2 ** 200 }}", "127 bits");
  ExpectBound("{{ 9 ** 9 ** 9 }}", "127 bits");
  ExpectBound(
      "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}"
      "{% endfor %}{{ ns.l }}",
      "max_");
  ExpectBound(
      "{% set ns = namespace(l=(1,)) %}{% for i in range(60) %}"
      "{% set ns.l = (ns.l, ns.l) %}{% endfor %}{{ {ns.l: 1} }}",
      "spells out");
}

TEST(JinjaBounds, NestingOfTheSource) {
  constexpr size_t kMany = 100'000;
  for (const auto& [open, close] :
       std::vector<std::pair<std::string, std::string>>{{"(", ")"},
                                                        {"[", "]"},
                                                        {"{1: ", "}"},
                                                        {"f(", ")"},
                                                        {"a[", "]"},
                                                        {"not ", ""},
                                                        {"-", ""},
                                                        {"1 if ", ""},
                                                        {"1 if 1 else ", ""},
                                                        {"a|f(", ")"},
                                                        {"a is in (", ")"},
                                                        {"a is in [", "]"}}) {
    ExpectBound("{{ " + Repeat(open, kMany) + "1" + Repeat(close, kMany) + " }}", "max_depth");
  }
  ExpectBound(Repeat("{% if 1 %}", kMany), "max_depth");
  ExpectBound(Repeat("{% for a in b %}", kMany), "max_depth");
  ExpectBound(Repeat("{% macro m() %}", kMany), "max_depth");
  ExpectBound("{% for " + Repeat("(", kMany) + "a" + Repeat(")", kMany) + " in b %}", "max_depth");
  ExpectBound("{{ 1" + Repeat(" if 1", kMany) + " }}", "max_depth");
}

TEST(JinjaBounds, ChainsAreNotNesting) {
  constexpr size_t kMany = 20'000;
  EXPECT_TRUE(Outcome("{{ 1" + Repeat(" + 1", kMany) + " }}").ok());
  EXPECT_TRUE(Outcome("{{ 1" + Repeat(" * 1", kMany) + " }}").ok());
  EXPECT_TRUE(Outcome("{{ 1" + Repeat(" and 1", kMany) + " }}").ok());
  EXPECT_TRUE(Outcome("{{ 1" + Repeat(" ~ 1", kMany) + " }}").ok());
  EXPECT_TRUE(Outcome("{{ 1" + Repeat(" == 1", kMany) + " }}").ok());
  EXPECT_TRUE(Outcome("{{ 'a'" + Repeat("|upper", kMany) + " }}").ok());
  EXPECT_TRUE(Outcome("{{ 'a'" + Repeat(".upper()", kMany) + " }}").ok());
  EXPECT_TRUE(Outcome("{% if 0 %}" + Repeat("{% elif 0 %}", kMany) + "{% endif %}").ok());
}

TEST(JinjaBounds, NestingOfCallsAndValues) {
  ExpectBound("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "max_depth");
  ExpectBound("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "max_depth");
  ExpectBound("{% macro m() %}{% call m() %}{% endcall %}{{ caller }}{% endmacro %}{{ m() }}",
              "max_depth");
  ExpectBound(
      "{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = [ns.l] %}"
      "{% endfor %}",
      "max_depth");
  ExpectBound(
      "{% set ns = namespace(l={}) %}{% for i in range(1000) %}"
      "{% set ns.l = {'a': ns.l} %}{% endfor %}",
      "max_depth");
  ExpectBound("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", "max_depth");
  for (const std::string wrap : {"cycler(ns.p)", "joiner(ns.p)", "cycler(ns.p).next", "ns.p.copy",
                                 "[ns.p]", "(ns.p,)", "{'a': ns.p}"}) {
    ExpectBound("{% set ns = namespace(p={}) %}{% for i in range(20000) %}{% set ns.p = [" + wrap +
                    "][0] %}{% set ns.p = {'copy': 1, 'p': ns.p} %}{% endfor %}",
                "max_depth");
  }
  ExpectBound(
      "{% set ns = namespace(p=1) %}{% for i in range(20000) %}{% for x in [ns.p] %}"
      "{% set ns.p = loop %}{% endfor %}{% endfor %}",
      "max_depth");
  Json deep = 1;
  for (int i = 0; i < 5000; ++i) deep = Json::array({std::move(deep)});
  ExpectBound("x", "max_depth", {{"deep", std::move(deep)}});
}

// Under LeakSanitizer: values that refer to themselves are taken apart, also in long chains.
TEST(JinjaBounds, CyclesAreTakenApart) {
  for (const std::string source : {
           "{% set ns = namespace() %}{% set ns.a = ns %}{% set ns.b = [ns] %}",
           "{% macro m() %}{{ m }}{% endmacro %}{% set ns = namespace(m=m) %}",
           "{% set ns = namespace() %}{% for a in [ns] %}{% set ns.l = loop %}"
           "{% set x = loop.changed(loop) %}{% set ns.c = loop.changed %}{% endfor %}",
           "{% set ns = namespace(m=1) %}{% for i in range(20000) %}{% set prev = ns.m %}"
           "{% macro f() %}{{ prev }}{% endmacro %}{% set ns.m = f %}{% endfor %}",
           "{% set ns = namespace(p=none) %}{% for i in range(20000) %}"
           "{% set ns.p = namespace(p=ns.p) %}{% endfor %}",
           "{% macro m() %}{% set ns = namespace(c=caller) %}{% set ns.n = ns %}{{ caller() }}"
           "{% endmacro %}{% call m() %}x{% endcall %}",
           "{% set ns = namespace(p=1) %}{% for i in range(20000) %}{% set prev = ns.p %}"
           "{% for x in [1] %}{% set ns.p = loop %}{% endfor %}{% endfor %}",
           "{% set ns = namespace(p=1) %}{% for i in range(20000) %}{% set prev = ns.p %}"
           "{% for x in [1] recursive %}{% set ns.p = loop %}{% endfor %}{% endfor %}",
           "{% set ns = namespace(p=1) %}{% macro m() %}{% set ns.p = caller %}{% endmacro %}"
           "{% for i in range(20000) %}{% set prev = ns.p %}{% call m() %}{% endcall %}"
           "{% endfor %}",
       }) {
    EXPECT_TRUE(Outcome(source).ok()) << Outcome(source).ToString() << "\n" << source;
  }
}

}  // namespace
}  // namespace cleave::jinja
