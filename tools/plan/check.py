"""Scores the closed-form model on measured_public.csv (or argv[1])."""

import csv, sys, re, math, collections, statistics as st, json
import facts
import model as M
from params import P

SH, GP, CM = facts.load_shapes(), facts.load_gpus(), facts.Comm(facts.load_curves())
ALIAS = {
    "Llama-3.1-70B": "Llama-3.1-70B / 3.3-70B",
    "Llama-3.3-70B": "Llama-3.1-70B / 3.3-70B",
    "Llama-3-70B": "Llama-3.1-70B / 3.3-70B",
    "Llama-3-8B": "Llama-3.1-8B",
    "DeepSeek-R1": "DeepSeek-V3 / R1 / V3.1",
    "DeepSeek-V3/R1": "DeepSeek-V3 / R1 / V3.1",
    "DeepSeek-V3": "DeepSeek-V3 / R1 / V3.1",
    "DeepSeek-V3.1": "DeepSeek-V3 / R1 / V3.1",
    "Kimi-K2.5": "Kimi-K2 / K2.5",
    "Kimi-K2": "Kimi-K2 / K2.5",
    "GLM-4.6": "GLM-4.5 / 4.6",
    "GLM-4.5": "GLM-4.5 / 4.6",
    "Qwen3-Coder-480B-A35B": "Qwen3-Coder-480B-A35B",
    "Qwen3-Coder-30B-A3B": "Qwen3-30B-A3B",
    "Qwen3-VL-32B": "Qwen3-32B",
    "DeepSeek-R1-Distill-Qwen-14B": "Qwen2.5-14B",
    "Qwen3.6-27B": "Qwen3.5-27B",
    "Qwen2.5-32B": "Qwen2.5-32B / QwQ-32B / R1-Distill-32B",
    "QwQ-32B": "Qwen2.5-32B / QwQ-32B / R1-Distill-32B",
}
GALIAS = {
    "B200": "B200 SXM",
    "RTX PRO 6000": "RTX PRO 6000 Blackwell Server",
    "RTX PRO 6000 Server": "RTX PRO 6000 Blackwell Server",
    "GB300": "GB300 (per GPU)",
    "GB200": "GB200 (per GPU)",
    "H100": "H100 SXM",
    "H200": "H200 SXM",
    "A100": "A100 SXM 80GB",
}


def shape_of(n):
    for k in (n, re.sub(r"-(FP8|Instruct|2507|BF16|AWQ|NVFP4|FP4)(?=-|$)", "", n)):
        k = ALIAS.get(k, k)
        if k in SH:
            return SH[k]
    k = re.sub(r"(-(Instruct|2507|FP8|Chat|it))+", "", n)
    k = ALIAS.get(k, k)
    return SH.get(k)


def dialect_of(e):
    e = e.lower()
    return (
        "vllm"
        if "vllm" in e
        else (
            "sglang"
            if "sglang" in e
            else (
                "llama.cpp"
                if "llama" in e
                else "tensorrt-llm" if "tensorrt" in e or "nim" in e else None
            )
        )
    )


def requests_a_slot(note, dialect, load, W):
    """W of a closed loop, as far as a row's note tells it; else the given one."""
    m = re.search(r"num_prompts=(\d+)", note)
    if m:
        W = max(1.0, int(m.group(1)) / load)
    if "request count unknown" in note:
        W = 1.0 if dialect == "sglang" else 10.0
    if "genai-perf" in note:
        W = 1e9  # windows of the steady state
    if "50 requests at once" in note or "static batch" in note:
        W = 1.0
    return W


