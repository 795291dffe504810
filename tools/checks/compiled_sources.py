#!/usr/bin/env python3
"""What a compile_commands.json compiles.

usage: compiled_sources.py compile_commands.json          sources under src/, one a line
       compiled_sources.py compile_commands.json SOURCE   that source preprocessed, with comments
"""

import json
import os
import shlex
import subprocess
import sys


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        commands = {os.path.relpath(c["file"]): c for c in json.load(file)}
    if len(sys.argv) == 2:
        print("\n".join(sorted(path for path in commands if path.startswith("src/"))))
        return
    command = commands.get(os.path.relpath(sys.argv[2]))
    if command is None:
        sys.exit(f"{sys.argv[2]}: not compiled by {sys.argv[1]}")
    words = shlex.split(command["command"])
    words = words[1:] if words[0].endswith("ccache") else words
    output = words.index("-o")
    words = [w for w in words[:output] + words[output + 2 :] if w != "-c"]
    subprocess.run(words + ["-E", "-C"], cwd=command["directory"], check=True)


if __name__ == "__main__":
    main()
