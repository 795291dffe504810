"""The table, the JSON file that keeps results between runs, and the part of a document."""

import json
import os

import pairs
from rows import METRICS

# Of a document: by whether AVX-512 was used.
PART = {True: "bench-peers", False: "bench-peers-avx2"}

HEAD = """\
| file | metric | Cleave, tok/s | its flags | peer, tok/s | its configuration | ratio | bar \
| of its limit | bar | limit | |
|---|---|--:|---|--:|---|--:|--:|--:|--:|--:|---|"""


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def line(row):
    metric, share, ceiling = METRICS[row["metric"]], row["share"], row["ceiling"]
    ours, theirs = row["cleave"], row["against"]
    cells = [
        f"{row['model']} {row['type']}",
        metric.title,
        number(ours["tokens_per_s"]),
        f"`{ours['layout']}`",
        number(theirs["tokens_per_s"]),
        f"{row['peer']} {theirs['configuration']}",
        f"{row['ratio']:.2f}×",
        f"{row['bar']:g}×",
        "–" if share is None else f"{share:.0%}",
        f"{row['limit_bar']:.0%}",
        "–" if ceiling is None else f"{number(ceiling * 1e-9)} {metric.ceiling.unit}",
        row["verdict"],
    ]
    return "| " + " | ".join(cells) + " |"


def about(run, rows):
    """What a reader must know of the run before its figures."""
    figures = [mine["details"] for row in rows for mine, _ in row["pairs"]]
    isas = sorted({details["isa"] for details in figures if "isa" in details}) or ["not said"]
    others = run["settings"]["most_others"]
    noisy = "" if others <= 0.04 else " NOISY: not for claims."
    return (
        f"{run['machine']}; Cleave's instruction set: {', '.join(isas)}. Medians of "
        f"{run['settings']['pairs']} alternating pairs, the ratio that of the pairs; in every run "
        f"others took at most {others:.0%} of the processors.{noisy} Peers: {run['peers']}. "
        "Limit: what as many cores read from memory, or compute, beside Cleave's runs."
    )


def table(run, rows, missing=()):
    """`missing`: names of rows that belong there and were not measured."""
    counts = [
        f"{sum(row['verdict'] == verdict for row in rows)} {verdict}"
        for verdict in (pairs.BY_RATIO, pairs.BY_LIMIT, pairs.NOT_MET)
    ]
    lines = [about(run, rows), "", HEAD, *map(line, rows), "", ", ".join(counts) + "."]
    if missing:
        lines += ["", f"Not measured: {'; '.join(missing)}."]
    return "\n".join(lines) + "\n"


def replace_file(path, text):
    partial = path + ".partial"
    with open(partial, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(partial, path)


def with_table(document, text, part):
    """`document` with `text` between the lines that begin and end `part`; ValueError without
    them."""
    begin, end = f"<!-- {part}: ", f"<!-- {part} end -->"
    lines = document.splitlines()
    begins = [i for i, line in enumerate(lines) if line.startswith(begin)]
    if len(begins) != 1 or lines.count(end) != 1 or lines.index(end) < begins[0]:
        raise ValueError(f"needs one line '{begin}…' and, below it, one line '{end}'")
    head, tail = lines[: begins[0] + 1], lines[lines.index(end) :]
    return "\n".join([*head, text.rstrip("\n"), *tail]) + "\n"


def read_document(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def kept_rows(path, run):
    """Results of an earlier run in `path` that belong beside those of `run`, by name: the same
    machine, binary, peers and settings."""
    try:
        earlier = json.loads(read_document(path))
        its_run, its_rows = earlier["run"], {row["name"]: row for row in earlier["rows"]}
    except FileNotFoundError:
        return {}
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path} is not what this command wrote; remove it") from error
    same = ("machine", "binary_sha256", "peers", "settings")
    return its_rows if all(its_run.get(key) == run[key] for key in same) else {}


def save(path, run, rows):
    replace_file(path, json.dumps({"run": run, "rows": rows}, indent=1, ensure_ascii=False) + "\n")
