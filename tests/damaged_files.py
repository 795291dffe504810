#!/usr/bin/env python3
"""Damaged model files: every refusal names the file, on one printable line.

usage: damaged_files.py CLEAVE TINY

TINY is a folder of tools/oracle/make_tiny_checkpoints.py. Standard library only.
"""

import os
import shutil
import subprocess
import sys
import tempfile

TIMEOUT_S = 60


def change(path, at, new):
    with open(path, "rb") as file:
        data = file.read()
    begin = at if isinstance(at, int) else data.index(at)
    with open(path, "wb") as file:
        file.write(data[:begin] + new + data[begin + len(new) :])


def cut(path, size):
    with open(path, "rb") as file:
        data = file.read(size)
    with open(path, "wb") as file:
        file.write(data)


def length(number):
    return number.to_bytes(8, "little")


# Of llama3.gguf: a change, and what the refusal says besides the file.
FILES = [
    (lambda f: cut(f, 20_000), "file is 20000 bytes"),
    (lambda f: change(f, b"llama.block_count", b"\x1b[2J\r\n"), "llama.block_count is missing"),
    # A key that reaches over the entries behind it: text, NULs and all.
    (lambda f: change(f, length(17) + b"llama.block_count", length(200)), "metadata key llama.bl"),
    (lambda f: change(f, b"token_embd.weight", b"\x1b[31m\xff\x00\n"), "token_embd.weight is"),
    (lambda f: change(f, b"tokenizer.ggml.merges", b"\t\x1b"), "tokenizer.ggml.merges is missing"),
    (lambda f: change(f, b"gpt-2", b"\x1b[\xc2\x9b\n"), "tokenizer.ggml.pre"),
]
# Of the folder llama3: a file in it, a change, and what the refusal says.
FOLDERS = [
    ("tokenizer.json", lambda f: cut(f, 100), "tokenizer.json: not valid JSON at byte 101 of 100"),
    ("tokenizer.json", lambda f: change(f, b'"merges"', b'"mergen"'), "no list of merges"),
    ("tokenizer.json", os.remove, "no tokenizer.json"),
    ("tokenizer_config.json", lambda f: cut(f, 9), "tokenizer_config.json: not valid JSON"),
    ("config.json", lambda f: change(f, b"LlamaFor", b"Ll\\u001bF"), "is not known"),
    ("model.safetensors", lambda f: cut(f, 5000), "file is 5000 bytes"),
]


def refusal(binary, verb, model, text):
    words = {"serve": [model, "--port", "0"], "bench": ["perplexity", model, text]}[verb]
    done = subprocess.run(
        [binary, verb, *words], capture_output=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode in (1, 2), (model, done)
    said = done.stderr.decode()  # which must be UTF-8
    assert said.endswith("\n"), said
    for line in said[:-1].split("\n"):
        assert line.isprintable(), line
    last = said[:-1].split("\n")[-1]
    start = "cleave serve: " if verb == "serve" else "cleave bench perplexity: "
    assert last.startswith(start + model), last
    return last


def main():
    binary, tiny = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text")
        with open(text, "w", encoding="utf-8") as file:
            file.write("some words " * 40)
        cases = []
        for i, (damage, says) in enumerate(FILES):
            model = os.path.join(folder, f"{i}.gguf")
            shutil.copy(os.path.join(tiny, "llama3.gguf"), model)
            damage(model)
            cases.append((model, says))
        for i, (name, damage, says) in enumerate(FOLDERS):
            model = os.path.join(folder, str(i))
            shutil.copytree(os.path.join(tiny, "llama3"), model)
            damage(os.path.join(model, name))
            cases.append((model, says))
        for model, says in cases:
            for verb in ("serve", "bench"):
                said = refusal(binary, verb, model, text)
                assert says in said, (says, said)
                assert len(said) < 5000, len(said)
    print(f"{len(cases)} damaged files refused by name")


if __name__ == "__main__":
    main()
