// Which parts of the output the template wrote and which the caller did.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/jinja/jinja.h"

namespace cleave::jinja {
namespace {

using Json = nlohmann::ordered_json;

// "template<user>template": the pieces in order, the caller's in angle brackets.
std::string Pieces(std::string_view source, const Json& context,
                   const Json& constants = Json::object()) {
  const auto compiled = Template::Compile(source);
  if (!compiled.ok()) return compiled.status().ToString();
  const auto pieces = (*compiled)->RenderPieces(context, constants);
  if (!pieces.ok()) return pieces.status().ToString();
  std::string out;
  for (const RenderedPiece& piece : *pieces) {
    out += piece.from_template ? piece.text : "<" + piece.text + ">";
  }
  return out;
}

const Json kContext = {{"s", "user"},
                       {"n", 12},
                       {"f", 1.5},
                       {"b", true},
                       {"l", {"p", "q"}},
                       {"e", ""},
                       {"m", {{"role", "user"}, {"content", " hi "}}}};

struct OriginCase {
  std::string source;
  std::string pieces;
};

TEST(JinjaOrigins, EachPartKeepsItsOwn) {
  const std::vector<OriginCase> cases = {
      {"a{{ s }}b", "a<user>b"},
      {"{{ '[S]' + m['role'] + '|' + m['content'] }}", "[S]<user>|< hi >"},
      {"{{ '[S]' ~ m.role ~ m.content ~ '[E]' }}", "[S]<user hi >[E]"},
      {"{{ s }}{{ s }}", "<useruser>"},
      {"{{ 'lit' }}{{ 1 + 1 }}{{ true }}", "lit2True"},
      {"{{ e }}x{{ e }}", "x"},
      // Numbers and booleans of the caller, and what is reckoned from them.
      {"{{ n }}|{{ n + 1 }}|{{ -n }}|{{ f }}|{{ b }}|{{ n|string }}|{{ '%d' % n }}",
       "<12>|<13>|<-12>|<1.5>|<True>|<12>|<12>"},
      {"{{ '<' }}{{ 2 * 3 }}{{ s|length }}", "<64"},
      // Parts of strings.
      {"{{ ('ab' + s)[1:4] }}|{{ ('ab' + s)[::-1] }}|{{ ('ab' + s)[0] }}{{ ('ab' + s)[-1] }}",
       "b<us>|<resu>ba|a<r>"},
      {"{{ ('  ' + m.content + '  ')|trim }}|{{ m.content.strip() + '.' }}", "<hi>|<hi>."},
      {"{{ ('a,' + s + ',b').split(',')[1] }}|{{ ('a,' + s + ',b').split(',')|join('-') }}",
       "<user>|a-<user>-b"},
      {"{{ l|join(', ') }}|{{ ', '.join(l) }}", "<p>, <q>|<p>, <q>"},
      {"{{ 'x-y'.replace('-', s) }}|{{ s.replace('s', '[T]') }}|{{ s.replace('u', s) }}",
       "x<user>y|<u>[T]<er>|<userser>"},
      {"{{ '%s=%s' % ('k', s) }}|{{ '{}:{}'.format(s, 'v') }}|{{ '%s'|format(s) }}",
       "k=<user>|<user>:v|<user>"},
      {"{{ ('[T]' + s)|upper }}|{{ s|upper }}|{{ s|capitalize }}|{{ ('t ' ~ s)|title }}",
       "[T]<USER>|<USER>|<User>|T <User>"},
      {"{{ ('a\n' + s + '\nb')|indent(2) }}", "a\n  <user>\n  b"},
      {"{{ s * 2 }}|{{ ('-' + s) * 2 }}|{{ '-' * n }}", "<useruser>|-<user>-<user>|------------"},
      {"{{ [s, 'x'] | first }}{{ [s, 'x'] | last }}", "<user>x"},
      {"{{ s.center(8, '*') }}|{{ 'x'.ljust(3, s[0]) }}", "**<user>**|x<uu>"},
      // Names, captures, macros, filters.
      {"{% set x = 'a' + s %}{{ x }}", "a<user>"},
      {"{% set x %}a{{ s }}b{% endset %}{{ x }}|{{ x|trim }}", "a<user>b|a<user>b"},
      {"{% macro f(x) %}[{{ x }}]{% endmacro %}{{ f(s) }}{{ f('t') + '!' }}", "[<user>][t]!"},
      {"{% macro f() %}({{ caller() }}){% endmacro %}{% call f() %}a{{ s }}{% endcall %}",
       "(a<user>)"},
      {"{% filter upper %}t{{ s }}{% endfilter %}", "T<USER>"},
      {"{% set ns = namespace(x='') %}{% for i in l %}{% set ns.x = ns.x + '/' + i %}{% endfor %}"
       "{{ ns.x }}",
       "/<p>/<q>"},
      {"{% for k, v in m.items() %}{{ k }}={{ v }};{% endfor %}",
       "<role>=<user>;<content>=< hi >;"},
      {"{{ s if n else 't' }}{{ 't' if n else s }}{{ missing|default('d') }}", "<user>td"},
      // As a whole the caller's, when any of it is.
      {"{{ m|tojson }}", R"(<{"role": "user", "content": " hi "}>)"},
      {"{{ {'a': 1}|tojson }}{{ {'a': s}|tojson }}", R"({"a": 1}<{"a": "user"}>)"},
      {"{{ l }}{{ ['t'] }}", "<['p', 'q']>['t']"},
      {"{{ (s + 'ŉ')|upper }}", "<USERʼN>"},
      {"{{ ('<b>' + s)|e }}", "&lt;b&gt;<user>"},
  };
  for (const OriginCase& one : cases) {
    EXPECT_EQ(Pieces(one.source, kContext), one.pieces) << one.source;
  }
}

TEST(JinjaOrigins, AUserCannotWriteTemplateText) {
  // A format string of the caller's brings its own fill characters.
  const Json context = {{"s", "{:<>2}{:|>1}"}, {"t", "x"}};
  EXPECT_EQ(
      Pieces("{{ s.format(e1, e1) }}{{ t }}", {{"s", "{:<2}|{:!>3}"}, {"t", "x"}, {"e1", ""}}),
      "<  |!!!x>");
  EXPECT_EQ(Pieces("{{ '<|r_' ~ n ~ '|>' }}", kContext), "<|r_<12>|>");
  EXPECT_EQ(Pieces("{{ '[' + s[:0] + '|' }}", kContext), "[|");
}

TEST(JinjaOrigins, ConstantsAreTemplateText) {
  const Json constants = {{"bos_token", "[B]"}, {"s", "shadowed"}};
  EXPECT_EQ(Pieces("{{ bos_token + s }}{{ bos_token }}", kContext, constants), "[B]<user>[B]");
}

TEST(JinjaOrigins, PiecesAreTheText) {
  const auto compiled = Template::Compile("a{{ s }}{{ 'b' }}c{{ l|join('|') }}");
  ASSERT_TRUE(compiled.ok());
  const auto pieces = (*compiled)->RenderPieces(kContext);
  ASSERT_TRUE(pieces.ok());
  std::string text;
  for (size_t i = 0; i < pieces->size(); ++i) {
    EXPECT_FALSE((*pieces)[i].text.empty());
    if (i > 0) {
      EXPECT_NE((*pieces)[i].from_template, (*pieces)[i - 1].from_template);
    }
    text += (*pieces)[i].text;
  }
  EXPECT_EQ(text, "auserbcp|q");
  EXPECT_EQ(text, *(*compiled)->Render(kContext));
}

}  // namespace
}  // namespace cleave::jinja
