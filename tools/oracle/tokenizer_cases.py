#!/usr/bin/env python3
"""Reference results of every vocabulary on the 2,000 strings of tokenizer_strings.py.

usage: tokenizer_cases.py [NAME]...      writes src/model/tokenizer/testdata/vocabs/NAME.txt
       tokenizer_cases.py --cross-check  also compares with tiktoken, and with llama.cpp where
                                         LLAMA_TOKENIZE names a binary (see below)
Vocabularies lie in models/vocabs/ (tools/fetch_vocabs.sh) and models/ (tools/fetch_models.sh).
Needs: tokenizers==0.23.3 sentencepiece==0.2.3 gguf==0.19.0 protobuf (tiktoken==0.14.0 to
cross-check).

References: tokenizer.json by HF tokenizers; GGUF byte-level BPE by HF tokenizers, with the
normalizer and pre-tokenizer that the model's own tokenizer.json has (GGUF stores only their name);
GGUF SentencePiece by sentencepiece, special tokens cut out before.

A file: "prefix ID…", then a line a string: hashes of its ids with special tokens parsed and as
text; then a line a sequence of random ids: hashes of its text with special tokens and without.
LLAMA_TOKENIZE reads strings (u32 length, bytes) and writes ids (u32 count, i32…), each string with
special tokens parsed and as text.
"""

import collections
import os
import re
import struct
import subprocess
import sys

import tokenizer_strings
from tokenizer_hash import MASK, fnv, hash_ids
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
MODELS = os.path.join(ROOT, "models")
OUT = os.path.join(ROOT, "src", "model", "tokenizer", "testdata", "vocabs")
DECODE_CASES = 300

JSON_FILES = ["deepseek-v3", "gemma-3", "llama3", "llama4", "mistral-v1", "mistral-v2",
              "mistral-v3", "mistral-v7", "qwen2", "qwen35", "tekken-240718", "tekken-240911"]
GGUF_FILES = ["aquila", "baichuan", "command-r", "deepseek-coder", "deepseek-llm", "falcon",
              "gemma-4", "gpt-2", "gpt-neox", "llama-bpe", "llama-spm", "mpt", "phi-3", "qwen2",
              "qwen35", "refact", "starcoder"]
DEMO = {"smollm2-gguf": "SmolLM2-135M-Instruct.Q4_1.gguf",
        "smollm2-json": "SmolLM2-135M-Instruct-bf16/tokenizer.json",
        "gemma-3-gguf": "gemma-3-270m-q4_k_m.gguf"}
FILES = {name: f"vocabs/{name}.json" for name in JSON_FILES}
FILES.update({f"ggml-{name}": f"vocabs/ggml-vocab-{name}.gguf" for name in GGUF_FILES})
FILES.update(DEMO)

