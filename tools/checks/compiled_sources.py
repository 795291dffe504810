#!/usr/bin/env python3
"""What a compile_commands.json compiles, for clang-tidy.

usage: compiled_sources.py BUILD_DIR OUT_DIR          prints the sources under src/ and tests/, and
                                                      writes OUT_DIR/compile_commands.json for clang
       compiled_sources.py BUILD_DIR OUT_DIR SOURCE   that source preprocessed, with comments
"""

import json
import os
import re
import shlex
import subprocess
import sys

# g++ only; clang refuses to start with them.
GCC_FLAGS = re.compile(r"-fno-tree-.*|-fno-gcse|-Wno-maybe-uninitialized")


def load(build):
    """Source, relative to the project -> its command, without launcher and g++'s own flags."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        commands = {os.path.relpath(c["file"]): c for c in json.load(file)}
    for command in commands.values():
        words = shlex.split(command["command"])
        words = words[1:] if words[0].endswith("ccache") else words
        command["command"] = shlex.join(word for word in words if not GCC_FLAGS.fullmatch(word))
    return {path: c for path, c in commands.items() if path.startswith(("src/", "tests/"))}


def preprocess(command):
    words = shlex.split(command["command"])
    output = words.index("-o")
    words = [w for w in words[:output] + words[output + 2 :] if w != "-c"]
    subprocess.run(words + ["-E", "-C"], cwd=command["directory"], check=True)


def main():
    build, out = sys.argv[1:3]
    commands = load(build)
    if len(sys.argv) == 3:
        os.makedirs(out, exist_ok=True)
        with open(os.path.join(out, "compile_commands.json"), "w", encoding="utf-8") as file:
            json.dump(list(commands.values()), file, indent=1)
        print("\n".join(sorted(commands)))
        return
    command = commands.get(os.path.relpath(sys.argv[3]))
    if command is None:
        sys.exit(f"{sys.argv[3]}: not compiled in {build}")
    preprocess(command)


if __name__ == "__main__":
    main()
