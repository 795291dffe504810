"""Coordinate search over the constants of params.py; writes fitted.json.

argv: rounds [source to hold out]
"""

import sys, math, json, os, collections
import facts
import model as M, check as C
from params import P

GPUS = {
    "H100 SXM": "em16 ef16 em8 ef8 em_w em4 e_att lat",
    "H200 SXM": "em16 ef16 em8 ef8 em_w e_att lat",
    "B200 SXM": "em16 ef16 em8 ef8 em4 ef4 em_w e_att lat",
    "A100 SXM 80GB": "em16 ef16 em_w e_att lat",
    "A100 PCIe 80GB": "em16 ef16 em_w e_att",
    "RTX PRO 6000 Blackwell Server": "em4 ef4 em_w e_att lat",
    "GB10 (DGX Spark)": "em4 em_w lat",
    "GDDR": "em16 em_w ef16 lat e_att",
}
NAMES = [
    f"G/{k}"
    for k in "eager_us moe_us moe_em moe_ef moe_w0 ep_imb w_flops att_pf q_steady".split()
    + ["len_kappa", "len_tail"]
]
NAMES += ["MEM/trt_extra_gib", "MEM/fixed_gib"]
for d in ("vllm", "sglang", "tensorrt-llm"):
    NAMES += [
        f"D/{d}/{k}"
        for k in "layer_us step_us seq_us steps steps_moe ar_small ar_big tp_us".split()
        + "req_ms pf_layer_us ttft0_ms pp_eff off_eff".split()
    ]
NAMES += ["D/llama.cpp/layer_us", "D/llama.cpp/step_us"]
for g, ks in GPUS.items():
    NAMES += [f"GPU/{g}/{k}" for k in ks.split()]
CAP = {
    "ar_small": 1.5,
    "ar_big": 1.5,
    "em": 0.95,
    "ef": 0.95,
    "e_att": 0.95,
    "pp_eff": 1.0,
    "off_eff": 1.0,
    "moe_em": 1.0,
    "moe_ef": 1.0,
    "w_flops": 1.0,
    "att_pf": 0.65,
}
FLOOR = {
    "em": 0.3,
    "ef": 0.3,
    "e_att": 0.4,
    "lat": 0.6,
    "ep_imb": 1.0,
    "ar_small": 0.5,
    "ar_big": 0.2,
    "moe_w0": 1.0,
    "trt_extra": 0.1,
    "fixed": 0.8,
    "pp_eff": 0.5,
    "off_eff": 0.7,
    "moe_em": 0.3,
    "moe_ef": 0.15,
}


def ref(path):
    a, b, *c = path.split("/")
    if not c:
        return P[a], b
    if b not in P[a]:
        P[a][b] = {}
    d = P[a][b]
    if c[0] not in d:
        d[c[0]] = P["GPU"]["GDDR" if b.startswith(("RTX", "GDDR", "GB10")) else "HBM"][c[0]]
    return d, c[0]


def bound(path, v):
    k = path.split("/")[-1]
    for t, w in sorted(CAP.items(), key=lambda x: len(x[0])):
        if k.startswith(t):
            v = min(v, w) if not (t == "em" and k.startswith("emx")) else v
    for t, w in FLOOR.items():
        if k.startswith(t):
            v = max(v, w)
    if k == "lat":
        v = min(v, 2.0)
    return v


