#!/usr/bin/env python3
"""Runs cluster cases: clusters of real processes, what is asked of them, what happens to them.

usage: run.py CLEAVE --tiny DIR [--models DIR] [--logs DIR] CASE...

A case is a text file, one line an action; blank lines and lines that begin with # say nothing,
words are split as a shell splits them, {folder} in one is a folder of the case's own. Actions are
done in order; the first that does not hold ends the case, with its line. `within S` counts from the
last `signal` (or start), and is 60 where it is not said. TEXT is looked for; every one must be
there.

  include FILE                  the lines of another file, beside this one
  model PATH [KEY=N]            tiny/NAME or a file of the models' folder, for what follows;
                                positions=N: a copy of a tiny model that claims so many;
                                cut=N: a copy of a file's first N bytes
  flags FLAG...                 of every server that follows
  request NAME KIND JSON        KIND completions or chat; in the JSON {"ids": N, "seed": S} stands
                                for N token ids, {"words": N, "seed": S} for a text of N words
  drop NAME...                  forgets requests

  same FLAG...                  serves, asks all requests at once, ends with SIGTERM, status 0; the
                                answers equal (==) those of the first `same` of this model, and the
                                bytes of every rank are those predicted

  serve FLAG...                 starts a server, waits until it is ready
  start FLAG...                 starts one
  ready STATUS [within S] [TEXT...]     what /ready says, or comes to say
  ready-under S                 the last start was ready in less
  idle S                        /ready stays 200 for so long
  ask NAME STATUS [replica=N] [TEXT...]                 one request, its status, its body
  await NAME STATUS [replica=N] [within S] [TEXT...]    the same, as soon as it is so
  stream GROUP COUNT NAME [replica=N]   starts streams, which differ in their seeds
  flowing GROUP N               each has brought N events
  finished GROUP [within S] [as GROUP]  each ended complete (with the same text as another's)
  failed GROUP [within S] [TEXT...]     each ended with an error and looks in no way finished
  cut GROUP [within S]          each lost its connection and looks in no way finished
  signal NAME TARGET...         TARGET: front, REPLICA.RANK, all (ranks)
  ranks N [within S]            so many rank processes live
  restarted TARGET [within S]   the rank lives, not as the process of the last signal
  gone [within S]               no process is left, nothing in /dev/shm
  exit STATUS|nonzero [within S]        the front has ended so
  log TEXT...                   what the server wrote; "A | B" is either
  log-lines N TEXT              so many lines of it have TEXT
  metric NAME VALUE [within S]  a sample of /metrics (summed over its labels)
  end                           SIGTERM: status 0, nothing left; implied where a case ends or the
                                next server starts

  pss-reference                 remembers the memory of this server's processes together
  pss-at-most FACTOR MB         this one's is at most FACTOR * that + MB for each rank

  refuse FLAG... : TEXT...      serve ends with status 2 before loading, its message has TEXT
  dry-run FLAG... : TEXT...     --dry-run prints TEXT, status 0
  dry-run-json FLAG... : PATH=VALUE...  values (JSON) in what --dry-run --json prints
"""

import argparse
import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from server import POLL_S, Server, at_path, dry_run
from traffic import Request, Stream, answer_to, answers_to, digest, post

DEFAULT_WITHIN_S = 60
REFUSE_S = 5


