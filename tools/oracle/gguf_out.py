"""Writing GGUF files (version 3) with numpy alone: keys, F32, Q4_1 and Q8_0 tensors."""

import struct

import numpy as np

ALIGNMENT = 32
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
TYPE_F32, TYPE_Q4_1, TYPE_Q8_0 = 0, 3, 8
BLOCK = 32  # elements of a Q4_1 or Q8_0 block


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


def q4_1(values):
    """Blocks of a half scale, a half least value and 32 codes of 4 bits: code j in the low half of
    byte j, code j + 16 in its high half."""
    blocks = values.reshape(-1, BLOCK).astype(np.float32)
    least = blocks.min(axis=1)
    scales = ((blocks.max(axis=1) - least) / 15).astype("<f2")
    inverse = np.divide(1, scales, out=np.zeros_like(scales, np.float32), where=scales != 0)
    codes = np.clip(np.rint((blocks - least[:, None]) * inverse[:, None]), 0, 15).astype("u1")
    halves = np.stack([scales, least.astype("<f2")], axis=1).view("u1")
    return np.hstack([halves, codes[:, :16] | codes[:, 16:] << 4]).tobytes()


def encode(name, values, quantised):
    """A tensor's type number and bytes. Norms and routers stay F32, and so does layer 1's up: files
    mix types within a layer."""
    plain = "gate_inp" in name or name.startswith("blk.1.ffn_up")
    fits = values.ndim > 1 and values.shape[-1] % BLOCK == 0 and not plain
    if quantised and fits:
        return TYPE_Q8_0, q8_0(values)
    return TYPE_F32, np.ascontiguousarray(values, "<f4").tobytes()


def padding(size):
    return b"\0" * (-size % ALIGNMENT)


def header(keys, tensors):
    """All before the tensors' bytes; tensors: (name, shape with the slowest dimension first, type
    number, bytes) each."""
    start = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys))
    parts = [start, *(text(name) + typed(value) for name, value in keys.items())]
    offset = 0
    for name, shape, kind, size in tensors:
        dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        parts += [text(name), dimensions, struct.pack("<IQ", kind, offset)]
        offset += size + len(padding(size))
    data = b"".join(parts)
    return data + padding(len(data))


def write_gguf(path, keys, tensors, quantised=False):
    """keys: name -> bool, int, float, str or list of one of them; tensors: name -> fp32 array."""
    encoded = {name: encode(name, values, quantised) for name, values in tensors.items()}
    infos = [(name, tensors[name].shape, kind, len(data)) for name, (kind, data) in encoded.items()]
    with open(path, "wb") as file:
        file.write(header(keys, infos))
        for _, data in encoded.values():
            file.write(data + padding(len(data)))
