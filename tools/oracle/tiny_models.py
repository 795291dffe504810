"""Tiny models of every family: their configurations and seeded weights. numpy only.

A weight is a pure function of (seed, tensor name, index): SplitMix64's finaliser over a counter,
its four 16-bit fields summed, which is near a normal distribution and exact in integers, so any
machine makes the same bits. Deviations of 0.2 to 0.3 make early tokens matter to late logits; the
usual 0.02 would hide errors in positions and masks.
"""

import numpy as np

VOCAB = 320  # 256 bytes, merges, special tokens; rows past the tokenizer's are never named by it
MASK = (1 << 64) - 1
MIXTURES = ("mixtral", "qwen3_moe")
GOLDEN = 0x9E3779B97F4A7C15
# Deviation of the sum of four uniform 16-bit integers.
FIELD_DEVIATION = (4 * (65536.0**2 - 1) / 12) ** 0.5

_COMMON = {
    "vocab_size": VOCAB,
    "hidden_act": "silu",
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "attention_bias": False,
    "bos_token_id": 318,
    "eos_token_id": 319,
}
_LLAMA = {
    **_COMMON,
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "mlp_bias": False,
}
_GEMMA = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "vocab_size": VOCAB,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "attention_bias": False,
    "bos_token_id": 318,
    "eos_token_id": 319,
    "tie_word_embeddings": True,
    "sliding_window": 16,
    "final_logit_softcapping": None,
    "attn_logit_softcapping": None,
}

_QWEN3_MOE = {
    **_COMMON,
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 64,
    "intermediate_size": 112,  # of dense layers, which there are none of
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "use_sliding_window": False,
    "sliding_window": None,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "tie_word_embeddings": False,
}

# Folders of transformers before version 5 say rope_theta, rope_scaling, torch_dtype; later ones
# say rope_parameters, dtype. Both kinds are here. "stored": "fused" is transformers 5's form in
# memory, all experts of a layer in two tensors; else the type of matrices, F32 when not said (Q8_0:
# those of the GGUF alone). "seed" is chosen so that no greedy step is a near
# tie.
CONFIGS = {
    # One KV head per query head, head untied, widths that are no multiple of 64.
    "llama2": {
        **_LLAMA,
        "seed": 4,
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    },
    "llama3": {
        **_LLAMA,
        "seed": 1,
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
        "dtype": "float32",
    },
    # Scaled linearly; five query heads on one KV head; no width is a multiple of 32.
    "llama_linear": {
        **_LLAMA,
        "seed": 10,
        "hidden_size": 80,
        "intermediate_size": 136,
        "num_hidden_layers": 2,
        "num_attention_heads": 5,
        "num_key_value_heads": 1,
        "rope_theta": 10000.0,
        "rope_scaling": {"type": "linear", "factor": 4.0},
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    },
    # A head size that is neither a power of two nor hidden / heads.
    "llama_head80": {
        **_LLAMA,
        "seed": 7,
        "hidden_size": 96,
        "intermediate_size": 224,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "head_dim": 80,
        "rope_theta": 100000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    },
    "mistral": {
        **_COMMON,
        "seed": 30,
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "rope_theta": 10000.0,
        "sliding_window": 24,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    },
    "qwen2": {
        **_COMMON,
        "seed": 10,
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rope_theta": 1000000.0,
        "use_sliding_window": False,
        "sliding_window": 16,
        "max_window_layers": 3,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    },
    "qwen3": {
        **_COMMON,
        "seed": 16,
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "use_sliding_window": False,
        "sliding_window": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        "tie_word_embeddings": False,
        "dtype": "float32",
    },
    # Odd counts: 5 experts; the last share of an expert's columns is shorter.
    "mixtral": {
        **_COMMON,
        "seed": 4,
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "hidden_size": 80,
        "intermediate_size": 104,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_local_experts": 5,
        "num_experts_per_tok": 2,
        "rope_theta": 1000000.0,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    },
    "qwen3_moe": {
        **_QWEN3_MOE,
        "seed": 1,
        "num_hidden_layers": 3,
        "num_experts": 10,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 136,
        "norm_topk_prob": True,
        "rope_theta": 1000000.0,
        "rope_scaling": None,
        "torch_dtype": "float32",
    },
    # Gates are shares of all experts' softmax.
    "qwen3_moe_fused": {
        **_QWEN3_MOE,
        "seed": 1,
        "stored": "fused",
        "num_hidden_layers": 2,
        "num_experts": 6,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 64,
        "norm_topk_prob": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        "dtype": "float32",
    },
    # No logits of these two are kept: they are for answers that must not change. Down projections
    # are so loud that some sums of the first layer pass int32.
    "mixtral_q8": {
        **_COMMON,
        "seed": 1,
        "stored": "Q8_0",
        "down_deviation": 10.0,
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "num_local_experts": 10,
        "num_experts_per_tok": 4,
        "rope_theta": 1000000.0,
        "sliding_window": None,
        "tie_word_embeddings": False,
    },
    "qwen3_moe_bf16": {
        **_QWEN3_MOE,
        "seed": 2,
        "stored": "BF16",
        "num_hidden_layers": 3,
        "num_experts": 7,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 192,
        "norm_topk_prob": False,
        "rope_theta": 1000000.0,
        "dtype": "bfloat16",
    },
    # Global layer sixth of seven; embeddings scaled by a root that is no integer.
    "gemma3": {
        **_GEMMA,
        "seed": 6,
        "hidden_size": 96,
        "intermediate_size": 128,
        "num_hidden_layers": 7,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "query_pre_attn_scalar": 32,
        "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0,
        "rope_scaling": None,
        "sliding_window_pattern": 6,
        "torch_dtype": "float32",
    },
    # As the larger Gemma 3: global layers scaled linearly, a score scale of its own; layers listed.
    "gemma3_linear": {
        **_GEMMA,
        "seed": 4,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "query_pre_attn_scalar": 24,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
        "dtype": "float32",
    },
}