def parse(r):
    """(ctx, isl, osl, load, kind, W, max_seqs) or a string: why the row is left out."""
    sh = shape_of(r["model"])
    if not sh:
        return "model shape unknown"
    g = GP.get(GALIAS.get(r["gpu"], r["gpu"]))
    if not g:
        return "GPU unknown"
    dia = dialect_of(r["engine"])
    if not dia:
        return "engine without a dialect"
    if r["metric"] == "ratio":
        return "ratio of two servers, not a measurement of one"
    if "per_node" in r["metric"]:
        return "production average over unknown lengths"
    n, nodes = int(r["n_gpus"]), int(r["nodes"] or 1)
    tp, pp, dp, ep = (int(r[k] or 1) for k in ("tp", "pp", "dp", "ep"))
    note = r["note"]
    if nodes == 1 and n > 8 and "72" not in (g.name) and not g.name.startswith("GB"):
        return "contradiction: more than 8 GPUs of an 8-GPU board on one node"
    cr = r["concurrency_or_rate"]
    isl = int(float(r["prompt_tokens"])) if r["prompt_tokens"] else None
    osl = int(float(r["output_tokens"])) if r["output_tokens"] else None
    m = re.match(r"(c|batch)=(\d+)$", cr)
    W, ms = 10.0, None
    if m:
        kind, load = "closed", int(m.group(2))
    elif cr.startswith("burst N="):
        kind, load = "burst", int(cr[8:])
    elif cr in ("offline", "saturated", "peak"):
        kind, load = "offline", 1e6
    elif cr.startswith("trace"):
        kind, load, W = "closed", 8.0 * dp, 1e9  # arrival rate not given: light load
    else:
        return "load not stated"
    if isl is None and osl is None and kind != "closed":
        return "lengths not given"
    isl = 0 if isl is None and r["metric"].startswith("decode") else (512 if isl is None else isl)
    osl = osl or 512
    W = requests_a_slot(note, dia, load, W)
    m = re.search(r"max_num_seqs=(\d+)", note)
    if m:
        ms = int(m.group(1))
    adp = dp > 1 and (ep >= tp * dp or "attention DP" in note)
    if "replicas" in note:
        adp = False
    sp = M.Split(tp, pp, dp, ep, adp)
    q = M.quant(r["dtype"], sh, g, dia, note)
    lc = facts.link_class(r["intra_link"], nodes)
    x = M.Ctx(
        sh,
        g,
        q,
        sp,
        lc,
        CM,
        dia,
        custom="all-reduce disabled" not in note and "P2P_DISABLE" not in note,
        eager="enforce-eager" in note,
    )
    spread = kind == "burst" and isl % 100 != 0
    return x, isl, osl, load, kind, W, ms, spread, "NIM" in r["engine"]


METRIC = {
    "ttft_ms_mean_or_median": ("ttft", 1e3),
    "ttft_ms_mean": ("ttft", 1e3),
    "ttft_ms_median": ("ttft", 1e3),
    "tpot_ms": ("tpot", 1e3),
    "tpot_ms_mean": ("tpot", 1e3),
    "tpot_ms_median": ("tpot", 1e3),
    "itl_ms_mean": ("tpot", 1e3),
    "output_throughput_tok_s": ("out_tok_s", 1),
    "total_throughput_tok_s": ("total_tok_s", 1),
    "request_throughput_req_s": ("req_s", 1),
    "decode_tok_s_single": ("decode_tok_s", 1),
    "decode_throughput_tok_s": ("decode_tok_s", 1),
    "prefill_tok_s_single": ("prefill_tok_s", 1),
}


def load(path):
    rows, left = [], []
    for r in csv.DictReader(open(path)):
        p = parse(r)
        if isinstance(p, str):
            left.append((p, r))
            continue
        if r["metric"] not in METRIC:
            left.append(("metric unknown: " + r["metric"], r))
            continue
        rows.append((r, p))
    return rows, left


def pred_one(p, memo=None):
    x, *a = p
    return M.predict(x, *a)


def case_of(p):
    """What a prediction depends on: rows with the same are predicted once."""
    x = p[0]
    q, sp = x.q, x.sp
    return (
        (x.sh.name, x.gpu.name, q.lin, q.exp, q.kv, q.cls_lin)
        + (sp.tp, sp.pp, sp.dp, sp.ep, sp.attn_dp, x.lc, x.dialect, x.custom, x.eager)
        + tuple(p[1:])
    )


def score_rows(rows):
    """[(row, parsed, predicted, measured, out)]"""
    res, memo = [], {}
    for r, p in rows:
        x = p[0]
        k = case_of(p)
        o = memo.get(k)
        if o is None:
            x.__post_init__()
            o = memo[k] = pred_one(p)
        name, f = METRIC[r["metric"]]
        res.append((r, p, o[name] * f, float(r["value"]), o))
    return res


def tags(r, p):
    x, kind = p[0], p[4]
    m = METRIC[r["metric"]][0]
    t = []
    if m == "tpot" and not x.sh.moe and x.lc == "nvlink":
        t.append("dense_tpot")
    if m == "tpot" and x.sh.moe:
        t.append("moe_tpot")
    if m in ("out_tok_s", "total_tok_s") and r["concurrency_or_rate"] == "offline":
        t.append("offline")
    if m == "ttft":
        t.append("ttft")
    return t


def mape(v):
    return 100 * sum(abs(p - m) / m for p, m in v) / len(v) if v else float("nan")


