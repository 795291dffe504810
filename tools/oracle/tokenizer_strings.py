"""The 2,000 test strings of the tokenizer: 20 scripts, code, emoji, blanks, special tokens, bytes.

usage: tokenizer_strings.py > src/model/tokenizer/testdata/strings.txt
One a line; backslash, line ends, and bytes that are not UTF-8 are escaped as \\xNN.
"""

import random
import sys

SEED = 20240611
# Letters (and signs) of each script.
SCRIPTS = {
    "latin": [(0x41, 0x5A), (0x61, 0x7A), (0xC0, 0xD6), (0xD8, 0xF6), (0x100, 0x17F)],
    "greek": [(0x391, 0x3A9), (0x3B1, 0x3C9), (0x1F00, 0x1F15)],
    "cyrillic": [(0x410, 0x44F), (0x400, 0x40F), (0x450, 0x45F)],
    "armenian": [(0x531, 0x556), (0x561, 0x586)],
    "hebrew": [(0x5D0, 0x5EA), (0x5B0, 0x5BC)],
    "arabic": [(0x621, 0x63A), (0x641, 0x64A), (0x64B, 0x652), (0x660, 0x669)],
    "devanagari": [(0x905, 0x939), (0x93E, 0x94D), (0x966, 0x96F)],
    "bengali": [(0x985, 0x98C), (0x995, 0x9A8), (0x9BE, 0x9C4), (0x9E6, 0x9EF)],
    "tamil": [(0xB85, 0xB8A), (0xB95, 0xB95), (0xBA8, 0xBAA), (0xBAE, 0xBB9), (0xBBE, 0xBC2)],
    "telugu": [(0xC05, 0xC0C), (0xC15, 0xC28), (0xC3E, 0xC44)],
    "thai": [(0xE01, 0xE2E), (0xE30, 0xE3A), (0xE40, 0xE4E), (0xE50, 0xE59)],
    "lao": [(0xE81, 0xE82), (0xE94, 0xE97), (0xEB0, 0xEB9), (0xEC0, 0xEC4)],
    "tibetan": [(0xF40, 0xF47), (0xF49, 0xF69), (0xF71, 0xF7E), (0xF0B, 0xF0D)],
    "georgian": [(0x10D0, 0x10F0), (0x10A0, 0x10C5)],
    "ethiopic": [(0x1200, 0x1248), (0x1260, 0x1288), (0x1361, 0x1368)],
    "khmer": [(0x1780, 0x17A2), (0x17B6, 0x17C5), (0x17D2, 0x17D2), (0x17E0, 0x17E9)],
    "hangul": [(0xAC00, 0xD7A3), (0x1100, 0x1112)],
    "kana": [(0x3041, 0x3096), (0x30A1, 0x30FA), (0x30FC, 0x30FE), (0xFF66, 0xFF9D)],
    "han": [(0x4E00, 0x9FA5), (0x3400, 0x3410), (0x20000, 0x20010)],
    "cherokee": [(0x13A0, 0x13F5), (0xAB70, 0xABBF)],
}
SENTENCES = [
    "The quick brown fox jumps over the lazy dog, doesn't it?",
    "I'll say we've seen they're HERE; it'd be YOU'RE O'Brien's.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
    "Portez ce vieux whisky au juge blond qui fume, s'il vous plaît !",
    "El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia y frío.",
    "Pchnąć w tę łódź jeża lub ośm skrzyń fig.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.",
    "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า",
    "いろはにほへと ちりぬるを。カタカナ、漢字も混ざる。",
    "天地玄黄,宇宙洪荒。日月盈昃,辰宿列张。",
    "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다.",
    "Do bạch kim rất quý nên sẽ dùng để lắp vô xương. Cửa Việt",
    "Pijamalı hasta yağız şoföre çabucak güvendi. İstanbul, ışık",
    "Cafe\u0301 re\u0301sume\u0301 A\u030angstro\u0308m \u1e9b\u0323 \ufb01 \u2126 \u212b",
]
MARKS = [0x300, 0x301, 0x308, 0x323, 0x327, 0x338, 0x483, 0x591, 0x64E, 0x20DD]
PUNCTUATION = list(".,;:!?-_()[]{}<>/\\|@#$%^&*+=~`'\"") + list("…—–«»“”‘’„¿¡。、，！？「」・·।۔،؟")
EMOJI = ["😀", "😂", "🤖", "❤️", "👍🏽", "👩‍💻", "👨‍👩‍👧‍👦", "🇩🇪", "🇯🇵", "🏳️‍🌈", "1️⃣", "☃", "🫠", "🥹",
         "\U0001FAE8", "\U0001FACE", "✈️", "🀄", "🧑🏿‍🚀", "💯", "♟️", "㊗️"]
