#!/usr/bin/python3
"""Expected outputs of chat templates, from Jinja2 set up as apply_chat_template sets it up.

  jinja_cases.py --cases src/model/jinja/testdata/cases.json
      small cases, one or a few per feature, and whole chat templates (committed)
  jinja_cases.py --templates DIR
      every DIR/*.jinja with every chat of CHATS; writes DIR/expected.json, which the full-tier
      test jinja_real reads when CLEAVE_TEMPLATE_DIR=DIR

Needs Debian's python3-jinja2 (3.1.2).
"""
import argparse
import copy
import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import jinja_case_list  # noqa: E402


NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)


class Generation(jinja2.ext.Extension):
    """{% generation %}: a body with its own names, as the training-mask extension gives it."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_render")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def render(env, source, context):
    """The text, or None and what went wrong."""
    try:
        return env.from_string(source).render(**copy.deepcopy(context)), None
    except Exception as error:  # whatever Python raises, the template fails
        return None, f"{type(error).__name__}: {error}"


def case(source, values, **labels):
    text, error = render(environment(), source, values)
    return {**labels, **({"text": text} if error is None else {"error": error})}


def write(path, contexts, cases):
    """Contexts are named, so that they stand in the file once."""
    def lines(values):
        return ",\n".join(json.dumps(v, ensure_ascii=True) for v in values)

    named = [{"name": name, "context": context} for name, context in contexts.items()]
    path.write_text(f'{{"contexts": [\n{lines(named)}\n], "cases": [\n{lines(cases)}\n]}}\n')


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--cases", type=pathlib.Path)
    arguments.add_argument("--templates", type=pathlib.Path)
    given = arguments.parse_args()
    if given.cases:
        contexts = {"values": jinja_case_list.CONTEXT, **jinja_case_list.chats()}
        write(given.cases, contexts,
              [case(source, contexts[context], group=group, context=context, template=source)
               for group, source, context in jinja_case_list.cases()])
    if given.templates:
        contexts = jinja_case_list.chats()
        write(given.templates / "expected.json", contexts,
              [case(path.read_text(encoding="utf-8"), context, template=path.name, context=name)
               for path in sorted(given.templates.glob("*.jinja"))
               for name, context in contexts.items()])


if __name__ == "__main__":
    main()
