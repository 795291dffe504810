#!/usr/bin/env python3
"""Greedy answers and perplexity of the demo models by transformers in fp32.

usage: make_model_references.py smollm2|gemma|perplexity MODEL OUT.json [TEXT]

Run by hand, results committed. MODEL is a folder of make_hf_folder.py in F32 (smollm2, perplexity)
or the Gemma GGUF, whose weights transformers decodes to fp32. Made with transformers 5.23.0, torch
2.15.0, tokenizers 0.23.3 on one thread. Each answer runs on past end-of-sequence tokens, so every
prompt has the same number of steps.
"""

import hashlib
import json
import math
import os
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

import prompts

WINDOW, SCORED, WINDOWS = 512, 255, 8


def load(path):
    folder, where = path, {}
    if path.endswith(".gguf"):
        folder, where = os.path.dirname(path), {"gguf_file": os.path.basename(path)}
    tokenizer = AutoTokenizer.from_pretrained(folder, **where)
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", **where
    )
    return tokenizer, model.eval()


def greedy(model, ids, steps, tops):
    """One token at a time through the KV cache; the first of equal logits wins."""
    out = {"tokens": [], "logprobs": [], "gaps": [], "top_ids": [], "top_logprobs": []}
    cache, feed = None, torch.tensor([ids])
    for _ in range(steps):
        result = model(feed, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache = result.past_key_values
        logprobs = torch.log_softmax(result.logits[0, -1].double(), -1)
        values, indices = torch.topk(logprobs, tops)
        token = int(torch.argmax(logprobs))
        out["tokens"].append(token)
        out["logprobs"].append(round(float(logprobs[token]), 6))
        out["gaps"].append(round(float(values[0] - values[1]), 6))
        out["top_ids"].append(indices.tolist())
        out["top_logprobs"].append([round(v, 6) for v in values.tolist()])
        feed = torch.tensor([[token]])
    return out


def made_with():
    return (
        f"transformers {transformers.__version__}, torch {torch.__version__}, fp32, eager attention"
    )


def save(path, value, rows):
    """One prompt a line."""
    head = {k: v for k, v in value.items() if k != rows}
    lines = ",\n".join(
        json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in value[rows]
    )
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(head, ensure_ascii=False)[:-1] + f', "{rows}": [\n{lines}\n]}}\n')


def references(model_path, out, cases, steps, tops, weights):
    tokenizer, model = load(model_path)
    rows = []
    for kind, what in cases:
        if kind == "chat":
            text = tokenizer.apply_chat_template(what, tokenize=False, add_generation_prompt=True)
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            row = {"kind": kind, "messages": what, "ids": ids}
        else:
            ids = tokenizer(what)["input_ids"]
            row = {"kind": kind, "text": what, "ids": ids}
        rows.append({**row, **greedy(model, ids, steps, tops)})
        print(len(rows), len(ids), repr(tokenizer.decode(rows[-1]["tokens"]))[:100], flush=True)
    save(
        out,
        {"weights": weights, "made_with": made_with(), "steps": steps, "prompts": rows},
        "prompts",
    )


def perplexity(model_path, out, text_path):
    tokenizer, model = load(model_path)
    with open(text_path, encoding="utf-8") as file:
        text = file.read()
    ids = tokenizer(text, add_special_tokens=False)["input_ids"][: WINDOW * WINDOWS]
    rows, total = [], 0.0
    for start in range(0, len(ids), WINDOW):
        window = torch.tensor([ids[start : start + WINDOW]])
        logprobs = torch.log_softmax(model(window).logits[0, :-1].double(), -1)
        chosen = logprobs.gather(1, window[0, 1:, None])[-SCORED:, 0]
        total -= float(chosen.sum())
        rows.append({"start": start, "nll": round(-float(chosen.mean()), 6)})
    head = {
        "text": "GPL-3 as Debian has it in /usr/share/common-licenses",
        "text_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "weights": "SmolLM2-135M-Instruct Q4_1, dequantised to fp32",
        "made_with": made_with(),
        "tokens": len(ids),
        "context": WINDOW,
        "scored_per_window": SCORED,
        "bos": False,
        "ids_sha256": hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest(),
        "perplexity": round(math.exp(total / (SCORED * len(rows))), 6),
        "windows": rows,
    }
    print(head["perplexity"])
    save(out, head, "windows")


def main():
    torch.set_grad_enabled(False)
    what, model_path, out = sys.argv[1:4]
    if what == "smollm2":
        cases = [("chat", m) for m in prompts.CHAT] + [("plain", t) for t in prompts.PLAIN]
        references(model_path, out, cases, 64, 5, "SmolLM2-135M-Instruct Q4_1, dequantised to fp32")
    elif what == "gemma":
        cases = [("plain", t) for t in prompts.GEMMA]
        references(model_path, out, cases, 32, 20, "Gemma 3 270M Q4_K_M, dequantised to fp32")
    elif what == "perplexity":
        perplexity(model_path, out, sys.argv[4])
    else:
        sys.exit(f"unknown reference {what}; known: smollm2 gemma perplexity")


if __name__ == "__main__":
    main()
