#!/usr/bin/env python3
"""Write the tiny seeded models of tiny_models.py to disk. Needs numpy only; takes seconds.

usage: make_tiny_checkpoints.py OUT_DIR [NAME... | wide]

Without a name it writes all but the wide ones, which `wide` stands for.

OUT_DIR/NAME/ is a Hugging Face folder (config.json, model.safetensors, tokenizer files),
OUT_DIR/NAME.gguf the same model as an F32 GGUF where that format can say all of it.
tests/data/logits/NAME.json has the logits that transformers computes for them.
"""

import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import tiny_models
import tiny_tokenizer
from gguf_out import write_gguf
from hf_files import write_json
from tensor_file import write_safetensors

# model_type -> GGUF architecture. Mistral's window and Gemma's score scale have no key there.
# Mixtral is a llama with experts.
GGUF_ARCH = {
    "llama": "llama",
    "mixtral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
    "gemma3_text": "gemma3",
}
GGUF_BLOCK = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate": "ffn_gate_inp",
    "block_sparse_moe.gate": "ffn_gate_inp",
}
GGUF_EXPERT = {
    "w1": "ffn_gate_exps",
    "w3": "ffn_up_exps",
    "w2": "ffn_down_exps",
    "gate_proj": "ffn_gate_exps",
    "up_proj": "ffn_up_exps",
    "down_proj": "ffn_down_exps",
}
GGUF_BLOCK_GEMMA = GGUF_BLOCK | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
GGUF_TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
CONTROL, NORMAL = 3, 1
NOT_IN_CONFIG = ("seed", "stored", "down_deviation")


def interleave(values, heads):
    """Put the i-th rows of a head's two halves side by side, as GGUF's llama has them."""
    halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)


def gguf_name(name, gemma):
    base, suffix = name.rsplit(".", 1)
    if base in GGUF_TOP:
        return f"{GGUF_TOP[base]}.{suffix}"
    _, _, layer, part = base.split(".", 3)
    return f"blk.{layer}.{(GGUF_BLOCK_GEMMA if gemma else GGUF_BLOCK)[part]}.{suffix}"


def llama3_factors(config, rope):
    """The divisors of the rotary frequencies that llama.cpp keeps in rope_freqs.weight."""
    d = tiny_models.head_dim(config)
    wavelength = 2 * np.pi * rope["rope_theta"] ** (np.arange(0, d, 2) / d)
    context, low, high = (
        rope["original_max_position_embeddings"],
        rope["low_freq_factor"],
        rope["high_freq_factor"],
    )
    smooth = np.clip((context / wavelength - low) / (high - low), 0.0, 1.0)
    return (1.0 / ((1.0 - smooth) / rope["factor"] + smooth)).astype(np.float32)


def gguf_experts(weights):
    """One tensor of a layer's matrices of a kind, all experts side by side."""
    stacks = {}
    for name, values in weights.items():
        layer, part = name.split(".")[2], name.split(".")[-2]
        stacks.setdefault(f"blk.{layer}.{GGUF_EXPERT[part]}.weight", []).append(values)
    return {name: np.stack(each) for name, each in stacks.items()}


def gguf_tensors(config, weights):
    gemma = config["model_type"] == "gemma3_text"
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    out = gguf_experts({name: w for name, w in weights.items() if ".experts." in name})
    for name, values in weights.items():
        if ".experts." in name:
            continue
        part = name.split(".")[-2]
        if GGUF_ARCH[config["model_type"]] == "llama" and part in heads:
            values = interleave(values, heads[part])
        if gemma and "norm" in part:
            values = values + np.float32(1)
        out[gguf_name(name, gemma)] = values
    rope = config.get("rope_parameters", {})
    if rope.get("rope_type") == "llama3":
        out["rope_freqs.weight"] = llama3_factors(config, rope)
    return out


