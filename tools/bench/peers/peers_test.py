#!/usr/bin/env python3
"""The comparison with peers: answers are read right, disturbed runs thrown away, verdicts true.
Programs are small scripts and canned answers."""

import dataclasses
import json
import os
import re
import sys
import tempfile
import time
import unittest

import bench_peers
import build
import pairs
import programs
import quiet
import report
import rows

STAT = """\
cpu  900 90 400 8000 10 0 5 7 0 0
cpu0 100 20 30 4000 5 0 3 7 50 0
cpu1 200 10 40 4000 5 9 2 0 0 0
cpu12 600 60 330 0 0 0 0 0 0 0
intr 12345 0 9
"""
QUIET_CPUS = frozenset({0, 1})


def setUpModule():
    quiet.adopt_orphans()


def script(text):
    return [sys.executable, "-c", text]


def cell(name):
    (found,) = rows.cells(re.compile(f"^{name}$"))
    return found


DECODE = cell("SmolLM2-135M-Instruct Q4_1 llama.cpp decode")
PREFILL = cell("SmolLM2-135M-Instruct Q8_0 ik_llama.cpp prefill")
BATCH32 = cell("Llama-3.2-1B-shape Q4_K_M llama.cpp batch32")


class Shares(unittest.TestCase):
    def test_busy_is_user_nice_and_system_of_the_own_processors(self):
        self.assertAlmostEqual(quiet.busy_seconds(STAT, {0}), 150 * quiet.TICK_S)
        self.assertAlmostEqual(quiet.busy_seconds(STAT, {0, 1}), 400 * quiet.TICK_S)
        self.assertEqual(quiet.busy_seconds(STAT, {5}), 0)

    def test_others_are_what_is_left(self):
        self.assertAlmostEqual(quiet.others_share(4.5, 4.1, 2.0, 2), 0.1)
        self.assertEqual(quiet.others_share(4.0, 4.1, 2.0, 2), 0)

    def test_busiest(self):
        before = {1: ("init", 5.0), 2: ("cc", 1.0)}
        after = {1: ("init", 5.0), 2: ("cc", 3.0), 3: ("new", 4.0), 4: ("me", 9.0)}
        found = quiet.busiest(before, after, {4})
        self.assertEqual(found, ["new (pid 3, 4.0 s)", "cc (pid 2, 2.0 s)"])

    def test_process_seconds_knows_this_process(self):
        end = time.process_time() + 3 * quiet.TICK_S
        while time.process_time() < end:
            pass
        self.assertGreater(quiet.process_seconds()[os.getpid()][1], 0)


