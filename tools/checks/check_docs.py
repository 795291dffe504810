#!/usr/bin/env python3
"""What the documents name exists: flags, metrics, endpoints, make targets, files.

usage: check_docs.py [CLEAVE]      default: the newest build/*/cleave, if there is one

Looks at README.md and docs/*.md. A flag is checked against `cleave --help` and each verb's help
when it stands in backticks or in a line that runs cleave; not without a binary.
"""

import glob
import os
import re
import subprocess
import sys

import sources

FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
METRIC = re.compile(r"\b(?:vllm|cleave):[a-z_0-9]+")
ENDPOINT = re.compile(r"(?<![\w.:/])/v1/[a-z/]+")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
MAKE = re.compile(r"`make ([a-z-]+)`")
EXPOSED_SUFFIX = re.compile(r"_(total|bucket|sum|count)$")


def documents():
    found = [p for p in ("README.md",) if os.path.exists(os.path.join(sources.ROOT, p))]
    return found + sources.files(".md", folders=["docs"])


def newest_binary():
    found = glob.glob(os.path.join(sources.ROOT, "build", "*", "cleave"))
    found = [path for path in found if os.path.isfile(path)]
    return max(found, key=os.path.getmtime) if found else None


def help_text(binary, *verb):
    return subprocess.run(
        [binary, *verb, "--help"], capture_output=True, text=True, timeout=20, check=False
    ).stdout


def known_flags(binary):
    top = help_text(binary)
    verbs = [v for v in ("plan", "serve", "route", "bench", "accept", "topo", "chat") if v in top]
    texts = [top] + [help_text(binary, verb) for verb in verbs]
    texts += [help_text(binary, "bench", "perplexity")] if "bench" in verbs else []
    return set(FLAG.findall("\n".join(texts)))


def named_flags(text):
    """Flags of cleave: in backticks that begin with one, or after `cleave` on a line."""
    spans = re.findall(r"`(--[^`]*)`", text) + re.findall(r"\bcleave (?:[a-z]+ .*)", text)
    return {flag for span in spans for flag in FLAG.findall(span)}


def source_text():
    return "\n".join(sources.read(path) for path in sources.files(".cc", ".h", folders=["src"]))


def check(path, text, flags, code, targets):
    problems = []
    if flags is not None:
        missing = sorted(named_flags(text) - flags)
        problems += [f"{path}: {flag} is not in cleave's help" for flag in missing]
    for metric in sorted(set(METRIC.findall(text))):
        if EXPOSED_SUFFIX.sub("", metric) not in code and metric not in code:
            problems.append(f"{path}: no metric {metric} in src/")
    for endpoint in sorted(set(ENDPOINT.findall(text))):
        if endpoint.rstrip("/") not in code:
            problems.append(f"{path}: no endpoint {endpoint} in src/")
    for target in sorted(set(MAKE.findall(text))):
        if target not in targets:
            problems.append(f"{path}: no make target {target}")
    for link in sorted(set(LINK.findall(text))):
        where = os.path.normpath(os.path.join(sources.ROOT, os.path.dirname(path), link))
        if "://" not in link and not os.path.exists(where):
            problems.append(f"{path}: link to {link}, which is not there")
    return problems


def make_targets():
    if not os.path.exists(os.path.join(sources.ROOT, "Makefile")):
        return set()
    rules = re.findall(r"^([a-z][a-z -]*):", sources.read("Makefile"), re.M)
    return {target for rule in rules for target in rule.split()}


def main(arguments):
    binary = arguments[0] if arguments else newest_binary()
    flags = known_flags(binary) if binary else None
    code, targets, problems = source_text(), make_targets(), []
    for path in documents():
        problems += check(path, sources.read(path), flags, code, targets)
    checked = f"{len(documents())} documents" + (
        "" if binary else "; flags not checked, no binary yet"
    )
    return sources.report("docs", checked, problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
