#!/usr/bin/env python3
"""Small tokenizers, trained here on made-up text, one for each component of tokenizer.json that we
know, with HF tokenizers' own results on hard strings.

usage: tokenizer_tiny.py > src/model/tokenizer/testdata/tiny.jsonl       (tokenizers==0.23.3)
The first line holds the strings; then a line a tokenizer: name, tokenizer.json, hashes (for each
string of its ids with special tokens parsed, as text, and parsed with the template's tokens),
decoded [ids, text, text without special tokens].
"""

import json
import random

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

import tokenizer_strings
from tokenizer_hash import hash_ids

SPECIALS = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
BYTES = [f"<0x{b:02X}>" for b in range(256)]
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def corpus():
    rng = random.Random(7)
    words = [tokenizer_strings.word(rng, tokenizer_strings.SCRIPTS["latin"]).lower()
             for _ in range(60)]
    lines = [" ".join(rng.choice(words) for _ in range(12)) for _ in range(150)]
    return lines + tokenizer_strings.SENTENCES * 4 + tokenizer_strings.CODE * 3


def trained(pre_tokenizer, normalizer=None, size=420, fallback=False, **options):
    """A BPE of `size` tokens, over bytes or characters as the pre-tokenizer makes them."""
    tokenizer = Tokenizer(models.BPE(**({"unk_token": "<unk>"} if "unk_token" in options else {})))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    alphabet = [] if fallback else pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=size, special_tokens=SPECIALS + (BYTES if fallback else []),
        initial_alphabet=alphabet, limit_alphabet=90 if fallback else 1000, show_progress=False))
    document = json.loads(tokenizer.to_str())
    document["model"].update(options, byte_fallback=fallback)
    if fallback:  # byte tokens are the model's own
        document["added_tokens"] = [t for t in document["added_tokens"] if t["id"] < 5]
    return Tokenizer.from_str(json.dumps(document))


def byte_level(add_prefix_space=False, use_regex=True):
    return pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=use_regex)


def with_parts(tokenizer, **parts):
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    return tokenizer


def template(tokenizer, single, specials):
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=single + " $B:1", special_tokens=specials)
    return tokenizer


def byte_level_tokenizers():
    gpt2 = trained(byte_level())
    yield "gpt2", with_parts(gpt2, decoder=decoders.ByteLevel())
    yield "prefix-space", with_parts(trained(byte_level(True)), decoder=decoders.ByteLevel())
    cuts = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(CL100K), "isolated"),
                                    byte_level(use_regex=False)])
    llama = trained(cuts, ignore_merges=True)
    yield "ignore-merges", template(with_parts(llama, decoder=decoders.ByteLevel()), "<s> $A </s>",
                                    [("<s>", 1), ("</s>", 2)])
    yield "no-decoder", trained(byte_level())
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level()])
    yield "digits-nfkc", with_parts(
        trained(digits, normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])),
        decoder=decoders.ByteLevel())
    falcon = pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), byte_level(),
        pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")])
    yield "cuts-after-bytes", with_parts(trained(falcon), decoder=decoders.ByteLevel())
    for behavior in ("removed", "merged_with_previous", "merged_with_next", "contiguous"):
        for invert in (False, True):
            cuts = pre_tokenizers.Sequence([
                pre_tokenizers.Split(Regex(r"\s|\p{P}"), behavior, invert=invert),
                byte_level(use_regex=False)])
            yield f"split-{behavior}-{invert}", with_parts(trained(cuts, size=300),
                                                           decoder=decoders.ByteLevel())
    yield "byte-level-normalizer", with_parts(
        trained(pre_tokenizers.Split(Regex("Ġ"), "merged_with_next"), normalizers.ByteLevel()),
        decoder=decoders.ByteLevel())
    for name, cut in (("whitespace", pre_tokenizers.Whitespace()),
                      ("whitespace-split", pre_tokenizers.WhitespaceSplit()),
                      ("delimiter", pre_tokenizers.CharDelimiterSplit("e")),
                      ("string", pre_tokenizers.Split("is", "isolated")),
                      ("intersection", pre_tokenizers.Split(
                          Regex(r"[\p{L}&&[^a-eé]]+|\h{2,3}+|[^\w\s[xyz]]"), "isolated")),
                      ("lines", pre_tokenizers.Split(Regex(r"^.|.$|\s+$"), "isolated"))):
        cuts = pre_tokenizers.Sequence([cut, byte_level(use_regex=False)])
        yield name, with_parts(trained(cuts, size=300), decoder=decoders.ByteLevel())


