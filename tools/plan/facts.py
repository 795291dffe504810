"""Facts of the cost model: shapes, devices and collective curves, read from CSV files.

FACTS names their folder: models.csv, hardware.csv, allreduce.csv, measured_public.csv.
"""

import csv
import math
import os
import re
from dataclasses import dataclass

FACTS = os.environ.get("FACTS", "facts")


# ------------------------------------------------------------------ shapes
@dataclass
class Shape:
    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    experts: int
    active: int
    moe_ffn: int
    shared: int
    dense_layers: int
    tied: bool
    mla: bool
    q_lora: int
    kv_lora: int
    rope: int
    window: int
    window_every: int
    kv_layers: int
    total: float
    kind: str
    interleave: int = 1

    @property
    def moe(self):
        return self.experts > 0

    @property
    def moe_layers(self):
        return self.layers - self.dense_layers if self.moe else 0

    @property
    def attn(self):  # parameters of one attention layer
        h, H, K, d = self.hidden, self.heads, self.kv_heads, self.head_dim
        if self.mla:
            nope, v = (192, 256) if self.name.startswith("GLM-5") else (128, 128)
            q = self.q_lora
            return (
                h * q
                + q * H * (nope + self.rope)
                + h * (self.kv_lora + self.rope)
                + self.kv_lora * H * (nope + v)
                + H * v * h
            )
        return 2 * h * H * d + 2 * h * K * d

    @property
    def dense_ffn(self):
        return 3 * self.hidden * self.ffn

    @property
    def expert(self):
        return 3 * self.hidden * self.moe_ffn

    @property
    def embed(self):
        return self.vocab * self.hidden

    def kv_dim(self, tp):  # elements of KV per token, layer and rank
        if self.mla:
            return self.kv_lora + self.rope
        return 2 * max(1, -(-self.kv_heads // tp)) * self.head_dim

    def kv_bytes_token(self, tp, pp, b):  # for capacity, every layer at full context
        idx = 132 if "indexer" in self.kind else 0
        return (self.kv_dim(tp) * b + idx) * self.kv_layers / pp


def _i(x):
    return int(float(x)) if x not in ("", None) else 0


def load_shapes():
    out = {}
    for r in csv.DictReader(open(f"{FACTS}/models.csv")):
        k = r["attention_kind"]
        w = re.search(r"sliding (\d+)", k)
        loc = re.search(r"(\d) local", k)
        L = _i(r["layers"])
        hyb = "hybrid" in k
        s = Shape(
            r["model"],
            L,
            _i(r["hidden"]),
            _i(r["heads"]),
            _i(r["kv_heads"]),
            _i(r["head_dim"]),
            _i(r["ffn"]),
            _i(r["vocab"]),
            _i(r["experts"]),
            _i(r["active_experts"]),
            _i(r["moe_ffn"]),
            _i(r["shared_experts"]),
            _i(r["dense_layers"]),
            r["tied_embeddings"] == "1",
            k.startswith("MLA"),
            _i(r["mla_q_lora"]),
            _i(r["mla_kv_lora"]),
            _i(r["mla_rope"]),
            int(w.group(1)) if w else 0,
            (int(loc.group(1)) + 1) if loc else 2,
            L // 4 if hyb else L,
            0.0,
            k,
        )
        t = r["total_params"]
        s.total = float(t[:-1]) * (1e12 if t.endswith("T") else 1e9)
        out[r["model"]] = s
    return out


# ------------------------------------------------------------------ hardware
@dataclass
class Gpu:
    name: str
    total: float
    bw: float
    f16: float
    f8: float
    i8: float
    f4: float
    cc: float
    hbm: bool
    l2: float


def load_gpus():
    out = {}
    for r in csv.DictReader(open(f"{FACTS}/hardware.csv")):
        if r["gpu"].startswith("CPU"):
            continue
        f = lambda k: float(r[k]) if re.fullmatch(r"[\d.]+", r[k] or "") else 0.0
        cc = f("compute_capability")
        tot = f("usable_mib") * 2**20 or f("vram_gb") * 1e9
        f16 = f("bf16_tflops_dense")
        if not f16:
            m = re.search(r"FP16 ([\d.]+) TFLOPS", r["note"])
            f16 = float(m.group(1)) if m else 0
        bw = f("mem_bw_gb_s") * 1e9
        out[r["gpu"]] = Gpu(
            r["gpu"],
            tot,
            bw,
            f16 * 1e12,
            f("fp8_tflops_dense") * 1e12,
            f("int8") * 1e12,
            f("fp4") * 1e12,
            cc,
            bw >= 1.4e12 and not r["gpu"].startswith("RTX"),
            f("l2_mb"),
        )
    return out


# ------------------------------------------------------------------ collectives
def load_curves():
    """(gpu, n, algo) -> sorted [(bytes, us)], algo in nccl, custom."""
    c = {}
    for r in csv.DictReader(open(f"{FACTS}/allreduce.csv")):
        if r["op"] != "all_reduce" or r["nodes"] != "1":
            continue
        if not r["source"].startswith("AIConf"):
            continue
        a = "custom" if r["algo"].startswith("vLLM") else "nccl"
        c.setdefault((r["gpu"], int(r["n_gpus"]), a), []).append(
            (float(r["bytes"]), float(r["us"]))
        )
    return {k: sorted(v) for k, v in c.items()}


CURVE_OF = {
    "A100 SXM 80GB": "A100 SXM",
    "A100 SXM 40GB": "A100 SXM",
    "H100 SXM": "H100 SXM",
    "H800 SXM": "H100 SXM",
    "H200 SXM": "H200 SXM",
    "B200 SXM": "B200",
    "B300 SXM": "B200",
    "GB200 (per GPU)": "GB200",
    "GB300 (per GPU)": "GB200",
    "RTX PRO 6000 Blackwell Server": "RTX PRO 6000 Server",
}
# one-way bytes/s of a rank: no multiplier beats the wire (bidirectional datasheet rate / 2)
LINE = {
    "A100 SXM": 300e9,
    "H100 SXM": 450e9,
    "H200 SXM": 450e9,
    "B200": 900e9,
    "GB200": 900e9,
    "RTX PRO 6000 Server": 56e9,
}
# alpha us, B GB/s by link class and ranks (defaults; planner 3.6)
AB = {
    "pcie5": {2: (4.6, 38), 4: (12.7, 24), 8: (25.5, 20)},
    "pcie4": {2: (10, 11), 4: (20, 17), 8: (35, 12.5)},
    "pcie5_nop2p": {2: (14, 20), 4: (25, 14), 8: (45, 10)},
    "pcie4_nop2p": {2: (20, 9), 4: (35, 6), 8: (60, 4)},
    "nvlink": {2: (5, 200), 4: (5, 220), 8: (6, 250)},
    "xgmi": {2: (8, 50), 4: (10, 120), 8: (14, 250)},
    "net": {2: (24, 8), 4: (40, 8), 8: (60, 8), 16: (80, 8)},
}


def link_class(link, nodes):
    l = link.lower()
    if nodes > 1 and ("none" in l or not l):
        return "net"
    if "nvlink" in l:
        return "nvlink"
    if "xgmi" in l:
        return "xgmi"
    nop = "no p2p" in l or "off" in l or "x4" in l or "phb" in l
    if "pcie5" in l:
        return "pcie5_nop2p" if nop else "pcie5"
    if "pcie4" in l:
        return "pcie4_nop2p" if nop else "pcie4"
    return "pcie4_nop2p"


def interp(curve, s):
    if s <= curve[0][0]:
        return curve[0][1]
    for (a, ta), (b, tb) in zip(curve, curve[1:]):
        if s <= b:
            f = math.log(s / a) / math.log(b / a)
            return math.exp(math.log(ta) + f * (math.log(tb) - math.log(ta)))
    a, ta = curve[-1]
    return ta * s / a


class Comm:
    def __init__(self, curves):
        self.c = curves
        self.memo = {}

    def ar(self, gpu, lc, n, s, custom=True, mul=(1.0, 1.0)):
        """Seconds of one all-reduce of s bytes over n ranks."""
        if n <= 1:
            return 0.0
        key = (gpu, lc, n, s, custom, mul)
        if key in self.memo:
            return self.memo[key]
        g = CURVE_OF.get(gpu)
        t = None
        if g and (lc == "nvlink" or (g.startswith("RTX") and lc == "pcie5")):
            ts = [
                interp(self.c[(g, n, a)], s)
                for a in (("nccl", "custom") if custom else ("nccl",))
                if (g, n, a) in self.c
            ]
            if ts:
                f = 1 / (1 + s / 2**20)  # 1 for small messages, 0 for large ones
                t = min(ts) * 1e-6 * mul[0] ** f * mul[1] ** (1 - f)
                t = max(t, 2 * (n - 1) / n * s / LINE[g])
        if t is None:
            tab = AB[lc]
            m = n if n in tab else min(tab, key=lambda k: abs(math.log(k / n)))
            al, b = tab[m]
            t = (al + 2 * (n - 1) / n * s / (b * 1e3)) * 1e-6
        self.memo[key] = t
        return t
