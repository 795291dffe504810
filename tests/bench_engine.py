#!/usr/bin/env python3
"""`cleave bench engine` over real processes: what it prints, compares and refuses.

usage: bench_engine.py CLEAVE MODEL

MODEL is a checkpoint of make_tiny_checkpoints.py with 3 layers. Standard library only.
"""

import json
import os
import subprocess
import sys
import time

TIMEOUT_S = 60
SIZES = ["--prompt-tokens", "40", "--output-tokens", "6", "--repeats", "2"]


def bench(binary, model, *flags):
    command = [binary, "bench", "engine", model, *SIZES, *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def check_layout(layout, name, batches):
    assert layout["layout"] == name, layout["layout"]
    assert layout["threads"] == 1, layout["threads"]
    assert [run["batch"] for run in layout["runs"]] == batches, layout["runs"]
    for run in layout["runs"]:
        assert run["prefill_tokens_per_s"] > 0 and run["decode_tokens_per_s"] > 0, run
        assert len(run["repeats"]) == 2, run
        for repeat in run["repeats"]:
            assert all(figure > 0 for figure in repeat.values()), run
        check_bounds(run)
    assert layout["bill"]["exact"], layout["bill"]


def check_bounds(run):
    """Shares are of the same run's figures and probes; a single request has none of the peak."""
    bounds = run["bounds"]
    assert bounds["decode_bytes_per_token"] > 0 and bounds["prefill_ops_per_token"] > 0, run
    assert bounds["decode_of_bandwidth"] > 0, run
    if os.environ.get("CLEAVE_ISA") == "scalar":
        assert bounds["prefill_of_peak"] is None, run
        return
    assert 0 < bounds["prefill_of_peak"] < 1, run
    assert (bounds["decode_of_peak"] is None) == (run["batch"] == 1), run


def check_pair(binary, model):
    flags = ["-tp", "2", "--threads", "1", "--batch", "1,3", "--against", "-tp 1", "--json"]
    done = bench(binary, model, *flags)
    assert done.returncode == 0, done
    result = json.loads(done.stdout)
    assert result["same"] is True and "difference" not in result, result
    check_layout(result, "dp=1 pp=1 tp=2 ep=1 cp=1", [1, 3])
    check_layout(result["against"], "dp=1 pp=1 tp=1 ep=1 cp=1", [1, 3])
    assert {axis["axis"] for axis in result["bill"]["axes"]} == {"tp"}, result["bill"]
    assert result["against"]["bill"]["axes"] == [], result["against"]["bill"]
    for run, one in zip(result["runs"], result["against"]["runs"]):
        moved = [run[phase]["bytes_per_token"] for phase in ("prefill", "decode")]
        assert sum(moved) > 0, run
        assert one["prefill"]["bytes_per_token"] == one["decode"]["bytes_per_token"] == 0, one
    assert [ratio["batch"] for ratio in result["ratio"]] == [1, 3], result["ratio"]
    for ratio, run, one in zip(result["ratio"], result["runs"], result["against"]["runs"]):
        for phase in ("prefill", "decode"):
            rate = phase + "_tokens_per_s"
            assert abs(ratio[phase] * one[rate] / run[rate] - 1) < 1e-9, (ratio, run, one)
    assert 1 < result["tp_ceiling"] <= 2, result["tp_ceiling"]
    probed = [probe["cores"] for probe in result["probe"]["cores"]]
    assert probed == sorted({1, min(2, probed[-1])}), probed
    assert all(probe["bytes_per_s"] > 0 for probe in result["probe"]["cores"]), result["probe"]
    rates = {probe["cores"]: probe["bytes_per_s"] for probe in result["probe"]["cores"]}
    for layout, cores in ((result, probed[-1]), (result["against"], 1)):
        for run in layout["runs"]:
            read = run["decode_tokens_per_s"] * run["bounds"]["decode_bytes_per_token"]
            share = run["bounds"]["decode_of_bandwidth"]
            assert abs(read / rates[cores] / share - 1) < 1e-9, (run, rates)
    single, batch = (run["bounds"]["decode_bytes_per_token"] for run in result["runs"])
    assert batch < single < 3 * batch, result["runs"]
    peak = result["peak"]
    assert peak["kind"] in ("int8_scaled", "bf16", "f32"), peak
    if os.environ.get("CLEAVE_ISA") != "scalar":
        assert [one["cores"] for one in peak["cores"]] == probed, peak
        assert all(one["best_ops_per_s"] >= one["ops_per_s"] > 0 for one in peak["cores"]), peak


def check_text(binary, model):
    done = bench(binary, model, "-dp", "2", "-pp", "2", "--threads", "1", "--batch", "4")
    assert done.returncode == 0, done
    for part in (
        "dp=2 pp=2 tp=1 ep=1 cp=1 ",
        "40 prompt and 6 output tokens, medians of 2",
        "the same tokens in every run",
        "the bill of dp=2 pp=2",
        "metered as predicted on every rank",
        "GB/s",
        "of the bandwidth",
        "of the peak",
    ):
        assert part in done.stdout, (part, done.stdout)


def check_refusals(binary, model):
    for flags, parts in (
        (["-tp", "5"], ["tp is 5", "layouts that work: "]),
        (["--against=-pp 4"], ["--against", "pp is 4", "layouts that work: "]),
        (["--against", "--batch 2"], ["--against", "--batch"]),
        (["--batch", "1,x"], ["--batch 1,x"]),
        (["--prompt-tokens", "100000"], ["--prompt-tokens 100000", "positions"]),
        (["--batch", "400"], ["--max-num-batched-tokens 800"]),
        (["--expert-load", "x"], ["--expert-load x", "the model has no experts"]),
        (["--against", "-tp 2 --expert-load x"], ["--against", "the model has no experts"]),
    ):
        done = bench(binary, model, *flags)
        assert done.returncode == 2, (flags, done)
        assert done.stdout == "", (flags, done)
        for part in parts:
            assert part in done.stderr, (flags, part, done.stderr)


def workers(parent):
    """Rank processes that `parent` started; those of nobody any more are init's, 1."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                name, _, rest = file.read().partition("(")[2].rpartition(")")
        except OSError:
            continue
        state, its_parent = rest.split()[:2]
        if name == "cleave" and int(its_parent) == parent and state not in "ZX":
            yield int(pid)


def wait_until(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.01)


def check_killed(binary, model):
    """kill -9 of a benchmark takes its ranks with it."""
    command = [binary, "bench", "engine", model, *SIZES[:-1], "1000", "-tp", "2", "--threads", "1"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: len(list(workers(process.pid))) == 2, TIMEOUT_S, "two ranks")
            ranks = list(workers(process.pid))
        finally:
            process.kill()
    # Without an image they may still be giving their memory back.
    living = lambda: [pid for pid in ranks if os.path.exists(f"/proc/{pid}/exe")]
    left = lambda: set(ranks) & set(workers(1))
    wait_until(lambda: not living() and not left(), 2, f"ranks {ranks} gone")


def main():
    binary, model = sys.argv[1:]
    before = set(workers(1))
    check_pair(binary, model)
    check_text(binary, model)
    check_refusals(binary, model)
    check_killed(binary, model)
    left = set(workers(1)) - before
    assert not left, f"worker processes are left: {left}"
    print("bench engine: OK")


if __name__ == "__main__":
    main()
