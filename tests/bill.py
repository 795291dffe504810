#!/usr/bin/env python3
"""The bill of a running server: /v1/bill, /metrics and the log, from the real binary.

usage: bill.py CLEAVE MODEL MIXED

Asserts, over -tp 2 -pp 2, that what ranks metered is what was predicted, on every rank, axis and
operation; that one request adds exactly the bytes and calls that its steps need, counted here from
the model's sizes; that /metrics says the same and the log at the end too; that a killed replica's
figures stand and its restart adds to them; that one rank owes nothing; and that a prefill moves
what --dry-run says of it. MODEL and MIXED are checkpoints of make_tiny_checkpoints.py, MIXED one
whose layers' matrices are not all of a kind. Standard library only.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from served import Served, request, wait_until

FLAGS = ["--max-model-len", "256", "--no-enable-prefix-caching"]
PROMPT, TOKENS = 37, 11  # a prompt of two ranks' 16 rows and more: they share its rows
FLOAT, CANDIDATE = 4, 8


def bill_of(server):
    status, _, body = request(server.url + "/v1/bill")
    assert status == 200, body
    return json.loads(body)


def by_op(axes):
    return {(a["axis"], op["op"]): op for a in axes for op in a["ops"]}


def complete(server, headers=None, prompt=PROMPT, **more):
    ids = [1 + i % 300 for i in range(prompt)]
    body = {"prompt": ids, "max_tokens": TOKENS, "ignore_eos": True}
    status, _, answer = request(
        server.url + "/v1/completions", {"temperature": 0, **body, **more}, headers
    )
    assert status == 200, answer
    return json.loads(answer)


def check_exact(bill):
    assert bill["exact"], bill
    for rank in bill["ranks"]:
        for key, op in by_op(rank["axes"]).items():
            where = (rank["replica"], rank["rank"], key, op)
            assert op["metered_bytes"] == op["predicted_bytes"], where
            assert op["calls"] == op["predicted_calls"], where


def added(before, after):
    """What was moved between two bills: (axis, op) -> (calls, bytes)."""
    old = by_op(before["axes"])
    return {
        key: (
            op["calls"] - old.get(key, {}).get("calls", 0),
            op["metered_bytes"] - old.get(key, {}).get("metered_bytes", 0),
        )
        for key, op in by_op(after["axes"]).items()
    }


def check_one_request(server, config):
    """A lone greedy request: a step for its prompt, one a token after the first."""
    before = settled(server)
    complete(server)
    moved = added(before, settled(server))
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    rows, ranks_a_stage = PROMPT + TOKENS - 1, 2
    sends = ranks_a_stage * TOKENS + TOKENS
    send_bytes = ranks_a_stage * rows * hidden * FLOAT + TOKENS * CANDIDATE
    assert moved["pp", "send"] == (sends, send_bytes), moved
    # Every layer is on the ranks of one stage. The prompt's rows are shared out: each is summed on
    # one rank, normed there for both, and goes to the other at the end of the stage.
    halves, flag, exponent = 2 * layers, 1, 1
    row = hidden * FLOAT
    scattered = (halves * ranks_a_stage, halves * PROMPT * (flag + row))
    # Each embedding row is handed over once, each candidate by each rank of the last stage.
    gathers = 2 * ranks_a_stage * TOKENS + scattered[0] + 2 * ranks_a_stage
    gather_bytes = rows * row + ranks_a_stage * TOKENS * CANDIDATE
    gather_bytes += halves * PROMPT * (exponent + row) + 2 * PROMPT * row
    # Tokens after the first go in one shot, or in two in stages that found it quicker at start.
    reductions = halves * ranks_a_stage * (TOKENS - 1)
    two_shot = reductions - moved.get(("tp", "all_reduce"), (0, 0))[0]
    assert 0 <= two_shot <= reductions, moved
    assert moved["tp", "reduce_scatter"][0] == scattered[0] + two_shot, moved
    assert moved["tp", "all_gather"][0] == gathers + two_shot, moved
    if two_shot == 0:
        assert moved["tp", "reduce_scatter"] == scattered, moved
        assert moved["tp", "all_gather"] == (gathers, gather_bytes), moved


def settled(server):
    """The bill once every rank has written the last step down, whenever it gets a processor."""
    looks = []

    def rests():
        time.sleep(0.1)
        looks.append(bill_of(server))
        return len(looks) >= 4 and all(look["axes"] == looks[-1]["axes"] for look in looks[-4:])

    wait_until(rests, 20, "the bill of an idle server to rest")
    return looks[-1]


def check_metrics(server, bill):
    metrics = server.metrics()
    for rank in bill["ranks"]:
        for (axis, name), op in by_op(rank["axes"]).items():
            labels = f'{{axis="{axis}",engine="{rank["replica"]}",'
            end = f'op="{name}",rank="{rank["rank"]}"}}'
            for metric, key in (
                ("bytes", "metered_bytes"),
                ("calls", "calls"),
                ("predicted_bytes", "predicted_bytes"),
            ):
                found = [
                    value
                    for sample, value in metrics.items()
                    if sample.startswith(f"cleave_comm_{metric}_total{labels}")
                    and sample.endswith(end)
                ]
                assert found == [op[key]], (metric, labels, end, found, op[key])
    assert any(sample.startswith("cleave_pp_bubble_ratio{") for sample in metrics)


def check_cut(binary, model, log):
    with open(os.path.join(model, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    with Served(binary, model, FLAGS + ["-tp", "2", "-pp", "2"], log=log) as server:
        check_one_request(server, config)
        complete(server, temperature=0.9, seed=3, logprobs=2)
        complete(server, prompt=150, prompt_logprobs=1)  # more rows than go out at once
        bill = settled(server)
        check_exact(bill)
        assert {a["axis"] for a in bill["axes"]} == {"pp", "tp"}
        places = [(r["rank"], r["pp"], r["tp"]) for r in bill["ranks"]]
        assert places == [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1)], places
        share = bill["per_generated_token"]
        assert share["generated_tokens"] >= 3 * TOKENS, share
        for key, op in by_op(share["axes"]).items():
            whole = by_op(bill["axes"])[key]["metered_bytes"]
            assert abs(op["bytes"] * share["generated_tokens"] - whole) < 1, (key, op)
        check_metrics(server, bill)
    with open(log, encoding="utf-8") as file:
        text = file.read()
    assert "the bill, all ranks together" in text, text
    assert "metered as predicted on every rank; pipeline bubble" in text, text


def worker(server, replica, rank):
    """The process of a rank."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        names = (f"replica={replica}".encode(), f"rank={rank}".encode())
        if parent == server.process.pid and all(name in words for name in names):
            return int(pid)
    raise AssertionError(f"no process of replica {replica}, rank {rank}")


