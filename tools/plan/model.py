"""Closed-form cost model of `cleave plan`, the prototype that docs/cost-model.md describes.

shape + hardware + split + workload -> memory, KV tokens, TPOT, TTFT range, throughput, bytes.
Pure functions; SI units: bytes, seconds.
"""

import math
from dataclasses import dataclass

from facts import CURVE_OF, LINE, Comm, Gpu, Shape, link_class
from params import P  # every fitted number: G one for all, D a dialect, GPU a GPU type


# ------------------------------------------------------------------ dtype
@dataclass
class Quant:
    lin: float
    exp: float
    kv: float
    cls_lin: str
    cls_exp: str  # bytes per weight, compute class


def quant(dtype, shape, gpu, dialect, note=""):
    d = dtype.lower()
    cls = lambda c: (
        c
        if {"f8": gpu.f8, "f4": gpu.f4, "i8": gpu.i8}.get(c, 1)
        and not (c == "f8" and gpu.cc < 8.9 and gpu.cc > 0)
        else "w" + c[1]
    )
    kv = 2.0
    if d.startswith("fp8"):
        lin = ex = 1.002
        cl = ce = cls("f8")
    elif d.startswith("w8a8"):
        lin = ex = 1.0
        cl = ce = "i8"
    elif d.startswith(("nvfp4", "fp4", "mxfp4")):
        b4 = 0.53125 if ("gpt-oss" in shape.name or d.startswith("mx")) else 0.5625
        ex = b4
        ce = cls("f4")
        if shape.moe:
            lin = 2.0
            cl = "f16"
        else:
            lin = b4
            cl = ce
    elif d.startswith(("awq", "gptq", "w4", "int4")):
        ex = 0.52
        ce = "w4"
        lin, cl = (2.0, "f16") if (d.startswith("int4") and shape.moe) else (0.52, "w4")
    elif d.startswith("q4_k"):
        lin = ex = 4.85 / 8
        cl = ce = "w4"
    else:
        lin = ex = 2.0
        cl = ce = "f16"
    if "kv fp8" in d or "kv fp8" in note:
        kv = 1.0
    elif (
        cls("f8") == "f8"
        and "kv auto" not in note
        and (
            (dialect == "tensorrt-llm" and d.startswith(("fp8", "nvfp4", "fp4")))
            or (
                not shape.moe
                and shape.name.startswith("Llama")
                and d.startswith(("fp8", "nvfp4", "fp4"))
            )
        )
    ):
        kv = 1.0  # ModelOpt checkpoints carry FP8 KV, every engine follows them
    if "kv bf16" in d:
        kv = 2.0
    return Quant(lin, ex, kv, cl, ce)


def gconst(gpu, key):
    return P["GPU"].get(gpu.name, {}).get(key) or P["GPU"]["HBM" if gpu.hbm else "GDDR"][key]


def eff(gpu, cls):
    """(bytes/s reachable, FLOP/s reachable) of a GEMM of a compute class."""
    if cls in ("f16", "w4", "w8"):
        em = gconst(gpu, "em16" if cls == "f16" else "em_w")
        ef = gconst(gpu, "ef16") * (1 if cls == "f16" else P["G"]["w_flops"])
        return gpu.bw * em, gpu.f16 * ef
    if cls == "f8":
        return gpu.bw * gconst(gpu, "em8"), gpu.f8 * gconst(gpu, "ef8")
    if cls == "i8":
        return gpu.bw * gconst(gpu, "em8"), gpu.i8 * gconst(gpu, "ef8")
    return gpu.bw * gconst(gpu, "em4"), gpu.f4 * gconst(gpu, "ef4")


def soft(a, b):
    return (a**4 + b**4) ** 0.25


# ------------------------------------------------------------------ plan
@dataclass
class Split:
    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    attn_dp: bool = False  # dp ranks share the experts (one engine), else independent replicas