# For cuts over many ranks: 9 query heads on 3 KV heads, 10 units of FFN columns, 6 layers, 10
# experts; windows of several runs of 512. No logits of them are kept.
_WIDE = {
    "num_hidden_layers": 6,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 32,
    "intermediate_size": 640,
    "max_position_embeddings": 16384,
}
_WIDE_EXPERTS = {"num_experts_per_tok": 3}
WIDE = {
    f"wide_{name}": {**CONFIGS[name], **_WIDE, **changes}
    for name, changes in {
        "llama3": {"stored": "Q8_0"},
        "mistral": {"stored": "BF16", "sliding_window": 1300, "torch_dtype": "bfloat16"},
        "qwen2": {"hidden_size": 288, "stored": "Q8_0"},
        "qwen3": {},
        "gemma3": {"stored": "BF16", "sliding_window": 700, "torch_dtype": "bfloat16"},
        "mixtral": {**_WIDE_EXPERTS, "stored": "BF16", "num_local_experts": 10},
        "qwen3_moe": {**_WIDE_EXPERTS, "stored": "Q8_0", "moe_intermediate_size": 640},
    }.items()
}


def mix(z):
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def name_hash(name):
    """FNV-1a, 64 bits."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value


def noise(seed, name, shape):
    """Deviation 1, mean 0, fp64; at most 3.5 from zero."""
    start = (name_hash(name) + seed * GOLDEN) & MASK
    with np.errstate(over="ignore"):
        counter = np.arange(1, int(np.prod(shape)) + 1, dtype=np.uint64) * np.uint64(GOLDEN)
        bits = mix(counter ^ mix(np.full(1, start, np.uint64)))
    total = sum((bits >> np.uint64(16 * i)) & np.uint64(0xFFFF) for i in range(4)).astype(
        np.float64
    )
    return ((total - 2 * 65535) / FIELD_DEVIATION).reshape(shape)


def head_dim(config):
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def expert_shapes(config):
    """Of a layer: the router, and each expert's matrices."""
    width, count = config["hidden_size"], config.get("num_experts", config.get("num_local_experts"))
    ffn = config.get("moe_intermediate_size", config["intermediate_size"])
    if config.get("stored") == "fused":
        return {
            "mlp.gate.weight": (count, width),
            "mlp.experts.gate_up_proj": (count, 2 * ffn, width),
            "mlp.experts.down_proj": (count, width, ffn),
        }
    mixtral = config["model_type"] == "mixtral"
    block = "block_sparse_moe" if mixtral else "mlp"
    gate, up, down = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
    out = {f"{block}.gate.weight": (count, width)}
    for expert in range(count):
        prefix = f"{block}.experts.{expert}"
        out[f"{prefix}.{gate}.weight"] = (ffn, width)
        out[f"{prefix}.{up}.weight"] = (ffn, width)
        out[f"{prefix}.{down}.weight"] = (width, ffn)
    return out