def gguf_keys(name, config):
    arch = GGUF_ARCH[config["model_type"]]
    d = tiny_models.head_dim(config)
    scaling = config.get("rope_scaling") or {}
    keys = {
        "general.architecture": arch,
        "general.name": f"tiny {name}",
        "general.file_type": 0,
        f"{arch}.block_count": config["num_hidden_layers"],
        f"{arch}.context_length": config["max_position_embeddings"],
        f"{arch}.embedding_length": config["hidden_size"],
        f"{arch}.feed_forward_length": config["intermediate_size"],
        f"{arch}.attention.head_count": config["num_attention_heads"],
        f"{arch}.attention.head_count_kv": config["num_key_value_heads"],
        f"{arch}.attention.key_length": d,
        f"{arch}.attention.value_length": d,
        f"{arch}.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        f"{arch}.rope.dimension_count": d,
        f"{arch}.rope.freq_base": float(
            config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
        ),
    }
    if scaling.get("type") == "linear":
        keys |= {
            f"{arch}.rope.scaling.type": "linear",
            f"{arch}.rope.scaling.factor": scaling["factor"],
        }
    if config["model_type"] in tiny_models.MIXTURES:
        keys |= {
            f"{arch}.expert_count": config.get("num_experts", config.get("num_local_experts")),
            f"{arch}.expert_used_count": config["num_experts_per_tok"],
        }
    if arch == "qwen3moe":
        keys[f"{arch}.expert_feed_forward_length"] = config["moe_intermediate_size"]
    if arch == "gemma3":
        keys[f"{arch}.attention.sliding_window"] = config["sliding_window"]
    return keys | gguf_vocabulary()


def gguf_vocabulary():
    tokens = tiny_tokenizer.tokens()
    types = [NORMAL] * tiny_tokenizer.BOS_ID + [CONTROL, CONTROL]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in tiny_tokenizer.MERGES],
        "tokenizer.ggml.bos_token_id": tiny_tokenizer.BOS_ID,
        "tokenizer.ggml.eos_token_id": tiny_tokenizer.EOS_ID,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": tiny_tokenizer.CHAT_TEMPLATE,
    }


def fits_gguf(config):
    """Whether GGUF's keys say all that this model needs."""
    own_scale = config.get(
        "query_pre_attn_scalar", tiny_models.head_dim(config)
    ) != tiny_models.head_dim(config)
    other_gates = not config.get("norm_topk_prob", True)
    return config["model_type"] in GGUF_ARCH and not own_scale and not other_gates


def write_folder(folder, config, weights):
    os.makedirs(folder, exist_ok=True)
    write_json(
        folder,
        "config.json",
        {key: value for key, value in config.items() if key not in NOT_IN_CONFIG},
    )
    write_json(
        folder,
        "generation_config.json",
        {"bos_token_id": tiny_tokenizer.BOS_ID, "eos_token_id": tiny_tokenizer.EOS_ID},
    )
    write_json(folder, "tokenizer.json", tiny_tokenizer.tokenizer_json())
    write_json(folder, "tokenizer_config.json", tiny_tokenizer.tokenizer_config())
    dtype = "BF16" if config.get("stored") == "BF16" else "F32"
    write_safetensors(os.path.join(folder, "model.safetensors"), weights, dtype)


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: make_tiny_checkpoints.py OUT_DIR [NAME... | wide]")
    out, names = sys.argv[1], sys.argv[2:] or list(tiny_models.CONFIGS)
    if names == ["wide"]:
        names = list(tiny_models.WIDE)
    known = tiny_models.CONFIGS | tiny_models.WIDE
    for name in names:
        if name not in known:
            sys.exit(f"unknown model {name}; known: {' '.join(known)}")
        config = known[name]
        weights = tiny_models.weights(config)
        write_folder(os.path.join(out, name), config, weights)
        if fits_gguf(config):
            write_gguf(
                os.path.join(out, f"{name}.gguf"),
                gguf_keys(name, config),
                gguf_tensors(config, weights),
                quantised=config.get("stored") == "Q8_0",
            )


if __name__ == "__main__":
    main()
