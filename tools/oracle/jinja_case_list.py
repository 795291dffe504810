"""The inputs of jinja_cases.py: small templates by feature, and chats for whole templates."""

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather of a city: \"now\" & <later>",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "The city, e.g. Zürich"},
                    "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
                    "days": {"type": ["integer", "null"], "minimum": 1},
                    "where": {"type": "object", "properties": {"lat": {"type": "number"}},
                              "required": ["lat"]},
                    "tags": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["city"],
            },
            "return": {"type": "string"},
        },
    },
    {
        "type": "function",
        "function": {"name": "noop", "description": "Does nothing.",
                     "parameters": {"type": "object", "properties": {}}},
    },
]

SPECIALS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(name, arguments, identity="call00001"):
    return {"id": identity, "type": "function",
            "function": {"name": name, "arguments": arguments}}


def chats():
    """Contexts every whole template is rendered with."""
    system = {"role": "system", "content": "You are terse.  "}
    answer = {"role": "tool", "tool_call_id": "call00001", "name": "get_weather",
              "content": "{\"temperature\": 21.5}"}
    calls = assistant("", tool_calls=[call("get_weather", {"city": "Zürich", "days": 2,
                                                            "where": {"lat": 47.4}, "tags": ["a"]})])
    two = assistant("Both.", tool_calls=[call("get_weather", {"city": "Bern"}),
                                         call("noop", {}, "call00002")])
    reasoning = assistant("<think>\nLet me see.\n</think>\n\nFour.")
    reasoned = assistant("Four.", reasoning_content="Two and two.", thinking="Two and two.")
    parts = {"role": "user", "content": [{"type": "text", "text": "Look at"},
                                         {"type": "text", "text": " this."}]}
    out = {
        "plain": [user("Hi there!")],
        "space": [user("  Hi\n\n there!\n ")],
        "system": [system, user("Hi")],
        "turns": [system, user("a"), assistant("b"), user("c"), assistant(" d \n"), user("e")],
        "ends-with-assistant": [user("a"), assistant("b")],
        "two-users": [user("a"), user("b")],
        "reasoning": [user("2+2?"), reasoning, user("And 3+3?")],
        "reasoned": [user("2+2?"), reasoned, user("And 3+3?")],
        "unicode": [user("naïve 😀 <|im_end|> 中文 \"quotes\" \\ 'single' \t tab")],
        "parts": [parts, assistant("Fine."), user("Good.")],
        "empty": [],
        "null-content": [user("a"), assistant(None), user("b")],
        "unknown-role": [user("a"), {"role": "critic", "content": "b"}],
    }
    tools = {
        "tools": [system, user("Weather?")],
        "tools-no-system": [user("Weather?")],
        "tool-call": [user("Weather?"), calls, answer],
        "tool-turns": [system, user("Weather?"), calls, answer, assistant("21.5 degrees."),
                       user("Thanks")],
        "two-calls": [user("Both?"), two, answer, {"role": "tool", "tool_call_id": "call00002",
                                                   "name": "noop", "content": "ok"}],
        "string-arguments": [user("Weather?"),
                             assistant(None, tool_calls=[call("get_weather",
                                                              "{\"city\": \"Bern\"}")]), answer],
    }
    contexts = {}
    for name, messages in {**out, **tools}.items():
        context = {"messages": messages, "add_generation_prompt": True, **SPECIALS}
        if name in tools:
            context["tools"] = TOOLS
        contexts[name] = context
    contexts["no-generation-prompt"] = {**contexts["turns"], "add_generation_prompt": False}
    contexts["no-thinking"] = {**contexts["reasoned"], "enable_thinking": False}
    contexts["thinking"] = {**contexts["tool-turns"], "enable_thinking": True,
                            "reasoning_effort": "high", "thinking": True}
    contexts["documents"] = {**contexts["system"],
                             "documents": [{"title": "T", "text": "Body", "doc_id": 1}]}
    contexts["date"] = {**contexts["tools"], "date_string": "01 Jan 2026",
                        "tools_in_user_message": False, "builtin_tools": ["web_search"]}
    contexts["functions"] = {**contexts["plain"], "datetime": "2026-01-01",
                             "functions": [t["function"] for t in TOOLS]}
    return contexts


CONTEXT = {
    "n": None, "t": True, "f": False, "i": 7, "neg": -3, "big": 18446744073709551615, "x": 2.5,
    "tiny": 1e-05, "huge": 1e16, "s": "hello World", "e": "", "sp": "  a b\tc \n",
    "u": "naïve Straße ŉ ΑΣ ΣΑΣ. 😀中文İ", "q": "it's \"q\" \\ \n\x07\u00a0\u200b",
    "l": [3, 1, 2], "names": ["bob", "Alice", "Carol", "alice"], "nested": [[1, 2], [3, [4, None]]],
    "d": {"b": 1, "a": {"x": [1, 2.0, "z"]}, "items": "shadowed", "C": None}, "el": [], "ed": {},
    "users": [{"name": "bob", "age": 30, "ok": True, "pos": {"x": 1}},
              {"name": "Al", "age": 25, "ok": False, "pos": {"x": 2}},
              {"name": "cy", "age": 30, "ok": True, "pos": {"x": 0}}],
    "tree": [{"v": 1, "kids": [{"v": 2, "kids": [{"v": 3, "kids": []}]}, {"v": 4, "kids": []}]}],
}

