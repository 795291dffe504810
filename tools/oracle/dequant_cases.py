"""Writes src/tensor/testdata/dequant_cases.txt: random blocks of every stored type and the fp32
bits that gguf-py (PyPI `gguf` 0.19.0, numpy) makes of them.

Usage: python tools/oracle/dequant_cases.py OUT

Each line: type, the block's bytes in hex, and each element's fp32 bits as 8 hex digits. The last
blocks of each type hold bytes as they come, so also scales that are subnormal, infinite or NaN; in
the others the half-precision scales are of an ordinary size.
"""

import sys

import gguf
import numpy as np

# Offsets of the fp16 values in a block.
HALF_OFFSETS = {
    "F32": [], "F16": [], "BF16": [], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2],
    "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}
SEED = 20240607


def blocks_of(name, rng):
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    ordinary, raw = (3, 1) if elements == 256 else (6, 3) if elements == 32 else (32, 32)
    for i in range(ordinary + raw):
        block = np.frombuffer(rng.bytes(size), dtype=np.uint8).copy()
        if i < ordinary:
            for offset in HALF_OFFSETS[name]:
                scale = np.float16(rng.normal() * 0.05)
                block[offset:offset + 2] = np.frombuffer(scale.tobytes(), dtype=np.uint8)
        yield kind, block


def main():
    rng = np.random.default_rng(SEED)
    with open(sys.argv[1], "w", encoding="ascii") as out, np.errstate(all="ignore"):
        for name in HALF_OFFSETS:
            for kind, block in blocks_of(name, rng):
                values = gguf.quants.dequantize(block.reshape(1, -1), kind).astype(np.float32)
                bits = "".join(f"{v:08x}" for v in values.view(np.uint32).ravel())
                out.write(f"{name} {block.tobytes().hex()} {bits}\n")


main()
