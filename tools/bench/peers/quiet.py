"""Runs a program and says how much processor time others took meanwhile; the gate repeats a run
that was disturbed and refuses when all tries were.

What others took: the time that /proc/stat saw processes run on the processors this one may use,
less what the program, all its descendants and this process took.
"""

import ctypes
import dataclasses
import os
import resource
import signal
import subprocess
import sys
import time

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
ORPHANS_S = 10  # how long a program's descendants may outlive it
PR_SET_CHILD_SUBREAPER = 36


class Failed(Exception):
    """A program ended with another status than 0, said nothing usable, or took too long."""


class Refused(Exception):
    """The machine was not quiet in any of the tries."""


@dataclasses.dataclass(frozen=True)
class Done:
    status: int
    out: str
    err: str
    others: float  # share of the processors' time


def busy_seconds(stat, cpus):
    """Time of processes on `cpus` by the text of /proc/stat: user, nice and system."""
    ticks = 0
    for line in stat.splitlines():
        words = line.split()
        if words and words[0] in {f"cpu{n}" for n in cpus}:
            ticks += sum(int(word) for word in words[1:4])
    return ticks * TICK_S


def others_share(busy_s, own_s, wall_s, cpus):
    """Ticks are counted by sampling, so a short run may seem to have taken more than all."""
    return max(0.0, busy_s - own_s) / (wall_s * cpus)


def own_seconds():
    """Of this process and of its descendants that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def read_stat():
    with open("/proc/stat", encoding="ascii") as file:
        return file.read()


def adopt_orphans():
    """Makes this process the parent of descendants whose own has ended, so that it gets to know
    their time as well."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise Failed(f"prctl: {os.strerror(ctypes.get_errno())}")


def _end_group(group):
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _reap_orphans(group):
    """Waits for what a program left behind; kills it when it stays."""
    kill_at = time.monotonic() + ORPHANS_S
    while time.monotonic() < kill_at + ORPHANS_S:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            if time.monotonic() > kill_at:
                _end_group(group)
            time.sleep(0.01)
    raise Failed(f"descendants of process {group} do not end")


def run(command, timeout_s, cpus):
    """Runs `command` in a session of its own, killed as a whole after `timeout_s`."""
    busy, own, start = busy_seconds(read_stat(), cpus), own_seconds(), time.monotonic()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as late:
            raise Failed(f"not done within {timeout_s} s: {' '.join(command)}") from late
        finally:
            if process.poll() is None:
                _end_group(process.pid)
                process.wait()
            _reap_orphans(process.pid)
    wall_s = time.monotonic() - start
    busy, own = busy_seconds(read_stat(), cpus) - busy, own_seconds() - own
    return Done(process.returncode, out, err, others_share(busy, own, wall_s, len(cpus)))


def process_seconds():
    """pid -> name, time of it and of its children that have ended."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                name, _, rest = file.read().partition("(")[2].rpartition(")")
        except OSError:
            continue
        ticks = sum(int(word) for word in rest.split()[11:15])
        found[int(pid)] = (name, ticks * TICK_S)
    return found


def busiest(before, after, own_pids, count=3):
    """Names and times of the processes that took most between two of process_seconds."""
    taken = []
    for pid, (name, seconds) in after.items():
        spent = seconds - before.get(pid, (name, 0.0))[1]
        if pid not in own_pids and spent > 0:
            taken.append((spent, pid, name))
    taken.sort(reverse=True)
    return [f"{name} (pid {pid}, {spent:.1f} s)" for spent, pid, name in taken[:count]]


def say(text):
    print(f"bench-peers: {text}", file=sys.stderr, flush=True)


@dataclasses.dataclass
class Gate:
    """Runs programs on a quiet machine. run_once and watch are replaced by tests."""

    cpus: frozenset
    most_others: float = 0.04
    tries: int = 5
    patience_s: float = 120  # waits that long for a quiet second before a further try
    run_once: object = run

    def watch(self, seconds=1.0):
        """What others take while this process does nothing."""
        busy, own, start = busy_seconds(read_stat(), self.cpus), own_seconds(), time.monotonic()
        time.sleep(seconds)
        wall_s = time.monotonic() - start
        busy, own = busy_seconds(read_stat(), self.cpus) - busy, own_seconds() - own
        return others_share(busy, own, wall_s, len(self.cpus))

    def await_quiet(self):
        deadline = time.monotonic() + self.patience_s
        while time.monotonic() < deadline and self.watch() > self.most_others:
            pass

    def run(self, command, timeout_s):
        """The first undisturbed run of `command`; another status than 0 is Failed."""
        seen = []
        before = process_seconds()
        for attempt in range(self.tries):
            if attempt > 0:
                self.await_quiet()
            done = self.run_once(command, timeout_s, self.cpus)
            if done.status != 0:
                last = (done.err.strip() or done.out.strip() or "no message").splitlines()[-1]
                raise Failed(f"status {done.status}: {' '.join(command)}: {last}")
            if done.others <= self.most_others:
                return done
            seen.append(done.others)
            say(f"thrown away, others took {done.others:.1%} of the processors")
        shares = ", ".join(f"{share:.1%}" for share in seen)
        names = ", ".join(busiest(before, process_seconds(), {os.getpid()})) or "none that lives"
        raise Refused(
            f"others took {shares} of {len(self.cpus)} processors in {self.tries} runs, at most "
            f"{self.most_others:.0%} may; busiest meanwhile: {names}; end them, go on with --keep"
        )