def added_tokens_tokenizer():
    tokenizer = with_parts(trained(byte_level(), normalizers.Lowercase()),
                           decoder=decoders.ByteLevel())
    tokenizer.add_tokens([
        AddedToken("[L]", lstrip=True, normalized=False),
        AddedToken("[R]", rstrip=True, normalized=False),
        AddedToken("word", single_word=True, normalized=False),
        AddedToken("QUICK", normalized=True), AddedToken("\n\n\n", normalized=False),
        AddedToken("\n\n", normalized=False), AddedToken("é", normalized=False),
        AddedToken("<|im", normalized=False)])
    tokenizer.add_special_tokens([AddedToken("<Sp>", special=True, normalized=True),
                                  AddedToken("<|im_start|>x", special=True, normalized=False)])
    return tokenizer


def character_tokenizers():
    space = normalizers.Replace(" ", "▁")
    llama = trained(pre_tokenizers.Split(Regex("$^"), "removed"),
                    normalizers.Sequence([normalizers.Prepend("▁"), space]), size=700,
                    fallback=True, unk_token="<unk>", fuse_unk=True)
    fused = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    with_parts(llama, decoder=decoders.Sequence(fused + [decoders.Strip(" ", 1, 0)]))
    yield "llama", template(llama, "<s> $A", [("<s>", 1)])
    gemma = trained(pre_tokenizers.Split(" ", "merged_with_previous"), space, size=700,
                    fallback=True, unk_token="<unk>", fuse_unk=True)
    yield "gemma", with_parts(gemma, decoder=decoders.Sequence(fused))
    for scheme in ("first", "always", "never"):
        for cut in (True, False):
            meta = pre_tokenizers.Metaspace("▁", prepend_scheme=scheme, split=cut)
            tokenizer = trained(meta, size=600, fallback=True, unk_token="<unk>")
            yield f"metaspace-{scheme}-{cut}", with_parts(
                tokenizer, decoder=decoders.Sequence(
                    [decoders.ByteFallback(), decoders.Metaspace("▁", prepend_scheme=scheme)]))
    meta = pre_tokenizers.Metaspace("▁")
    for fuse in (False, True):
        tokenizer = trained(meta, normalizers.Sequence([normalizers.Strip(), normalizers.NFC()]),
                            size=600, fallback=True, unk_token="<unk>", fuse_unk=fuse)
        document = json.loads(tokenizer.to_str())
        document["model"]["byte_fallback"] = False
        tokenizer = Tokenizer.from_str(json.dumps(document))
        yield f"unknown-{fuse}", with_parts(tokenizer, decoder=decoders.Metaspace("▁"))


def strings():
    rng = random.Random(11)
    made = [s.decode("utf-8", "replace") for s in tokenizer_strings.make_strings()]
    fixed = ["", " ", "  a", "word sword word.", "a [L] b[L]  [R]  c", " [R] [R]x", "\n\n\n\n\n",
             "the QUICK quick Quick", "<sp> <Sp> <SP>", "<|im_start|>x<|im_start|>y<|im_end|>",
             "<|im_start|", "é e\u0301", "\u180e \u180ex", "abc  def\n\nxyz  \n",
             "dead beef cafe12"]
    return fixed + rng.sample([t for t in made if len(t) < 160], 120)


def cases_of(tokenizer):
    cases = []
    for text in strings():
        tokenizer.encode_special_tokens = False
        parsed = tokenizer.encode(text, add_special_tokens=False).ids
        whole = tokenizer.encode(text).ids
        tokenizer.encode_special_tokens = True
        as_text = tokenizer.encode(text, add_special_tokens=False).ids
        cases.append(" ".join(map(hash_ids, (parsed, as_text, whole))))
    return cases


def decoded_of(tokenizer):
    rng = random.Random(13)
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    decoded = []
    for _ in range(60):
        top = rng.choice([size, size, min(size, 262)])
        ids = [rng.randrange(top) for _ in range(rng.randrange(14))]
        decoded.append([ids, tokenizer.decode(ids, skip_special_tokens=False),
                        tokenizer.decode(ids, skip_special_tokens=True)])
    return decoded


def main():
    print(json.dumps(strings(), ensure_ascii=False))
    tokenizers = list(byte_level_tokenizers()) + [("added", added_tokens_tokenizer())]
    for name, tokenizer in tokenizers + list(character_tokenizers()):
        print(json.dumps({"name": name, "tokenizer": json.loads(tokenizer.to_str()),
                          "hashes": cases_of(tokenizer), "decoded": decoded_of(tokenizer)},
                         separators=(",", ":"), ensure_ascii=False))


if __name__ == "__main__":
    main()
