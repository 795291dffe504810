#!/usr/bin/env python3
"""The soak's client calls each kind of ending by its name: canned answers from a small server."""

import asyncio
import json
import unittest

from stream_client import stream_once

BODY = {"max_tokens": 2}
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


def chunk(data):
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def event(value):
    return chunk(
        b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"
    )


def token(text, reason=None):
    return event({"choices": [{"index": 0, "text": text, "finish_reason": reason}]})


def usage(tokens):
    return event({"choices": [], "usage": {"completion_tokens": tokens}})


DONE = event(b"[DONE]")
GOOD = token("a") + token("b", "length") + usage(2) + DONE


class Endings(unittest.TestCase):
    def outcome(self, answer, **leave):
        async def run():
            async def serve(reader, writer):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(answer)
                await writer.drain()
                writer.close()

            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            async with server:
                return await stream_once("127.0.0.1", port, BODY, **leave)

        return asyncio.run(run())

    def assert_broken(self, answer, detail):
        found = self.outcome(answer)
        self.assertEqual(found.kind, "broken")
        self.assertIn(detail, found.detail)

    def test_finished(self):
        found = self.outcome(HEAD + GOOD + LAST_CHUNK)
        self.assertEqual((found.kind, found.text), ("finished", "ab"))

    def test_events_may_share_or_split_chunks(self):
        data = b"data: " + json.dumps({"choices": [], "usage": {"completion_tokens": 2}}).encode()
        parts = (
            token("a") + token("b", "length") + chunk(data[:9]) + chunk(data[9:] + b"\n\n") + DONE
        )
        self.assertEqual(self.outcome(HEAD + parts + LAST_CHUNK).kind, "finished")

    def test_an_error_in_the_stream(self):
        failed = event({"error": {"message": "replica lost"}})
        found = self.outcome(HEAD + token("a") + failed + DONE + LAST_CHUNK)
        self.assertEqual((found.kind, found.detail), ("failed", "replica lost"))

    def test_a_refusal(self):
        body = json.dumps({"error": {"message": "queue is full"}}).encode()
        head = b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: %d\r\n\r\n" % len(body)
        found = self.outcome(head + body)
        self.assertEqual((found.kind, found.status, found.retry_after), ("refused", 503, "1"))

    def test_hanging_up(self):
        self.assertEqual(self.outcome(HEAD + GOOD + LAST_CHUNK, leave_after=1).kind, "left")

    def test_what_is_broken(self):
        self.assert_broken(HEAD + GOOD, "before the last chunk")
        self.assert_broken(HEAD + token("a"), "before the last chunk")
        self.assert_broken(HEAD + token("a") + LAST_CHUNK, "without [DONE]")
        self.assert_broken(HEAD + token("a") + DONE + LAST_CHUNK, "finish_reason None")
        self.assert_broken(HEAD + GOOD + token("c") + LAST_CHUNK, "after [DONE]")
        self.assert_broken(HEAD + GOOD + DONE + LAST_CHUNK, "after [DONE]")
        twice = token("a") + token("b", "length") + token("c", "length")
        self.assert_broken(HEAD + twice + usage(2) + DONE + LAST_CHUNK, "after finish_reason")
        short = token("a", "length") + usage(1) + DONE
        self.assert_broken(HEAD + short + LAST_CHUNK, "1 tokens of 2")
        self.assert_broken(HEAD + GOOD + chunk(b"data: {") + LAST_CHUNK, "half an event")
        self.assert_broken(b"", "IncompleteReadError")


if __name__ == "__main__":
    unittest.main()
