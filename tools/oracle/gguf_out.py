"""Writing small GGUF files (version 3) with numpy alone: keys, F32 and Q8_0 tensors."""

import struct

import numpy as np

ALIGNMENT = 32
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
TYPE_F32, TYPE_Q8_0 = 0, 8
BLOCK = 32  # elements of a Q8_0 block


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


def q8_0(values):
    """Blocks of a half scale and 32 int8."""
    blocks = values.reshape(-1, BLOCK).astype(np.float32)
    scales = (np.abs(blocks).max(axis=1) / 127).astype("<f2")
    inverse = np.divide(1, scales, out=np.zeros_like(scales, np.float32), where=scales != 0)
    codes = np.clip(np.rint(blocks * inverse[:, None]), -127, 127).astype("i1")
    return np.hstack([scales.view("u1").reshape(-1, 2), codes.view("u1")]).tobytes()


def encode(name, values, quantised):
    """A tensor's type number and bytes. Norms and routers stay F32, and so does layer 1's up: files
    mix types within a layer."""
    plain = "gate_inp" in name or name.startswith("blk.1.ffn_up")
    fits = values.ndim > 1 and values.shape[-1] % BLOCK == 0 and not plain
    if quantised and fits:
        return TYPE_Q8_0, q8_0(values)
    return TYPE_F32, np.ascontiguousarray(values, "<f4").tobytes()


def write_gguf(path, keys, tensors, quantised=False):
    """keys: name -> bool, int, float, str or list of one of them; tensors: name -> fp32 array."""
    encoded = {name: encode(name, values, quantised) for name, values in tensors.items()}
    header = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys))
    header += b"".join(text(name) + typed(value) for name, value in keys.items())
    offset = 0
    for name, values in tensors.items():
        header += text(name) + struct.pack("<I", values.ndim)
        header += struct.pack(
            f"<{values.ndim}Q", *reversed(values.shape)
        )  # fastest dimension first
        kind, data = encoded[name]
        header += struct.pack("<IQ", kind, offset)
        offset += len(data) + -len(data) % ALIGNMENT
    with open(path, "wb") as file:
        file.write(header + b"\0" * (-len(header) % ALIGNMENT))
        for _, data in encoded.values():
            file.write(data + b"\0" * (-len(data) % ALIGNMENT))