# One line, one template; every one is rendered with CONTEXT.
EXPRESSIONS = {
    "literal": r"""
{{ 1 }}|{{ -1 }}|{{ +1 }}|{{ 1_000 }}|{{ 0x1F }}|{{ 0b101 }}|{{ 0o17 }}
{{ 1.0 }}|{{ 1.5e3 }}|{{ 1e-5 }}|{{ 1e16 }}|{{ 123456789012345680.0 }}|{{ 0.1 + 0.2 }}|{{ 1e100 }}
{{ true }}|{{ True }}|{{ false }}|{{ False }}|{{ none }}|{{ None }}
{{ 'a' "b" 'c' }}|{{ 'it\'s' }}|{{ "\t\x41\u00e9\U0001F600\101\q" }}
{{ [] }}|{{ [1, 'a', none, 2.0,] }}|{{ () }}|{{ (1,) }}|{{ (1, 'b') }}|{{ 1, 2 }}
{{ {} }}|{{ {'a': 1, 'b': [true], 3: none, } }}|{{ {1: 2, 1.0: 3, true: 4} }}
{{ q }}|{{ [q] }}|{{ [u] }}|{{ ["it's"] }}|{{ ['"'] }}|{{ ["'\""] }}
{{ big }}|{{ big + 1 }}|{{ tiny }}|{{ huge }}|{{ [tiny, huge, x, t, n] }}|{{ d }}|{{ nested }}
{{ 2 ** 62 }}|{{ 9223372036854775807 + 1 }}|{{ -7 }}
""",
    "arithmetic": r"""
{{ 7 / 2 }}|{{ 7 // 2 }}|{{ -7 // 2 }}|{{ 7 % 3 }}|{{ -7 % 3 }}|{{ 7 % -3 }}|{{ 2 ** 10 }}|{{ 2 ** -1 }}
{{ 7.5 // 2 }}|{{ -7.5 // 2 }}|{{ 7.5 % 2 }}|{{ -7.5 % 2 }}|{{ 7 % 2.5 }}|{{ 6 / 3 }}
{{ 1 + 2 * 3 - 4 }}|{{ (1 + 2) * 3 }}|{{ 2 * 3 ** 2 }}|{{ 2 ** 3 ** 2 }}|{{ -2 ** 2 }}
{{ 10 - 2 - 3 }}|{{ 100 / 5 / 2 }}|{{ true + true }}|{{ 1 + 1.0 }}
{{ 'ab' * 3 }}|{{ 2 * 'ab' }}|{{ 'ab' * -1 }}|{{ [1, 2] * 2 }}|{{ (1,) * 2 }}
{{ 'a' + 'b' }}|{{ [1] + [2] }}|{{ (1,) + (2,) }}|{{ 1 ~ 'a' ~ none ~ 2.0 ~ [1] ~ true }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ 1.0 / 0 }}
{{ 'a' + 1 }}
{{ 1 + 'a' }}
{{ none + 1 }}
{{ [1] + (2,) }}
{{ [] - [] }}
{{ 'a' - 'b' }}
{{ d + d }}
{{ -'a' }}
{{ 'a' ~ missing ~ 'b' }}
{{ missing + 1 }}
{{ 1 - missing }}
{{ 'x' + missing }}
{{ -missing }}
{{ 1e308 * 10 }}|{{ 0.0 }}|{{ -0.0 }}|{{ 5 // 0.3 }}|{{ 1 - 0.9 }}
""",
    "compare": r"""
{{ 1 == 1.0 }}|{{ 1 == true }}|{{ 'a' == 'a' }}|{{ [1] == [1.0] }}|{{ [1] == (1,) }}|{{ {} == {} }}
{{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }}|{{ none == none }}|{{ none == false }}|{{ missing == missing }}
{{ 1 < 2 }}|{{ 2 <= 2 }}|{{ 'a' < 'b' }}|{{ 'Z' < 'a' }}|{{ [1, 2] < [1, 3] }}|{{ (1,) < (1, 0) }}
{{ 1 < 2 < 3 }}|{{ 1 < 3 < 2 }}|{{ 3 > 2 > 1 }}|{{ 1 == 1 != 2 }}|{{ 1 in [1] == true }}
{{ 1 in [1, 2] }}|{{ 3 not in [1, 2] }}|{{ 'ell' in s }}|{{ 'b' in d }}|{{ 1 in d }}|{{ '' in '' }}
{{ 'a' in missing }}|{{ none in [none] }}|{{ 1.0 in [1] }}|{{ (1, 2) in [(1, 2)] }}|{{ 2 in range(3) }}
{{ not true }}|{{ not 0 }}|{{ not not 1 }}|{{ not 1 == 2 }}|{{ not 1 in [2] }}
{{ 1 and 2 }}|{{ 0 and 2 }}|{{ 1 or 2 }}|{{ 0 or '' }}|{{ none or 'x' }}|{{ missing or 'y' }}|{{ 1 and 0 or 3 }}
{{ 'a' < 1 }}
{{ none < 1 }}
{{ missing < 1 }}
{{ {} < {} }}
{{ 1 in 'a' }}
{{ 1 in 5 }}
{{ [] in {} }}
{{ 1 in none }}
{{ 1 if true else 2 }}|{{ 1 if false else 2 }}|{{ 1 if false }}|{{ (1 if false) is defined }}
{{ 'a' if e else 'b' if l else 'c' }}|{{ 1 if 0 else 2 if 0 else 3 }}|{{ (1 if t else 2) + 1 }}
{{ 2 == 2.0000000001 }}|{{ big == 18446744073709551615 }}|{{ 'é' == 'é' }}|{{ 0.1 + 0.2 == 0.3 }}
""",
    "access": r"""
{{ d.b }}|{{ d['b'] }}|{{ d.a.x[2] }}|{{ d['a']['x'][-1] }}|{{ d.missing }}|{{ d['missing'] }}|
{{ l[0] }}|{{ l[-1] }}|{{ l[9] }}|{{ l.0 }}|{{ s[0] }}|{{ s[-1] }}|{{ u[3] }}|{{ u[-1] }}|{{ s[99] }}|
{{ d.items is callable }}|{{ d['items'] }}|{{ d.keys()|list }}|{{ d['keys'] is callable }}|{{ ed.items()|list }}
{{ l[1:] }}|{{ l[:1] }}|{{ l[::-1] }}|{{ l[::2] }}|{{ l[-2:] }}|{{ l[5:] }}|{{ l[:-1] }}|{{ l[2:0:-1] }}|{{ l[:] }}
{{ s[1:4] }}|{{ s[::-1] }}|{{ s[::2] }}|{{ u[2:5] }}|{{ u[::-1] }}|{{ s[:-6] }}|{{ s[-5:-1:2] }}|{{ s[10:2:-3] }}
{{ l[0:99] }}|{{ l[-99:2] }}|{{ (1,2,3)[1:] }}|{{ range(10)[2:8:3]|list }}|{{ l[true] }}|{{ l[none:2] }}
{{ n.x }}|{{ n['x'] }}|{{ i.x }}|{{ 5['a'] }}|{{ s.nothing }}|{{ l['a'] }}|{{ d[none] }}|{{ d[[1]] }}|{{ s['upper']() }}
{{ missing }}|{{ missing is defined }}|{{ [missing] }}|{{ missing|length }}|{% for a in missing %}x{% endfor %}
{{ missing.x }}
{{ missing['x'] }}
{{ missing() }}
{{ d.missing.x }}
{{ missing[1:] }}
{{ d[1:] }}
{{ n[1:] }}
{{ l['a':] }}
{{ l[::0] }}
{{ s() }}
{{ l.x() }}
{{ l.append(1) }}
{{ d.update({}) }}
{{ d.pop('b') }}
{{ l.append }}|{{ d.pop is defined }}|{{ s.__class__ }}|{{ d.__init__ is defined }}
{{ {'a': {'b': {'c': 1}}}.a.b.c }}|{{ [[1, 2], [3]][0][1] }}|{{ {1: 'x'}[1] }}|{{ {(1, 2): 'y'}[(1, 2)] }}|{{ {(1, 2): 'y'}[1, 2] }}
{{ {true: 'z'}[1] }}|{{ {1.0: 'z'}[1] }}|{{ {none: 'q'}[none] }}
{{ {[]: 1} }}
""",
    "string-method": r"""
{{ s.upper() }}|{{ s.lower() }}|{{ s.title() }}|{{ s.capitalize() }}|{{ s.swapcase() }}|{{ u.upper() }}
{{ u.lower() }}|{{ u.title() }}|{{ u.capitalize() }}|{{ u.swapcase() }}|{{ u.casefold() }}|{{ 'ΑΣ'.lower() }}|{{ "they're bill's".title() }}
{{ [sp.strip(), sp.lstrip(), sp.rstrip(), 'xxaxx'.strip('x'), 'abcba'.lstrip('ab'), 'abcba'.rstrip('ab'), 'é a é'.strip('é'), '\u3000x\u2003'.strip()] }}
{{ [s.split(), sp.split(), 'a,b,,c'.split(','), 'a,b,c'.split(',', 1), ' a  b c '.split(none, 1), ''.split(), ''.split(','), ' a b '.split(' ')] }}
{{ ['a,b,c'.rsplit(',', 1), ' a b c '.rsplit(none, 1), 'abc'.rsplit('x'), 'a b'.rsplit(), 'aXbXc'.split(sep='X', maxsplit=1)] }}
{{ 'a'.split('') }}
{{ 'a\nb\r\nc\x0bd\u2028e\n'.splitlines() }}|{{ 'a\nb\n'.splitlines(true) }}|{{ ''.splitlines() }}|{{ '\n'.splitlines() }}
{{ ['abc'.startswith('ab'), 'abc'.startswith(('x', 'a')), 'abc'.endswith('bc'), 'abc'.endswith(()), 'abc'.startswith('b', 1), 'abc'.endswith('b', 0, 2), 'abc'.startswith('')] }}
{{ 'abc'.startswith(1) }}
{{ ['abcabc'.find('c'), 'abcabc'.find('c', 3), 'abc'.find('x'), 'abcabc'.rfind('c'), 'naïve'.find('v'), 'abc'.index('b'), 'abcb'.rindex('b'), 'abc'.find('', 5), 'a'.find('')] }}
{{ 'abc'.index('x') }}
{{ ['banana'.count('an'), 'banana'.count(''), 'banana'.count('a', 2), 'banana'.count('a', 2, 4), 'é'.count('')] }}
{{ ['banana'.replace('an', 'AN'), 'banana'.replace('a', '', 2), 'abc'.replace('', '-'), 'aé'.replace('', '-', 2), 'abc'.replace('x', 'y')] }}
{{ 'abc'.replace('a') }}
{{ [','.join(['a', 'b']), ''.join([]), '-'.join('abc'), ', '.join(d)] }}
{{ ','.join([1]) }}
{{ ['abc'.removeprefix('ab'), 'abc'.removeprefix('x'), 'abc'.removesuffix('bc'), 'abc'.removesuffix('')] }}
{{ ['12'.isdigit(), '²'.isdigit(), '1.2'.isdigit(), ''.isdigit(), 'a1'.isalnum(), 'é'.isalpha(), ' \t'.isspace(), 'AB1'.isupper(), 'ab1'.islower(), '12'.islower(), 'Ab Cd'.istitle(), '½'.isnumeric(), '²'.isdecimal(), 'a'.isascii(), 'é'.isascii()] }}
{{ ['a'.center(4), 'a'.center(5, '-'), 'ab'.center(5, '*'), 'a'.ljust(3) ~ '|', 'a'.rjust(3), '5'.zfill(3), '-5'.zfill(4), 'abc'.zfill(2)] }}
{{ ['a=b=c'.partition('='), 'abc'.partition('='), 'a=b=c'.rpartition('='), 'abc'.rpartition('=')] }}
{{ '{} {}'.format(1, 'a') }}|{{ '{1} {0}'.format('a', 'b') }}|{{ '{x} {y!r}'.format(x=1, y='q') }}|{{ '{{}}'.format() }}|{{ '{0.b} {0[b]} {1[2]}'.format(d, l) }}
{{ '{:5}|{:<5}|{:>5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd', 'e') }}|{{ '{:5}|{:05}|{:+}|{:x}|{:#x}|{:b}|{:,}|{:_}'.format(42, 42, 42, 255, 255, 5, 1234567, 1234567) }}
{{ '{:.2f}|{:8.3f}|{:e}|{:g}|{:%}|{:.0f}|{:08.2f}|{}'.format(3.14159, 2.5, 12345.678, 0.0001, 0.25, 2.5, -1.5, 1.0) }}|{{ '{:.2}|{:5.1}'.format('abc', 'xyz') }}
{{ '{:{}}|{:{w}.{p}f}'.format('a', 4, 3.14159, w=8, p=2) }}|{{ '{!s:>4}'.format(1) }}|{{ '{:d}'.format(true) }}|{{ '{}'.format(missing) }}|{{ '{}'.format(none) }}
{{ '{'.format() }}
{{ '}'.format() }}
{{ '{}'.format() }}
{{ '{x}'.format() }}
{{ '{:q}'.format(1) }}
{{ '{:-5}'.format('a') }}
{{ '{:#5}'.format('a') }}
{{ '{:,}'.format('a') }}
{{ '{:-5}|{:- 5}'.format(1, 2) }}
{{ '{:-5}|{: }|{:+.1f}'.format(1, 2, 3) }}
{{ '{:d}'.format('a') }}
{{ 'abc'.nothing() }}
{{ 'abc'.upper(1) }}
{{ '%s and %s' % ('a', 1) }}|{{ '%d|%5d|%-5d|%05d|%+d|% d' % (1, 2, 3, 4, 5, 6) }}|{{ '%.2f|%8.3f|%e|%g|%G' % (3.14159, 2.5, 12345.678, 1e-10, 1e20) }}
{{ '%x|%X|%#x|%o|%c|%c|%%|%r|%5s|%-5s|%.2s' % (255, 255, 255, 8, 65, 'z', 'q', 'a', 'b', 'xyz') }}|{{ '%(a)s %(b)d' % {'a': 1, 'b': 2} }}|{{ '%s' % [1, 2] }}|{{ '%s' % missing }}|{{ '%*d' % (5, 3) }}
{{ '%s %s' % ('a',) }}
{{ '%s' % ('a', 'b') }}
{{ '%d' % 'a' }}
{{ '%q' % 1 }}
{{ '%+%' % 1 }}
{{ '%%|%s%%' % 1 }}
{{ 'a' % 1 }}
{{ 'a' % missing }}|{{ 'a' % [1] }}|{{ 'a' % d }}|{{ range(3) in d }}|{{ {range(2): 1}|length }}
{{ 'a' % (l|select) }}
{{ '%d' % 3.99 }}|{{ '%s' % none }}|{{ '%s' % 1.0 }}|{{ '%i' % true }}
""",
    "collection-method": r"""
{{ d.items()|list }}|{{ d.keys()|list }}|{{ d.values()|list }}|{{ d.get('b') }}|{{ d.get('zz') }}|{{ d.get('zz', 5) }}|{{ d.get(1, 'x') }}
{{ d.items() }}|{{ ed.keys() }}|{{ d.values()|length }}|{{ d.copy() == d }}
{{ d.get() }}
{{ l.index(1) }}|{{ l.count(3) }}|{{ (1, 2, 1).count(1) }}|{{ (1, 2).index(2) }}|{{ range(5).index(3) }}
{{ l.index(9) }}
{{ d.items()[0] }}|{{ d.keys() is sequence }}|{{ d.keys() is iterable }}|{{ d.items() is mapping }}
{{ dict(a=1, b=2) }}|{{ dict({'x': 1}, y=2) }}|{{ dict([(1, 2)]) }}|{{ dict() }}
{{ dict(1) }}
{{ dict(missing) }}
{{ l|sort(reverse=missing) }}
{{ l|sort(reverse=1) }}|{{ l|sort(true) }}
{{ range(5)|list }}|{{ range(1, 10, 3)|list }}|{{ range(5, 0, -2)|list }}|{{ range(0)|list }}|{{ range(3) }}|{{ range(2, 8, 2) }}|{{ range(5)|length }}|{{ range(5)[1] }}
{{ range(1, 2, 0) }}
{{ range(100001) }}
{{ range('a') }}
{{ range() }}
""",
    "filter-text": r"""
{{ s|upper }}|{{ s|lower }}|{{ s|title }}|{{ s|capitalize }}|{{ u|title }}|{{ "foo-bar (baz) [x] <y> {z}it's"|title }}|{{ 5|upper }}|{{ none|upper }}|{{ missing|upper }}
[{{ sp|trim }}]|{{ 'xxaxx'|trim('x') }}|{{ 5|trim }}|{{ missing|trim }}|{{ 'a'|center(5) }}|{{ 'ab'|center(5) }}|
{{ s|replace('o', '0') }}|{{ s|replace('l', 'L', 2) }}|{{ 5|replace('5', '6') }}|{{ 'abc'|replace('', '-') }}
{{ 'a\nb\n\nc'|indent }}|{{ 'a\nb\n\nc\n'|indent(2, true) }}|{{ 'a\n\nb'|indent(2, blank=true) }}|{{ 'a\nb'|indent('> ', first=true) }}|{{ ''|indent }}|{{ ''|indent(first=true) }}
{{ 5|indent }}
{{ '%s-%s'|format('a', 1) }}|{{ '%(a)s'|format(a=2) }}|{{ '%d'|format(3.7) }}
{{ '%s'|format(1, a=2) }}
{{ s|length }}|{{ u|length }}|{{ l|count }}|{{ d|length }}|{{ ''|length }}
{{ 5|length }}
{{ none|length }}
{{ '<a href="x">\'&</a>'|e }}|{{ '<'|escape|e }}|{{ '<'|forceescape }}|{{ '<'|e|forceescape }}|{{ 5|e }}|{{ '<b>'|safe }}
{{ '<b>'|safe + '<i>' }}|{{ '<i>' + ('<b>'|safe) }}|{{ '<b>'|safe ~ '<i>' }}|{{ ('<%s>'|safe) % '<' }}|{{ ['<'|safe] }}|{{ '<b>'|safe is escaped }}|{{ '<b>' is escaped }}|{{ ('<b>'|safe)[0] }}|{{ ('<b>'|safe).upper() + '<' }}
{{ 1|string + 'a' }}|{{ none|string }}|{{ l|string }}|{{ d|string }}|{{ true|string }}|{{ 1.0|string }}|{{ missing|string }}|
{{ s|truncate(5) }}|{{ s|truncate(5, true) }}|{{ s|truncate(8, true, '..', 0) }}|{{ s|truncate(8, false, '', 0) }}|{{ s|truncate }}|{{ s|truncate(9) }}
{{ s|truncate(2) }}
{{ l|truncate }}|{{ ('<a>'|e)|list }}|{{ ('<a>'|e)|first is escaped }}|{{ ('<a>'|e)[0] is escaped }}
{{ l|truncate(3, leeway=0, end='') }}|{{ l|truncate(2, end='', leeway=0) }}
{{ 'a b, c_d  é1'|wordcount }}|{{ ''|wordcount }}|{{ 'a b&c/é'|urlencode }}|{{ {'a b': 1, 'c': '&/'}|urlencode }}|{{ [('x', 'y z')]|urlencode }}|{{ 5|urlencode }}
{{ s|nosuchfilter }}
{% if false %}{{ s|nosuchfilter }}{% endif %}ok
{% if true %}{{ s|nosuchfilter }}{% endif %}
{{ s|upper if false else 'z' }}|{{ (s|nosuch) if false else 'z' }}
{% for a in [] %}{{ a|nosuch }}{% endfor %}
{{ s|reverse }}|{{ u|reverse }}|{{ s|first }}|{{ s|last }}|{{ s|list }}|{{ s|join('-') }}
{{ s | upper | lower | title }}|{{ -1|abs }}|{{ -1.5|abs }}|{{ true|abs }}|{{ (s|upper).lower() }}|{{ s|upper|replace("L", "_")|length }}
{{ 'a'|abs }}
""",
    "filter-number": r"""
{{ '42'|int }}|{{ '42.9'|int }}|{{ 'x'|int }}|{{ 'x'|int(5) }}|{{ 3.9|int }}|{{ -3.9|int }}|{{ '0x1f'|int(base=16) }}|{{ '1f'|int(0, 16) }}|{{ none|int }}|{{ [] |int(7) }}|{{ true|int }}|{{ ' 12 '|int }}|{{ '1_000'|int }}|{{ '-5'|int }}|{{ '1e3'|int }}|{{ ''|int }}
{{ missing|int }}
{{ 'inf'|int }}
{{ '3.5'|float }}|{{ 'x'|float }}|{{ 'x'|float(1.5) }}|{{ 3|float }}|{{ none|float }}|{{ '1e-7'|float }}|{{ 'nan'|float }}|{{ '-inf'|float }}|{{ ' 2 '|float }}
{{ 42.55|round }}|{{ 42.55|round(1) }}|{{ 42.55|round(1, 'floor') }}|{{ 42.55|round(1, 'ceil') }}|{{ 42|round }}|{{ 2.5|round }}|{{ 3.5|round }}|{{ -2.5|round }}|{{ 1234|round(-2) }}|{{ 1250|round(-2) }}|{{ 1350|round(-2) }}|{{ 1234.5|round(-2) }}|{{ 2.675|round(2) }}|{{ 7|round(0, 'floor') }}|{{ 7.2|round(method='ceil') }}
{{ 1|round(1, 'x') }}
{{ 'a'|round }}
{{ missing|default }}|{{ missing|default('x') }}|{{ n|default('x') }}|{{ n|default('x', true) }}|{{ e|default('x', boolean=true) }}|{{ e|d('x') }}|{{ d.zz|default(1) }}|{{ i|default(2) }}
{{ missing.x|default('y') }}
{{ d|attr('b') }}|{{ d|attr('items') is callable }}|{{ s|attr('upper') is defined }}
""",
    "filter-list": r"""
{{ l|sort }}|{{ l|sort(reverse=true) }}|{{ names|sort }}|{{ names|sort(case_sensitive=true) }}|{{ users|sort(attribute='age')|map(attribute='name')|list }}|{{ users|sort(attribute='age,name')|map(attribute='name')|list }}|{{ users|sort(attribute='pos.x', reverse=true)|map(attribute='name')|join(',') }}|{{ 'hello'|sort }}|{{ d|sort }}
{{ [1, 'a']|sort }}
{{ [none, 1]|sort }}
{{ l|first }}|{{ l|last }}|{{ el|first }}|{{ el|last }}|{{ d|first }}|{{ d|last }}|{{ (1, 2)|last }}|{{ range(3)|last }}|{{ missing|first }}|{{ missing|last }}
{{ 5|first }}
{{ l|select|last }}
{{ l|join }}|{{ l|join(', ') }}|{{ users|join('-', attribute='name') }}|{{ users|join('-', 'age') }}|{{ el|join(',') }}|{{ d|join(',') }}|{{ [none, true, 1.0]|join('/') }}|{{ missing|join }}|{{ l|join(1) }}
{{ 5|join }}
{{ l|list }}|{{ d|list }}|{{ (1, 2)|list }}|{{ missing|list }}|{{ range(2)|list }}|{{ d.items()|list }}
{{ 5|list }}
{{ none|list }}
{{ l|map('string')|join('-') }}|{{ names|map('upper')|list }}|{{ users|map(attribute='name')|list }}|{{ users|map(attribute='zz')|list }}|{{ users|map(attribute='zz', default='D')|list }}|{{ users|map(attribute='pos.x')|list }}|{{ nested|map('first')|list }}|{{ nested|map(attribute=0)|list }}|{{ nested|map(attribute='1')|list }}|{{ none|map('upper')|list }}|{{ l|map('replace', '1', 'x')|list }}
{{ l|map|list }}
{{ l|map('nosuch')|list }}
{{ l|map('default', 5, foo=1)|list }}
{{ users|map(attribute='zz.y')|list }}
{{ l|select('odd')|list }}|{{ l|select('gt', 1)|list }}|{{ l|reject('odd')|list }}|{{ [0, 1, '', 'a', none]|select|list }}|{{ [0, 1, '', none]|reject|list }}|{{ names|select('in', ['bob'])|list }}|{{ l|select('equalto', 2)|list }}|{{ [1, 'a', 2.0]|select('string')|list }}|{{ l|select('divisibleby', 3)|list }}|{{ [1, missing]|select('defined')|list }}
{{ l|select('nosuch')|list }}
{{ users|selectattr('ok')|map(attribute='name')|list }}|{{ users|selectattr('age', 'equalto', 30)|map(attribute='name')|list }}|{{ users|rejectattr('ok')|map(attribute='name')|list }}|{{ users|selectattr('zz', 'defined')|list }}|{{ users|selectattr('zz', 'undefined')|list|length }}|{{ users|rejectattr('age', 'lt', 28)|list|length }}|{{ users|selectattr('pos.x', '>', 0)|list|length }}|{{ users|selectattr('name', '==', 'bob')|first }}|{{ users|selectattr('name', 'ne', 'bob')|map(attribute='age')|sum }}
{{ users|selectattr|list }}
{{ l|min }}|{{ l|max }}|{{ names|min }}|{{ names|max }}|{{ names|max(case_sensitive=true) }}|{{ users|min(attribute='age') }}|{{ users|max(attribute='age') }}|{{ el|min }}|{{ 'hello'|max }}|{{ [1.5, 1]|min }}
{{ [1, 'a']|min }}
{{ l|sum }}|{{ users|sum(attribute='age') }}|{{ l|sum(start=10) }}|{{ [1.5, 2]|sum }}|{{ el|sum }}|{{ [[1], [2]]|sum(start=[]) }}
{{ names|sum }}
{{ names|unique|list }}|{{ names|unique(case_sensitive=true)|list }}|{{ users|unique(attribute='age')|map(attribute='name')|list }}|{{ [1, 1.0, true, '1', none, none]|unique|list }}|{{ 'hello'|unique|join }}
{{ [[1]]|unique|list }}
{{ l|reverse|list }}|{{ (1, 2)|reverse|list }}|{{ d|reverse|list }}|{{ l|select|reverse }}|{{ el|reverse|list }}|{{ range(3)|reverse|list }}
{{ 5|reverse }}
{{ l|batch(2)|list }}|{{ l|batch(2, 'x')|list }}|{{ l|batch(5, 0)|list }}|{{ el|batch(2)|list }}|{{ l|slice(2)|list }}|{{ l|slice(2, 'x')|list }}|{{ range(7)|slice(3)|list }}|{{ l|slice(5)|list }}
{{ d|dictsort }}|{{ {'b': 2, 'A': 3, 'c': 1}|dictsort }}|{{ {'b': 2, 'A': 3}|dictsort(true) }}|{{ {'b': 2, 'A': 3, 'c': 1}|dictsort(by='value') }}|{{ {'b': 2, 'A': 3}|dictsort(reverse=true) }}|{{ {'b': 2, 'A': 3}|dictsort(false, 'value') }}
{{ l|dictsort }}
{{ {'a': 1}|dictsort(by='x') }}
{{ d|items|list }}|{{ missing|items|list }}|{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}
{{ l|items|list }}
{% for g in users|groupby('age') %}{{ g.grouper }}:{{ g.list|map(attribute='name')|join(',') }};{% endfor %}|{% for k, v in users|groupby('ok') %}{{ k }}{{ v|length }}{% endfor %}|{{ names|map('lower')|groupby(0)|list }}|{{ users|groupby('zz', default='none')|map('first')|list }}
{{ l|select is iterable }}|{{ l|select is sequence }}|{{ (l|select)[0] is defined }}|{{ l|map('abs')|first }}
{{ l|select|length }}
{% set g = l|select %}{{ g|list }}{{ g|list }}
{% set r = l|reverse %}{{ r|join }}{{ r|join }}
""",
    "filter-json": r"""
{{ d|tojson }}|{{ l|tojson }}|{{ s|tojson }}|{{ q|tojson }}|{{ u|tojson }}|{{ none|tojson }}|{{ true|tojson }}|{{ 1.0|tojson }}|{{ tiny|tojson }}|{{ huge|tojson }}|{{ big|tojson }}|{{ [1e100, -0.0, 123456789.125]|tojson }}
{{ u|tojson(ensure_ascii=true) }}|{{ u|tojson(true) }}|{{ '\x7f\x1f</script>&\'"'|tojson }}|{{ '\x7f\u2028'|tojson(ensure_ascii=true) }}
{{ d|tojson(indent=2) }}
{{ d|tojson(indent=4) }}|{{ el|tojson(indent=2) }}|{{ ed|tojson(indent=2) }}|{{ [[], {}, [1]]|tojson(indent=1) }}
{{ d|tojson(indent=0) }}|{{ l|tojson(indent='--') }}
{{ d|tojson(separators=(',', ':')) }}|{{ d|tojson(separators=(',', ': '), indent=2) }}|{{ d|tojson(sort_keys=true) }}|{{ {'b': 1, 'a': 2}|tojson(sort_keys=true) }}
{{ {1: 2, true: 3, none: 4, 1.5: 6}|tojson }}|{{ (1, (2,))|tojson }}|{{ users|tojson }}
{{ missing|tojson }}
{{ range(2)|tojson }}
{{ l|select|tojson }}
{{ {(1, 2): 3}|tojson }}
{{ namespace(a=1)|tojson }}
{{ d.items()|tojson }}
{{ d.items()|list|tojson }}|{{ '<b>'|tojson|safe }}|{{ d|tojson|length }}|{{ l|tojson|string|upper }}
""",
    "test": r"""
{{ missing is defined }}|{{ s is defined }}|{{ missing is undefined }}|{{ d.zz is defined }}|{{ d.b is defined }}|{{ n is defined }}
{{ n is none }}|{{ s is none }}|{{ missing is none }}|{{ s is string }}|{{ 1 is string }}|{{ 1 is number }}|{{ true is number }}|{{ 1.0 is number }}|{{ 's' is number }}
{{ 1 is integer }}|{{ true is integer }}|{{ 1.0 is integer }}|{{ 1.0 is float }}|{{ 1 is float }}|{{ true is boolean }}|{{ 1 is boolean }}|{{ true is true }}|{{ 1 is true }}|{{ false is false }}|{{ 0 is false }}
{{ d is mapping }}|{{ l is mapping }}|{{ namespace() is mapping }}|{{ l is iterable }}|{{ s is iterable }}|{{ 5 is iterable }}|{{ missing is iterable }}|{{ d is iterable }}|{{ none is iterable }}
{{ l is sequence }}|{{ s is sequence }}|{{ d is sequence }}|{{ 5 is sequence }}|{{ missing is sequence }}|{{ (1,) is sequence }}|{{ range(2) is sequence }}|{{ none is sequence }}
{{ range is callable }}|{{ s.upper is callable }}|{{ s is callable }}|{{ missing is callable }}|{{ namespace is callable }}
{{ 2 is even }}|{{ 3 is odd }}|{{ 9 is divisibleby 3 }}|{{ 9 is divisibleby(2) }}|{{ -3 is odd }}|{{ 2.0 is even }}
{{ 1 is eq 1 }}|{{ 1 is ne 1 }}|{{ 1 is lt 2 }}|{{ 1 is le 1 }}|{{ 2 is gt 1 }}|{{ 2 is ge 3 }}|{{ 1 is equalto 1 }}|{{ 1 is lessthan 2 }}|{{ 1 is greaterthan 2 }}|{{ 1 is == 1 }}
{{ 1 is sameas 1 }}|{{ true is sameas true }}|{{ 1 is sameas true }}|{{ none is sameas none }}|{{ 'a' is in 'abc' }}|{{ 1 is in [1] }}|{{ 1 is not in [1] }}|{{ 'upper' is filter }}|{{ 'nosuch' is filter }}|{{ 'odd' is test }}|{{ 'nosuch' is test }}
{{ 'AB' is upper }}|{{ 'ab' is lower }}|{{ 'Ab' is lower }}|{{ '' is upper }}|{{ 5 is upper }}
{{ s is not none }}|{{ not s is none }}|{{ s is string and l is iterable }}|{{ s is string or missing.x }}|{{ 1 is defined == true }}|{{ d.b is number and d.b == 1 }}
{{ 1 is nosuch }}
{{ 'a' is even }}
{{ 1 is divisibleby 0 }}
{{ 1 is string is none }}
{{ missing is even }}
{{ 'x' if s is defined else 'y' }}|{{ [s is string, l is string] }}|{{ l|length is gt 2 }}|{{ 3 is divisibleby i - 4 }}
""",
}