class Fit:
    def __init__(self, rows):
        self.rows = rows
        self.uniq = {}
        self.idx = []
        for r, p in rows:
            k = C.case_of(p)
            self.uniq.setdefault(k, p)
            self.idx.append(k)
        self.keys = list(self.uniq)
        self.out = {}
        self.n = collections.Counter()
        self.grp = []
        for r, p in rows:
            t = C.tags(r, p)
            g = []
            cls = p[4] == "burst"
            if "dense_tpot" in t:
                g.append(("dense" + ("_b" if cls else "")))
            if "moe_tpot" in t:
                g.append("moe" + ("_b" if cls else ""))
            if "offline" in t:
                g.append(("off", p[0].gpu.name, r["tp"]))
            if "ttft" in t:
                g.append("ttft")
            if not g:
                g.append("other")
            self.grp.append(g)
            for q in g:
                self.n[q] += 1
        self.update(self.keys)

    def update(self, keys):
        for k in keys:
            p = self.uniq[k]
            p[0].__post_init__()
            self.out[k] = C.pred_one(p)

    def affected(self, path):
        a, b, *c = path.split("/")
        if a == "GPU":
            if b in ("GDDR", "HBM"):
                return [k for k in self.keys if c[0] not in P["GPU"].get(k[1], {})]
            return [k for k in self.keys if k[1] == b]
        if a == "D":
            return [k for k in self.keys if k[12] == b]
        if b.startswith("len"):
            return [k for k in self.keys if k[-2]]
        if b.startswith(("moe", "ep_")):
            return [k for k in self.keys if self.uniq[k][0].sh.moe]
        return self.keys

    WT = {"dense": 1.6, "dense_b": 0.15, "moe": 1.6, "moe_b": 0.15, "ttft": 1.3, "other": 0.3}

    def loss(self):
        s = collections.defaultdict(float)
        for (r, p), k, g in zip(self.rows, self.idx, self.grp):
            nm, f = C.METRIC[r["metric"]]
            pr, me = self.out[k][nm] * f, float(r["value"])
            e = abs(math.log(max(pr, 1e-9) / me))
            for q in g:
                if q == "ttft":
                    s[q] += 1 / (1 + math.exp(-(e - 0.458) * 8))  # share outside the range, smooth
                else:
                    s[q] += min(e, 1.2)
        tot = 0
        offs = [s[q] / self.n[q] for q in s if isinstance(q, tuple)]
        tot += 1.2 * sum(v + 6 * max(0, v - 0.20) for v in offs) / max(1, len(offs))
        for q, w in self.WT.items():
            if self.n[q]:
                tot += w * s[q] / self.n[q]
        return tot

    def reg(self, start):
        t = 0
        for n, v0 in start.items():
            d, k = ref(n)
            w = 0.06 if n.startswith("GPU") else 0.01
            t += w * math.log(max(d[k], 1e-6) / max(v0, 1e-6)) ** 2
        return t


def run(rows, rounds, verbose=True):
    f = Fit(rows)
    names = [n for n in NAMES if f.affected(n)]
    start = {}
    for n in names:
        d, k = ref(n)
        start[n] = d[k]
    f.update(f.keys)
    best = f.loss() + f.reg(start)
    step = {n: 1.25 for n in names}
    for it in range(rounds):
        for n in names:
            d, k = ref(n)
            v = d[k]
            aff = f.affected(n)
            good = False
            for m in (step[n], 1 / step[n]):
                w = bound(n, v * m)
                if w == v:
                    continue
                d[k] = w
                save = {q: f.out[q] for q in aff}
                f.update(aff)
                l = f.loss() + f.reg(start)
                if l < best - 1e-7:
                    best = l
                    good = True
                    break
                d[k] = v
                f.out.update(save)
            step[n] = min(1.6, step[n] ** 1.2) if good else max(1.01, step[n] ** 0.6)
        if verbose:
            print(it, round(best, 4), flush=True)
    return {n: ref(n)[0][ref(n)[1]] for n in names}


def fit_row(r):
    """Not fitted on: wrong prefill rows of the llama.cpp table, MTP, suspected prefix caches."""
    return not (
        C.METRIC[r["metric"]][0] == "prefill_tok_s"
        or "MTP" in r["note"].replace("no MTP", "")
        or "prefix cached" in r["note"]
    )


if __name__ == "__main__":
    rows, left = C.load(f"{facts.FACTS}/measured_public.csv")
    hold = sys.argv[2] if len(sys.argv) > 2 else None
    tr = [x for x in rows if not hold or not x[0]["source"].startswith(hold)]
    tr = [x for x in tr if fit_row(x[0])]
    v = run(tr, int(sys.argv[1]))
    if hold:
        te = [x for x in rows if x[0]["source"].startswith(hold)]
        C.show(C.summary(C.score_rows(te))[0])
    else:
        json.dump(
            v,
            open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "fitted.json"), "w"),
            indent=1,
        )
        C.show(C.summary(C.score_rows(rows))[0])