def check_restart(binary, model):
    to_first = {"X-data-parallel-rank": "0"}
    with Served(binary, model, FLAGS + ["-tp", "2", "-dp", "2"]) as server:
        complete(server, to_first)
        before = settled(server)
        check_exact(before)
        os.kill(worker(server, 0, 1), signal.SIGKILL)

        def serves_again():
            body = {"prompt": [1, 2, 3], "max_tokens": 2, "ignore_eos": True}
            return request(server.url + "/v1/completions", body, to_first)[0] == 200

        wait_until(serves_again, 30, "replica 0 to serve again")
        after = settled(server)
        check_exact(after)
        # Nothing counted is lost; crossovers are measured anew, so that other operations may come.
        for old, new in zip(before["ranks"], after["ranks"]):
            was, now = by_op(old["axes"]), by_op(new["axes"])
            for key, op in was.items():
                for count in ("calls", "metered_bytes"):
                    assert now[key][count] >= op[count], (key, old, new)
            if old["replica"] == 0:
                for count in ("calls", "metered_bytes"):
                    totals = [sum(op[count] for op in ops.values()) for ops in (was, now)]
                    assert totals[1] > totals[0], (count, old, new)


def check_one_rank(binary, model):
    with Served(binary, model, FLAGS) as server:
        complete(server)
        bill = bill_of(server)
        assert bill["axes"] == [] and bill["ranks"] == [] and bill["exact"], bill
        assert bill["per_generated_token"]["axes"] == [], bill
        assert not any(name.startswith("cleave_comm_") for name in server.metrics())


def check_dry_run(binary, model):
    """A lone prompt of as many tokens as --dry-run prices, in one step."""
    flags = ["-tp", "2", "--cp", "2", "--no-enable-prefix-caching"]
    told = subprocess.run(
        [binary, "serve", model, "--dry-run", "--json"] + flags, check=True, capture_output=True
    )
    prefill = json.loads(told.stdout)["traffic"]["prefill"]
    expected = {key: (op["calls"], op["bytes"]) for key, op in by_op(prefill["axes"]).items()}
    flags += ["--max-num-batched-tokens", str(prefill["tokens"])]
    with Served(binary, model, flags) as server:
        before = settled(server)
        complete(server, prompt=prefill["tokens"], max_tokens=1)
        moved = added(before, settled(server))
    moved = {key: moved[key] for key in moved if moved[key] != (0, 0)}
    assert moved == expected, (moved, expected)


def main():
    binary, model, mixed = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        check_cut(binary, model, os.path.join(folder, "log"))
    check_restart(binary, model)
    check_one_rank(binary, model)
    check_dry_run(binary, mixed)
    print("bill: OK")


if __name__ == "__main__":
    main()