# Whole templates: (group, source); rendered with CONTEXT.
STATEMENTS = {
    "if": [
        "{% if t %}a{% endif %}", "{% if f %}a{% else %}b{% endif %}",
        "{% if f %}a{% elif l %}b{% elif t %}c{% else %}d{% endif %}",
        "{% if missing %}a{% endif %}b", "{% if not el and not e %}x{% endif %}",
        "{% if l|length > 2 and s is string %}x{% endif %}", "{% if 1, 2 %}x{% endif %}",
        "{% if %}{% endif %}", "{% if t %}", "{% endif %}", "{% if t %}{% else %}{% elif t %}{% endif %}",
        "{% if t %}{% set z = 1 %}{% endif %}{{ z }}",
    ],
    "for": [
        "{% for a in l %}{{ a }},{% endfor %}", "{% for a in s %}{{ a }}.{% endfor %}",
        "{% for k in d %}{{ k }};{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
        "{% for a in el %}x{% else %}none{% endfor %}", "{% for a in l %}{{ a }}{% else %}none{% endfor %}",
        "{% for a in l if a > 1 %}{{ loop.index }}/{{ loop.length }}:{{ a }} {% endfor %}",
        "{% for a in l if a > 9 %}x{% else %}none{% endfor %}",
        "{% for a, (b, c) in [(1, (2, 3)), (4, (5, 6))] %}{{ a }}{{ b }}{{ c }};{% endfor %}",
        "{% for (a, b) in [(1, 2)] %}{{ a }}{{ b }}{% endfor %}", "{% for a in 5 %}{% endfor %}",
        "{% for a in none %}{% endfor %}", "{% for a, b in [(1,)] %}{% endfor %}",
        "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for a, b in l %}{% endfor %}",
        "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}"
        "{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }} {% endfor %}",
        "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} "
        "{{ loop.previtem is defined }}{{ loop.nextitem is defined }};{% endfor %}",
        "{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in l %}{{ loop.cycle() }}{% endfor %}",
        "{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }} {% endfor %}",
        "{% for x in l %}{% for y in l %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}",
        "{% for x in l %}{% set o = loop %}{% for y in 'ab' %}{{ o.index }}{{ loop.index }} {% endfor %}{% endfor %}",
        "{% for a in l %}{% if a == 1 %}{% break %}{% endif %}{{ a }}{% endfor %}",
        "{% for a in l %}{% if a == 1 %}{% continue %}{% endif %}{{ a }}{% endfor %}",
        "{% for a in [1] %}{% break %}{% else %}else{% endfor %}",
        "{% for a in [1] %}{% continue %}{% else %}else{% endfor %}",
        "{% for a in [1, 2] %}{% if loop.first %}{% continue %}{% endif %}{% else %}else{% endfor %}",
        "{% break %}", "{% continue %}", "{% if t %}{% break %}{% endif %}",
        "{% for x in tree recursive %}{{ loop.depth }}{{ x.v }}[{{ loop(x.kids) }}]{% endfor %}",
        "{% for x in tree recursive %}{{ x.v }}{% if x.kids %}({{ loop(x.kids) }}){% endif %}{% endfor %}",
        "{% for x in l %}{{ loop(x) }}{% endfor %}",
        "{% set x = 9 %}{% for x in l %}{{ x }}{% endfor %}{{ x }}", "{% for i in [i, i] %}{{ i }}{% endfor %}",
        "{% set c = 0 %}{% for a in l %}{% set c = c + a %}{{ c }} {% endfor %}{{ c }}",
        "{% for a in l %}{% if loop.last %}last{% elif loop.first %}first{% else %}mid{% endif %},{% endfor %}",
        "{% for a in l|sort %}{{ a }}{{ ', ' if not loop.last }}{% endfor %}",
        "{% for a in range(3) %}{{ loop['index'] }}{% endfor %}", "{% for a in l %}{{ loop.nope }}{% endfor %}",
        "{% if t: %}a{% endif: %}", "{% for a in l: %}{{ loop }}{% else: %}{% endfor %}", "{% for a, in [(1,)] %}{% endfor %}",
        "{{ loop }}", "{% for a in l %}{{ loop.length }}{% endfor %}{{ loop is defined }}",
        "{% for a in l|select('gt', 1) %}{{ loop.revindex }}{{ loop.last }}{{ loop.length }} {% endfor %}",
        "{% set ns = namespace(stop=false) %}{% for a in [1, 2, 3, 4] if not ns.stop %}{{ a }}"
        "{% if a == 2 %}{% set ns.stop = true %}{% endif %}{% endfor %}",
        "{% set ns = namespace(stop=false) %}{% for a in [1, 2, 3, 4] if not ns.stop %}{{ a }}{{ loop.last }}"
        "{% if a == 2 %}{% set ns.stop = true %}{% endif %}{% endfor %}",
        "{% for a in l[::-1] %}{{ a }}{% endfor %}", "{% for a in l[1:] %}{{ loop.index0 }}{{ a }}{% endfor %}",
        "{% for a in 1, 2, 3 %}{{ a }}{% endfor %}", "{% for a in (1, 2) if a else [] %}{{ a }}{% endfor %}",
        "{% for a in l %}", "{% for in l %}{% endfor %}", "{% for a l %}{% endfor %}", "{% for 5 in l %}{% endfor %}",
        "{% for true in l %}{% endfor %}", "{% for a.b in l %}{% endfor %}",
    ],
    "set": [
        "{% set a = 1 %}{{ a }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = [3, 4] %}{{ a }}{{ b }}",
        "{% set (a, b) = (1, 2) %}{{ a }}{{ b }}", "{% set a, b = 1 %}", "{% set a, b = [1] %}",
        "{% set a = 1, 2 %}{{ a }}", "{% set a %}x{{ s }}y{% endset %}{{ a }}|{{ a|length }}",
        "{% set a | upper %}x{{ s }}{% endset %}{{ a }}", "{% set a | upper | replace('X', 'z') %}x{% endset %}{{ a }}",
        "{% set a %}{% set b = 1 %}{{ b }}{% endset %}{{ a }}{{ b }}",
        "{% set ns = namespace(a=1, b='x') %}{% set ns.a = ns.a + 1 %}{{ ns.a }}{{ ns.b }}{{ ns.c }}{{ ns['a'] }}",
        "{% set ns = namespace() %}{% for a in l %}{% set ns.sum = (ns.sum or 0) + a %}{% endfor %}{{ ns.sum }}",
        "{% set ns = namespace({'k': 5}) %}{{ ns.k }}", "{% set ns = namespace(items=[]) %}{% set ns.items = ns.items + [1] %}{{ ns.items }}",
        "{{ namespace(a=1) }}", "{{ namespace(a=1).a }}", "{{ namespace(1) }}",
        "{% set d.x = 1 %}", "{% set missing.x = 1 %}", "{% set ns = namespace() %}{{ ns.x.y }}",
        "{% set ns = namespace() %}{% set ns.x %}block{% endset %}{{ ns.x }}",
        "{% set true = 1 %}", "{% set 5 = 1 %}", "{% set a.b.c = 1 %}", "{% set a[0] = 1 %}", "{% set a %}", "{% set %}",
        "{% set x = [] %}{% set x = x + [1] %}{{ x }}", "{% set a = missing %}{{ a is defined }}",
        "{% for a in l %}{% set ns = namespace(v=a) %}{{ ns.v }}{% endfor %}",
        "{% set x = 1 %}{% if t %}{% set x = 2 %}{% endif %}{{ x }}",
        "{% set x = 1 %}{% for a in [1, 2] %}{{ x }}{% set x = 5 %}{{ x }}{% endfor %}{{ x }}",
        "{% for a in l %}{% set captured %}{{ a }}!{% endset %}{{ captured }}{% endfor %}",
    ],
    "macro": [
        "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, 3) }}|{{ m(1, c='y') }}|{{ m(b=5, a=4) }}|{{ m() }}",
        "{% macro m() %}{% endmacro %}{{ m(1) }}", "{% macro m() %}{% endmacro %}{{ m(x=1) }}",
        "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}",
        "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}", "{% macro m(a=1, b) %}{% endmacro %}",
        "{% macro m(a) %}{{ a is defined }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m() }}{{ m(1, 2, 3, x=4) }}",
        "{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(3) }}",
        "{% macro a() %}[{{ b() }}]{% endmacro %}{% macro b() %}b{% endmacro %}{{ a() }}",
        "{% macro m() %}{{ v }}{% endmacro %}{% set v = 1 %}{{ m() }}{% set v = 2 %}{{ m() }}",
        "{% macro m() %}{{ caller() }}{{ caller() }}{% endmacro %}{% call m() %}x{{ s }}{% endcall %}",
        "{% macro m() %}{{ caller(1, b=2) }}{% endmacro %}{% call(a, b) m() %}{{ a }}{{ b }}{% endcall %}",
        "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro m() %}x{% endmacro %}{% call m() %}{% endcall %}",
        "{% call s %}{% endcall %}", "{% call 5 %}{% endcall %}", "{% macro m(x) %}{{ x }}{{ caller() }}{% endmacro %}{% call m(l[0]) %}<{{ x }}>{% endcall %}",
        "{% macro m() %}{% set inner = 1 %}{{ inner }}{% endmacro %}{{ m() }}{{ inner }}",
        "{% macro m(x) -%}\n  {{ x }}\n{%- endmacro %}[{{ m('a') }}]", "{{ m is defined }}{% macro m() %}{% endmacro %}{{ m is defined }}{{ m is callable }}",
        "{% macro m(a, a) %}{% endmacro %}", "{% macro m(a,) %}{% endmacro %}", "{% macro 5() %}{% endmacro %}", "{% macro m %}{% endmacro %}", "{% macro m() %}",
        "{% macro m(a) %}{% for x in a %}{{ x }}{{ loop.index }}{% endfor %}{% endmacro %}{{ m(l)|upper }}{{ m('ab') ~ '!' }}",
        "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(*[1]) }}{{ m(**{'a': 2}) }}{{ l|map('string')|map('upper')|join }}",
        "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(**{1: 2}) }}", "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*l[:2]) }}{{ m(b=1, *[2]) }}",
        "{% for a in l %}{% macro m() %}{{ a }}{% endmacro %}{{ m() }}{% endfor %}",
        "{% macro m(a=[]) %}{{ a }}{% endmacro %}{{ m() }}{{ m(none) }}", "{% macro m(x) %}{{ x.name }}{% endmacro %}{{ m.name }}",
        "{% for a in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
        "{% macro outer() %}{% macro inner() %}i{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}{{ inner is defined }}",
        "{% macro render(o, depth=0) %}{% if o is mapping %}{ {% for k, v in o.items() %}{{ k }}:{{ render(v, depth + 1) }}{{ ',' if not loop.last }}{% endfor %} }"
        "{% elif o is string %}'{{ o }}'{% elif o is iterable %}[{% for v in o %}{{ render(v, depth + 1) }}{{ ',' if not loop.last }}{% endfor %}]{% else %}{{ o }}@{{ depth }}{% endif %}{% endmacro %}{{ render(d) }}{{ render(nested) }}",
    ],
    "block-tags": [
        "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z }}",
        "{% with a = i, b = a %}{{ a }}{{ b }}{% endwith %}", "{% filter upper %}a{{ s }}{% endfilter %}",
        "{% filter upper|replace('A', 'z') %}a{{ s }}{% endfilter %}", "{% filter indent(2, first=true) %}a\nb{% endfilter %}",
        "{% filter nosuch %}{% endfilter %}", "{% raw %}{{ x }}{% if %}{% endraw %}", "{% raw -%}  {{ x }}  {%- endraw %}|",
        "a\n  {% raw %}\n b\n  {% endraw %}\nc", "{% raw %}", "{# c #}a{# {{ x }} {% if %} #}b", "{# open", "a {#- c -#} b", "  {# c #}\nx",
        "{% generation %}{{ s }}{% endgeneration %}", "{% generation %}{% set g = 1 %}{{ g }}{% endgeneration %}{{ g }}",
        "{% for a in l %}{% generation %}{{ a }}{{ loop.index }}{% endgeneration %}{% endfor %}", "{% generation %}",
        "{% block a %}x{{ s }}{% endblock %}y", "{% block a %}x{% endblock a %}", "{% set v = 1 %}{% block a %}{{ v }}{% endblock %}",
        "{% for v in l %}{% block a %}{{ v }}{% endblock %}{% endfor %}", "{% for v in l %}{% block a scoped %}{{ v }}{% endblock %}{% endfor %}",
        "{% block a %}{% endblock %}{% block a %}{% endblock %}", "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}", "{% from 'x' import y %}",
        "{% do l %}", "{% nosuch %}", "{% %}", "{% print s %}", "{% print 1, 2 %}", "{% print %}", "a{#", "a{# #", "{#}", "{% 5 %}",
        "{{ raise_exception('bad ' ~ i) }}", "{% if f %}{{ raise_exception('x') }}{% endif %}ok", "{{ strftime_now('%%x') }}|{{ strftime_now is defined }}",
        "{{ strftime_now('%d %b %Y|%A, %B %-d|%H:%M:%S.%f|%j %y %e|%Z|%p %I') }}", "{{ strftime_now('') }}", "{{ strftime_now(5) }}",
        "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }}",
        "{% set j = joiner('|') %}{{ j() }}a{{ j() }}b{{ j() }}", "{{ joiner()() }}",
    ],
    "whitespace": [
        "a\n{% if t %}\nb\n{% endif %}\nc\n", "a\n  {% if t %}\n  b\n  {% endif %}\n  c\n\n", "  {% if t %}x{% endif %}  y",
        "a  {%- if t -%}  b  {%- endif -%}  c", "a\n\n  {%- if t %}\n\nb{% endif %}", "a {{- s -}} b", "a\n {{- s }}\n\n b", "a {{ s -}}\n\n b",
        "  {%+ if t %}x{% endif %}", "{% if t +%}\nx{% endif %}", "{% if t %}\n\nx{% endif %}", "x {% if t %} y {% endif %} z",
        "\t{% if t %}\tx\n\t{% endif %}\n", "\n{% if t %}{% endif %}\n", "{% set a = 1 %}\n{% set b = 2 %}\n{{ a }}\n{{ b }}\n", "a\r\nb\rc\n{% if t %}\r\nd{% endif %}\r\n",
        "{{ 'a' }}\n", "{{ 'a' }}\n\n", "\n\n", "", " ", "{", "{ {", "a { b } c", "}}", "%}", "#}", "{{ '}}' }}", "{{ '%}' }}{% if '%}' %}x{% endif %}",
        "  {# c #}  x", "  {# c #}\n  {# d #}\nx", "{#- c #} x", "x {# c -#} y", "{% for a in l %}\n  {{ a }}\n{% endfor %}\nend", "{% for a in l -%}\n  {{ a }}\n{%- endfor %}\nend",
        "{%- if t -%}{%- endif -%}", "a{%if t%}b{%endif%}c", "{{s}}", "{{-s-}}", "{{ s\n}}", "{% if\n t\n %}x{% endif %}", "{{ {'a': {'b': 1}}}}", "{{ {'a': 1}.a}}",
        "  {%- for a in l %}\n    {{- a }}\n  {%- endfor %}\n", "x\u00a0{%- if t %}y{% endif %}", "\u2003{% if t %}y{% endif %}", "a\n \u00a0{% if t %}y{% endif %}",
        "{{+ s }}", "  {{+ s }}", "a\n\n\n  {%- raw -%}\n x \n{%- endraw -%}\n b", "{% raw %}\nx{% endraw %}", "a  {#+ c +#}\n b",
    ],
    "syntax": [
        "{{ }}", "{{", "{{ s", "{% if t", "{{ 'abc }}", "{{ 1 + }}", "{{ (1 }}", "{{ [1, }}", "{{ {1} }}", "{{ a b }}", "{{ a..b }}", "{{ a. }}", "{{ .a }}", "{{ 1a }}", "{{ a[ }}", "{{ a[] }}",
        "{{ a[1 }}", "{{ f(a b) }}", "{{ f(a=1, 2) }}", "{{ f(a=1, a=2) }}", "{{ f(**a, *b) }}", "{{ | }}", "{{ a | }}", "{{ a is }}", "{{ not }}", "{{ a if }}", "{{ ! }}", "{{ a ! b }}", "{{ $ }}", "{{ a; b }}",
        "{{ a == }}", "{{ () }}", "{{ (,) }}", "{{ [,] }}", "{{ )( }}", "{{ (] }}", "{{ '\\x4' }}", "{{ '\\u12' }}", "{{ 1.2.3 }}", "{{ 1..2 }}", "{{ 1. }}", "{{ 0777 }}", "{{ 1__0 }}", "{{ é }}", "{{ a° }}", "{{ ~ }}", "{{ 1 ~ }}",
        "{{ a = 1 }}", "{{ *a }}", "{{ lambda }}", "{{ [a for a in b] }}", "{{ a ? b : c }}", "{{ a && b }}", "{{ a[1:2:3:4] }}", "{{ l[0, 1] }}", "{{ l[1:2, 3] }}", "{{ - }}", "{{ --1 }}", "{{ -+-1 }}", "{{ not not t }}",
        "{{ 'a' 'b' }}", "{{ 'a''b' }}", "{{ 'a\nb' }}", "{{ 'a\\\nb' }}", "{{ loop.x }}", "{{ true.x }}", "{{ 'x'.y }}", "{{ l.2 }}", "{{ nested.0.1 }}", "{{ nested[0].1 }}",
        "{{ s|upper() }}", "{{ s|upper()|lower() }}", "{{ s|replace('h','j',) }}", "{{ (s)|upper }}", "{{ s is string() }}", "{{ (1, 2,)|length }}", "{{ 'a' in 'abc' and 'z' not in 'abc' }}", "{{ not ('a' in s) }}",
        "{{ 1 if t else }}", "{% set x = 1 if f %}{{ x is defined }}", "{% if (t and (not f)) or missing %}y{% endif %}", "{% endfor %}", "{% if t %}{% endfor %}", "{% for a in l %}{% endif %}", "{% else %}", "{% elif t %}", "{% endset %}",
    ],
}

