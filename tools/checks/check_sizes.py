#!/usr/bin/env python3
"""Rooms stay small: CONTRIBUTING.md's limits on files, lines, functions and classes.

usage: check_sizes.py

Needs universal-ctags. A function whose preceding or first line says `// size: kernel` may have
120 lines: unrolled arithmetic that would not read better in parts. Lists of test inputs
(tools/oracle/*_list.py, *_strings.py) are data and not measured.
"""

import json
import re
import subprocess
import sys

import sources

SOURCE, HEADER, TEST, COLUMNS = 600, 250, 900, 100
FUNCTION, KERNEL, METHODS = 70, 120, 12
KERNEL_MARK = "// size: kernel"
CASE_LIST = re.compile(r"tools/oracle/.*_(list|strings)\.py")
FUNCTION_KINDS = {"function", "method", "member"}


def is_test(path):
    return bool(re.search(r"_test\.(cc|py)$", path)) or path.startswith("tests/")


def file_limit(path):
    if is_test(path):
        return TEST
    return HEADER if path.endswith(".h") else SOURCE


def check_files(texts):
    problems = []
    for path, lines in texts.items():
        if len(lines) > file_limit(path):
            problems.append(f"{path}: {len(lines)} lines, at most {file_limit(path)}")
        for number, line in enumerate(lines, 1):
            if len(line) > COLUMNS:
                problems.append(f"{path}:{number}: {len(line)} columns, at most {COLUMNS}")
    return problems


def tags(paths):
    """Functions, with line, end and access."""
    done = subprocess.run(
        [
            "ctags",
            "--output-format=json",
            "--fields=+neaKS",
            "--kinds-C++=+p",
            "-L",
            "-",
            "-f",
            "-",
        ],
        input="\n".join(paths),
        capture_output=True,
        text=True,
        cwd=sources.ROOT,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def function_limit(tag, lines):
    nearby = lines[max(tag["line"] - 2, 0) : tag["line"] + 1]
    return KERNEL if any(KERNEL_MARK in line for line in nearby) else FUNCTION


def check_functions(all_tags, texts):
    problems = []
    for tag in all_tags:
        if tag["kind"] not in FUNCTION_KINDS or "end" not in tag:
            continue
        length, limit = tag["end"] - tag["line"] + 1, function_limit(tag, texts[tag["path"]])
        if length > limit:
            where = f"{tag['path']}:{tag['line']}: {tag['name']}"
            problems.append(f"{where} has {length} lines, at most {limit}")
    return problems


def check_methods(all_tags):
    """Public methods by name, without constructors, destructors, operators and accessors, which
    are in lower case."""
    methods = {}
    for tag in all_tags:
        if tag["kind"] not in {"prototype", "function"} or tag.get("access") != "public":
            continue
        owner, name = tag.get("scope", ""), tag["name"]
        if tag.get("scopeKind") != "class" or name.strip("~") == owner.split("::")[-1]:
            continue
        if name[0].isupper():
            methods.setdefault((tag["path"], owner), set()).add(name)
    return [
        f"{path}: class {owner} has {len(names)} public methods, at most {METHODS}"
        for (path, owner), names in methods.items()
        if len(names) > METHODS and path.endswith(".h")
    ]


def main():
    paths = sources.files(".h", ".cc", ".py", ".sh", ".cmake", "CMakeLists.txt")
    paths = [path for path in paths if not CASE_LIST.fullmatch(path)]
    texts = {path: sources.read(path).splitlines() for path in paths}
    all_tags = tags([path for path in paths if path.endswith((".h", ".cc", ".py"))])
    problems = check_files(texts) + check_functions(all_tags, texts) + check_methods(all_tags)
    return sources.report("sizes", f"{len(paths)} files", problems)


if __name__ == "__main__":
    sys.exit(main())