class Case:
    def __init__(self, path, args, folder):
        self.path, self.args, self.folder = path, args, folder
        self.model, self.flags = None, []
        self.requests, self.references = {}, {}
        self.server, self.streams = None, {}
        self.event_s, self.before = 0.0, {}  # the last signal: when, the ranks then
        self.pss_reference, self.servers = None, 0

    # Reading

    def run(self):
        try:
            self.run_lines(self.path)
            if self.server is not None:
                self.do_end()
        finally:
            if self.server is not None:
                self.server.clean_up()

    def run_lines(self, path):
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
        for number, line in enumerate(lines, 1):
            words = [word.replace("{folder}", self.folder) for word in self.words_of(line)]
            if not words:
                continue
            action = getattr(self, "do_" + words[0].replace("-", "_"), None)
            where = f"{os.path.basename(path)}:{number}: {line.strip()[:100]}"
            if action is None:
                raise AssertionError(f"{where}\n    no such action")
            start = time.monotonic()
            try:
                action(*words[1:])
            except AssertionError as error:
                if error.args and str(error).startswith("@"):
                    raise
                raise AssertionError(f"@{where}\n    {error}") from error
            if self.args.verbose:
                print(f"  {time.monotonic() - start:6.2f} s  {line.strip()[:100]}", flush=True)

    @staticmethod
    def words_of(line):
        if line.lstrip().startswith("#"):
            return []
        # JSON keeps its quotes.
        return line.split(None, 3) if line.startswith("request ") else shlex.split(line)

    @staticmethod
    def options(words):
        """(seconds, the other group, the rest) of `within S`, `as GROUP` and other words."""
        words, within, other = list(words), DEFAULT_WITHIN_S, None
        if "within" in words:
            at = words.index("within")
            within = float(words[at + 1])
            del words[at : at + 2]
        if "as" in words:
            at = words.index("as")
            other = words[at + 1]
            del words[at : at + 2]
        return within, other, words

    def until(self, condition, within):
        """Waits until condition() is ""; fails with what it said `within` s after the event."""
        deadline = self.event_s + within
        while True:
            said = condition()
            if not said:
                return time.monotonic() - self.event_s
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {within:g} s: {said}")
            time.sleep(POLL_S)

    # Settings

    def do_include(self, name):
        self.run_lines(os.path.join(os.path.dirname(os.path.abspath(self.path)), name))

    def do_model(self, path, *options):
        folder, _, name = path.rpartition("/")
        root = self.args.tiny if folder == "tiny" else self.args.models
        self.model = os.path.abspath(os.path.join(root, name))
        self.references = {}
        for option in options:
            key, _, value = option.partition("=")
            copy = os.path.join(self.folder, f"{key}-{value}", name)
            (self.lengthened if key == "positions" else self.cut_short)(copy, int(value))
            self.model = copy

    def lengthened(self, copy, positions):
        shutil.copytree(self.model, copy, dirs_exist_ok=True)
        with open(os.path.join(copy, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        config["max_position_embeddings"] = positions
        with open(os.path.join(copy, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)

    def cut_short(self, copy, size):
        os.makedirs(os.path.dirname(copy))
        with open(self.model, "rb") as source, open(copy, "wb") as target:
            target.write(source.read(size))

    def do_flags(self, *flags):
        self.flags = list(flags)

    def do_request(self, name, kind, body):
        self.requests[name] = Request(kind, json.loads(body))

    def do_drop(self, *names):
        for name in names:
            del self.requests[name]

    # Whole answers

    def do_same(self, *flags):
        self.do_serve(*flags)
        server = self.server
        answers = answers_to(server.port, self.requests)
        self.do_end()
        if "NOT as predicted" in server.log():
            raise AssertionError(f"the bill: {server.log()[-1500:]}")
        failed = [
            f"{name}: {answer}" for name, answer in answers.items() if answer["status"] != 200
        ]
        if failed:
            raise AssertionError(f"refused: {failed[0][:300]}")
        if not self.references:
            self.references = answers
        other = [name for name in answers if answers[name] != self.references[name]]
        if other:
            name = other[0]
            raise AssertionError(
                f"{len(other)} of {len(answers)} answers differ, first {name}:\n"
                f"    {json.dumps(self.references[name])[:600]}\n"
                f"    {json.dumps(answers[name])[:600]}"
            )
        print(
            f"  {len(answers)} answers {digest(answers)}  {' '.join(flags) or 'one rank'}",
            flush=True,
        )

    # One server

    def do_start(self, *flags):
        if self.server is not None:
            self.do_end()
        self.servers += 1
        name = f"{os.path.basename(self.path)}.{self.servers}.log"
        log = os.path.join(self.args.logs or self.folder, name)
        self.server = Server(self.args.binary, self.model, self.flags + list(flags), log)
        self.event_s, self.streams = self.server.started_s, {}

    def do_serve(self, *flags):
        self.do_start(*flags)
        self.server.wait_ready(DEFAULT_WITHIN_S)

    def do_ready(self, status, *words):
        within, _, texts = self.options(words)

        seen = []

        def wrong():
            got, body = self.server.ready()
            if got == int(status) and all(text in body for text in texts):
                return ""
            seen.append(f"{got} {body}")
            return "/ready said " + ", ".join(dict.fromkeys(seen))[-1500:]

        took = self.until(wrong, within)
        print(f"  /ready {status} after {took:.2f} s", flush=True)

    def do_ready_under(self, seconds):
        print(f"  ready after {self.server.ready_s:.2f} s", flush=True)
        if self.server.ready_s >= float(seconds):
            raise AssertionError(f"ready after {self.server.ready_s:.2f} s")

    def do_idle(self, seconds):
        end = time.monotonic() + float(seconds)
        while time.monotonic() < end:
            status, body = self.server.ready()
            if status != 200:
                raise AssertionError(f"/ready is {status}: {body}")
            time.sleep(0.1)

    @staticmethod
    def headers(words):
        """X-data-parallel-rank of a `replica=N` word, and the other words."""
        pinned = [word[8:] for word in words if word.startswith("replica=")]
        rest = [word for word in words if not word.startswith("replica=")]
        return {"X-data-parallel-rank": pinned[0]} if pinned else {}, rest

    def asked(self, name, status, words):
        headers, texts = self.headers(words)
        request = self.requests[name]
        connection, answer = post(self.server.port, request.path, request.made(), headers)
        body = answer.read().decode()
        connection.close()
        missing = [text for text in texts if text not in body]
        wrong = answer.status != int(status) or missing
        return f"status {answer.status}: {body[:400]}" if wrong else ""

    def do_ask(self, name, status, *words):
        said = self.asked(name, status, words)
        if said:
            raise AssertionError(said)

    def do_await(self, name, status, *words):
        within, _, rest = self.options(words)
        self.until(lambda: self.asked(name, status, rest), within)

    def do_stream(self, group, count, name, *words):
        headers, _ = self.headers(words)
        self.streams[group] = [
            Stream(self.server.port, self.requests[name], shift, headers)
            for shift in range(int(count))
        ]

    def do_flowing(self, group, count):
        streams, self.event_s = self.streams[group], time.monotonic()

        def few():
            ended = [s.told() for s in streams if s.ended_s is not None]
            if ended:
                raise AssertionError(f"a stream has ended: {ended[0]}")
            return next((s.told() for s in streams if s.events < int(count)), "")

        self.until(few, DEFAULT_WITHIN_S)

    def ended(self, group, within, wrong, texts=()):
        streams = self.streams[group]
        self.until(
            lambda: next((f"still open: {s.told()}" for s in streams if s.ended_s is None), ""),
            within,
        )
        for stream in streams:
            said = wrong(stream)
            missing = [text for text in texts if text not in (stream.error or "")]
            if said or missing:
                raise AssertionError(f"a stream ended otherwise: {stream.told()} {missing or ''}")
        last = max(s.ended_s for s in streams) - self.event_s
        print(f"  {group}: {len(streams)} streams ended after {last:.2f} s", flush=True)
        if last > within:
            raise AssertionError(f"the last ended after {last:.2f} s, {within:g} s is the limit")

    def do_finished(self, group, *words):
        within, other, _ = self.options(words)
        self.ended(group, within, Stream.not_finished)
        if other is None:
            return
        for mine, theirs in zip(self.streams[group], self.streams[other], strict=True):
            if mine.text != theirs.text:
                raise AssertionError(f"another text: {mine.text[:200]!r} {theirs.text[:200]!r}")

    def do_failed(self, group, *words):
        within, _, texts = self.options(words)
        self.ended(group, within, Stream.not_failed, texts)

    def do_cut(self, group, *words):
        self.ended(group, self.options(words)[0], Stream.not_cut)

    def do_signal(self, name, *targets):
        self.before = self.server.ranks()
        self.event_s = time.monotonic()
        self.server.signal(name, targets)

    def do_ranks(self, count, *words):
        def other():
            ranks = self.server.ranks()
            return "" if len(ranks) == int(count) else f"ranks {sorted(ranks)}"

        self.until(other, self.options(words)[0])

    def do_restarted(self, target, *words):
        old = self.before[target]

        def same():
            pid = self.server.ranks().get(target, old)
            return "" if pid != old else f"rank {target} is {pid}"

        self.until(same, self.options(words)[0])

    def do_gone(self, *words):
        def left():
            self.server.process.poll()
            return ", ".join(self.server.residue())

        took = self.until(left, self.options(words)[0])
        print(f"  nothing left after {took:.2f} s", flush=True)

    def do_exit(self, status, *words):
        process = self.server.process
        self.until(lambda: "it runs" if process.poll() is None else "", self.options(words)[0])
        code = process.returncode
        if code == 0 if status == "nonzero" else code != int(status):
            raise AssertionError(f"exit status {code}: {self.server.log()[-400:]}")

    def do_log(self, *texts):
        log = self.server.log()
        missing = [text for text in texts if not any(one in log for one in text.split(" | "))]
        if missing:
            raise AssertionError(f"no {missing[0]!r} in: {log[-800:]}")

    def do_log_lines(self, count, text):
        lines = [line for line in self.server.log().splitlines() if text in line]
        if len(lines) != int(count):
            raise AssertionError(f"{len(lines)} lines: {lines[:4]}")

    def do_metric(self, name, value, *words):
        def other():
            got = self.server.metric(name)
            return "" if got == float(value) else f"{name} is {got:g}"

        self.until(other, self.options(words)[0])

    def do_end(self):
        server, self.server = self.server, None
        ended_before = server.process.poll() is not None
        status = server.end()
        if status != 0 and not ended_before:
            raise AssertionError(f"status {status} after SIGTERM: {server.log()[-800:]}")
        left = server.residue()
        if left:
            raise AssertionError(f"left behind: {left}")

    # Measures

    def do_pss_reference(self):
        self.pss_reference = sum(self.server.pss_bytes().values())

    def do_pss_at_most(self, factor, mb_a_rank):
        sizes, ranks = self.server.pss_bytes(), len(self.server.ranks())
        total = sum(sizes.values())
        most = float(factor) * self.pss_reference + float(mb_a_rank) * 1e6 * ranks
        figures = (
            f"PSS {total / 1e6:.1f} MB in {len(sizes)} processes, one rank "
            f"{self.pss_reference / 1e6:.1f} MB, limit {most / 1e6:.1f} MB"
        )
        print(f"  {figures}", flush=True)
        if total > most:
            raise AssertionError(figures)

    # Without a server

    @staticmethod
    def halves(words):
        at = words.index(":")
        return list(words[:at]), words[at + 1 :]

    def do_refuse(self, *words):
        flags, texts = self.halves(words)
        start = time.monotonic()
        ended = dry_run(self.args.binary, self.model, self.flags + flags)
        missing = [text for text in texts if text not in ended.stderr]
        if ended.returncode != 2 or missing or ended.stdout or "loading" in ended.stderr:
            raise AssertionError(
                f"status {ended.returncode}, no {missing}: {ended.stderr}{ended.stdout[:300]}"
            )
        if time.monotonic() - start > REFUSE_S:
            raise AssertionError(f"it took {time.monotonic() - start:.1f} s to refuse")

    def do_dry_run(self, *words):
        flags, texts = self.halves(words)
        ended = dry_run(self.args.binary, self.model, [*self.flags, *flags, "--dry-run"])
        missing = [text for text in texts if text not in ended.stdout]
        if ended.returncode != 0 or missing:
            raise AssertionError(
                f"status {ended.returncode}, no {missing}: {ended.stdout}{ended.stderr}"
            )

    def do_dry_run_json(self, *words):
        flags, wanted = self.halves(words)
        ended = dry_run(self.args.binary, self.model, [*self.flags, *flags, "--dry-run", "--json"])
        if ended.returncode != 0:
            raise AssertionError(f"status {ended.returncode}: {ended.stderr}")
        for entry in wanted:
            path, value = entry.split("=", 1)
            got = at_path(ended.stdout, path)
            if got != json.loads(value):
                raise AssertionError(f"{path} is {json.dumps(got)[:300]}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--tiny", default="build/release/tiny", help="of make_tiny_checkpoints.py")
    parser.add_argument("--models", default="models")
    parser.add_argument("--logs", help="folder to keep the servers' logs in")
    parser.add_argument("--verbose", action="store_true", help="print each action and its time")
    args = parser.parse_args()
    args.binary = os.path.abspath(args.binary)
    return args


def main():
    args, failed = parse(), []
    # So that a runner that is ended leaves no servers behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    for path in args.cases:
        name, start = os.path.basename(path), time.monotonic()
        print(name, flush=True)
        with tempfile.TemporaryDirectory(prefix="cleave-cluster-") as folder:
            try:
                Case(path, args, folder).run()
            except AssertionError as error:
                failed.append(name)
                print(f"  FAILED {str(error).lstrip('@')}", flush=True)
        print(f"  {name}: {time.monotonic() - start:.1f} s", flush=True)
    print(
        f"cluster: failed: {', '.join(failed)}"
        if failed
        else f"cluster: OK, {len(args.cases)} cases"
    )
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