LETTERS = os.path.join(ROOT, "src", "model", "tokenizer", "gguf_pre.cc")
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?%s|\p{N}%s| ?[^\s%s\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def one(pattern):
    return [split(pattern), byte_level(False)]


def deepseek_letters():
    """The long class of cased letters, as the C++ source spells it."""
    source = open(LETTERS, encoding="utf-8").read()
    body = source[source.index("kDeepseekLetters"):source.index("kDeepseekCjk")]
    return "".join(re.findall(r'R"\((.*?)\)"', body))


def pre_of(name):
    """Normalizer and pre-tokenizers of a GGUF pre name, as the model's own tokenizer.json has."""
    digits = pre_tokenizers.Digits(individual_digits=True)
    cjk = r"[一-龥ࠀ-一가-\x{D7FF}]+"
    table = {
        "smollm": (None, [digits, byte_level(True)]),
        "starcoder": (None, [digits, byte_level(True)]),
        "refact": (None, [digits, byte_level(True)]),
        "command-r": (normalizers.NFC(), [digits, byte_level(True)]),
        "gpt-2": (None, [byte_level(True)]),
        "mpt": (normalizers.NFC(), [byte_level(True)]),
        "llama-bpe": (None, one(CL100K % (r"\p{L}+", "{1,3}", r"\p{L}"))),
        "qwen2": (normalizers.NFC(), one(CL100K % (r"\p{L}+", "", r"\p{L}"))),
        "qwen35": (normalizers.NFC(), one(CL100K % (r"[\p{L}\p{M}]+", "", r"\p{L}\p{M}"))),
        "deepseek-llm": (None, [
            split(r"[\r\n]"), split(deepseek_letters()),
            split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"), split(r"\s+$"), split(cjk), digits,
            byte_level(False)]),
        "deepseek-coder": (None, [split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"),
                                  split(cjk), digits, byte_level(False)]),
        "falcon": (None, [pre_tokenizers.Punctuation("contiguous"), byte_level(True),
                          pre_tokenizers.Digits(individual_digits=False),
                          split("[0-9][0-9][0-9]")]),
        # No tokenizer.json stands behind a file without a name: llama.cpp's cuts.
        "default": (None, [split(r"[\p{P}\$\+<=>\^~\|]+"),
                           split(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|"
                                 r"\s+(?!\S)|\s+"),
                           split(r"\p{N}+"), split("[0-9][0-9][0-9]"), byte_level(False)]),
    }
    return table[name]


class HfReference:
    """HF tokenizers on a tokenizer.json."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.size = tokenizer.get_vocab_size(with_added_tokens=True)
        self.prefix = tokenizer.encode("").ids

    def encode(self, text, parse):
        self.tokenizer.encode_special_tokens = not parse
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids, skip):
        return self.tokenizer.decode(ids, skip_special_tokens=skip).encode()


Gguf = collections.namedtuple("Gguf", "model pre tokens types scores merges meta")


def read_gguf(path):
    import gguf

    fields = gguf.GGUFReader(path).fields
    prefix = "tokenizer.ggml."

    def get(key, otherwise=None):
        return fields[prefix + key].contents() if prefix + key in fields else otherwise

    tokens = get("tokens")
    return Gguf(get("model"), get("pre", "default"), tokens, get("token_type", [1] * len(tokens)),
                get("scores", [0.0] * len(tokens)), get("merges", []), get)


def control_ids(source):
    text = open(os.path.join(ROOT, "src", "model", "tokenizer", "gguf_source.cc"),
                encoding="utf-8").read()
    body = text[text.index("kControlTexts{"):]
    names = set(re.findall(r'"([^"]+)"', body[:body.index("};")]))
    if "<|tool_response>" in source.tokens:
        names.discard("</s>")
    return {i for i, (t, kind) in enumerate(zip(source.tokens, source.types))
            if kind in (2, 3) or t in names}


class GgufReference:
    """Special and user-defined tokens cut out, leftmost and longest first; the rest to a model."""

    def __init__(self, source):
        self.source = source
        self.size = len(source.tokens)
        self.control = control_ids(source)
        self.ids = {t: i for i, t in enumerate(source.tokens)}
        user = {i for i, kind in enumerate(source.types) if kind == 4}
        self.parsed = self.pattern(self.control | user)
        self.as_text = self.pattern(user - self.control)
        # Phi-3's markers take the blanks behind them.
        phi = "<|placeholder1|>" in self.ids
        self.takes_blanks = (lambda t: t not in ("<unk>", "<s>", "<|endoftext|>")) if phi else (
            lambda t: False)
        bos = source.meta("bos_token_id")
        add = source.meta("add_bos_token", source.model in ("llama", "gemma4") or
                          source.pre == "llama-bpe")
        if source.model == "gemma4":
            add = True
        self.prefix = [bos] if add and bos is not None else []

    def pattern(self, ids):
        texts = sorted((self.source.tokens[i] for i in ids if self.source.tokens[i]),
                       key=len, reverse=True)
        return re.compile("|".join(map(re.escape, texts))) if texts else None

    def encode(self, text, parse):
        pattern = self.parsed if parse else self.as_text
        ids, at = [], 0
        for match in pattern.finditer(text) if pattern else ():
            if match.start() > at:
                ids += self.encode_plain(text[at:match.start()])
            ids.append(self.ids[match.group()])
            at = match.end()
            if self.takes_blanks(match.group()):
                at += len(text[at:]) - len(text[at:].lstrip())
        if at < len(text):
            ids += self.encode_plain(text[at:])
        return ids

    def decode(self, ids, skip):
        out = b"".join(self.piece(i) for i in ids if not (skip and i in self.control))
        text = out.decode("utf-8", "replace")
        return (text[1:] if self.strips and text.startswith(" ") else text).encode()


class GgufBpe(GgufReference):
    def __init__(self, source):
        super().__init__(source)
        self.strips = False
        merges = [tuple(m.split(" ", 1)) if m[0] != " " else (" ", m[2:]) for m in source.merges]
        self.characters = source.model == "gemma4"
        model = models.BPE(vocab=self.ids, merges=merges, byte_fallback=self.characters,
                           unk_token=source.tokens[3] if self.characters else None,
                           ignore_merges=source.pre in ("llama-bpe", "tekken"))
        self.tokenizer = Tokenizer(model)
        if self.characters:
            self.tokenizer.normalizer = normalizers.Replace(" ", "▁")
            self.tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n+"), "isolated")
        else:
            self.tokenizer.normalizer, cuts = pre_of(source.pre)
            self.tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts)
        table = dict(zip(map(ord, decode_table()), range(256)))
        self.char_bytes = table

    def encode_plain(self, text):
        if not self.characters:
            return self.tokenizer.encode(text, add_special_tokens=False).ids
        ids = []
        for part in re.findall(r"\n+|[^\n]+", text):
            if part[0] == "\n" and part in self.ids:
                ids.append(self.ids[part])
            else:
                ids += self.tokenizer.encode(part, add_special_tokens=False).ids
        return ids

    def piece(self, token_id):
        text = self.source.tokens[token_id]
        if self.characters:
            byte = re.fullmatch("<0x([0-9A-F]{2})>", text)
            return bytes([int(byte[1], 16)]) if byte else text.replace("▁", " ").encode()
        codes = [self.char_bytes.get(ord(c)) for c in text]
        return text.encode() if None in codes else bytes(codes)


def decode_table():
    keep = [b for b in range(256) if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or b >= 0xAE]
    chars, extra = [], 256
    for b in range(256):
        chars.append(chr(b) if b in keep else chr(extra))
        extra += b not in keep
    return "".join(chars)


class GgufSentencePiece(GgufReference):
    def __init__(self, source):
        import sentencepiece
        from sentencepiece import sentencepiece_model_pb2

        super().__init__(source)
        self.strips = source.meta("add_space_prefix", True)
        proto = sentencepiece_model_pb2.ModelProto()
        # Control tokens never come from text there; they keep their texts out of the merges here.
        kinds = {2: 2, 3: 3, 6: 6}
        unknown = source.meta("unknown_token_id", 0)
        for i, (text, score) in enumerate(zip(source.tokens, source.scores)):
            kind = kinds.get(source.types[i], 1)
            if kind == 2 and i != unknown:
                kind = 3
            proto.pieces.add(piece=text, score=score, type=2 if i == unknown else kind)
        proto.trainer_spec.model_type = 2
        proto.trainer_spec.byte_fallback = True
        proto.trainer_spec.unk_id = unknown
        proto.trainer_spec.unk_piece = source.tokens[unknown]
        proto.normalizer_spec.name = "identity"
        proto.normalizer_spec.add_dummy_prefix = self.strips
        proto.normalizer_spec.remove_extra_whitespaces = False
        self.model = sentencepiece.SentencePieceProcessor()
        self.model.LoadFromSerializedProto(proto.SerializeToString())

    def encode_plain(self, text):
        return self.model.EncodeAsIds(text)

    def piece(self, token_id):
        text = self.source.tokens[token_id]
        byte = re.fullmatch("<0x([0-9A-F]{2})>", text)
        return bytes([int(byte[1], 16)]) if byte else text.replace("▁", " ").encode()


def reference_of(name):
    path = os.path.join(MODELS, FILES[name])
    if path.endswith(".json"):
        return HfReference(Tokenizer.from_file(path))
    source = read_gguf(path)
    return GgufSentencePiece(source) if source.model == "llama" else GgufBpe(source)


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def random_ids(case, size):
    """As RngStream of base/rng.h draws them: a length below 40, then ids; the first 256 ids, where
    byte tokens lie, are drawn for every other one."""
    state = [case]

    def below(n):
        state[0] = (state[0] + 0x9E3779B97F4A7C15) & MASK
        return (mix(state[0]) * n) >> 64

    return [below(size if below(2) else min(size, 300)) for _ in range(below(40))]


def texts():
    return [s.decode("utf-8", "replace") for s in tokenizer_strings.make_strings()]


def write(name):
    reference = reference_of(name)
    lines = ["prefix " + " ".join(map(str, reference.prefix)), f"size {reference.size}"]
    for text in texts():
        lines.append(" ".join(hash_ids(reference.encode(text, parse)) for parse in (True, False)))
    for case in range(DECODE_CASES):
        ids = random_ids(case, reference.size)
        lines.append(" ".join(fnv(reference.decode(ids, skip)) for skip in (False, True)))
    os.makedirs(OUT, exist_ok=True)
    with open(os.path.join(OUT, f"{name}.txt"), "w", encoding="utf-8") as out:
        out.write("\n".join(line.rstrip() for line in lines) + "\n")
    print(f"{name}: {len(lines)} lines")


def llama_ids(binary, path):
    data = b"".join(struct.pack("<I", len(t.encode())) + t.encode() for t in texts())
    out = subprocess.run([binary, path], input=data, capture_output=True, check=True).stdout
    lists, at = [], 0
    while at < len(out):
        (count,) = struct.unpack_from("<I", out, at)
        lists.append(list(struct.unpack_from(f"<{count}i", out, at + 4)))
        at += 4 + 4 * count
    return lists


def tiktoken_of(name):
    import tiktoken

    import json

    document = json.load(open(os.path.join(MODELS, FILES[name]), encoding="utf-8"))
    codes = dict(zip(decode_table(), range(256)))
    special = {t["content"] for t in document["added_tokens"]}
    vocab = {t: i for t, i in document["model"]["vocab"].items() if t not in special}
    first = min(vocab.values())
    ranks = {bytes(codes[c] for c in t): i - first for t, i in vocab.items()}
    pattern = document["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return lambda text: [r + first for r in encoding.encode_ordinary(text)]


def cross_check(name):
    import unicodedata

    reference = reference_of(name)
    path = os.path.join(MODELS, FILES[name])
    if path.endswith(".gguf") and os.environ.get("LLAMA_TOKENIZE"):
        theirs = llama_ids(os.environ["LLAMA_TOKENIZE"], path)
        for k, parse in enumerate((True, False)):
            same = [reference.encode(t, parse) == theirs[2 * i + k] for i, t in enumerate(texts())]
            print(f"{name}: llama.cpp agrees on {sum(same)} ({'parsed' if parse else 'as text'})")
    elif re.match("llama|qwen|tekken", name):
        encode = tiktoken_of(name)
        compose = (lambda t: unicodedata.normalize("NFC", t)) if "qwen" in name else (lambda t: t)
        same = [reference.encode(t, False) == encode(compose(t)) for t in texts()]
        print(f"{name}: tiktoken agrees on {sum(same)}")


def main():
    names = [a for a in sys.argv[1:] if not a.startswith("--")] or list(FILES)
    for name in names:
        write(name)
        if "--cross-check" in sys.argv:
            cross_check(name)


if __name__ == "__main__":
    main()
