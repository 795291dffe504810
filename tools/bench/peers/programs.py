"""The programs that are measured: their configurations, command lines and answers."""

import dataclasses
import json
import statistics

from quiet import Failed
from rows import IK, LLAMA

CORES = 2  # what the bars are for


@dataclasses.dataclass(frozen=True)
class Figure:
    """Of one run."""

    tokens_per_s: float
    others: float  # share of the processors' time that others took
    details: dict  # what else the program said of the machine: probe, peak, bounds


class Answer(Exception):
    """What a program said is not what was asked."""


@dataclasses.dataclass(frozen=True)
class Peer:
    """A build of a peer and how it is called."""

    build: str  # folder of its binaries
    name: str
    threads: int
    repack: bool = False  # ik_llama.cpp's -rtr: interleaves rows at load

    def command(self, model, sizes):
        if sizes.batch == 1:
            return self._bench(model, sizes)
        context = sizes.batch * 256  # sequences get equal parts, in units of 256 cells
        threads = ["-t", str(self.threads), "-tb", str(self.threads)]
        command = [f"{self.build}/bin/llama-batched-bench", "-m", model, "-c", str(context)]
        command += ["-npp", str(sizes.prompt), "-ntg", str(sizes.output)]
        return [*command, "-npl", str(sizes.batch), *threads, "--output-format", "jsonl"]

    def _bench(self, model, sizes):
        tested = _tested(sizes)
        command = [f"{self.build}/bin/llama-bench", "-m", model, "-o", "json"]
        command += ["-p", str(tested["n_prompt"]), "-n", str(tested["n_gen"])]
        command += ["-t", str(self.threads), "-r", str(sizes.repeats)]
        return command + (["-rtr", "1"] if self.repack else [])

    def figure(self, done, sizes):
        parse = llama_bench_rate if sizes.batch == 1 else batched_bench_rate
        return Figure(parse(done.out, sizes), done.others, {})


@dataclasses.dataclass(frozen=True)
class Cleave:
    binary: str
    flags: tuple
    rate: str  # of the metric, in runs[]
    cores: int

    @property
    def name(self):
        return " ".join(self.flags)

    def command(self, model, sizes):
        command = [self.binary, "bench", "engine", model, *self.flags, "--json"]
        command += ["--prompt-tokens", str(sizes.prompt), "--output-tokens", str(sizes.output)]
        return [*command, "--batch", str(sizes.batch), "--repeats", str(sizes.repeats)]

    def figure(self, done, sizes):
        rate, details = cleave_answer(done.out, sizes, self.rate)
        return Figure(rate, done.others, details)


def peer_choices(peer, builds):
    """Every configuration of `peer`; `builds` is folder -> what tells it from others."""
    if peer == LLAMA:
        return [
            Peer(folder, f"-t {threads}, {what}", threads)
            for folder, what in builds.items()
            for threads in (1, CORES)
        ]
    assert peer == IK
    (folder,) = builds
    return [
        Peer(folder, f"-t {threads}" + (", -rtr 1" if repack else ""), threads, repack)
        for threads in (1, CORES)
        for repack in (False, True)
    ]


def cleave_choices(binary, metric):
    one = ("--threads", "1")
    layouts = [(one, 1), (("--threads", str(CORES)), CORES), (("-tp", str(CORES), *one), CORES)]
    if metric.key == "batch32":
        layouts += [((axis, str(CORES), *one), CORES) for axis in ("-dp", "-pp")]
    return [Cleave(binary, flags, metric.rate, cores) for flags, cores in layouts]


def _tested(sizes):
    """llama-bench does either: a prompt, or tokens from an empty context."""
    is_decode = sizes.output > 1
    return {
        "n_prompt": 0 if is_decode else sizes.prompt,
        "n_gen": sizes.output if is_decode else 0,
    }


def _rate(value, where):
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise Answer(f"{where}: {value!r} is no rate")
    return float(value)


def llama_bench_rate(text, sizes):
    """The median of llama-bench's repeats, from its -o json; other lines may stand before."""
    start = text.find("[\n")
    try:
        entries = json.loads(text[start:]) if start >= 0 else []
    except ValueError as error:
        raise Answer(f"llama-bench: {error}") from error
    wanted = _tested(sizes)
    for entry in entries:
        if all(entry.get(key) == value for key, value in wanted.items()):
            samples = entry.get("samples_ts") or []
            if len(samples) != sizes.repeats:
                raise Answer(f"llama-bench: {len(samples)} repeats of {sizes.repeats}")
            return statistics.median(_rate(value, "llama-bench") for value in samples)
    raise Answer(f"llama-bench: no entry for {wanted}")


def batched_bench_rate(text, sizes):
    """Decoding, all sequences together, from the line that is a JSON object."""
    wanted = {"pp": sizes.prompt, "tg": sizes.output, "pl": sizes.batch}
    for line in text.splitlines():
        if not line.startswith("{"):
            continue
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise Answer(f"llama-batched-bench: {error}") from error
        if all(entry.get(key) == value for key, value in wanted.items()):
            return _rate(entry.get("speed_tg"), "llama-batched-bench")
    raise Answer(f"llama-batched-bench: no line for {wanted}")


def cleave_answer(text, sizes, rate):
    """The rate and, as far as they are there, probe, peak and bounds."""
    try:
        answer = json.loads(text)
    except ValueError as error:
        raise Answer(f"cleave bench engine: {error}") from error
    if answer.get("same") is not True:
        raise Answer(f"cleave bench engine: not the same tokens: {answer.get('difference')}")
    for run in answer.get("runs", []):
        if run.get("batch") == sizes.batch:
            details = {key: answer[key] for key in ("isa", "probe", "peak") if key in answer}
            bounds = run.get("bounds", answer.get("bounds"))
            details |= {"bounds": bounds} if bounds else {}
            return _rate(run.get(rate), "cleave bench engine"), details
    raise Answer(f"cleave bench engine: no run of batch {sizes.batch}")


def measure(gate, program, model, sizes, timeout_s):
    done = gate.run(program.command(model, sizes), timeout_s)
    try:
        return program.figure(done, sizes)
    except Answer as error:
        raise Failed(f"{error}; command: {' '.join(program.command(model, sizes))}") from error
