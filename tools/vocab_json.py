#!/usr/bin/env python3
"""Writes tokenizer.json for vocabularies that come as tiktoken, SentencePiece or GGUF files.

usage: vocab_json.py llama3|llama4|qwen2|qwen35|tekken|mistral|gemma IN OUT.json
gemma takes a GGUF file.
The standard library is enough. Merges are derived from the ranks or scores as the Hugging Face
converters do: every way to cut a token into two tokens is a merge of that token's rank.
"""

import base64
import json
import re
import struct
import sys

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s|")
OTHERS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|"
PATTERNS = {
    "llama3": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
              r"| ?[^\s\p{L}\p{N}]+[\r\n]*|" + BLANKS,
    "llama4": CASED % (CONTRACTIONS + "?", CONTRACTIONS + "?") + r"\p{N}{1,3}|" + OTHERS + BLANKS,
    "qwen2": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + BLANKS,
    "qwen35": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
              r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + BLANKS,
    "tekken": CASED % ("", "") + r"\p{N}|" + OTHERS + BLANKS,
}


def llama3_specials():
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>",
             "<|reserved_special_token_1|>", "<|finetune_right_pad_id|>", "<|step_id|>",
             "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>",
             "<|python_tag|>", "<|image|>"]
    return names + [f"<|reserved_special_token_{2 + i}|>" for i in range(256 - len(names))]


def llama4_specials():
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>",
             "<|fim_suffix|>", "<|header_start|>", "<|header_end|>", "<|eom|>", "<|eot|>",
             "<|step|>", "<|python_start|>", "<|python_end|>", "<|finetune_right_pad|>",
             "<|image_start|>", "<|image_end|>", "<|image|>", "<|patch|>"]
    return names + [f"<|reserved_special_token_{i}|>" for i in range(2048 - len(names))]


def tekken_specials():
    names = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]",
             "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]",
             "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]",
             "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"]
    return names + [f"<SPECIAL_{i}>" for i in range(len(names), 1000)]


def qwen2_specials():
    return ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + [f"<|extra_{i}|>" for i in range(205)]


def qwen35_specials():
    return ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>",
            "<|object_ref_end|>", "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>",
            "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>",
            "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>",
            "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>",
            "</tool_response>", "<think>", "</think>"]


def byte_chars():
    keep = [b for b in range(256) if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or b >= 0xAE]
    table = {b: chr(b) for b in keep}
    for b in range(256):
        if b not in table:
            table[b] = chr(256 + len(table) - len(keep))
    return table


def read_tiktoken(path):
    ranks = {}
    with open(path, "rb") as lines:
        for line in lines:
            if line.strip():
                token, rank = line.split()
                ranks[base64.b64decode(token)] = int(rank)
    return ranks


def read_tekken(path):
    data = json.load(open(path, encoding="utf-8"))
    size = data["config"]["default_vocab_size"] - data["config"]["default_num_special_tokens"]
    assert data["config"]["pattern"] == PATTERNS["tekken"]
    return {base64.b64decode(t["token_bytes"]): t["rank"] for t in data["vocab"][:size]}


def rank_merges(ranks):
    merges = []
    for token in sorted(ranks, key=ranks.get):
        cuts = [(token[:i], token[i:]) for i in range(1, len(token))]
        cuts = [c for c in cuts if c[0] in ranks and c[1] in ranks]
        merges.extend(sorted(cuts, key=lambda c: (ranks[c[0]], ranks[c[1]])))
    return merges


def added(text, token_id, special=True, normalized=False):
    return {"id": token_id, "content": text, "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": normalized, "special": special}


def template(bos, bos_id):
    return {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": bos, "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                     {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {bos: {"id": bos, "ids": [bos_id], "tokens": [bos]}}}


def byte_level(use_regex):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
            "use_regex": use_regex}


def byte_level_json(ranks, first_id, specials, pattern, normalizer, bos):
    """first_id: of rank 0; specials: texts and ids."""
    table = byte_chars()
    spell = {token: "".join(table[b] for b in token) for token in ranks}
    pre = [{"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
            "invert": False}, byte_level(False)]
    vocab = {} if first_id == 0 else dict(specials)
    vocab.update((spell[t], r + first_id) for t, r in sorted(ranks.items(), key=lambda x: x[1]))
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [added(text, i) for text, i in specials],
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": pre},
        "post_processor": template(bos, dict(specials)[bos]) if bos else None,
        "decoder": byte_level(True),
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                  "byte_fallback": False, "ignore_merges": True, "vocab": vocab,
                  "merges": [[spell[a], spell[b]] for a, b in rank_merges(ranks)]},
    }


