#!/usr/bin/env python3
"""Write a model of Llama-3.2-1B's shape with seeded random weights as GGUF.

usage: make_shape_gguf.py OUT.gguf {Q4_1,Q8_0} [--seed N]

Every matrix, the tied embedding too, has the one type, its values drawn from a normal distribution
of deviation 0.02; norms are ones, F32. Files of the same seed hold the same values. The vocabulary
is synthetic: 256 bytes, merges over them, special tokens. Needs numpy; takes about a minute.
"""

import argparse
import dataclasses
import itertools
import os
import string
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "oracle"))

import gguf_out
from tiny_tokenizer import byte_symbols

DEVIATION = 0.02
CHUNK = 1 << 24  # values drawn at once
SPECIAL = 256  # tokens at the end, as Llama 3 has them
NORMAL, CONTROL = 1, 3
# Type -> number, bytes of 32 values, encoder, general.file_type.
TYPES = {
    "Q4_1": (gguf_out.TYPE_Q4_1, 20, gguf_out.q4_1, 3),
    "Q8_0": (gguf_out.TYPE_Q8_0, 34, gguf_out.q8_0, 7),
}


@dataclasses.dataclass(frozen=True)
class Shape:
    layers: int = 16
    hidden: int = 2048
    heads: int = 32
    kv_heads: int = 8
    head: int = 64
    ffn: int = 8192
    vocabulary: int = 128256
    rope_theta: float = 500000.0


def vocabulary(count):
    """`count` tokens by id and the merges that make them: words of lower-case letters, perhaps
    after a space, each a shorter word and a letter; the last SPECIAL tokens are special."""
    symbols = byte_symbols()
    tokens, merges = [symbols[b] for b in range(256)], []
    words = [symbols[ord(" ")], *string.ascii_lowercase]
    wanted = count - 256 - SPECIAL
    while len(merges) < wanted:
        pairs = itertools.product(words, string.ascii_lowercase)
        pairs = list(itertools.islice(pairs, wanted - len(merges)))
        words = [word + letter for word, letter in pairs]
        merges += [f"{word} {letter}" for word, letter in pairs]
        tokens += words
    names = ["<|begin_of_text|>", "<|end_of_text|>"]
    names += [f"<|reserved_special_token_{i}|>" for i in range(SPECIAL - len(names))]
    return tokens + names, merges


def keys(shape, type_name):
    tokens, merges = vocabulary(shape.vocabulary)
    first_special = shape.vocabulary - SPECIAL
    return {
        "general.architecture": "llama",
        "general.name": "Llama-3.2-1B shape, random weights",
        "general.file_type": TYPES[type_name][3],
        "general.quantization_version": 2,
        "llama.block_count": shape.layers,
        "llama.context_length": 131072,
        "llama.embedding_length": shape.hidden,
        "llama.feed_forward_length": shape.ffn,
        "llama.attention.head_count": shape.heads,
        "llama.attention.head_count_kv": shape.kv_heads,
        "llama.attention.key_length": shape.head,
        "llama.attention.value_length": shape.head,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": shape.head,
        "llama.rope.freq_base": shape.rope_theta,
        "llama.vocab_size": shape.vocabulary,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "llama-bpe",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [NORMAL] * first_special + [CONTROL] * SPECIAL,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": first_special,
        "tokenizer.ggml.eos_token_id": first_special + 1,
    }


def tensors(shape):
    """Names and shapes, rows first; those of one dimension are norms."""
    queries, keys_width = shape.heads * shape.head, shape.kv_heads * shape.head
    block = {
        "attn_norm": (shape.hidden,),
        "attn_q": (queries, shape.hidden),
        "attn_k": (keys_width, shape.hidden),
        "attn_v": (keys_width, shape.hidden),
        "attn_output": (shape.hidden, queries),
        "ffn_norm": (shape.hidden,),
        "ffn_gate": (shape.ffn, shape.hidden),
        "ffn_up": (shape.ffn, shape.hidden),
        "ffn_down": (shape.hidden, shape.ffn),
    }
    yield "token_embd.weight", (shape.vocabulary, shape.hidden)
    for layer in range(shape.layers):
        for name, dimensions in block.items():
            yield f"blk.{layer}.{name}.weight", dimensions
    yield "output_norm.weight", (shape.hidden,)


def matrix_parts(seed, index, dimensions, encoder):
    """The encoded bytes of matrix `index`, some rows at a time."""
    rows, columns = dimensions
    step = max(CHUNK // columns, 1)
    for first in range(0, rows, step):
        random = np.random.Generator(np.random.SFC64([seed, index, first]))
        count = min(step, rows - first)
        yield encoder(random.standard_normal((count, columns), np.float32) * np.float32(DEVIATION))


def write(path, shape, type_name, seed):
    kind, block_bytes, encoder, _ = TYPES[type_name]
    infos = []
    for name, dimensions in tensors(shape):
        count = int(np.prod(dimensions))
        matrix = len(dimensions) == 2
        size = count // gguf_out.BLOCK * block_bytes if matrix else count * 4
        infos.append((name, dimensions, kind if matrix else gguf_out.TYPE_F32, size))
    partial = path + ".partial"
    with open(partial, "wb") as file:
        file.write(gguf_out.header(keys(shape, type_name), infos))
        for index, (_, dimensions, _, size) in enumerate(infos):
            if len(dimensions) == 1:
                file.write(np.ones(dimensions, "<f4").tobytes())
            else:
                for part in matrix_parts(seed, index, dimensions, encoder):
                    file.write(part)
            file.write(gguf_out.padding(size))
    os.replace(partial, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("destination")
    parser.add_argument("type", choices=sorted(TYPES))
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    write(args.destination, Shape(), args.type, args.seed)


if __name__ == "__main__":
    main()