BLANKS = [" ", " ", " ", "\t", "\n", "\n", "\r\n", "\r", "\u00a0", "\u3000", "\u180e", "\u0085",
          "\u2028", "\u2029", "\u200b", "\u202f", "\u2009", "\x0b", "\x0c", "\x1c", "\x1f", "\u205f"]
SPECIALS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<s>", "</s>", "<unk>", "<pad>", "<bos>",
            "<eos>", "<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>",
            "<start_of_turn>", "<end_of_turn>", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>",
            "<｜User｜>", "<｜Assistant｜>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "<|user|>",
            "<|assistant|>", "<|end|>", "<|fim_prefix|>", "<fim_prefix>", "<|extra_0|>", "<think>",
            "</think>", "<tool_call>", "<|START_OF_TURN_TOKEN|>", "<|header_start|>", "<h1>", "<b>",
            "</table>", "<unused0>", "<0x0A>", "<0x41>", "<0xE4>", "▁", "▁▁", "Ġ", "Ċ", "##ing",
            "<|im_start", "im_end|>", "<|", "|>", "<<s>>", "<|im_start|", "\U000e0041"]
NEWER = [0x870, 0x897, 0xCF3, 0xECE, 0x1B4E, 0x1C89, 0x1C8A, 0x2427, 0x2FFC, 0x31E4, 0x31EF, 0xA7CB,
         0xA7CD, 0xA7DA, 0x10D40, 0x10D4A, 0x10D6F, 0x105C0, 0x11B00, 0x11F04, 0x11F50, 0x1611E,
         0x16D40, 0x16D70, 0x16EA0, 0x1B132, 0x1CCD6, 0x1CCF0, 0x1D2C0, 0x1DF25, 0x1E030, 0x1E08F,
         0x1E4D0, 0x1E4F0, 0x1E5D0, 0x1F6DC, 0x1F776, 0x1F8B2, 0x1FA75, 0x1FADC, 0x2EBF0, 0x31350,
         0x323AF, 0x323B0, 0x0378, 0x2FE0, 0xFFFE, 0x10FFFF, 0xE000]
CODE = [
    "def f(x, *args, **kw):\n    return [i**2 for i in range(x) if i % 2 == 0]\n",
    "for (int i = 0; i < n; ++i) {\n\tsum += a[i] * b[i];  // dot\n}\n",
    "SELECT id, COUNT(*) FROM users WHERE name LIKE '%o''k%' GROUP BY 1;",
    "{\"a\": [1, 2.5e-10, null], \"b\": {\"c\": \"\\u00e9\\n\"}}",
    "<div class=\"x\"><a href='#y'>&nbsp;z</a></div>\n\n\n<!-- end -->",
    "fn main() -> Result<(), Box<dyn Error>> { println!(\"{:?}\", x?); Ok(()) }",
    "#!/bin/sh\nset -eu; x=$(ls -la | awk '{print $5}') && echo \"$x\" >> /tmp/o 2>&1",
    "template <typename T, size_t N>\nconstexpr auto k = T{0x1F'FF} << (N - 1);",
    "\\begin{equation}\\sum_{i=0}^{n} \\frac{x_i}{2^i}\\end{equation}",
    "@@ -1,7 +1,9 @@\n-    old = 1\n+        new = 2\r\n",
    "if __name__ == \"__main__\":\n\n\n\n        main()        \n    ",
    "SGVsbG8sIFdvcmxkIQ==  0xDEADBEEF 3.14159265358979 1_000_000 12345678901234567890",
]


def char(rng, ranges):
    low, high = rng.choice(ranges)
    return chr(rng.randint(low, high))


def word(rng, ranges):
    text = "".join(char(rng, ranges) for _ in range(rng.randint(1, 9)))
    if rng.random() < 0.1:
        text += chr(rng.choice(MARKS))
    return text


def script_text(rng, ranges):
    parts = []
    for _ in range(rng.randint(1, 9)):
        parts.append(word(rng, ranges))
        kind = rng.random()
        if kind < 0.15:
            parts.append(rng.choice(PUNCTUATION))
        elif kind < 0.22:
            parts.append(str(rng.randint(0, 10 ** rng.randint(1, 7))))
        parts.append(rng.choice(["", " ", " ", " ", "  ", "\n", "'s "]))
    return "".join(parts)


def blanks(rng):
    parts = []
    for _ in range(rng.randint(1, 6)):
        parts.append(rng.choice(BLANKS) * rng.choice([1, 1, 2, 3, 4, 7, 8, 16, 17, 31, 33, 64, 70]))
        if rng.random() < 0.5:
            parts.append(rng.choice(["a", "x1", "1", "é", "中", ".", "\"", "'t", "Ab", "𝒳"]))
    return "".join(parts)


