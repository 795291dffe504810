"""What the cases ask: requests from their JSON, whole answers that compare with ==, streams that
run in threads of their own and remember how they ended."""

import hashlib
import http.client
import json
import random
import threading
import time

PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
SOCKET_TIMEOUT_S = 120
WORDS = "the river light of a stone house and small green birds over open water in spring".split()


def expand(value, shift):
    """{"ids": N, "seed": S} becomes N token ids, {"words": N, "seed": S} a text of N words; other
    values are themselves. `shift` is added to the seeds, so that one request makes many."""
    if isinstance(value, list):
        return [expand(entry, shift) for entry in value]
    if not isinstance(value, dict):
        return value
    rng = (
        random.Random(value.get("seed", 0) + shift) if "ids" in value or "words" in value else None
    )
    if "ids" in value:
        return [rng.randrange(1, 256) for _ in range(value["ids"])]
    if "words" in value:
        return " ".join(rng.choice(WORDS) for _ in range(value["words"]))
    return {key: expand(entry, shift) for key, entry in value.items()}


class Request:
    def __init__(self, path, body):
        self.path, self.body = PATHS[path], body

    def made(self, shift=0, **more):
        body = expand(self.body, shift)
        if shift and "seed" in body:
            body["seed"] += shift
        return {**body, **more}


def post(port, path, body, headers=None):
    """An open answer and its connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SOCKET_TIMEOUT_S)
    connection.request(
        "POST", path, json.dumps(body), {"Content-Type": "application/json", **(headers or {})}
    )
    return connection, connection.getresponse()


def events_of(answer):
    """The data of each server-sent event, as it comes."""
    for line in answer:
        if line.startswith(b"data: "):
            yield line[6:].strip()


def joined(events):
    """A stream's events as one value: how its tokens fell into chunks is no part of an answer."""
    choices, rest, done = {}, [], False
    for data in events:
        if data == b"[DONE]":
            done = True
            continue
        event = json.loads(data)
        for choice in event.pop("choices", []):
            known = choices.setdefault(choice["index"], {"text": "", "logprobs": []})
            known["text"] += choice.get("text") or choice.get("delta", {}).get("content") or ""
            if choice.get("logprobs"):
                known["logprobs"].append(choice["logprobs"])
            if choice.get("finish_reason"):
                known["end"] = [choice["finish_reason"], choice.get("stop_reason")]
        rest.append({k: v for k, v in event.items() if k in ("usage", "error") and v})
    for choice in choices.values():
        choice["logprobs"] = merged(choice["logprobs"])
    return {"choices": choices, "rest": [entry for entry in rest if entry], "done": done}


def merged(parts):
    """Lists of the same name one behind the other."""
    lists = {}
    for part in parts:
        for name, value in part.items():
            lists.setdefault(name, []).extend(value or [])
    return lists


def answer_to(port, request):
    """Status and body of a whole answer, without what differs by its nature."""
    connection, answer = post(port, request.path, request.made())
    try:
        if request.body.get("stream") and answer.status == 200:
            return {"status": answer.status, "stream": joined(list(events_of(answer)))}
        body = json.loads(answer.read())
    finally:
        connection.close()
    body.pop("id", None)
    body.pop("created", None)
    return {"status": answer.status, "body": body}


def answers_to(port, requests):
    """Of all at once: name -> answer."""
    answers, problems = {}, []

    def ask(name, request):
        try:
            answers[name] = answer_to(port, request)
        except (OSError, http.client.HTTPException, ValueError) as error:
            problems.append(f"{name}: {type(error).__name__}: {error}")

    threads = [threading.Thread(target=ask, args=entry) for entry in requests.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise AssertionError("; ".join(problems))
    return answers


def digest(value):
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


class Stream:
    """One streamed request in a thread, which reads as fast as it can (the server cuts off slow
    readers) and judges at the end. ended_s: when the last byte, or the connection's end, came."""

    def __init__(self, port, request, shift, headers):
        self.status, self.refusal, self.error = None, "", None
        self.text, self.events, self.reasons = "", 0, []
        self.done, self.late, self.ended_s = False, "", None
        self.pieces = []
        body = request.made(shift, stream=True)
        args = (port, request.path, body, headers)
        self.thread = threading.Thread(target=self.run, args=args, daemon=True)
        self.thread.start()

    def run(self, *args):
        try:
            self.read(*args)
        except (OSError, http.client.HTTPException) as error:
            self.late = f"{type(error).__name__}: {error}"  # a cut connection
        ended_s = time.monotonic()
        try:
            for line in b"".join(self.pieces).splitlines():
                if line.startswith(b"data: "):
                    self.take(line[6:].strip())
        except (ValueError, KeyError) as error:
            if not self.late:
                self.reasons.append(f"not a stream: {type(error).__name__}: {error}")
        self.ended_s = ended_s

    def read(self, port, path, body, headers):
        connection, answer = post(port, path, body, headers)
        self.status = answer.status
        if answer.status != 200:
            self.refusal = answer.read().decode()
        else:
            while piece := answer.read1(1 << 16):
                self.pieces.append(piece)
                self.events += piece.count(b"data: {")
        connection.close()

    def take(self, data):
        if data == b"[DONE]":
            self.done = True
            return
        event = json.loads(data)
        if "error" in event:
            self.error = event["error"]["message"]
            return
        if self.error is not None:
            self.reasons.append("an event after the error")
        for choice in event["choices"]:
            self.text += choice.get("text") or choice.get("delta", {}).get("content") or ""
            if choice["finish_reason"]:
                self.reasons.append(choice["finish_reason"])

    # Each: "" when it is so, else what is.

    def not_finished(self):
        whole = self.done and self.error is None and self.reasons in (["length"], ["stop"])
        return "" if whole else self.told()

    def not_failed(self):
        return "" if self.error is not None and not self.reasons else self.told()

    def not_cut(self):
        looks_whole = self.done or self.reasons or self.status not in (200, None)
        return self.told() if looks_whole or self.error is not None else ""

    def told(self):
        return (
            f"status {self.status}, {self.events} events, finish_reason {self.reasons}, "
            f"error {self.error!r}, [DONE] {self.done} {self.refusal}{self.late}"
        )
