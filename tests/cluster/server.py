"""A `cleave serve` of several processes, seen from outside: its ranks, its memory, its traces."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from served import free_port, request

POLL_S = 0.01
STOP_S = 40


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def stat_of(pid):
    """State letter and session of a process; nothing when there is none."""
    text = read(f"/proc/{pid}/stat").decode(errors="replace")
    if not text:
        return None
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[3])


class Server:
    """Leads a session of its own: whatever it leaves behind is found by that."""

    def __init__(self, binary, model, flags, log_path):
        self.port, self.log_path = free_port(), log_path
        self.url = f"http://127.0.0.1:{self.port}"
        self.shared_memory = set(os.listdir("/dev/shm"))
        command = [binary, "serve", model, "--host", "127.0.0.1", "--port", str(self.port)]
        with open(log_path, "wb") as sink:
            self.process = subprocess.Popen(
                command + flags, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
            )
        self.started_s = time.monotonic()
        self.ready_s = None

    def log(self):
        return read(self.log_path).decode(errors="replace")

    def ready(self):
        """Status of /ready and its body; status 0 when nobody answers."""
        try:
            status, _, body = request(self.url + "/ready")
            return status, body.decode()
        except (OSError, urllib.error.URLError):
            return 0, ""

    def wait_ready(self, seconds):
        while self.ready()[0] != 200:
            if self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode}: {self.log()[-800:]}")
            if time.monotonic() > self.started_s + seconds:
                raise AssertionError(f"not ready within {seconds} s: {self.log()[-800:]}")
            time.sleep(POLL_S)
        self.ready_s = time.monotonic() - self.started_s

    def metric(self, name):
        """The sum over all label sets, or of those samples that begin with name{labels}."""
        lines = request(self.url + "/metrics")[2].decode().splitlines()
        found = [
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if line.startswith((name + "{", name + " "))
        ]
        if not found:
            raise AssertionError(f"/metrics has no {name}")
        return sum(found)

    def session(self):
        """Living processes of the session: pid -> words of its command line."""
        found = {}
        for entry in os.listdir("/proc"):
            stat = stat_of(entry) if entry.isdigit() else None
            if stat and stat[1] == self.process.pid and stat[0] not in "ZX":
                words = read(f"/proc/{entry}/cmdline").decode(errors="replace").split("\0")
                found[int(entry)] = words
        return found

    def ranks(self):
        """ "REPLICA.RANK" -> pid of each living rank."""
        found = {}
        for pid, words in self.session().items():
            named = dict(word.split("=", 1) for word in words if "=" in word)
            if "worker" in words and "replica" in named and "rank" in named:
                found[f"{named['replica']}.{named['rank']}"] = pid
        return found

    def pids(self, target):
        if target == "front":
            return [self.process.pid]
        ranks = self.ranks()
        if target == "all":
            return list(ranks.values())
        if target not in ranks:
            raise AssertionError(f"no rank {target}; there are {sorted(ranks)}")
        return [ranks[target]]

    def signal(self, name, targets):
        pids = [pid for target in targets for pid in self.pids(target)]
        for pid in pids:
            try:
                os.kill(pid, getattr(signal, "SIG" + name))
            except ProcessLookupError:
                pass  # the death of another was its own

    def residue(self):
        """What is left of it once it should be gone."""
        left = [
            f"process {pid} ({' '.join(words).strip()})" for pid, words in self.session().items()
        ]
        new = set(os.listdir("/dev/shm")) - self.shared_memory
        return left + [f"/dev/shm/{name}" for name in sorted(new)]

    def pss_bytes(self):
        """pid -> proportional set size, of the front and its ranks."""
        sizes = {}
        for pid in self.session():
            for line in read(f"/proc/{pid}/smaps_rollup").decode().splitlines():
                if line.startswith("Pss:"):
                    sizes[pid] = int(line.split()[1]) * 1024
        return sizes

    def end(self):
        """SIGTERM, then by force: the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            return None
        finally:
            self.clean_up()

    def clean_up(self):
        for pid in self.session():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.poll()


def dry_run(binary, model, flags):
    """Of a command that ends by itself."""
    command = [binary, "serve", model, "--port", "0", *flags]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"it runs on: {(error.stderr or b'').decode()[-400:]}") from error


def at_path(document, path):
    """The value at "a.b.0.c" of a JSON text."""
    value = json.loads(document)
    for key in path.split("."):
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value