def code(rng):
    parts = []
    for _ in range(rng.randint(1, 3)):
        snippet = rng.choice(CODE)
        begin = rng.randrange(len(snippet))
        parts.append(snippet[begin:] if rng.random() < 0.5 else snippet)
        parts.append(rng.choice(["", "\n", "\n\n", "    ", "\t\t"]))
    return "".join(parts)


def numbers(rng):
    digits = "0123456789" if rng.random() < 0.7 else "٠١٢٣४५６７８９²³½Ⅻ①〇"
    parts = []
    for _ in range(rng.randint(1, 8)):
        parts.append("".join(rng.choice(digits) for _ in range(rng.randint(1, 12))))
        parts.append(rng.choice(PUNCTUATION) * rng.randint(0, 3) + rng.choice(["", " ", "\n"]))
    return "".join(parts)


def specials(rng):
    parts = []
    for _ in range(rng.randint(1, 6)):
        parts.append(rng.choice(SPECIALS))
        parts.append(rng.choice(["", "", " ", "\n", "  ", "user\n", "Hello", "x", "é", "▁", "\n\n\n"]))
    return rng.choice(["", " ", "Hi", "\n"]) + "".join(parts)


def contractions(rng):
    pieces = ["'s", "'S", "'t", "'LL", "'ll", "'re", "'Ve", "'d", "'m", "'\u017f", "\u017f", "\u212a",
              "'", "''", "\u2019s", "it", "WE", "IT", "he", " ", "'x", "iPhone", "ALLCAPS", "McX", "ǅ",
              "ª", "ʰ", "ı", "İ", "ß", "ẞ", "ﬀ"]
    return "".join(rng.choice(pieces) for _ in range(rng.randint(1, 10)))


def anything(rng):
    parts = []
    for _ in range(rng.randint(1, 12)):
        c = rng.choice([rng.randrange(0x250), rng.randrange(0x3000), rng.randrange(0x110000)])
        parts.append("\ufffd" if 0xD800 <= c < 0xE000 else chr(c))
    return "".join(parts)


def newer(rng):
    parts = []
    for _ in range(rng.randint(1, 6)):
        parts.append(chr(rng.choice(NEWER)) * rng.randint(1, 2))
        parts.append(rng.choice(["", " ", "a", "1", "\n", "中", "."]))
    return "".join(parts)


def broken(rng):
    """Bytes that are not UTF-8, among text that is."""
    out = bytearray()
    for _ in range(rng.randint(1, 6)):
        out += rng.choice(SENTENCES + EMOJI).encode()[: rng.randint(1, 12)]
        kind = rng.random()
        if kind < 0.4:
            out += bytes(rng.randrange(128, 256) for _ in range(rng.randint(1, 4)))
        elif kind < 0.6:
            out += rng.choice([b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xe0\x80\xaf",
                               b"\xf0\x9f\x98", b"\xff\xfe", b"\xe4\xbd"])
    return bytes(out)


def joined(rng, pieces):
    parts = []
    for _ in range(rng.randint(1, 4)):
        parts.append(rng.choice(pieces) * rng.choice([1, 1, 1, 2]))
        parts.append(rng.choice(["", " ", "a ", "!", "\n"]))
    return "".join(parts)


def long_runs(rng):
    unit = rng.choice(["a", "A", "Ab", "é", "中", "=", "-", "0", "\n", " ", "▁", "😀", "가", "x y", ". "])
    return unit * rng.randint(60, 150) + rng.choice(["", "b", "\n", " "])


def make_strings():
    rng = random.Random(SEED)
    strings = [b"", b" ", b"\n", b"a", b"\x00", b"\x80", "é".encode(), " é".encode()]
    plan = [(40, lambda ranges=r: script_text(rng, ranges)) for r in SCRIPTS.values()]
    plan += [(60, lambda: joined(rng, SENTENCES)), (200, lambda: code(rng)),
             (130, lambda: joined(rng, EMOJI)), (200, lambda: blanks(rng)),
             (100, lambda: numbers(rng)), (150, lambda: specials(rng)),
             (60, lambda: contractions(rng)), (60, lambda: newer(rng)), (52, lambda: long_runs(rng)),
             (100, lambda: anything(rng)), (80, lambda: broken(rng))]
    for count, make in plan:
        for _ in range(count):
            text = make()
            strings.append(text if isinstance(text, bytes) else text.encode())
    assert len(strings) == 2000, len(strings)
    return strings


def escape(raw):
    out = []
    for c in raw.decode("utf-8", "surrogateescape"):
        code_point = ord(c)
        if 0xDC80 <= code_point <= 0xDCFF:
            out.append(f"\\x{code_point - 0xDC00:02x}")
        elif c == "\\" or code_point < 0x20 or code_point == 0x7F:
            out.append(f"\\x{code_point:02x}")
        else:
            out.append(c)
    return "".join(out)


if __name__ == "__main__":
    for string in make_strings():
        sys.stdout.buffer.write(escape(string).encode() + b"\n")