def shapes(config):
    """Tensor name as transformers has it -> shape."""
    d, width, ffn = head_dim(config), config["hidden_size"], config["intermediate_size"]
    q_rows, kv_rows = config["num_attention_heads"] * d, config["num_key_value_heads"] * d
    kind = config["model_type"]
    out = {"model.embed_tokens.weight": (VOCAB, width), "model.norm.weight": (width,)}
    if not config["tie_word_embeddings"]:
        out["lm_head.weight"] = (VOCAB, width)
    layer = {
        "self_attn.q_proj.weight": (q_rows, width),
        "self_attn.k_proj.weight": (kv_rows, width),
        "self_attn.v_proj.weight": (kv_rows, width),
        "self_attn.o_proj.weight": (width, q_rows),
        "mlp.gate_proj.weight": (ffn, width),
        "mlp.up_proj.weight": (ffn, width),
        "mlp.down_proj.weight": (width, ffn),
        "input_layernorm.weight": (width,),
        "post_attention_layernorm.weight": (width,),
    }
    if kind in MIXTURES:
        layer = {name: shape for name, shape in layer.items() if not name.startswith("mlp.")}
        layer |= expert_shapes(config)
    if kind == "qwen2":
        layer |= {
            f"self_attn.{p}_proj.bias": (n,)
            for p, n in (("q", q_rows), ("k", kv_rows), ("v", kv_rows))
        }
    if kind in ("qwen3", "qwen3_moe", "gemma3_text"):
        layer |= {"self_attn.q_norm.weight": (d,), "self_attn.k_norm.weight": (d,)}
    if kind == "gemma3_text":
        layer |= {
            "pre_feedforward_layernorm.weight": (width,),
            "post_feedforward_layernorm.weight": (width,),
        }
    for i in range(config["num_hidden_layers"]):
        out |= {f"model.layers.{i}.{name}": shape for name, shape in layer.items()}
    return out


def norm_weight(name, gemma, values):
    """Gemma's files hold w where 1 + w is meant. Its embedding is scaled up and is the head as
    well, so an answer would repeat its last token: the last norm's signs vary, and the FFN is
    louder than the embedding."""
    if not gemma:
        return 1.0 + 0.2 * values
    if name == "model.norm.weight":
        return values - 1.0
    return 0.2 * values + (1.0 if "post_feedforward" in name or "q_norm" in name else 0.0)


def weights(config):
    """Tensor name -> fp32 array."""
    gemma = config["model_type"] == "gemma3_text"
    out = {}
    for name, shape in shapes(config).items():
        values = noise(config["seed"], name, shape)
        if name.endswith(".bias"):
            values = values * 0.5
        elif len(shape) == 1:
            values = norm_weight(name, gemma, values)
        else:
            down = config.get("down_deviation", 0.2) if ".w2." in name else 0.2
            values = values * (0.3 if "embed" in name or "lm_head" in name else down)
        out[name] = values.astype(np.float32)
    return out


def prompt_ids(seed, length):
    """Ids over the whole vocabulary, end-of-sequence included: a model must take any of them."""
    bits = (noise(seed, f"prompt {length}", (length,)) + 3.5) / 7.0
    return [int(x * 7919 * VOCAB) % VOCAB for x in bits]
