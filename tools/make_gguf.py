#!/usr/bin/env python3
"""Write a GGUF again with its matrices in another type.

usage: make_gguf.py IN.gguf OUT.gguf {F32,F16,BF16,Q8_0,Q4_0,Q4_1,Q5_0,Q5_1}

Matrices are decoded to fp32 and encoded anew; vectors (norms, biases) stay F32; a tensor that
already has the wanted type is copied. A token embedding in Q8_0 is kept when the target is a
smaller quantised type, as it is also the output head. Keys and tensors come in the order
llama.cpp's quantiser uses, so that the files are the same byte for byte. Needs the packages of
tools/requirements.txt (numpy, gguf).
"""

import argparse
import os
import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize, quantize

# general.file_type of each target.
FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "BF16": 32}
REWRITTEN_KEYS = ("general.quantization_version", "general.file_type")  # these go last
EMBEDDING = "token_embd.weight"


def tensor_order(tensor):
    """Tensors outside the blocks first, then block by block; by name within each."""
    parts = tensor.name.split(".")
    return (int(parts[1]) if parts[0] == "blk" else -1, tensor.name)


def stored_type(tensor, target):
    if len(tensor.shape) < 2:
        return GGMLQuantizationType.F32
    keeps_embedding = tensor.name == EMBEDDING and target.name.startswith("Q")
    if keeps_embedding and tensor.tensor_type == GGMLQuantizationType.Q8_0:
        return GGMLQuantizationType.Q8_0
    return target


def to_f32(tensor):
    """Values in numpy order (rows first): GGUF lists the fastest dimension first."""
    shape = [int(n) for n in reversed(tensor.shape)]
    values = dequantize(tensor.data, tensor.tensor_type).reshape(shape)
    return np.ascontiguousarray(values, np.float32)


def encode(tensor, to):
    if to == tensor.tensor_type:
        return np.array(tensor.data)
    values = to_f32(tensor)
    if to == GGMLQuantizationType.F32:
        return values
    if to == GGMLQuantizationType.F16:
        return values.astype(np.float16)
    return quantize(values, to)


def copy_keys(reader, writer, file_type):
    def is_own(key):
        return key.startswith("GGUF.") or key == "general.architecture"

    keys = [k for k in reader.fields if not is_own(k) and k not in REWRITTEN_KEYS]
    keys += [k for k in REWRITTEN_KEYS if k in reader.fields]
    for key in keys:
        field = reader.fields[key]
        value = file_type if key == "general.file_type" else field.contents()
        element = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(key, value, field.types[0], element)


def convert(source, destination, type_name):
    reader = GGUFReader(source)
    target = GGMLQuantizationType[type_name]
    partial = destination + ".partial"
    writer = GGUFWriter(partial, reader.fields["general.architecture"].contents())
    copy_keys(reader, writer, FILE_TYPES[type_name])
    for tensor in sorted(reader.tensors, key=tensor_order):
        to = stored_type(tensor, target)
        plain = to in (GGMLQuantizationType.F32, GGMLQuantizationType.F16)
        writer.add_tensor(tensor.name, encode(tensor, to), raw_dtype=None if plain else to)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(partial, destination)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("destination")
    parser.add_argument("type", choices=sorted(FILE_TYPES))
    args = parser.parse_args()
    if not os.path.isfile(args.source):
        sys.exit(f"make_gguf.py: {args.source}: no such file; `make models` brings the demo model")
    convert(args.source, args.destination, args.type)


if __name__ == "__main__":
    main()