@dataclass
class Ctx:
    sh: Shape
    gpu: Gpu
    q: Quant
    sp: Split
    lc: str
    comm: Comm
    dialect: str
    custom: bool = True
    eager: bool = False

    def __post_init__(self):
        s, sp = self.sh, self.sp
        self.atp = sp.tp if sp.tp * sp.ep <= 1 or sp.ep <= sp.tp or sp.attn_dp else sp.tp * sp.ep
        self.group = sp.tp * sp.dp if sp.attn_dp else self.atp  # ranks sharing one MoE layer
        self.ep = max(1, min(sp.ep, self.group)) if s.moe else 1
        self.mtp = max(1, self.group // self.ep)
        self.D = P["D"].get(self.dialect, P["D"]["vllm"])
        self.Lc = s.layers / sp.pp
        self.moe_L = s.moe_layers / sp.pp
        self.den_L = (s.layers - s.moe_layers) / sp.pp

    # weights of the fullest rank, bytes
    def weights(self):
        s, q, sp = self.sh, self.q, self.sp
        lay = -(-s.layers // sp.pp) / s.layers
        a = (
            s.layers * s.attn * q.lin / self.atp
            + (s.layers - s.moe_layers) * s.dense_ffn * q.lin / self.atp
        )
        m = s.moe_layers * (
            s.experts * s.expert * q.exp / (self.ep * self.mtp)
            + s.shared * s.expert * q.lin / self.atp
            + s.hidden * s.experts * 2
        )
        resid = (
            max(0.0, s.total - self.counted()) * q.lin / self.atp
        )  # hybrids: what the formula misses
        return (a + m + resid) * lay + s.embed * 2 / self.atp * (1 if sp.pp > 1 or s.tied else 2)

    def counted(self):
        s = self.sh
        n = (
            s.layers * s.attn
            + (s.layers - s.moe_layers) * s.dense_ffn
            + s.moe_layers * (s.experts * s.expert + s.shared * s.expert + s.hidden * s.experts)
            + s.embed * (1 if s.tied else 2)
        )
        return n if s.kind.startswith("hybrid") else s.total

    def batched_tokens(self):
        if self.dialect == "vllm":
            g = self.gpu.total / 2**30
            return 16384 if g >= 160 else 8192 if g >= 70 and "A100" not in self.gpu.name else 2048
        return 8192

    def max_seqs(self, given=None):
        if given:
            return given
        if self.dialect == "vllm":
            g = self.gpu.total / 2**30
            return 1024 if g >= 70 and "A100" not in self.gpu.name else 256
        return 2048 if self.dialect == "tensorrt-llm" else 1024

    def memory(self, util=None):
        """weights, KV pool, runtime, margin of one rank, bytes; pool < 0: does not fit."""
        s, D = self.sh, self.D
        w = self.weights()
        coef = {1: 11, 2: 6.5, 4: 5, 8: 5}.get(self.atp, 5) * (2 if s.moe else 1)
        act = 2 * self.batched_tokens() * s.hidden * coef
        rt = act + P["MEM"]["fixed_gib"] * 2**30 + (0.4 * 2**30 if self.group > 1 else 0)
        if self.dialect == "tensorrt-llm":
            rt += P["MEM"]["trt_extra_gib"] * 2**30
            pool = 0.9 * (self.gpu.total - w - rt)
        else:
            pool = (util or 0.9) * self.gpu.total - w - rt
        return dict(weights=w, runtime=rt, pool=pool, margin=self.gpu.total - w - rt - max(pool, 0))

    def kv_tokens(self, util=None):
        p = self.memory(util)["pool"]
        t = p / self.sh.kv_bytes_token(self.atp, self.sp.pp, self.q.kv)
        return math.floor(t / 16) * 16 if t > 0 else 0

    # ---- one pass of a stage over n tokens (GEMMs only)
    def gemm(self, n):
        s, q = self.sh, self.q
        bw, fl = eff(self.gpu, q.cls_lin)
        p = (self.Lc * s.attn + self.den_L * s.dense_ffn) / self.atp
        if s.kind.startswith("hybrid"):
            p += max(0.0, s.total - self.counted()) / self.sp.pp / self.atp
        p += self.moe_L * s.shared * s.expert / self.atp
        t = soft(p * q.lin / bw, 2 * p * n / fl)
        if self.moe_L:
            bw, fl = eff(self.gpu, q.cls_exp)
            nn = n * (self.sp.dp if self.sp.attn_dp else 1)
            touched = s.experts * (1 - (1 - s.active / s.experts) ** nn)
            per = touched / self.ep
            if self.ep > 1:
                per = min(max(1.0, per * P["G"]["ep_imb"]), s.experts / self.ep)
            rows = nn * s.active / self.ep * (P["G"]["ep_imb"] if self.ep > 1 else 1)
            wd = s.moe_ffn / self.mtp  # width of one expert on a rank
            narrow = wd / (wd + P["G"]["moe_w0"])
            t += self.moe_L * soft(
                per * s.expert / self.mtp * q.exp / (bw * P["G"]["moe_em"] * narrow),
                2 * rows * s.expert / self.mtp / (fl * P["G"]["moe_ef"] * narrow),
            )
        return t

    def head(self, n):  # logits of n rows, on the last stage
        bw, fl = eff(self.gpu, "f16")
        p = self.sh.embed / self.atp
        return soft(p * 2 / bw, 2 * p * n / fl)

    def kv_read(self, ctx):  # KV bytes of one sequence of ctx tokens, per stage and rank
        s = self.sh
        per = s.kv_dim(self.atp) * self.q.kv
        L = s.kv_layers / self.sp.pp
        if s.window and ctx > s.window:
            f = 1 / s.window_every
            return per * L * (f * ctx + (1 - f) * s.window)
        return per * L * ctx

    def comm_layers(self, n):
        """Time of a stage's collectives over n tokens a DP rank."""
        s = self.sh
        S = n * s.hidden * 2
        t = 0.0
        if self.atp > 1:
            k = 2 * self.Lc - (self.moe_L if self.sp.attn_dp else 0)
            t += k * (
                self.comm.ar(
                    self.gpu.name,
                    self.lc,
                    self.atp,
                    S,
                    self.custom,
                    (self.D["ar_small"], self.D["ar_big"]),
                )
            )
        if self.sp.attn_dp and self.moe_L:
            t += self.moe_L * self.comm.ar(
                self.gpu.name,
                self.lc,
                min(8, self.group),
                S * self.sp.dp,
                self.custom,
                (self.D["ar_small"], self.D["ar_big"]),
            )
        return t + (self.Lc * self.D["tp_us"] * 1e-6 if self.group > 1 else 0)

    def overhead(self):
        D = self.D
        lay = D["layer_us"] * gconst(self.gpu, "lat")
        if self.eager:
            lay += P["G"]["eager_us"]
        t = self.Lc * lay + self.moe_L * D.get("moe_us", P["G"]["moe_us"]) * gconst(self.gpu, "lat")
        return t * 1e-6

    def t_dec(self, B, ctx):
        """One decode step of one stage, B sequences of a replica's DP rank, ctx tokens each."""
        att = B * self.kv_read(ctx) / (self.gpu.bw * gconst(self.gpu, "e_att"))
        t = self.gemm(B) + att + self.comm_layers(B) + self.overhead()
        t += (
            self.head(B) / self.sp.pp
            + self.D["step_us"] * 1e-6 / self.sp.pp
            + B * self.D["seq_us"] * 1e-6 / self.sp.pp
        )
        if self.sp.pp > 1:
            t += self.hop(B)
        return t

    def hop(self, n):
        s = self.sh
        bytes_ = n * s.hidden * 2 * (2 if self.dialect == "vllm" else 1) / self.atp
        if self.lc == "net":
            return 24e-6 + bytes_ / 8e9
        b = {"nvlink": 150e9, "pcie5": 45e9, "pcie4": 20e9}.get(self.lc, 12e9)
        return 15e-6 + bytes_ / b

    def t_pf(self, T, n=1, extra=0, floor=True):
        """Prefill of n prompts of T tokens on one stage, beyond the decode step they ride on."""
        s = self.sh
        tok = T * n
        ch = self.batched_tokens()
        chunks = max(1, math.ceil(tok / ch))
        per = tok / chunks
        t = chunks * (self.gemm(per + extra) - (self.gemm(extra) if extra else 0))
        w = s.window
        L = s.kv_layers / self.sp.pp
        hd = s.heads * (192 + 128) / 2 if s.mla else s.heads * s.head_dim
        full = T * T / 2
        if w and T > w:
            f = 1 / s.window_every
            full = f * full + (1 - f) * (T * w)
        e = P["G"]["att_pf"]
        t += n * 4 * full * hd / self.atp * L / (self.gpu.f16 * e)
        t += chunks * self.comm_layers(per)
        if floor:
            t = soft(t, chunks * self.Lc * self.D["pf_layer_us"] * 1e-6)  # launch bound: no graph
        if self.sp.pp > 1:
            t += chunks * self.hop(per)
        return t

    # ---- replica-level results; c: requests in flight of this DP rank or replica
    def running(self, c, isl, osl, given=None):
        cap = self.kv_tokens() / max(1, isl + osl / 2)
        return max(1.0, min(c, cap, self.max_seqs(given))), cap

    def pp_eff(self):
        return self.D["pp_eff"] ** (self.sp.pp - 1)

    def share(self, B, isl, osl):
        """Seconds of others' prefill each decode step pays (whole replica, pipelined)."""
        if not isl:
            return 0.0
        n = min(max(1.0, B / osl), max(1.0, self.batched_tokens() / isl))
        ex = 0 if self.dialect == "sglang" else B / self.sp.pp
        return (
            (B - 1) / osl * self.t_pf(isl, n, ex, bool(P["G"]["share_floor"])) / n if B > 1 else 0.0
        )

    def tpot_alone(self, B, isl, osl):
        m = self.sp.pp
        return m * self.t_dec(max(1.0, B / m), isl + osl / 2) / self.pp_eff()

    def tpot(self, B, isl, osl):
        m = self.sp.pp
        b = max(1.0, B / m)
        step = m * self.t_dec(b, isl + osl / 2)
        return (step + self.share(B, isl, osl)) / self.pp_eff()

    def prefill1(self, isl):
        ch = math.ceil(max(isl, 1) / self.batched_tokens())
        t = self.t_pf(max(isl, 1))
        t = t * (self.sp.pp + ch - 1) / ch if self.sp.pp > 1 else t
        return t + self.D["ttft0_ms"] * 1e-3


def predict(x, isl, osl, load, kind="closed", W=10.0, max_seqs=None, spread=False, stream1=False):
    """load: requests in flight (closed), or requests at t=0 (burst, offline)."""
    sp = x.sp
    c = load / sp.dp
    c = max(1.0, c)
    out = {}
    B, cap = x.running(c, isl, osl, max_seqs)
    out["kv_tokens"] = x.kv_tokens()
    out["B"] = B
    if kind == "closed":
        tp = x.tpot(B, isl, osl)
        pf = x.t_pf(max(isl, 1), 1)
        one = x.prefill1(isl)
        nb = max(1.0, min(B, x.batched_tokens() / max(1, isl)))
        unit = pf / sp.pp + x.D["req_ms"] * 1e-3
        rho = min(0.95, B * pf / sp.pp / max(1e-9, osl * tp))
        steps = 0.5 if stream1 else x.D["steps_moe" if x.sh.moe else "steps"]
        Q = B * (sp.dp if sp.attn_dp else 1)  # attention DP: ranks run in lockstep
        first = unit * ((Q + nb) / 2 - 1)  # all requests of the first wave arrive together
        later = unit * (Q - 1) * P["G"]["q_steady"] * rho
        ttft = one + tp * steps + first / W + later * (1 - 1 / W)
        X = B / (ttft + (osl - 1) * tp)
        if c > B * 1.001:
            ttft += (c - B) / X * max(0.5, 1 - 0.5 * 1 / W)
    elif kind == "burst":
        # spread: lengths vary as in ShareGPT; kap = E[1/n]E[n], the longest answer sets the tail
        kap, tail = (P["G"]["len_kappa"], P["G"]["len_tail"]) if spread else (1.0, 1.0)
        nb = max(1.0, min(B, x.batched_tokens() / max(1, isl)))
        mixed = 0 if x.dialect == "sglang" else x.t_dec(max(1.0, B / 2 / sp.pp), isl + osl / 2) / nb
        unit = x.t_pf(max(isl, 1), nb) / nb / sp.pp + x.D["req_ms"] * 1e-3 + mixed
        dec = x.tpot_alone(B, isl, osl)
        small = x.tpot_alone(max(1.0, B / 8), isl, osl)
        if c <= B * 1.05:
            tp = dec + c * unit / 2 * kap / osl
            ttft = (c + nb) * unit / 2 + x.D["ttft0_ms"] * 1e-3
            X = c / (c * unit + osl * dec + (tail - 1) * osl * small)
        else:
            tp = x.tpot(B, isl, osl) + B * unit / 2 * (kap - 1) / osl * B / c
            X = B / (osl * x.tpot(B, isl, osl))
            total = c / X
            ttft = (c - B) / c * total / 2 + B * unit / 2 + x.prefill1(isl)
            X = c / (total + tail * osl * small * 0.5)
    else:  # offline, endless queue
        tp = x.tpot(B, isl, osl)
        ttft = x.prefill1(isl)
        X = B / (osl * tp) * x.D["off_eff"]
    out["tpot"] = tp
    out["ttft"] = ttft
    act = min(sp.dp, load)  # idle replicas add nothing
    X *= act
    out["req_s"] = X
    out["out_tok_s"] = X * osl
    out["total_tok_s"] = X * (osl + isl)
    out["decode_tok_s"] = act * B / (sp.pp * x.t_dec(max(1, B / sp.pp), isl + osl / 2) / x.pp_eff())
    out["prefill_tok_s"] = isl / x.prefill1(isl) * 1.0 if isl else 0
    r = P["G"]["ttft_spread"]
    f = x.D.get("ttft_mul", 1.0)
    out["ttft_lo"], out["ttft_hi"] = ttft * f / r, ttft * f * r
    out["bytes_tp"] = 2 * x.sh.layers * x.sh.hidden * 2 if x.atp > 1 else 0
    out["bytes_pp"] = (sp.pp - 1) * x.sh.hidden * 2 * (2 if x.dialect == "vllm" else 1)
    return out
