#!/usr/bin/env python3
"""The HTTP client of the measurement: answers are read whole, rates count what they say."""

import socket
import threading
import unittest

import http_share

EVENT = b'data: {"choices": [{"text": "a"}]}\n\n'
USAGE = b'data: {"choices": [], "usage": {"completion_tokens": 3}}\n\n'
DONE = b"data: [DONE]\n\n"


def serve(listener, pieces):
    """Answers one connection with `pieces`, each in a write of its own, and closes it."""
    connection, _ = listener.accept()
    with connection:
        connection.recv(1 << 16)
        for piece in pieces:
            connection.sendall(piece)


def read(answers):
    """The streams of one request for each of `answers`, lists of pieces."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads = [threading.Thread(target=serve, args=(listener, one)) for one in answers]
        for thread in threads:
            thread.start()
        try:
            return http_share.read_all(listener.getsockname()[1], [b"request"] * len(answers))
        finally:
            for thread in threads:
                thread.join()


def stream(tokens, first_s, last_s):
    usage = b'data: {"usage": {"completion_tokens": %d}}\n\n' % tokens
    return http_share.Stream(None, first_s=first_s, last_s=last_s, data=usage + DONE)


class Streams(unittest.TestCase):
    def test_all_streams_are_read_to_their_ends(self):
        streams = read([[EVENT, EVENT + EVENT + USAGE + DONE]] * 3)
        self.assertEqual([one.tokens() for one in streams], [3, 3, 3])
        for one in streams:
            self.assertLessEqual(one.sent_s, one.first_s)
            self.assertLessEqual(one.first_s, one.last_s)

    def test_what_is_no_token_does_not_end_the_time(self):
        (one,) = read([[b"HTTP/1.1 200 OK\r\n\r\n", USAGE, DONE]])
        self.assertEqual((one.first_s, one.last_s), (0, 0))

    def test_an_answer_that_is_not_whole_is_an_error(self):
        for pieces in ([EVENT, USAGE], [EVENT, DONE], [b"HTTP/1.1 503 No\r\n\r\n"], []):
            (one,) = read([pieces])
            with self.assertRaisesRegex(RuntimeError, "not whole"):
                one.tokens()


class Rates(unittest.TestCase):
    def test_the_first_token_of_each_does_not_count(self):
        self.assertAlmostEqual(http_share.decode_rate([stream(11, 1.0, 3.0)]), 5)

    def test_all_streams_together(self):
        streams = [stream(11, 1.0, 3.0), stream(21, 2.0, 4.0)]
        self.assertAlmostEqual(http_share.decode_rate(streams), 15)

    def test_verdicts(self):
        self.assertTrue(http_share.show_rate("1 stream", [(97, 100, 0.1)] * 3, 0.97))
        self.assertFalse(http_share.show_rate("1 stream", [(96, 100, 0.1)] * 3, 0.97))
        self.assertTrue(http_share.show_first([(103, 100), (110, 100), (90, 100)]))
        self.assertFalse(http_share.show_first([(103.1, 100)] * 3))


if __name__ == "__main__":
    unittest.main()