def best_split(res):
    G = collections.defaultdict(lambda: collections.defaultdict(list))
    for r, p, pr, me, o in res:
        sp = (r["tp"], r["pp"], r["dp"], r["ep"])
        w = tuple(
            r[k]
            for k in (
                "source",
                "engine",
                "model",
                "dtype",
                "gpu",
                "intra_link",
                "n_gpus",
                "prompt_tokens",
                "output_tokens",
                "concurrency_or_rate",
                "metric",
            )
        )
        if w[0].startswith("microsoft"):
            w = w[:7] + (None, None) + w[9:]  # replica logs: lengths differ by a token or two
        if METRIC[r["metric"]][0] == "ttft":
            continue
        G[w][sp].append((pr, me))
    ok = n = 0
    bad = []
    for w, d in G.items():
        if len(d) < 2:
            continue
        low = METRIC[w[-1]][0] == "tpot"
        sc = {s: (st.mean(a for a, _ in v), st.mean(b for _, b in v)) for s, v in d.items()}
        pick = min(sc, key=lambda s: sc[s][0] * (1 if low else -1))
        bm = min(v[1] for v in sc.values()) if low else max(v[1] for v in sc.values())
        good = sc[pick][1] <= bm * 1.15 if low else sc[pick][1] >= bm / 1.15
        n += 1
        ok += good
        if not good:
            bad.append((w, pick, sc))
    return ok, n, bad


def summary(res, verbose=True, out=print):
    T = collections.defaultdict(list)
    for x in res:
        for t in tags(x[0], x[1]):
            T[t].append(x)
    s = {}
    s["dense_tpot_mape"] = mape([(x[2], x[3]) for x in T["dense_tpot"]])
    s["moe_tpot_mape"] = mape([(x[2], x[3]) for x in T["moe_tpot"]])
    g = collections.defaultdict(list)
    for x in T["offline"]:
        g[(x[1][0].gpu.name, x[0]["tp"])].append((x[2], x[3]))
    s["offline"] = {f"{a} tp{b}": (round(mape(v), 1), len(v)) for (a, b), v in sorted(g.items())}
    tt = T["ttft"]
    s["ttft_in_range_share"] = sum(
        x[4]["ttft_lo"] * 1e3 <= x[3] <= x[4]["ttft_hi"] * 1e3 for x in tt
    ) / max(1, len(tt))
    ok, n, bad = best_split(res)
    s["best_split_share"] = ok / n if n else float("nan")
    s["n"] = {k: len(v) for k, v in T.items()}
    s["n"]["best_split"] = n
    return s, T, bad


def show(s):
    print(
        f"dense NVLink TPOT MAPE {s['dense_tpot_mape']:.1f} %   "
        f"MoE TPOT MAPE {s['moe_tpot_mape']:.1f} %   "
        f"TTFT in range {s['ttft_in_range_share']:.3f}   "
        f"best split {s['best_split_share']:.3f}   n {s['n']}"
    )
    print(
        "offline per (GPU, tp):", "; ".join(f"{k} {a} ({n})" for k, (a, n) in s["offline"].items())
    )


def by(rows, keyf, top=30, out=print):
    g = collections.defaultdict(list)
    for x in rows:
        g[keyf(x)].append(x)
    for k, v in sorted(g.items(), key=lambda kv: -len(kv[1]) * mape([(x[2], x[3]) for x in kv[1]]))[
        :top
    ]:
        b = math.exp(st.mean(math.log(max(1e-9, x[2]) / x[3]) for x in v))
        out(f"   {k}: n {len(v)} MAPE {mape([(x[2], x[3]) for x in v]):.1f} bias x{b:.2f}")


if __name__ == "__main__":
    named = [a for a in sys.argv[1:] if a.endswith(".csv")]
    path = named[0] if named else f"{facts.FACTS}/measured_public.csv"
    rows, left = load(path)
    tot = len(rows) + len(left)
    print(f"rows {tot}, predicted {len(rows)}, left out {len(left)} ({100*len(left)/tot:.1f} %)")
    for k, v in collections.Counter(a for a, _ in left).most_common():
        print("  ", v, k)
    res = score_rows(rows)
    s, T, bad = summary(res)
    show(s)
    if "-v" in sys.argv:
        key = lambda x: (
            x[0]["source"][:14],
            x[0]["model"],
            x[0]["dtype"],
            x[1][0].gpu.name[:12],
            x[0]["engine"][:8],
            f"t{x[0]['tp']}p{x[0]['pp']}d{x[0]['dp']}e{x[0]['ep']}",
            x[1][4],
        )
        for t in ("dense_tpot", "moe_tpot", "offline", "ttft"):
            print("##", t)
            by(T[t], key, 40)
        print("## best split misses")
        for w, pick, sc in bad:
            print(
                "  ",
                "|".join(str(a)[:14] for a in w),
                pick,
                {k: tuple(round(z, 1) for z in v) for k, v in sc.items()},
            )
