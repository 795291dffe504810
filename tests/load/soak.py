#!/usr/bin/env python3
"""Many clients, random disconnects, a tiny KV pool: nothing is lost, and idle is idle again.

usage: soak.py CLEAVE MODEL [--seconds 30] [--clients 500] [--seed 1] [--flag=--block-size=16 ...]

Asserts that every request ends exactly once, finished or with an explicit error; that no cut stream
looks finished; that the same prompt has one greedy answer whatever happens around it; and after the
load that running, waiting and KV usage are zero, file descriptors are back, memory is flat, and
SIGTERM ends with status 0. Standard library only. A model of make_tiny_checkpoints.py gives the
most events a second.
"""

import argparse
import asyncio
import collections
import os
import random
import resource
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from served import Served, wait_until
from stream_client import stream_once

PROMPTS = 40
MAX_TOKENS = 96
SAMPLE_S = 0.5
# Resident memory may grow by this much between the two halves of the run.
GROWTH, GROWTH_BYTES = 0.03, 8 << 20
IDLE_GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
DEFAULT_FLAGS = [
    "--max-model-len",
    "256",
    "--max-num-seqs",
    "16",
    "--max-num-batched-tokens",
    "64",
    "--max-num-queued-reqs",
    "48",
]


class Soak:
    def __init__(self, server, args):
        self.server, self.args = server, args
        self.counts = collections.Counter()
        self.problems = []
        self.answers = {}  # prompt index -> the longest greedy answer seen
        self.resident = []
        self.first_s = []

    def body(self, rng):
        index = rng.randrange(PROMPTS)
        words = random.Random(index)
        prompt = [words.randrange(1, 256) for _ in range(words.randrange(1, 120))]
        return index, {
            "prompt": prompt,
            "max_tokens": rng.randrange(1, MAX_TOKENS),
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    async def client(self, number, end):
        """Asks again and again until `end`, hanging up on a third of its requests."""
        rng, loop = random.Random(f"{self.args.seed}/{number}"), asyncio.get_running_loop()
        while loop.time() < end:
            index, body = self.body(rng)
            leave = {}
            if rng.random() < 0.2:
                leave = {"leave_after": rng.randrange(1, body["max_tokens"] + 1)}
            elif rng.random() < 0.15:
                leave = {"leave_s": rng.uniform(0.001, 2.0)}
            outcome = await stream_once("127.0.0.1", self.server.port, body, **leave)
            self.note(index, outcome)
            if outcome.kind == "refused":
                await asyncio.sleep(rng.uniform(0.1, 0.6))

    def note(self, index, outcome):
        self.counts[outcome.kind] += 1
        if outcome.kind == "broken":
            self.problem(f"broken stream: {outcome.detail}")
        elif outcome.kind == "failed":
            self.problem(f"a request that fits failed: {outcome.detail}")
        elif outcome.kind == "refused" and (outcome.status != 503 or not outcome.retry_after):
            self.problem(
                f"refused with {outcome.status}, Retry-After {outcome.retry_after!r}: "
                f"{outcome.detail}"
            )
        elif outcome.kind == "finished":
            self.first_s.append(outcome.first_s)
            self.compare(index, outcome.text)

    def compare(self, index, text):
        """Answers to one prompt differ in length only; the last character may be half a one."""
        text, known = text.rstrip("\N{REPLACEMENT CHARACTER}"), self.answers.get(index, "")
        short, long = sorted((text, known), key=len)
        if not long.startswith(short):
            self.problem(f"prompt {index} has two answers: {short!r} and {long!r}")
        self.answers[index] = long

    def problem(self, text):
        if len(self.problems) < 20:
            self.problems.append(text)

    async def watch(self, end):
        loop = asyncio.get_running_loop()
        while loop.time() < end:
            self.resident.append(self.server.resident_bytes())
            if self.server.process.poll() is not None:
                self.problem(f"the server ended with {self.server.process.returncode}")
                return
            await asyncio.sleep(SAMPLE_S)

    async def run(self):
        end = asyncio.get_running_loop().time() + self.args.seconds
        clients = [self.client(i, end) for i in range(self.args.clients)]
        await asyncio.gather(self.watch(end), *clients)

    def check_memory(self):
        """The second quarter of the run against the last: warm-up is not growth."""
        quarter = len(self.resident) // 4
        if quarter < 2 or self.args.sanitized:
            return
        early = statistics.median(self.resident[quarter : 2 * quarter])
        late = statistics.median(self.resident[-quarter:])
        print(f"resident: {early / 2**20:.1f} MB, later {late / 2**20:.1f} MB")
        if late > early * (1 + GROWTH) + GROWTH_BYTES:
            self.problem(f"memory grew from {early:.0f} to {late:.0f} bytes")

    def check_idle(self, files_before):
        for gauge in IDLE_GAUGES:
            wait_until(lambda g=gauge: self.server.metric(g) == 0, 10, f"{gauge} back to 0")
        files = lambda: self.server.open_files() <= files_before + 2
        wait_until(files, 10, f"open files back to {files_before}")

    def check_counters(self):
        """The server counts at least the ends that clients saw."""
        metrics = self.server.metrics()
        ended = sum(
            value
            for name, value in metrics.items()
            if name.startswith("vllm:request_success_total") and 'finished_reason="length"' in name
        )
        if ended < self.counts["finished"]:
            self.problem(f"{self.counts['finished']} answers finished, the server counts {ended}")
        if self.counts["finished"] == 0:
            self.problem("no request finished")
        preemptions = self.server.metric("vllm:num_preemptions_total")
        print(f"preemptions: {preemptions:.0f}")
        if self.args.kv_bytes and preemptions == 0:
            self.problem("a tiny KV pool, and no preemption: --kv-bytes is too large to test with")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("model")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kv-bytes", type=int, help="KV pool, small enough to preempt")
    parser.add_argument(
        "--sanitized", action="store_true", help="memory may grow: sanitizers keep what is freed"
    )
    parser.add_argument("--flag", action="append", default=[], help="passed on to cleave serve")
    return parser.parse_args()


def main():
    args = parse()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    flags = DEFAULT_FLAGS + args.flag
    if args.kv_bytes:
        flags += ["--kv-cache-memory-bytes", str(args.kv_bytes)]
    with Served(args.binary, args.model, flags, log=os.environ.get("CLEAVE_LOG")) as server:
        soak, files = Soak(server, args), server.open_files()
        asyncio.run(soak.run())
        print(dict(soak.counts))
        if soak.first_s:
            print(f"median time to first event: {statistics.median(soak.first_s):.3f} s")
        soak.check_memory()
        soak.check_idle(files)
        soak.check_counters()
    for problem in soak.problems:
        print(problem)
    print("soak: failed" if soak.problems else f"soak: OK, {args.seconds:.0f} s")
    sys.exit(bool(soak.problems))


if __name__ == "__main__":
    main()
