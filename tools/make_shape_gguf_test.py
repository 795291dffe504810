#!/usr/bin/env python3
"""The shape's files: a valid vocabulary, tensors where the header says, the same values in every
type. Needs numpy."""

import os
import tempfile
import unittest

import numpy as np

import make_shape_gguf
from make_shape_gguf import SPECIAL, TYPES, Shape, gguf_out

SMALL = Shape(layers=1, hidden=64, heads=2, kv_heads=1, head=32, ffn=96, vocabulary=1300)


def decoded(kind, data):
    """Blocks of Q4_1 or Q8_0 as fp32, and half of a step of each value."""
    width = TYPES[kind][1]
    blocks = np.frombuffer(data, "u1").reshape(-1, width)
    scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
    if kind == "Q8_0":
        values = blocks[:, 2:].view("i1") * scale
    else:
        codes = np.hstack([blocks[:, 4:] & 15, blocks[:, 4:] >> 4])
        values = codes * scale + blocks[:, 2:4].copy().view("<f2").astype(np.float32)
    return values, np.broadcast_to(scale / 2, values.shape)


class Vocabulary(unittest.TestCase):
    def test_every_token_is_made_by_a_merge(self):
        tokens, merges = make_shape_gguf.vocabulary(128256)
        self.assertEqual((len(tokens), len(set(tokens))), (128256, 128256))
        ids = {token: i for i, token in enumerate(tokens)}
        self.assertEqual(len(merges), 128256 - 256 - SPECIAL)
        for i, merge in enumerate(merges):
            left, right = merge.split(" ")
            made = ids[left + right]
            self.assertEqual(made, 256 + i)
            self.assertLess(max(ids[left], ids[right]), made)


class Files(unittest.TestCase):
    def sizes(self, kind):
        """Bytes of each tensor of SMALL, in order."""
        for _, dimensions in make_shape_gguf.tensors(SMALL):
            count = int(np.prod(dimensions))
            yield count // 32 * TYPES[kind][1] if len(dimensions) == 2 else count * 4

    def test_sizes_and_values(self):
        found = {}
        with tempfile.TemporaryDirectory() as folder:
            for kind in TYPES:
                path = os.path.join(folder, kind)
                make_shape_gguf.write(path, SMALL, kind, seed=3)
                with open(path, "rb") as file:
                    found[kind] = file.read()
                self.assertEqual(os.listdir(folder).count(kind + ".partial"), 0)
        embeddings = {}
        for kind, data in found.items():
            sizes = list(self.sizes(kind))
            padded = [size + len(gguf_out.padding(size)) for size in sizes]
            start = len(data) - sum(padded)
            self.assertEqual((data[:4], start % gguf_out.ALIGNMENT), (b"GGUF", 0))
            embeddings[kind] = decoded(kind, data[start : start + sizes[0]])
            last = np.frombuffer(data[len(data) - padded[-1] :], "<f4")
            self.assertTrue(np.array_equal(last, np.ones(64)))
        values, error = zip(*(embeddings[kind] for kind in TYPES))
        # Beside a code's half step, scale and least value are rounded to 11 bits.
        allowed = error[0] + error[1] + 0.1 * 2**-10
        self.assertTrue(np.all(np.abs(values[0] - values[1]) <= allowed))
        self.assertAlmostEqual(float(values[1].std()), 0.02, delta=0.001)


if __name__ == "__main__":
    unittest.main()
