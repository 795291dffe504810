#!/usr/bin/env python3
"""Measures what each axis of a cut costs and prints the tables of docs/splits.md.

usage: splits_table.py CLEAVE MODEL MOE_MODEL [--write FILE] [--repeats N] [--only AXIS]

Every row is `cleave bench engine MODEL FLAGS --threads 1 --against "-tp 1"`: real processes, a
thread each, in turn with one rank of one thread. --write puts the tables between the two lines of
FILE that begin with <!-- splits-table. Standard library only.
"""

import argparse
import json
import os
import subprocess
import sys

BEGIN, END = "<!-- splits-table", "<!-- splits-table end -->"
TIMEOUT_S = 1800

# Axis, flags, whether the model is the mixture of experts, what is measured.
SHORT = ["--prompt-tokens", "128", "--output-tokens", "64", "--batch", "1,32"]
LONG = ["--prompt-tokens", "1600", "--output-tokens", "64", "--batch", "1,4"]
TINY = ["--prompt-tokens", "64", "--output-tokens", "48", "--batch", "1,16"]
TINY_REPEATS = 9  # a run takes milliseconds
ROWS = [
    ("dp", ["-dp", "2"], False, SHORT),
    ("pp", ["-pp", "2"], False, SHORT),
    ("tp", ["-tp", "2"], False, SHORT),
    ("ep", ["-tp", "2", "--ep", "2"], True, TINY),
    ("ep", ["-dp", "2", "-ep"], True, TINY),
    ("cp", ["--cp", "2"], False, LONG),
    ("dcp", ["-tp", "2", "-dcp", "2"], False, LONG),
]

HEAD = """\
| axis | flags | prompt | batch | prefill tok/s | × | decode tok/s | × | bytes a prompt token \
| bytes a decoded token | exchanging | waiting |
|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"""


def measure(args, flags, model, sizes):
    command = [args.cleave, "bench", "engine", model, *flags, "--threads", "1"]
    repeats = args.repeats * TINY_REPEATS if sizes is TINY else args.repeats
    command += ["--against=-tp 1", "--repeats", str(repeats), "--json", *sizes]
    print("splits-table: " + " ".join(command), file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        sys.exit(f"splits-table: status {done.returncode}: {' '.join(command)}")
    return json.loads(done.stdout)


def rows_of(axis, flags, result):
    """A row for one rank, then one for the cut, for each batch."""
    for run, one, ratio in zip(result["runs"], result["against"]["runs"], result["ratio"]):
        decode = run["decode"]
        cells = [axis, f"`{' '.join(flags)}`", str(result["prompt_tokens"]), str(run["batch"])]
        for phase in ("prefill", "decode"):
            rate = phase + "_tokens_per_s"
            cells += [f"{one[rate]:.0f} → {run[rate]:.0f}", f"{ratio[phase + '_pairs']:.2f}"]
        cells += [f"{run['prefill']['bytes_per_token']:,.0f}", f"{decode['bytes_per_token']:,.0f}"]
        cells += [f"{100 * decode[k] / decode['s']:.1f} %" for k in ("transfer_s", "wait_s")]
        yield "| " + " | ".join(cells) + " |"


def machine(load):
    name = "unknown"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    count = len(os.sched_getaffinity(0))
    return f"{count} processors ({name}), load {load:.1f} before the run"


def ceiling_lines(result):
    """What tp's ceilings were, where that axis was measured."""
    for ratio in result["ratio"]:
        if ratio["prefill_ceiling"] is None:
            continue
        share = 100 * ratio["prefill_pairs"] / ratio["prefill_ceiling"]
        text = (
            f"tp, batch {ratio['batch']}: prefill reaches {share:.0f} % of its ceiling, "
            f"{ratio['prefill_ceiling']:.2f}× (uneven heads, {result['tp_ceiling']:.2f}×, and the "
            "reduces of the run)"
        )
        if ratio["decode_ceiling"] is not None:
            memory = 100 * ratio["decode_pairs"] / ratio["decode_ceiling"]
            text += (
                f", decode {memory:.0f} % of the {ratio['decode_ceiling']:.2f}× by which two cores "
                "read memory faster than one"
            )
        yield text + "."


def tables(args):
    load = os.getloadavg()[0]
    lines, notes = [], []
    for axis, flags, mixture, sizes in ROWS:
        if args.only and axis != args.only:
            continue
        result = measure(args, flags, args.moe if mixture else args.model, sizes)
        lines += rows_of(axis, flags, result)
        if axis == "tp":
            notes += ceiling_lines(result)
    about = (
        f"{os.path.basename(args.model)}; ep: {os.path.basename(args.moe)}, a seeded toy. "
        f"{machine(load)}; medians of {args.repeats}, × the median of pairs. "
        "One rank of one thread → the cut, a thread a rank; all answers were the same. "
        "Exchanging and waiting: share of a rank's decoding time."
    )
    return "\n".join([about, "", HEAD, *lines, "", *(f"- {note}" for note in notes)]).strip() + "\n"


def write(path, text):
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    begins = [i for i, line in enumerate(lines) if line.startswith(BEGIN) and line != END]
    if len(begins) != 1 or lines.count(END) != 1:
        sys.exit(f"splits-table: {path} needs one line '{BEGIN} …' and one line '{END}'")
    head, tail = lines[: begins[0] + 1], lines[lines.index(END) :]
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join([*head, text.rstrip("\n"), *tail]) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("cleave")
    parser.add_argument("model")
    parser.add_argument("moe")
    parser.add_argument("--write", metavar="FILE")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=[row[0] for row in ROWS])
    args = parser.parse_args()
    text = tables(args)
    print(text, end="")
    if args.write:
        write(args.write, text)


if __name__ == "__main__":
    main()
