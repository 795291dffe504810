"""A small byte-level BPE vocabulary: 256 bytes, 62 merges, two special tokens."""

from hf_files import added_token, bpe_tokenizer_json

BIGRAMS = (
    "th he in er an re on at en nd ti es or te of ed is it al ar st to nt ng se ha as ou io le ve "
    "co me de hi ri ro ic ne ea ra ce li ch ll be ma si om ur"
).split()
DEEPER = [
    ("Ġ", "t"),
    ("Ġ", "a"),
    ("Ġ", "s"),
    ("Ġ", "w"),
    ("Ġ", "o"),
    ("Ġ", "b"),
    ("Ġt", "he"),
    ("Ġa", "nd"),
    ("in", "g"),
    ("Ġo", "f"),
    ("Ġt", "o"),
    ("ti", "on"),
]
MERGES = [(pair[0], pair[1]) for pair in BIGRAMS] + DEEPER
BOS, EOS = "<|begin|>", "<|end|>"
BOS_ID, EOS_ID = 318, 319
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)


def byte_symbols():
    """Byte -> the printable character that stands for it in byte-level vocabularies."""
    shown = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [b for b in range(256) if b not in shown]
    return {b: chr(b) for b in shown} | {b: chr(256 + i) for i, b in enumerate(hidden)}


def tokens():
    """All tokens by id: bytes, merges, special."""
    symbols = byte_symbols()
    return [symbols[b] for b in range(256)] + [left + right for left, right in MERGES] + [BOS, EOS]


def tokenizer_json():
    special = [added_token(BOS_ID, BOS), added_token(EOS_ID, EOS)]
    return bpe_tokenizer_json(tokens()[:BOS_ID], [list(pair) for pair in MERGES], special)


def tokenizer_config():
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": False,
        "bos_token": BOS,
        "eos_token": EOS,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
