#!/usr/bin/env python3
"""`cleave bench kernels`: what it prints, compares and refuses.

usage: bench_kernels.py CLEAVE

Standard library only.
"""

import json
import os
import subprocess
import sys

TIMEOUT_S = 60
TINY = ["--shape", "40x256", "--rows", "1,3", "--repeats", "1", "--bytes", "200k"]


def bench(binary, *flags):
    command = [binary, "bench", "kernels", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def check_json(binary):
    done = bench(binary, *TINY, "--types", "Q4_1,q8_0,BF16,Q4_K", "--json")
    assert done.returncode == 0, done
    result = json.loads(done.stdout)
    assert result["same"] is True and (result["outputs"], result["k"]) == (40, 256), result
    assert [one["type"] for one in result["types"]] == ["Q4_1", "Q8_0", "BF16", "Q4_K"], result
    for one in result["types"]:
        assert one["matrix_bytes"] * one["copies"] >= 200000, one
        assert one["probe"]["best_bytes_per_s"] >= one["probe"]["bytes_per_s"] > 0, one
        assert [run["rows"] for run in one["runs"]] == [1, 3], one
        for run in one["runs"]:
            assert run["same"] is True, run
            assert run["s"] > 0 and run["bytes_per_s"] > 0 and run["ops_per_s"] > 0, run
            share = run["bytes_per_s"] / one["probe"]["bytes_per_s"]
            assert abs(run["of_bandwidth"] / share - 1) < 1e-9, (run, share)
            if one["peak"] is None:
                assert result["isa"] == "scalar" and run["of_peak"] is None, run
            else:
                share = run["ops_per_s"] / one["peak"]["ops_per_s"]
                assert abs(run["of_peak"] / share - 1) < 1e-9, (run, share)


def check_text(binary):
    done = bench(binary, *TINY, "--types", "Q8_0", "--sum", "row", "--isa", "scalar", "--cached")
    assert done.returncode == 0, done
    for part in ("40 outputs over 256, 1 thread, scalar, sums by row", "GB/s", "Q8_0", "same"):
        assert part in done.stdout, (part, done.stdout)


def check_others(binary):
    done = bench(binary, "--others", "--cached", "--repeats", "1", "--json")
    assert done.returncode == 0, done
    result = json.loads(done.stdout)
    assert result["same"] is True, result
    names = [kernel["kernel"] for kernel in result["kernels"]]
    for part in ("attention", "norm", "rope", "SwiGLU", "quantisation", "logits"):
        assert any(part in name for name in names), (part, names)
    for kernel in result["kernels"]:
        assert kernel["same"] is True and kernel["of_bandwidth"] > 0, kernel
        counted = "attention" in kernel["kernel"]
        assert (kernel["of_peak"] is not None) == (counted and result["isa"] != "scalar"), kernel


def check_refusals(binary):
    for flags, part in (
        (["--types", "Q4_1,Q3_9"], "'Q3_9'"),
        (["--types", "Q6_K", "--shape", "16x128"], "Q6_K has rows of whole blocks of 256"),
        (["--shape", "16by128"], "--shape 16by128"),
        (["--rows", "0"], "--rows 0"),
        (["--threads", str(len(os.sched_getaffinity(0)) + 1)], "--threads"),
        (["MODEL"], "MODEL"),
    ):
        done = bench(binary, *flags)
        assert done.returncode == 2, (flags, done)
        assert done.stdout == "", (flags, done)
        assert part in done.stderr, (flags, part, done.stderr)


def main():
    (binary,) = sys.argv[1:]
    check_json(binary)
    check_text(binary)
    check_others(binary)
    check_refusals(binary)
    print("bench kernels: OK")


if __name__ == "__main__":
    main()
