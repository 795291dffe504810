#!/usr/bin/env python3
"""Measures Cleave beside llama.cpp and ik_llama.cpp on the same GGUF files.

usage: bench_peers.py CLEAVE [options], --help lists them

Every configuration of each side is looked at once; the best two then run in alternating pairs. A
run during which other processes took more than 4 % of the processors is thrown away and repeated.
The peers are fetched, built and kept outside the repository. Standard library only. Status 0: all
bars are met; 1: some are not; 2: nothing can be said.
"""

import argparse
import os
import re
import subprocess
import sys

import build
import pairs
import programs
import quiet
import report
import rows
from quiet import Failed, Refused, say

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))
PAIRS, QUICK_PAIRS = 5, 2
REPEATS = 1  # inside of a run: the pairs are the repeats


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("cleave", help="the release binary")
    parser.add_argument(
        "--peers",
        metavar="DIR",
        default=build.default_folder(),
        help="sources and builds of the peers, the large models (%(default)s)",
    )
    parser.add_argument(
        "--models",
        metavar="DIR",
        default=os.path.join(ROOT, "models"),
        help="demo models (%(default)s)",
    )
    parser.add_argument("--llama-source", metavar="DIR", help="llama.cpp, instead of fetching it")
    parser.add_argument("--ik-source", metavar="DIR", help="ik_llama.cpp, instead of fetching it")
    parser.add_argument(
        "--only",
        metavar="REGEX",
        type=re.compile,
        help="rows whose name it finds, such as 'Q4_1 llama.cpp decode'",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{QUICK_PAIRS} pairs, not {PAIRS}",
    )
    parser.add_argument(
        "--most-others",
        metavar="PERCENT",
        type=float,
        default=4,
        help="of the processors, which others may take (%(default)g)",
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="results with all runs, kept after every row (results.json or quick.json of --peers)",
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="do not measure rows that the same binary made in the same way on the same machine "
        "and that the file of --json has, unless --only finds them",
    )
    parser.add_argument("--write", metavar="FILE", help="the table into this document")
    parser.add_argument(
        "--without-avx512",
        action="store_true",
        help="beside llama.cpp built without AVX-512, Cleave with CLEAVE_ISA=avx2; lower bars",
    )
    parser.add_argument("--list", action="store_true", help="names of the rows and their bars")
    return parser.parse_args()


def two_cores():
    """Two processors of different cores: what the bars are for, on a larger machine too."""
    allowed = sorted(os.sched_getaffinity(0))
    chosen, taken = [], set()
    for cpu in allowed:
        if cpu in taken:
            continue
        chosen.append(cpu)
        path = f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        try:
            with open(path, encoding="ascii") as file:
                taken |= cpu_list(file.read())
        except OSError:
            pass
    if len(chosen) < programs.CORES:
        raise Failed(f"needs {programs.CORES} cores, this process may use {len(chosen)}")
    return frozenset(chosen[: programs.CORES])


def cpu_list(text):
    """The processors of a list such as 0-2,5."""
    found = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return "unknown processor"


def about_run(args, settings):
    return {
        "machine": f"{programs.CORES} cores ({processor()})",
        "binary": args.cleave,
        "binary_sha256": build.sha256(args.cleave),
        "peers": f"llama.cpp {args.llama_source or build.LLAMA_VERSION.partition('.')[0]}, "
        f"ik_llama.cpp {args.ik_source or build.IK_COMMIT[:8]}",
        "settings": settings,
    }


def models_there(cells, args):
    """Paths by cell; the large ones are made, the demo models must lie there."""
    paths = {cell: rows.model_path(cell.row, args.models, args.peers) for cell in cells}
    for cell, path in paths.items():
        if cell.row.is_large:
            build.make_shape(args.peers, ROOT, cell.row.file)
        elif not os.path.exists(path):
            raise Failed(f"{path} is not there; tools/fetch_models.sh formats brings it")
    return paths


def measure_all(path, run, comparison, models, kept):
    """Results of this run; saved in `path` after each, beside those of `kept` not made anew."""
    results = {}
    for cell, model in models.items():
        results[cell.name] = comparison.compare(cell, model)
        report.save(path, run, in_order(kept | results))
    return results


def in_order(results):
    names = (cell.name for cell in rows.cells())
    return [results[name] for name in names if name in results]


def check_write(args):
    """Whether a table may be written, before hours of measuring."""
    if args.quick or args.most_others > 4:
        raise Failed("--write wants a quiet machine and all pairs: no --quick, no --most-others")
    report.with_table(report.read_document(args.write), "", report.PART[args.with_avx512])


def not_measured(args, results):
    """Names of the rows that `results` lack."""
    there = {row["name"] for row in results}
    names = [cell.name for cell in rows.cells(None, args.with_avx512)]
    return [name for name in names if name not in there]


def results_name(args):
    return ("quick" if args.quick else "results") + ("" if args.with_avx512 else "-avx2") + ".json"


def bench(args):
    settings = {
        "pairs": QUICK_PAIRS if args.quick else PAIRS,
        "repeats": REPEATS,
        "most_others": args.most_others / 100,
        "with_avx512": args.with_avx512,
    }
    run = about_run(args, settings)
    cells = rows.cells(args.only, args.with_avx512)
    if not cells:
        raise Failed(f"--only {args.only.pattern} finds no row; --list shows their names")
    path = args.json or os.path.join(args.peers, results_name(args))
    kept = report.kept_rows(path, run)
    shown = kept if args.keep else {}
    if args.only is None:
        cells = [cell for cell in cells if cell.name not in shown]
    if args.write:
        check_write(args)
    peers = peers_of(cells) if args.with_avx512 else {rows.LLAMA}
    sources = (args.llama_source, args.ik_source)
    builds = build.make_all(args.peers, ROOT, peers, *sources, args.with_avx512)
    if not args.with_avx512:
        os.environ["CLEAVE_ISA"] = "avx2"
    models = models_there(cells, args)
    cpus = two_cores()
    os.sched_setaffinity(0, cpus)
    quiet.adopt_orphans()
    gate = quiet.Gate(cpus, settings["most_others"])
    comparison = pairs.Comparison(gate, args.cleave, builds, settings["pairs"], settings["repeats"])
    results = in_order(shown | measure_all(path, run, comparison, models, kept))
    text = report.table(run, results, not_measured(args, results))
    print(text, end="")
    if args.write:
        part = report.PART[args.with_avx512]
        text = report.with_table(report.read_document(args.write), text, part)
        report.replace_file(args.write, text)
    return 1 if any(row["verdict"] == pairs.NOT_MET for row in results) else 0


def peers_of(cells):
    """Those that are compared, and llama.cpp where its quantiser makes a model."""
    return {cell.row.peer for cell in cells} | (
        {rows.LLAMA} if any(cell.row.is_large for cell in cells) else set()
    )


def main():
    args = options()
    args.with_avx512 = not args.without_avx512
    if args.list:
        for cell in rows.cells(args.only, args.with_avx512):
            print(f"{cell.name}: {cell.bar}x")
        return 0
    try:
        return bench(args)
    except (Failed, Refused, ValueError, OSError, subprocess.TimeoutExpired) as error:
        say(str(error))
        return 2


if __name__ == "__main__":
    sys.exit(main())
