#!/usr/bin/env python3
"""Logits and greedy tokens of the tiny models by transformers in fp32.

usage: make_logit_fixtures.py CHECKPOINTS OUT_DIR [NAME...]

Run by hand, results committed. CHECKPOINTS is what make_tiny_checkpoints.py wrote. Made with
transformers 5.23.0, torch 2.15.0. Before a fixture is written, each value of the configuration that
a reader could miss is changed in turn, and the logits must move by far more than the tolerance of
the test that will use it; and greedy steps must not be near ties, or the seed in tiny_models.py is
to be changed.
"""

import json
import os
import sys

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

import tiny_models

LENGTHS = (1, 2, 7, 33, 90)
STEPS = 64
# Prompts up to WHOLE long keep the logits of all positions, longer ones every STRIDE and the last.
WHOLE, STRIDE = 8, 15
MIN_GAP, MIN_MOVE, MIN_TOKENS = 0.004, 0.3, 20

# What is changed, per model: dotted name in the configuration as transformers 5 holds it -> value.
CHANGES = {
    "llama2": {"rope_parameters.rope_theta": 500000.0, "rms_norm_eps": 0.1},
    "llama3": {
        "rope_parameters.factor": 2.0,
        "rope_parameters.low_freq_factor": 2.0,
        "rope_parameters.high_freq_factor": 16.0,
        "rope_parameters.original_max_position_embeddings": 512,
    },
    "llama_linear": {"rope_parameters.factor": 1.0},
    "llama_head80": {"rope_parameters.rope_theta": 10000.0},
    "mistral": {"sliding_window": 25, "rope_parameters.rope_theta": 100000.0},
    "qwen2": {"rope_parameters.rope_theta": 10000.0},
    "qwen3": {"rope_parameters.rope_theta": 10000.0},
    "mixtral": {"num_experts_per_tok": 1, "rope_parameters.rope_theta": 10000.0},
    "qwen3_moe": {"num_experts_per_tok": 4, "norm_topk_prob": False},
    "qwen3_moe_fused": {"num_experts_per_tok": 3, "norm_topk_prob": True},
    "gemma3": {
        "sliding_window": 17,
        "rope_parameters.sliding_attention.rope_theta": 1000000.0,
        "rope_parameters.full_attention.rope_theta": 10000.0,
        "query_pre_attn_scalar": 96,
        "layer_types": ["sliding_attention"] * 7,
    },
    "gemma3_linear": {
        "sliding_window": 17,
        "rope_parameters.full_attention.factor": 1.0,
        "query_pre_attn_scalar": 16,
    },
}


def load(folder, change=None):
    config = AutoConfig.from_pretrained(folder)
    if change:
        *path, last = change[0].split(".")
        where = config
        for key in path:
            where = where[key] if isinstance(where, dict) else getattr(where, key)
        if isinstance(where, dict):
            where[last] = change[1]
        else:
            setattr(where, last, change[1])
    return AutoModelForCausalLM.from_pretrained(
        folder, config=config, dtype=torch.float32, attn_implementation="eager"
    ).eval()


def logits_of(model, ids):
    return model(torch.tensor([ids]), use_cache=False).logits[0]


def greedy(model, ids):
    """Without a cache: no state of transformers stands between the weights and the answer."""
    ids, tokens, gap = list(ids), [], float("inf")
    for _ in range(STEPS):
        last = logits_of(model, ids)[-1]
        top = torch.topk(last, 2)
        gap = min(gap, float(top.values[0] - top.values[1]))
        tokens.append(int(top.indices[0]))
        ids.append(tokens[-1])
    return tokens, gap


def kept(length):
    if length <= WHOLE:
        return list(range(length))
    return sorted({*range(0, length, STRIDE), length - 1})


def check_changes(name, folder, ids, base):
    for change in CHANGES[name].items():
        move = float((logits_of(load(folder, change), ids) - base).abs().max())
        print(f"  {change[0]} = {change[1]}: logits move by {move:.3f}")
        if move < MIN_MOVE:
            sys.exit(f"{name}: {change[0]} hardly matters ({move:.4f})")


def fixture(name, folder):
    model = load(folder)
    rows = []
    for length in LENGTHS:
        ids = tiny_models.prompt_ids(tiny_models.CONFIGS[name]["seed"], length)
        logits = logits_of(model, ids)
        if length == LENGTHS[-1]:
            check_changes(name, folder, ids, logits)
        tokens, gap = greedy(model, ids)
        spread = float(logits.max() - logits.min())
        print(
            f"{name} {length}: spread {spread:.2f}, smallest greedy gap {gap:.4f}, "
            f"{len(set(tokens))} different tokens",
            flush=True,
        )
        if gap < MIN_GAP:
            sys.exit(f"{name}: a greedy step is nearly a tie; take another seed")
        if len(set(tokens)) < MIN_TOKENS:
            sys.exit(f"{name}: the answer repeats itself; take another seed")
        rows.append(
            {
                "ids": ids,
                "positions": kept(length),
                "greedy": tokens,
                "logits": [[round(v, 5) for v in logits[p].tolist()] for p in kept(length)],
            }
        )
    return rows


def main():
    torch.set_grad_enabled(False)
    checkpoints, out = sys.argv[1:3]
    made = f"transformers {transformers.__version__}, torch {torch.__version__}, fp32, eager"
    for name in sys.argv[3:] or CHANGES:
        rows = fixture(name, os.path.join(checkpoints, name))
        lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
        with open(os.path.join(out, f"{name}.json"), "w", encoding="utf-8") as file:
            file.write(
                f'{{"model": "{name}", "made_with": "{made}", "vocab": {tiny_models.VOCAB}, '
                f'"prompts": [\n{lines}\n]}}\n'
            )


if __name__ == "__main__":
    main()
