"""Writing safetensors files with numpy alone: the same input gives the same bytes."""

import json

import numpy as np

# dtype name in the file -> dtype name in config.json
DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


def bf16_bits(values):
    """fp32 -> bf16 bit patterns, rounded to nearest, ties to even. Finite values only."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def encode(values, dtype):
    if dtype == "BF16":
        return bf16_bits(values).tobytes()
    return np.ascontiguousarray(values, "<f2" if dtype == "F16" else "<f4").tobytes()


def write_safetensors(path, tensors, dtype):
    """tensors: name -> fp32 array. Laid out in the order of names, the header padded to 8 bytes."""
    width = 4 if dtype == "F32" else 2
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name in sorted(tensors):
        end = offset + tensors[name].size * width
        header[name] = {
            "dtype": dtype,
            "shape": list(tensors[name].shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for name in sorted(tensors):
            file.write(encode(tensors[name], dtype))