class Runs(unittest.TestCase):
    def test_both_streams_and_the_status(self):
        text = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
        done = quiet.run(script(text), 30, QUIET_CPUS)
        self.assertEqual((done.status, done.out, done.err), (3, "out\n", "err\n"))

    def test_time_of_descendants_is_their_own(self):
        burn = "import time\nwhile time.process_time() < 0.1: pass"
        before = quiet.own_seconds()
        quiet.run(
            script(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"),
            30,
            QUIET_CPUS,
        )
        self.assertGreaterEqual(quiet.own_seconds() - before, 0.1)

    def test_a_late_program_is_killed_with_its_children(self):
        child = "import time; time.sleep(600)"
        text = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
        with self.assertRaisesRegex(quiet.Failed, r"not done within 0\.3 s: .*subprocess"):
            quiet.run(script(text), 0.3, QUIET_CPUS)
        with self.assertRaises(ChildProcessError):  # nobody is left to wait for
            os.waitpid(-1, os.WNOHANG)


class Gates(unittest.TestCase):
    def gate(self, *shares, status=0, err=""):
        """One whose runs see `shares` of others, and that waits for nothing."""
        left = list(shares)

        def run_once(command, timeout_s, cpus):
            self.assertEqual((command, timeout_s, cpus), (["x"], 9, QUIET_CPUS))
            return quiet.Done(status, "answer", err, left.pop(0))

        gate = quiet.Gate(QUIET_CPUS, 0.04, tries=3, patience_s=0, run_once=run_once)
        return gate, left

    def test_the_first_quiet_run_counts(self):
        gate, left = self.gate(0.5, 0.041, 0.04, 0.0)
        self.assertEqual(gate.run(["x"], 9).others, 0.04)
        self.assertEqual(left, [0.0])

    def test_refused_after_the_last_try(self):
        gate, left = self.gate(0.5, 0.06, 0.25, 0.0)
        text = r"others took 50\.0%, 6\.0%, 25\.0% of 2 processors in 3 runs, at most 4% may"
        with self.assertRaisesRegex(quiet.Refused, text):
            gate.run(["x"], 9)
        self.assertEqual(left, [0.0])

    def test_a_failure_names_its_command_and_last_words(self):
        gate, _ = self.gate(0.0, status=2, err="first\nno such file\n")
        with self.assertRaisesRegex(quiet.Failed, "^status 2: x: no such file$"):
            gate.run(["x"], 9)


def entry(prompt, output, *samples):
    return {"n_prompt": prompt, "n_gen": output, "samples_ts": samples, "avg_ts": 1.0}


class Answers(unittest.TestCase):
    def bench(self, entries, sizes):
        return programs.llama_bench_rate("note\n" + json.dumps(entries, indent=2) + "\n", sizes)

    def test_llama_bench(self):
        sizes = DECODE.sizes(3)
        entries = [entry(512, 0, 9, 9, 9), entry(0, 128, 120, 118.5, 180)]
        self.assertEqual(self.bench(entries, sizes), 120)
        self.assertEqual(self.bench([entry(512, 0, 300)], PREFILL.sizes(1)), 300)

    def test_llama_bench_said_something_else(self):
        sizes = DECODE.sizes(1)
        for entries, text in (
            ([], "no entry"),
            ([entry(512, 0, 9)], "no entry for .*'n_gen': 128"),
            ([entry(0, 128)], "0 repeats of 1"),
            ([entry(0, 128, 0.0)], r"0\.0 is no rate"),
            ([entry(0, 128, "fast")], "'fast' is no rate"),
        ):
            with self.assertRaisesRegex(programs.Answer, text):
                self.bench(entries, sizes)
        with self.assertRaisesRegex(programs.Answer, "llama-bench: "):
            programs.llama_bench_rate('[\n{"n_prompt": 1', sizes)

    def test_batched_bench(self):
        sizes = BATCH32.sizes(3)
        said = {"pp": 128, "tg": 64, "pl": 32, "speed_pp": 900.0, "speed_tg": 224.25}
        text = "log\n\n" + json.dumps(said | {"pl": 1}) + "\n" + json.dumps(said) + "\nend\n"
        self.assertEqual(programs.batched_bench_rate(text, sizes), 224.25)
        for text in ("", json.dumps(said | {"tg": 8}), "{", json.dumps(said | {"speed_tg": None})):
            with self.assertRaisesRegex(programs.Answer, "llama-batched-bench: "):
                programs.batched_bench_rate(text, sizes)

    def test_cleave(self):
        sizes, rate = BATCH32.sizes(3), "decode_tokens_per_s"
        bounds, probe = {"decode_of_peak": 0.4}, {"bytes": 9, "cores": []}
        answer = {"same": True, "isa": "avx512", "probe": probe, "bill": {}}
        answer["runs"] = [{"batch": 1, rate: 1.0}, {"batch": 32, rate: 900.5, "bounds": bounds}]
        found = programs.cleave_answer(json.dumps(answer), sizes, rate)
        self.assertEqual(found, (900.5, {"isa": "avx512", "probe": probe, "bounds": bounds}))
        del answer["runs"][1]["bounds"]
        found = programs.cleave_answer(json.dumps(answer), sizes, rate)
        self.assertNotIn("bounds", found[1])
        for change, text in (
            ({"same": False, "difference": "batch 32: request 3"}, "not the same.*request 3"),
            ({"runs": []}, "no run of batch 32"),
        ):
            with self.assertRaisesRegex(programs.Answer, text):
                programs.cleave_answer(json.dumps(answer | change), sizes, rate)

    def test_a_bad_answer_names_the_command(self):
        gate = quiet.Gate(QUIET_CPUS, run_once=lambda *_: quiet.Done(0, "", "", 0.0))
        peer = programs.Peer("dir", "-t 1", 1)
        with self.assertRaisesRegex(quiet.Failed, "no entry.*command: dir/bin/llama-bench -m m"):
            programs.measure(gate, peer, "m", DECODE.sizes(1), 9)


class Commands(unittest.TestCase):
    def test_peers(self):
        llama = programs.peer_choices(rows.LLAMA, {"a": "OpenMP on", "b": "OpenMP off"})
        names = [choice.name for choice in llama]
        self.assertEqual(
            names,
            ["-t 1, OpenMP on", "-t 2, OpenMP on", "-t 1, OpenMP off", "-t 2, OpenMP off"],
        )
        command = " ".join(llama[1].command("m", DECODE.sizes(3)))
        self.assertEqual(command, "a/bin/llama-bench -m m -o json -p 0 -n 128 -t 2 -r 3")
        command = " ".join(llama[2].command("m", BATCH32.sizes(3)))
        wanted = "b/bin/llama-batched-bench -m m -c 8192 -npp 128 -ntg 64 -npl 32 -t 1 -tb 1"
        self.assertEqual(command, wanted + " --output-format jsonl")
        ik = programs.peer_choices(rows.IK, {"c": ""})
        self.assertEqual(len({choice.name for choice in ik}), 4)
        command = " ".join(ik[3].command("m", PREFILL.sizes(3)))
        self.assertEqual(command, "c/bin/llama-bench -m m -o json -p 512 -n 0 -t 2 -r 3 -rtr 1")

    def test_cleave(self):
        names = [choice.name for choice in programs.cleave_choices("c", DECODE.metric)]
        self.assertEqual(names, ["--threads 1", "--threads 2", "-tp 2 --threads 1"])
        choices = programs.cleave_choices("c", BATCH32.metric)
        self.assertEqual(len({choice.name for choice in choices}), 5)
        command = " ".join(choices[3].command("m", BATCH32.sizes(3)))
        wanted = "c bench engine m -dp 2 --threads 1 --json --prompt-tokens 128 --output-tokens 64"
        self.assertEqual(command, wanted + " --batch 32 --repeats 1")


class Rows(unittest.TestCase):
    def test_as_the_bars_were_set(self):
        self.assertEqual(len(rows.cells()), 7 * 3 + 3 * 2)
        self.assertEqual(len({cell.name for cell in rows.cells()}), 27)

    def test_without_avx512_the_bars_are_lower_and_llama_cpp_the_peer(self):
        found = {cell.name: cell for cell in rows.cells(None, with_avx512=False)}
        self.assertEqual(len(found), 7 * 3)
        self.assertAlmostEqual(found[DECODE.name].bar, 0.8 * DECODE.bar)
        self.assertAlmostEqual(found[BATCH32.name].bar, 0.5 * BATCH32.bar)
        kinds = {(one.peer, one.has_avx512) for one in build.BUILDS}
        self.assertEqual(kinds, {(rows.LLAMA, True), (rows.LLAMA, False), (rows.IK, True)})

    def test_each_table_has_its_part_of_the_document(self):
        parts = report.PART.values()
        document = "".join(f"<!-- {part}: by make -->\n<!-- {part} end -->\n" for part in parts)
        for part in parts:
            document = report.with_table(document, f"of {part}", part)
        for part in parts:
            self.assertIn(f"<!-- {part}: by make -->\nof {part}\n<!-- {part} end -->", document)
        self.assertEqual((DECODE.bar, PREFILL.bar, BATCH32.bar), (4.5, 1.3, 4))
        limits = [cell.metric.limit_bar for cell in (DECODE, PREFILL, BATCH32)]
        self.assertEqual(limits, [0.75, 0.5, 0.35])

    def test_files(self):
        path = rows.model_path(DECODE.row, "models", "peers")
        self.assertEqual(path, "models/SmolLM2-135M-Instruct.Q4_1.gguf")
        path = rows.model_path(BATCH32.row, "models", "peers")
        self.assertEqual(path, "peers/Llama-3.2-1B-shape.Q4_K_M.gguf")


def figure(rate, **details):
    return programs.Figure(rate, 0.01, details)


@dataclasses.dataclass(frozen=True)
class Named:
    name: str
    cores: int = 2


class Verdicts(unittest.TestCase):
    def test_by_ratio_first(self):
        self.assertEqual(pairs.verdict(4.5, 4.5, None, 0.75), pairs.BY_RATIO)
        self.assertEqual(pairs.verdict(4.4, 4.5, 0.75, 0.75), pairs.BY_LIMIT)
        self.assertEqual(pairs.verdict(4.4, 4.5, 0.74, 0.75), pairs.NOT_MET)
        self.assertEqual(pairs.verdict(4.4, 4.5, None, 0.75), pairs.NOT_MET)

    def test_the_best_choice(self):
        speeds = {"a": 3.0, "b": 5.0, "c": 4.0}
        choices = [Named(name) for name in speeds]
        best, rates = pairs.best_of(choices, lambda choice: figure(speeds[choice.name]))
        self.assertEqual((best.name, rates), ("b", speeds))

    def test_pairs_alternate_who_begins(self):
        order = []

        def run(name):
            order.append(name)
            return figure({"us": 2.0, "them": 1.0}[name])

        found = pairs.alternate("us", "them", 3, run)
        self.assertEqual(order, ["us", "them", "them", "us", "us", "them"])
        rates = [(mine.tokens_per_s, other.tokens_per_s) for mine, other in found]
        self.assertEqual(rates, [(2.0, 1.0)] * 3)

    def test_the_ratio_is_the_median_of_pairs(self):
        def beside(share, bytes_per_s):
            probe = {"cores": [{"cores": 1, "bytes_per_s": 1}]}
            probe["cores"].append({"cores": 2, "bytes_per_s": bytes_per_s})
            return {"probe": probe, "bounds": {"decode_of_bandwidth": share}}

        measured = [
            (figure(400.0, **beside(0.7, 5e10)), figure(100.0)),
            (figure(900.0, **beside(0.9, 7e10)), figure(300.0)),
            (figure(500.0, **beside(0.8, 6e10)), figure(100.0)),
        ]
        found = pairs.result(DECODE, Named("-tp 2"), Named("-t 2"), {}, measured)
        self.assertEqual((found["ratio"], found["share"]), (4.0, 0.8))
        self.assertEqual(found["ceiling"], 6e10)
        rates = (found["cleave"]["tokens_per_s"], found["against"]["tokens_per_s"])
        self.assertEqual(rates, (500.0, 100.0))
        self.assertEqual(found["verdict"], pairs.BY_LIMIT)

    def test_prefill_is_held_against_the_peak(self):
        peak = {"kind": "int8", "cores": [{"cores": 2, "ops_per_s": 9e11}]}
        mine = figure(90.0, probe=None, peak=peak, bounds={"prefill_of_peak": 0.4})
        found = pairs.result(PREFILL, Named("x"), Named("y"), {}, [(mine, figure(100.0))])
        self.assertEqual((found["share"], found["ceiling"]), (0.4, 9e11))
        self.assertIn("| 40% | 50% | 900 Gop/s | not met |", report.line(found))

    def test_without_bounds(self):
        found = pairs.result(DECODE, Named("x"), Named("y"), {}, [(figure(9.0), figure(1.0))])
        self.assertIsNone(found["share"])
        self.assertIsNone(found["ceiling"])
        self.assertEqual(found["verdict"], pairs.BY_RATIO)

    def test_cleave_is_looked_at_once_for_all_peers(self):
        asked = []

        def run_once(command, *_):
            asked.append(command[0])
            if command[0] == "cleave":
                run = {"batch": 1, "decode_tokens_per_s": 8.0}
                return quiet.Done(0, json.dumps({"same": True, "runs": [run]}), "", 0.0)
            return quiet.Done(0, json.dumps([entry(0, 128, 2.0)], indent=1), "", 0.0)

        gate = quiet.Gate(QUIET_CPUS, run_once=run_once)
        builds = {rows.LLAMA: {"on": "on", "off": "off"}, rows.IK: {"ik": ""}}
        comparison = pairs.Comparison(gate, "cleave", builds, 2, 1)
        other = cell("SmolLM2-135M-Instruct Q4_1 ik_llama.cpp decode")
        ratios = [comparison.compare(one, "m")["ratio"] for one in (DECODE, other)]
        self.assertEqual(ratios, [4.0, 4.0])
        self.assertEqual(asked.count("cleave"), 3 + 2 + 2)
        self.assertEqual(len(asked) - asked.count("cleave"), 4 + 2 + 4 + 2)


class Reports(unittest.TestCase):
    RUN = {
        "machine": "2 cores (x)",
        "binary_sha256": "00",
        "peers": "p",
        "settings": {"pairs": 5, "repeats": 3, "most_others": 0.04},
    }

    def row(self, rate=500.0):
        pair = (figure(rate, isa="avx2"), figure(100.0))
        return pairs.result(DECODE, Named("-tp 2"), Named("-t 2, OpenMP on"), {}, [pair])

    def json_row(self):
        return json.loads(json.dumps(self.row()))

    def test_table(self):
        text = report.table(self.RUN, [self.row(1234.0), self.row(440.0)])
        self.assertIn(
            "| SmolLM2-135M-Instruct Q4_1 | decode, batch 1 | 1,234 | `-tp 2` | 100 "
            "| llama.cpp -t 2, OpenMP on | 12.34× | 4.5× | – | 75% | – | met by ratio |\n",
            text,
        )
        self.assertIn("1 met by ratio, 0 met by limit, 1 not met.", text)
        self.assertNotIn("Not measured", text)
        part = report.table(self.RUN, [self.row()], ["a decode", "b prefill"])
        self.assertTrue(part.endswith("\n\nNot measured: a decode; b prefill.\n"))
        self.assertIn("avx2", text)
        self.assertNotIn("NOISY", text)
        loose = self.RUN | {"settings": self.RUN["settings"] | {"most_others": 0.5}}
        self.assertIn("NOISY", report.table(loose, [self.row()]))
        heads = [line.count("|") for line in text.splitlines() if line.startswith("|")]
        self.assertEqual(len(set(heads)), 1)

    def test_between_the_marker_lines(self):
        document = "# a\n<!-- bench-peers: by make -->\nold\n<!-- bench-peers end -->\nb\n"
        wanted = "# a\n<!-- bench-peers: by make -->\nnew\n<!-- bench-peers end -->\nb\n"
        self.assertEqual(report.with_table(document, "new\n", "bench-peers"), wanted)
        for broken in ("", "<!-- bench-peers -->\n", "<!-- bench-peers end -->\n<!-- bench-peers"):
            with self.assertRaisesRegex(ValueError, "needs one line '<!-- bench-peers"):
                report.with_table(broken, "new", "bench-peers")

    def test_kept_rows_are_of_the_same_run(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "results.json")
            self.assertEqual(report.kept_rows(path, self.RUN), {})
            report.save(path, self.RUN, [self.row()])
            self.assertEqual(report.kept_rows(path, self.RUN), {DECODE.name: self.json_row()})
            self.assertEqual(report.kept_rows(path, self.RUN | {"binary_sha256": "01"}), {})
            with open(path, "w", encoding="utf-8") as file:
                file.write("[1]")
            with self.assertRaisesRegex(ValueError, f"{path} is not what this command wrote"):
                report.kept_rows(path, self.RUN)

    def test_rows_measured_before_stay_in_the_file(self):
        class Measured:
            def compare(self, cell, model):
                return {"name": cell.name, "model": model}

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "results.json")
            kept = {one.name: {"name": one.name, "model": "old"} for one in (PREFILL, DECODE)}
            models = {DECODE: "new"}
            found = bench_peers.measure_all(path, self.RUN, Measured(), models, kept)
            self.assertEqual(found, {DECODE.name: {"name": DECODE.name, "model": "new"}})
            with open(path, encoding="utf-8") as file:
                saved = [row["model"] for row in json.load(file)["rows"]]
            self.assertEqual(saved, ["new", "old"])  # as the table has them


