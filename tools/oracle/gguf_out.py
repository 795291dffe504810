"""Writing small GGUF files (version 3) with numpy alone: keys and F32 tensors."""

import struct

import numpy as np

ALIGNMENT = 32
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
TYPE_F32 = 0


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def array(element, values):
    pack = {
        STRING: text,
        INT32: lambda v: struct.pack("<i", v),
        FLOAT32: lambda v: struct.pack("<f", v),
    }
    return struct.pack("<IQ", element, len(values)) + b"".join(pack[element](v) for v in values)


def typed(value):
    """A key's type number and value; integers are stored as uint32, lists by first element."""
    if isinstance(value, bool):
        return struct.pack("<I?", BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", UINT32, value)
    if isinstance(value, float):
        return struct.pack("<If", FLOAT32, value)
    if isinstance(value, str):
        return struct.pack("<I", STRING) + text(value)
    element = (
        STRING if isinstance(value[0], str) else INT32 if isinstance(value[0], int) else FLOAT32
    )
    return struct.pack("<I", ARRAY) + array(element, value)


def write_gguf(path, keys, tensors):
    """keys: name -> bool, int, float, str or list of one of them; tensors: name -> fp32 array."""
    header = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys))
    header += b"".join(text(name) + typed(value) for name, value in keys.items())
    offset = 0
    for name, values in tensors.items():
        header += text(name) + struct.pack("<I", values.ndim)
        header += struct.pack(
            f"<{values.ndim}Q", *reversed(values.shape)
        )  # fastest dimension first
        header += struct.pack("<IQ", TYPE_F32, offset)
        offset += values.nbytes + -values.nbytes % ALIGNMENT
    with open(path, "wb") as file:
        file.write(header + b"\0" * (-len(header) % ALIGNMENT))
        for values in tensors.values():
            data = np.ascontiguousarray(values, "<f4").tobytes()
            file.write(data + b"\0" * (-len(data) % ALIGNMENT))
