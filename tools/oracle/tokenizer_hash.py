"""The hash of the tokenizer's fixtures: FNV-1a of 64 bits, its halves folded into 32."""

import struct

MASK = (1 << 64) - 1


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return f"{(value ^ (value >> 32)) & 0xFFFFFFFF:08x}"


def hash_ids(ids):
    """Of the ids as little-endian words."""
    return fnv(struct.pack(f"<{len(ids)}i", *ids))
