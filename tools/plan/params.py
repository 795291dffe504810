"""Every number of the model that is fitted: start values, and fitted.json's over them.

G: one for all; MEM: memory; D: a dialect; GPU: a type of GPU, HBM or GDDR where it has none.
"""

import json
import os

DIALECT = {
    "layer_us": 14.0,
    "step_us": 1000.0,
    "seq_us": 20.0,
    "steps": 0.5,
    "steps_moe": 0.5,
    "ar_small": 1.0,
    "ar_big": 1.0,
    "tp_us": 2.0,
    "req_ms": 3.0,
    "pf_layer_us": 300.0,
    "ttft0_ms": 20.0,
    "pp_eff": 0.85,
    "off_eff": 0.95,
}
MEMORY_KIND = {
    "em16": 0.75,
    "em8": 0.65,
    "em4": 0.5,
    "em_w": 0.6,
    "ef16": 0.75,
    "ef8": 0.55,
    "ef4": 0.5,
    "e_att": 0.7,
    "lat": 1.0,
}
P = {
    "G": {
        "moe_us": 12.0,
        "moe_em": 0.8,
        "moe_ef": 0.6,
        "moe_w0": 100.0,
        "len_kappa": 3.0,
        "len_tail": 3.0,
        "ep_imb": 1.2,
        "w_flops": 0.8,
        "att_pf": 0.5,
        "q_steady": 0.05,
        "eager_us": 100.0,
        "share_floor": 0,
        "ttft_spread": 1.58,
    },
    "MEM": {"fixed_gib": 1.5, "trt_extra_gib": 3.0},
    "D": {
        "vllm": {**DIALECT},
        "sglang": {**DIALECT, **{"step_us": 800.0, "steps_moe": 20.0, "pp_eff": 0.7}},
        "tensorrt-llm": {
            **DIALECT,
            **{
                "layer_us": 10.0,
                "step_us": 600.0,
                "seq_us": 3.0,
                "steps": 20.0,
                "steps_moe": 20.0,
                "pp_eff": 0.965,
            },
        },
        "llama.cpp": {
            **DIALECT,
            **{
                "layer_us": 20.0,
                "step_us": 300.0,
                "seq_us": 0.0,
                "ttft0_ms": 5.0,
                "pp_eff": 1.0,
                "off_eff": 1.0,
            },
        },
    },
    "GPU": {
        "HBM": {**MEMORY_KIND},
        "GDDR": {**MEMORY_KIND, **{"em16": 0.8, "em8": 0.7, "em4": 0.6, "em_w": 0.7, "ef8": 0.6}},
        "A100 SXM 80GB": {"em16": 0.7, "ef16": 0.9},
        "A100 PCIe 80GB": {"em16": 0.7, "ef16": 0.8},
        "H100 SXM": {"em16": 0.84, "ef16": 0.82, "em8": 0.71, "ef8": 0.58},
        "H200 SXM": {"em16": 0.79, "ef16": 0.81, "em8": 0.64, "ef8": 0.66},
        "B200 SXM": {"em16": 0.74, "ef16": 0.69, "em8": 0.5, "ef8": 0.5, "em4": 0.46, "ef4": 0.46},
        "L40S": {"em16": 0.8, "ef16": 0.68, "em8": 0.68, "ef8": 0.52},
        "RTX PRO 6000 Blackwell Server": {
            "em16": 0.8,
            "ef16": 0.77,
            "em8": 0.66,
            "ef8": 0.68,
            "em4": 0.58,
            "ef4": 0.6,
        },
    },
}
_f = os.path.join(os.path.dirname(__file__), "fitted.json")
if os.path.exists(_f) and not os.environ.get("NOFIT"):
    for path, v in json.load(open(_f)).items():
        a, b, *c = path.split("/")
        if c:
            P[a].setdefault(b, {})[c[0]] = v
        else:
            P[a][b] = v