def read_varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """The fields of a protocol buffer message: number and value."""
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        if key & 7 == 0:
            value, at = read_varint(data, at)
        elif key & 7 == 5:
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        elif key & 7 == 1:
            value, at = data[at:at + 8], at + 8
        else:
            size, at = read_varint(data, at)
            value, at = data[at:at + size], at + size
        yield key >> 3, value


def read_sentencepiece(path):
    """(text, score, type) of each piece; types as in GGUF."""
    pieces = []
    for number, value in fields(open(path, "rb").read()):
        if number == 1:
            piece = dict(fields(value))
            pieces.append((piece[1].decode(), piece.get(2, 0.0), piece.get(3, 1)))
    return pieces


GGUF_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
                12: "d"}
GGUF_STRING, GGUF_ARRAY = 8, 9


def gguf_value(file, kind):
    def number(code):
        return struct.unpack("<" + code, file.read(struct.calcsize(code)))[0]

    if kind == GGUF_STRING:
        return file.read(number("Q")).decode()
    if kind != GGUF_ARRAY:
        return number(GGUF_NUMBERS[kind])
    element, count = number("I"), number("Q")
    if element == GGUF_STRING:
        return [file.read(number("Q")).decode() for _ in range(count)]
    code = GGUF_NUMBERS[element]
    return list(struct.unpack(f"<{count}{code}", file.read(count * struct.calcsize(code))))


def read_gguf_pieces(path):
    with open(path, "rb") as file:
        magic, _, _, count = struct.unpack("<4sIQQ", file.read(24))
        assert magic == b"GGUF", path
        metadata = {}
        for _ in range(count):
            key = gguf_value(file, GGUF_STRING)
            metadata[key] = gguf_value(file, struct.unpack("<I", file.read(4))[0])
    return list(zip(*(metadata["tokenizer.ggml." + key]
                      for key in ("tokens", "scores", "token_type"))))


def score_merges(pieces):
    vocab = {text: i for i, (text, _, _) in enumerate(pieces)}
    merges = []
    for text, score, kind in pieces:
        if kind not in (1, 4):
            continue
        cuts = [(text[:i], text[i:], score) for i in range(1, len(text))]
        cuts = [c for c in cuts if c[0] in vocab and c[1] in vocab]
        merges.extend(sorted(cuts, key=lambda c: (vocab[c[0]], vocab[c[1]])))
    merges.sort(key=lambda m: (m[2], len(m[0]), len(m[1])), reverse=True)
    return [[left, right] for left, right, _ in merges]


def sentencepiece_json(pieces, unk, bos, space_prefix):
    """As LlamaConverter writes it; Gemma's differs by having no space in front."""
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    normalizer = {"type": "Sequence",
                  "normalizers": [{"type": "Prepend", "prepend": "▁"}, space]}
    decoders = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"}, {"type": "Fuse"}]
    if space_prefix:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [added(text, i, special=kind != 4)
                         for i, (text, _, kind) in enumerate(pieces) if kind in (2, 3, 4)],
        "normalizer": normalizer if space_prefix else space,
        "pre_tokenizer": None if space_prefix else {
            "type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
            "invert": False},
        "post_processor": template(bos, [p[0] for p in pieces].index(bos)),
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {"type": "BPE", "dropout": None, "unk_token": unk,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": True,
                  "byte_fallback": True, "ignore_merges": False,
                  "vocab": {text: i for i, (text, _, _) in enumerate(pieces)},
                  "merges": score_merges(pieces)},
    }


def convert(kind, path):
    if kind == "mistral":
        return sentencepiece_json(read_sentencepiece(path), "<unk>", "<s>", True)
    if kind == "gemma":
        return sentencepiece_json(read_gguf_pieces(path), "<unk>", "<bos>", False)
    if kind == "tekken":
        specials = [(t, i) for i, t in enumerate(tekken_specials())]
        return byte_level_json(read_tekken(path), 1000, specials, PATTERNS[kind], None, "<s>")
    ranks = read_tiktoken(path)
    names = {"llama3": llama3_specials, "llama4": llama4_specials, "qwen2": qwen2_specials,
             "qwen35": qwen35_specials}[kind]()
    specials = [(t, len(ranks) + i) for i, t in enumerate(names)]
    llama = kind.startswith("llama")
    return byte_level_json(ranks, 0, specials, PATTERNS[kind], None if llama else {"type": "NFC"},
                           "<|begin_of_text|>" if llama else None)


def main():
    kinds = "llama[34]|qwen2|qwen35|tekken|mistral|gemma"
    if len(sys.argv) != 4 or not re.fullmatch(kinds, sys.argv[1]):
        sys.exit(__doc__)
    document = convert(sys.argv[1], sys.argv[2])
    with open(sys.argv[3], "w", encoding="utf-8") as out:
        json.dump(document, out, ensure_ascii=False)


if __name__ == "__main__":
    main()
