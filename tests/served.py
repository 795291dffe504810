"""A `cleave serve` process for acceptance tests: started on a free port, stopped and checked."""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

READY_S, STOP_S = 60, 40


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def request(url, body=None, headers=None, method=None):
    """Status, headers and body of one HTTP exchange; a refused connection raises."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    call = urllib.request.Request(url, data, headers or {}, method=method)
    if data is not None:
        call.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(call, timeout=60) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


class Served:
    """with Served(binary, model, ["--max-num-seqs", "8"]) as server: server.url ...

    Leaving the block sends SIGTERM and asserts exit status 0.
    """

    def __init__(self, binary, model, flags=(), log=None):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_path = log
        self.command = [binary, "serve", model, "--host", "127.0.0.1", "--port", str(self.port)]
        self.command += list(flags)
        self.process = None

    def __enter__(self):
        sink = open(self.log_path, "wb") if self.log_path else subprocess.DEVNULL
        self.process = subprocess.Popen(self.command, stdout=sink, stderr=subprocess.STDOUT)
        if self.log_path:
            sink.close()
        deadline = time.monotonic() + READY_S
        while not self.is_ready():
            if self.process.poll() is not None:
                raise RuntimeError(f"{' '.join(self.command)} ended: {self.process.returncode}")
            if time.monotonic() > deadline:
                self.process.kill()
                raise RuntimeError(f"not ready within {READY_S} s: {' '.join(self.command)}")
            time.sleep(0.05)
        return self

    def __exit__(self, kind, value, trace):
        status = self.stop()
        if kind is None and status != 0:
            raise AssertionError(f"cleave serve ended with {status} after SIGTERM, expected 0")

    def is_ready(self):
        try:
            return request(self.url + "/ready")[0] == 200
        except OSError:
            return False

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def metrics(self):
        """Sample name with labels -> value."""
        text = request(self.url + "/metrics")[2].decode()
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}

    def metric(self, name):
        """The sum over all label sets of one metric; fails when there is none."""
        found = [v for k, v in self.metrics().items() if k == name or k.startswith(name + "{")]
        if not found:
            raise AssertionError(f"/metrics has no {name}")
        return sum(found)

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            for line in file:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def open_files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def wait_until(condition, seconds, what):
    """Polls until condition() is true; fails naming what did not happen."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.05)
