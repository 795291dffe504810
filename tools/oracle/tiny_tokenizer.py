"""A small byte-level BPE vocabulary: 256 bytes, 62 merges, two special tokens."""

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


def added(token_id, content):
    return {
        "id": token_id,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


def tokenizer_json():
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added(BOS_ID, BOS), added(EOS_ID, EOS)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens()[:BOS_ID])},
            "merges": [list(pair) for pair in MERGES],
        },
    }


def tokenizer_config():
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": False,
        "bos_token": BOS,
        "eos_token": EOS,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
