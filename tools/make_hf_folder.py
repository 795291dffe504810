#!/usr/bin/env python3
"""Write a `llama` GGUF with a byte-level BPE vocabulary as a Hugging Face folder.

usage: make_hf_folder.py IN.gguf OUT_DIR [BF16|F16|F32]

Writes model.safetensors, config.json, generation_config.json, tokenizer.json,
tokenizer_config.json and chat_template.jinja. The same input gives the same bytes. Needs the
packages of tools/requirements.txt.
"""

import argparse
import os
import sys

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

from hf_files import BYTE_LEVEL, added_token, bpe_tokenizer_json, write_json
from tensor_file import DTYPES, write_safetensors

BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
# tokenizer.ggml.token_type
CONTROL, USER_DEFINED = 3, 4
# Vocabularies whose digits stand alone before the GPT-2 split.
SPLIT_DIGITS = {"smollm", "starcoder", "refact", "command-r"}


class Source:
    """The keys of one GGUF, architecture prefix resolved."""

    def __init__(self, path):
        self.reader = GGUFReader(path)
        self.keys = {key: field.contents() for key, field in self.reader.fields.items()}
        self.arch = self.keys["general.architecture"]
        if self.arch != "llama" or self.keys.get("tokenizer.ggml.model") != "gpt2":
            sys.exit(
                f"make_hf_folder.py: {path}: needs architecture llama with a gpt2 vocabulary, "
                f"has {self.arch} with {self.keys.get('tokenizer.ggml.model')}"
            )

    def model(self, key, default=None):
        return self.keys.get(f"{self.arch}.{key}", default)

    def vocab(self, key, default=None):
        return self.keys.get(f"tokenizer.ggml.{key}", default)

    def token(self, role):
        token_id = self.vocab(f"{role}_token_id")
        return None if token_id is None else self.vocab("tokens")[token_id]


def plain_rows(weight, heads):
    """GGUF interleaves each head's rotary pairs; put the first halves before the second halves."""
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def tensors_of(source):
    out = {}
    heads = {
        "attn_q": source.model("attention.head_count"),
        "attn_k": source.model("attention.head_count_kv"),
    }
    for tensor in source.reader.tensors:
        shape = [int(n) for n in reversed(tensor.shape)]
        weight = dequantize(tensor.data, tensor.tensor_type).reshape(shape).astype(np.float32)
        if tensor.name in TOP_NAMES:
            out[TOP_NAMES[tensor.name]] = weight
            continue
        _, layer, kind, suffix = tensor.name.split(".")
        if kind in heads:
            weight = plain_rows(weight, heads[kind])
        out[f"model.layers.{layer}.{BLOCK_NAMES[kind]}.{suffix}"] = weight
    return out


def model_config(source, tied, dtype):
    heads, width = source.model("attention.head_count"), source.model("embedding_length")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": width,
        "intermediate_size": source.model("feed_forward_length"),
        "num_hidden_layers": source.model("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": source.model("attention.head_count_kv"),
        "head_dim": source.model("attention.key_length", width // heads),
        "max_position_embeddings": source.model("context_length"),
        # Stored as fp32: six digits give back the decimal that was meant.
        "rms_norm_eps": float(f"{source.model('attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_theta": source.model("rope.freq_base", 10000.0),
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "torch_dtype": DTYPES[dtype],
        "vocab_size": len(source.vocab("tokens")),
        **generation_config(source),
    }


def generation_config(source):
    return {
        "bos_token_id": source.vocab("bos_token_id"),
        "eos_token_id": source.vocab("eos_token_id"),
        "pad_token_id": source.vocab("padding_token_id"),
    }


def added_tokens(source):
    tokens, types = source.vocab("tokens"), source.vocab("token_type")
    return [
        added_token(i, tokens[i], t == CONTROL)
        for i, t in enumerate(types)
        if t in (CONTROL, USER_DEFINED)
    ]


def tokenizer_json(source):
    split = None
    if source.vocab("pre") in SPLIT_DIGITS:
        digits = {"type": "Digits", "individual_digits": True}
        split = {"type": "Sequence", "pretokenizers": [digits, BYTE_LEVEL]}
    merges = [merge.split(" ", 1) for merge in source.vocab("merges")]
    return bpe_tokenizer_json(source.vocab("tokens"), merges, added_tokens(source), split)


def tokenizer_config(source):
    decoder = {str(token.pop("id")): token for token in added_tokens(source)}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": bool(source.vocab("add_bos_token", False)),
        "add_prefix_space": False,
        "bos_token": source.token("bos"),
        "eos_token": source.token("eos"),
        "pad_token": source.token("padding"),
        "unk_token": source.token("unknown"),
        "clean_up_tokenization_spaces": False,
        "model_max_length": source.model("context_length"),
        "chat_template": source.keys.get("tokenizer.chat_template"),
        "added_tokens_decoder": decoder,
    }


def convert(path, folder, dtype):
    os.makedirs(folder, exist_ok=True)
    source = Source(path)
    tensors = tensors_of(source)
    write_safetensors(os.path.join(folder, "model.safetensors"), tensors, dtype)
    write_json(folder, "config.json", model_config(source, "lm_head.weight" not in tensors, dtype))
    write_json(folder, "generation_config.json", generation_config(source))
    write_json(folder, "tokenizer.json", tokenizer_json(source))
    write_json(folder, "tokenizer_config.json", tokenizer_config(source))
    template = source.keys.get("tokenizer.chat_template")
    if template:
        with open(os.path.join(folder, "chat_template.jinja"), "w", encoding="utf-8") as file:
            file.write(template)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("folder")
    parser.add_argument("dtype", nargs="?", default="BF16", choices=sorted(DTYPES))
    args = parser.parse_args()
    if not os.path.isfile(args.source):
        sys.exit(
            f"make_hf_folder.py: {args.source}: no such file; `make models` brings the demo model"
        )
    convert(args.source, args.folder, args.dtype)


if __name__ == "__main__":
    main()