CHATML = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nDefault.<|im_end|>\n' }}{% endif %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

INST = """{{- bos_token }}
{%- if messages and messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- for message in loop_messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('roles must alternate') }}
    {%- endif %}
    {%- if message.role == 'user' %}
        {%- if loop.first and system_message is defined %}
            {{- '[INST] ' + system_message + '\\n\\n' + message.content + ' [/INST]' }}
        {%- else %}
            {{- '[INST] ' ~ message.content ~ ' [/INST]' }}
        {%- endif %}
    {%- elif message.role == 'assistant' %}
        {{- ' ' + message.content|trim + eos_token }}
    {%- else %}
        {{- raise_exception('unknown role ' + message.role) }}
    {%- endif %}
{%- endfor %}
"""

TOOL_CHAT = """{%- macro type_of(schema) -%}
  {%- if schema.type is string -%}{{ schema.type }}
  {%- elif schema.type is iterable -%}{{ schema.type | reject('equalto', 'null') | join(' | ') }}
  {%- else -%}any{%- endif -%}
{%- endmacro -%}
{%- macro signature(f) -%}
  {{ f.name }}({%- for name, p in (f.parameters.properties or {}) | dictsort -%}
    {{ name }}{{ '' if name in (f.parameters.required or []) else '?' }}: {{ type_of(p) }}
    {%- if p.enum is defined %} = {{ p.enum | map('tojson') | join('|') }}{% endif -%}
    {{ ', ' if not loop.last }}
  {%- endfor -%})
{%- endmacro -%}
{%- set ns = namespace(last_user=-1, tool_index=0) -%}
{%- for m in messages[::-1] -%}
  {%- set index = (messages | length - 1) - loop.index0 -%}
  {%- if ns.last_user == -1 and m.role == 'user' and m.content is string -%}{%- set ns.last_user = index -%}{%- endif -%}
{%- endfor -%}
{%- if tools is defined and tools %}
<tools>
{%- for tool in tools %}
{{ signature(tool.function) }}
{{ tool | tojson }}
{%- endfor %}
</tools>
{% endif -%}
{%- for message in messages -%}
  {%- set content = message.content if message.content is string else (message.content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join('') if message.content else '') -%}
  {%- if message.role == 'assistant' -%}
    {%- set thought = message.reasoning_content | default('', true) -%}
    {%- if not thought and '</think>' in content -%}
      {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') -%}
      {%- set content = content.split('</think>')[-1].lstrip('\\n') -%}
    {%- endif -%}
    {{- '<|im_start|>assistant\\n' -}}
    {%- if loop.index0 > ns.last_user and thought -%}{{ '<think>\\n' ~ thought.strip() ~ '\\n</think>\\n' }}{%- endif -%}
    {% generation %}{{- content -}}{% endgeneration %}
    {%- for call in message.tool_calls or [] -%}
      {%- set f = call.function if call.function is defined else call -%}
      {{- '\\n<call>{"name": "' ~ f.name ~ '", "arguments": ' -}}
      {{- f.arguments if f.arguments is string else f.arguments | tojson -}}{{- '}</call>' -}}
    {%- endfor -%}
    {{- '<|im_end|>\\n' -}}
  {%- elif message.role == 'tool' -%}
    {%- if loop.previtem is undefined or loop.previtem.role != 'tool' -%}{{ '<|im_start|>user' }}{%- endif -%}
    {{- '\\n<response>\\n' + content + '\\n</response>' -}}
    {%- if loop.last or loop.nextitem.role != 'tool' -%}{{ '<|im_end|>\\n' }}{%- endif -%}
  {%- else -%}
    {{- '<|im_start|>%s\\n%s<|im_end|>\\n' | format(message.role, content) -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\\n' -}}
  {%- if enable_thinking is defined and enable_thinking is false -%}{{ '<think>\\n\\n</think>\\n\\n' }}{%- endif -%}
{%- endif -%}
"""


def cases():
    """(group, template, name of its context) of every committed case."""
    for group, lines in EXPRESSIONS.items():
        for line in lines.strip("\n").split("\n"):
            yield group, line, "values"
    for group, templates in STATEMENTS.items():
        for template in templates:
            yield group, template, "values"
    for name, template in (("chatml", CHATML), ("inst", INST), ("tool-chat", TOOL_CHAT)):
        for context in chats():
            yield name, template, context
