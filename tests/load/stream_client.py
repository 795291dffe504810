"""One streamed completion over a raw socket, judged: did it end as a stream must end?

asyncio and nothing else, so that a cut connection, a missing [DONE] or a second end is seen as it
came over the wire.
"""

import asyncio
import dataclasses
import json

TIMEOUT_S = 120


@dataclasses.dataclass
class Outcome:
    """kind: finished, refused (an HTTP error), failed (an error inside the stream), left (we hung
    up) or broken (what must never happen; `detail` says what)."""

    kind: str
    detail: str = ""
    status: int = 200
    text: str = ""
    first_s: float = 0.0
    retry_after: str = ""


class Broken(Exception):
    """The stream said something it must not."""


def post(host, body):
    data = json.dumps(body).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + data


async def read_head(reader):
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    fields = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
    return int(lines[0].split()[1]), fields


async def read_chunks(reader):
    """Yields the bytes of a chunked body; a body cut short is Broken."""
    while True:
        line = await reader.readline()
        if not line.endswith(b"\r\n"):
            raise Broken("connection closed before the last chunk")
        size = int(line.split(b";")[0], 16)
        data = await reader.readexactly(size + 2)
        if size == 0:
            return
        yield data[:-2]


async def read_events(reader):
    """Yields the data of each server-sent event."""
    buffer = b""
    async for data in read_chunks(reader):
        buffer += data
        while b"\n\n" in buffer:
            event, buffer = buffer.split(b"\n\n", 1)
            if event.startswith(b"data: "):
                yield event[6:]
    if buffer.strip():
        raise Broken(f"half an event at the end: {buffer[:80]!r}")


class Judge:
    """Follows one stream of one choice, of which `tokens` were asked for with ignore_eos."""

    def __init__(self, tokens):
        self.tokens = tokens
        self.text = ""
        self.reason = None
        self.used = None
        self.error = None
        self.done = False

    def take(self, data):
        if self.done:
            raise Broken("an event after [DONE]")
        if data == b"[DONE]":
            self.done = True
            return
        event = json.loads(data)
        if "error" in event:
            self.error = event["error"]["message"]
            return
        if event.get("usage"):
            self.used = event["usage"]["completion_tokens"]
        for choice in event["choices"]:
            if self.reason is not None:
                raise Broken(f"a choice after finish_reason {self.reason}")
            self.text += choice["text"]
            self.reason = choice["finish_reason"]

    def verdict(self):
        if not self.done:
            return Outcome("broken", "the stream ended without [DONE]")
        if self.error is not None:
            return Outcome("failed", self.error)
        if self.reason != "length":
            return Outcome("broken", f"[DONE] after finish_reason {self.reason}, expected length")
        if self.used != self.tokens:
            return Outcome("broken", f"{self.used} tokens of {self.tokens}")
        return Outcome("finished", text=self.text)


async def follow(reader, tokens, leave_after):
    """Reads the answer; hangs up after `leave_after` events if that comes first."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    status, fields = await read_head(reader)
    if status != 200:
        body = await reader.readexactly(int(fields.get("content-length", 0)))
        message = json.loads(body)["error"]["message"]
        return Outcome("refused", message, status, retry_after=fields.get("retry-after", ""))
    judge, events, first = Judge(tokens), 0, 0.0
    async for data in read_events(reader):
        first = first or loop.time() - start
        judge.take(data)
        events += 1
        if leave_after is not None and events >= leave_after:
            return Outcome("left", first_s=first)
    outcome = judge.verdict()
    outcome.first_s = first
    return outcome


async def stream_once(host, port, body, leave_after=None, leave_s=None):
    """leave_after: hang up after that many events; leave_s: hang up after that time."""
    writer = None
    try:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(post(host, body))
        work = follow(reader, body["max_tokens"], leave_after)
        return await asyncio.wait_for(work, leave_s or TIMEOUT_S)
    except asyncio.TimeoutError:
        return Outcome("left") if leave_s else Outcome("broken", f"silent for {TIMEOUT_S} s")
    except (Broken, asyncio.IncompleteReadError, json.JSONDecodeError, KeyError) as error:
        return Outcome("broken", f"{type(error).__name__}: {error}")
    except OSError as error:
        return Outcome("broken", f"connection: {error}")
    finally:
        if writer is not None:
            writer.transport.abort()  # a client that hangs up does not say goodbye
