#!/usr/bin/env python3
"""How much of the engine's speed arrives through the HTTP server.

usage: http_share.py CLEAVE MODEL [options], --help lists them

Pairs of `cleave serve`, read by this client, and `cleave bench engine` with the same flags, beside
a process that takes as much processor time as the client just did. Standard library only. Status 0:
the bars hold; 1: one does not.
"""

import argparse
import dataclasses
import json
import multiprocessing
import os
import random
import resource
import selectors
import socket
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests"))
from served import Served  # noqa: E402

BARS = {"single": 0.97, "streams": 0.93}
TTFT_BAR_MS = 3.0
READ_BYTES, TIMEOUT_S, TURN_S = 1 << 18, 300, 0.004
PROMPT, LONG_PROMPT, VOCAB = 16, 512, 1000
FIRSTS = 5  # first tokens of a pair, of which the median counts


def post(prompt, max_tokens):
    body = json.dumps(
        {
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: cleave\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def random_prompt(rng, tokens):
    return [rng.randrange(100, VOCAB) for _ in range(tokens)]


@dataclasses.dataclass
class Stream:
    """One answer as it comes: when its first and last tokens did, and all its bytes."""

    connection: socket.socket
    sent_s: float = 0.0
    first_s: float = 0.0
    last_s: float = 0.0
    data: bytes = b""

    def take(self, now):
        """False when the server closed the connection."""
        got = self.connection.recv(READ_BYTES)
        if not got:
            return False
        self.data += got
        if b'"text"' in got:
            self.first_s = self.first_s or now
            self.last_s = now
        return True

    def tokens(self):
        """Of the usage at its end; an answer that is not whole is an error."""
        lines = [line for line in self.data.split(b"\n") if line.startswith(b"data: {")]
        last = json.loads(lines[-1][6:]) if lines else {}
        if not last.get("usage") or b"data: [DONE]" not in self.data:
            raise RuntimeError(f"an answer is not whole: {self.data[-200:]!r}")
        return last["usage"]["completion_tokens"]


def read_all(port, requests):
    """Sends all requests at once; their streams, each to its end."""
    streams = []
    with selectors.DefaultSelector() as selector:
        for request in requests:
            connection = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
            streams.append(Stream(connection))
            selector.register(connection, selectors.EVENT_READ, streams[-1])
        for stream, request in zip(streams, requests):
            stream.sent_s = time.monotonic()
            stream.connection.sendall(request)
        left = len(streams)
        while left > 0:
            ready = selector.select(TIMEOUT_S)
            if not ready:
                raise RuntimeError(f"{left} answers are silent for {TIMEOUT_S} s")
            now = time.monotonic()
            for key, _ in ready:
                if not key.data.take(now):
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
                    left -= 1
    return streams


def decode_rate(streams):
    """Tokens a second while all of them decode, the first of each apart."""
    tokens = sum(stream.tokens() - 1 for stream in streams)
    begin = max(stream.first_s for stream in streams)
    return tokens / (max(stream.last_s for stream in streams) - begin)


def cpu_s():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def load(share):
    """Takes `share` of one processor, a few milliseconds at a time."""
    while True:
        busy_until = time.monotonic() + share * TURN_S
        while time.monotonic() < busy_until:
            pass
        time.sleep((1 - share) * TURN_S)


def bench(args, share, prompt, tokens, batch, repeats=1):
    """The run of `cleave bench engine` beside an equal load."""
    process = multiprocessing.Process(target=load, args=(min(share, 0.95),), daemon=True)
    process.start()
    try:
        sizes = ["--prompt-tokens", prompt, "--output-tokens", tokens, "--batch", batch]
        command = [args.cleave, "bench", "engine", args.model, *args.flags.split(), "--json"]
        command += [str(word) for word in [*sizes, "--repeats", repeats]]
        said = subprocess.check_output(command, text=True, timeout=TIMEOUT_S)
        return json.loads(said)["runs"][0]
    finally:
        process.terminate()
        process.join()


def serve_once(args, server, rng, streams, tokens):
    """Rate and the client's share of a processor."""
    requests = [post(random_prompt(rng, PROMPT), tokens) for _ in range(streams)]
    start, used = time.monotonic(), cpu_s()
    answers = read_all(server.port, requests)
    share = (cpu_s() - used) / (time.monotonic() - start)
    return decode_rate(answers), share


def rates(args, server, rng, streams, tokens):
    """A pair: what arrives, what the engine does beside as much load, the client's share."""
    served, share = serve_once(args, server, rng, streams, tokens)
    bare = bench(args, share, PROMPT, tokens, streams)["decode_tokens_per_s"]
    return served, bare, share


def first_tokens(args, server, rng):
    """A pair: milliseconds to the first token of a long prompt, and of its bare prefill."""
    times = []
    start, used = time.monotonic(), cpu_s()
    for _ in range(FIRSTS):
        request = post(random_prompt(rng, LONG_PROMPT), 1)
        stream = read_all(server.port, [request])[0]
        stream.tokens()
        times.append(stream.first_s - stream.sent_s)
    share = (cpu_s() - used) / (time.monotonic() - start)
    bare = bench(args, share, LONG_PROMPT, 2, 1, FIRSTS)["prefill_tokens_per_s"]
    return statistics.median(times) * 1e3, LONG_PROMPT / bare * 1e3


def show_rate(name, pairs, bar):
    shares = [served / bare for served, bare, _ in pairs]
    share = statistics.median(shares)
    served, bare, client = (statistics.median(column) for column in zip(*pairs))
    met = share >= bar
    print(
        f"{name}: {share:.1%} of the engine's speed ({served:.1f} of {bare:.1f} tok/s; bar "
        f"{bar:.0%}, {'met' if met else 'not met'}); client {client:.1%} of a core; "
        f"pairs {' '.join(f'{one:.1%}' for one in shares)}"
    )
    return met


def show_first(pairs):
    extra = [served - bare for served, bare in pairs]
    median = statistics.median(extra)
    served, bare = (statistics.median(column) for column in zip(*pairs))
    met = median <= TTFT_BAR_MS
    print(
        f"TTFT of {LONG_PROMPT} tokens: {median:+.2f} ms ({served:.2f} against {bare:.2f} of bare "
        f"prefill; bar {TTFT_BAR_MS:.0f} ms, {'met' if met else 'not met'}); "
        f"pairs {' '.join(f'{one:+.2f}' for one in extra)}"
    )
    return met


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("cleave", help="the release binary")
    parser.add_argument("model")
    parser.add_argument("--pairs", type=int, default=5, help="of each figure (%(default)s)")
    parser.add_argument("--streams", type=int, default=32, help="at once (%(default)s)")
    parser.add_argument("--tokens", type=int, default=128, help="of an answer (%(default)s)")
    parser.add_argument("--flags", default="--threads 1", help="of both programs (%(default)s)")
    return parser.parse_args()


def main():
    args = options()
    rng = random.Random(1)
    single, many, first = [], [], []
    with Served(args.cleave, args.model, args.flags.split()) as server:
        serve_once(args, server, rng, args.streams, 8)  # buffers of both sides grow
        for _ in range(args.pairs):
            single.append(rates(args, server, rng, 1, args.tokens))
            many.append(rates(args, server, rng, args.streams, args.tokens))
            first.append(first_tokens(args, server, rng))
    met = [
        show_rate("1 stream", single, BARS["single"]),
        show_rate(f"{args.streams} streams", many, BARS["streams"]),
        show_first(first),
    ]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