class Builds(unittest.TestCase):
    def test_progress(self):
        said = []
        progress = build.Progress("x", said.append)
        for line in ("-- cmake\n", "[1/40] CXX\n", "[2/40] CXX\n", "[9/40] CXX\n", "[40/40]\n"):
            progress(line)
        self.assertEqual(said, ["x: 1 of 40", "x: 9 of 40", "x: 40 of 40"])

    def test_a_failure_names_its_log(self):
        with tempfile.TemporaryDirectory() as folder:
            log = os.path.join(folder, "x.log")
            command = script("import sys; print('why'); sys.exit(4)")
            for on_line in (None, lambda line: None):
                with self.assertRaisesRegex(quiet.Failed, f"^status 4: .*; see {log}$"):
                    build.logged(command, log, 30, on_line)
            with open(log, encoding="utf-8") as file:
                self.assertEqual(file.read().count("why\n"), 2)
            with self.assertRaisesRegex(quiet.Failed, "needs no-such-program"):
                build.logged(["no-such-program"], log, 30)

    def test_a_build_is_what_would_be_made_or_made_anew(self):
        one = build.BUILDS[0]
        with tempfile.TemporaryDirectory() as folder:
            where = os.path.join(folder, one.folder)
            self.assertFalse(build.is_made(one, where))
            os.makedirs(os.path.join(where, "bin"))
            for target in one.targets:
                with open(os.path.join(where, "bin", target), "w", encoding="ascii") as file:
                    os.chmod(file.fileno(), 0o755)
            flags = one.flags(where)
            self.assertEqual(flags["CMAKE_PROJECT_ggml_INCLUDE"], f"{folder}/amx.cmake")
            for changed, is_made in (({}, True), ({"GGML_OPENMP": "OFF"}, False)):
                lines = [f"{name}:BOOL={value}" for name, value in (flags | changed).items()]
                with open(os.path.join(where, "CMakeCache.txt"), "w", encoding="utf-8") as file:
                    file.write("\n".join(["// GGML_OPENMP=x", "# y", "A:STRING=b=c", *lines]))
                self.assertIs(build.is_made(one, where), is_made)
            with self.assertRaisesRegex(quiet.Failed, f"see {where}.log"):
                build.make(one, where, os.path.join(folder, "no-source"), 1)
            self.assertEqual(os.listdir(os.path.join(where, "bin")), [])

    def test_patches_are_copied_once(self):
        with tempfile.TemporaryDirectory() as folder:
            build.copy_patches(folder)
            self.assertEqual(sorted(os.listdir(folder)), sorted(build.PATCHES))
            path = os.path.join(folder, build.PATCHES[0])
            os.utime(path, (1, 1))
            build.copy_patches(folder)
            self.assertEqual(os.stat(path).st_mtime, 1)
            with open(path, "a", encoding="utf-8") as file:
                file.write("other")
            build.copy_patches(folder)
            self.assertGreater(os.stat(path).st_mtime, 1)
            with open(path, encoding="utf-8") as file:
                self.assertNotIn("other", file.read())

    def test_cpu_lists(self):
        self.assertEqual(bench_peers.cpu_list("0-2,5\n"), {0, 1, 2, 5})


if __name__ == "__main__":
    unittest.main(buffer=True)  # what the gate says belongs to the tests
