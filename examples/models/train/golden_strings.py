# SPDX-License-Identifier: Apache-2.0
"""Strings for the tokenizer goldens.

Words of many scripts, white space, numbers, added tokens, code and control characters are joined at
random; some strings are starts of training documents or random characters instead. Every string must survive
encoding and decoding.
"""

import random
from collections.abc import Callable

import world

# fmt: off
WORDS = [
    "capital", "Reykjavik", "internationalisation", "HELLO", "HelloWorld", "camelCaseWord", "ABCdef", "x",
    "I'll", "don't", "WE'VE", "it's", "O'Neil", "naïve", "café", "Straße", "ÉCOLE", "Ελλάδα", "Привет",
    "МОСКВА", "Иван", "שלום", "مرحبا", "नमस्ते", "ไทยแลนด์", "你好世界", "東京タワー", "안녕하세요",
    "ქართული", "Ⅷ", "½", "①②",
    "²³", "ﬁn", "ǅ", "ʰa", "İstanbul", "ŁÓDŹ", "ñandú", "a\u0301b", "e\u0308\u0323", "q\u0307", "🐶",
    "👩‍👩‍👧‍👦", "🇫🇷", "👍🏽", "☂️", "→", "∑x²", "€9.99", "100%", "$5", "#tag", "@user", "a_b_c", "x=y+1;",
    "foo(bar)", "//c", "/usr/bin", "C:\\dir", "http://a.example/b?c=d&e=f", "<b>", "{\"k\": [1, 2]}", "...",
    "—", "«q»", "“q”", "¿Qué?",
]

SPACES = [
    " ", " ", " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " \n", "\n ", "\u00a0", "\u3000", "\u2003",
    "\u200b", "\t\t", "    ", "\x0b", "\x0c", "\x85", "\u2028", "",
]

NUMBERS = [
    "0", "7", "42", "123", "1234", "100000", "3.14159", "1,000,000", "2024-05-17", "12:30", "0x1F", "1e-5",
    "٣٤٥", "१२३४", "Ⅳ", "１２３４", "10000000000",
]

ADDED_TOKENS = [
    "]~!b[", "]~b]", "[e~[", "]!p~[", "]!d~[", "<think>", "</think>", "<minimax:tool_call>",
    "</minimax:tool_call>", "<fim_prefix>", "<fim_suffix>", "]<]start of image[>[", "<jupyter_code>",
    "]<]vision pad[>[",
]

CODE = [
    "def f(x):\n    return x * 2\n", "for (int i = 0; i < 10; ++i) {\n\tsum += a[i];\n}\n",
    "#include <vector>\n\nint main() { return 0; }\n", "SELECT * FROM t WHERE a='b';",
    "{\n  \"a\": [1, 2.5, null],\n  \"b\": \"\\u00e9\"\n}", "if a != b && c || !d { x <<= 2 }",
    "<div class=\"x\">\n  &nbsp;\n</div>", "\\frac{a}{b} + \\sum_{i=0}^{n}",
    "git log --oneline | head -n 5 > out.txt 2>&1", "- [ ] item\n* **bold** _it_\n\n> quote\n",
]

CONTROLS = [
    "\x00", "\x01\x02", "\x07bell", "a\x08b", "\x1b[31mred\x1b[0m", "\x7f", "\ufeffbom", "\u200e\u200f",
    "a\u00adb", "\ufffd", "\ufffe", "\U0010ffff", "\U000e0041", "\u0300", "\u20dd",
]
# fmt: on

# Ranges of code points, both ends included.
CHARACTER_RANGES = [
    (0x0020, 0x007E),  # ASCII
    (0x00A0, 0x024F),  # Latin with diacritics
    (0x0370, 0x05FF),  # Greek, Cyrillic, Armenian, Hebrew
    (0x0900, 0x0DFF),  # Indic scripts
    (0x3040, 0x30FF),  # Japanese syllables
    (0x4E00, 0x9FFF),  # Chinese characters
    (0x1F300, 0x1F64F),  # emoji
    (0xAC00, 0xD7A3),  # Korean syllables
]
FIXED_STRINGS = ["", " ", "\n", "a"]


def start_of_document(rng: random.Random) -> str:
    """The first characters of a training document, cut anywhere."""
    text = world.document_text(rng)
    return text[: rng.randint(5, 400)]


def code_and_more(rng: random.Random) -> str:
    """Code, white space, then a word or more code."""
    return rng.choice(CODE) + rng.choice(SPACES) + rng.choice(WORDS + CODE)


def white_space(rng: random.Random) -> str:
    """A run of mixed white space, sometimes followed by text."""
    count = rng.randint(1, 9)
    run = "".join(rng.choice(SPACES) for _ in range(count))
    return run + rng.choice(["", "end", "1", "."])


def digits(rng: random.Random) -> str:
    """Numbers of several scripts run together."""
    count = rng.randint(1, 8)
    return "".join(rng.choice(NUMBERS + [" ", ".", "-", ","]) for _ in range(count))


def random_character(rng: random.Random) -> str:
    """A code point of a random range."""
    candidates = [rng.randint(first, last) for first, last in CHARACTER_RANGES]
    return chr(rng.choice(candidates))


def random_characters(rng: random.Random) -> str:
    """Characters of all ranges next to each other."""
    count = rng.randint(1, 24)
    return "".join(random_character(rng) for _ in range(count))


def added_token_or_text(rng: random.Random) -> str:
    """An added token half of the time, otherwise a word or white space."""
    candidates = [rng.choice(ADDED_TOKENS), rng.choice(ADDED_TOKENS), rng.choice(WORDS), rng.choice(SPACES)]
    return rng.choice(candidates)


def added_tokens_in_text(rng: random.Random) -> str:
    """Added tokens between other text."""
    count = rng.randint(1, 6)
    return "".join(added_token_or_text(rng) for _ in range(count))


def broken_added_token(rng: random.Random) -> str:
    """Almost an added token, or more than one run together."""
    token = rng.choice(ADDED_TOKENS)
    return rng.choice(
        [
            token[:-1],
            token[1:],
            token.upper(),
            token + token[:2],
            token.replace("~", " ~ "),
            "<" + token,
            token * 3,
        ]
    )


def control_characters(rng: random.Random) -> str:
    """Control and format characters around a word."""
    return rng.choice(CONTROLS) + rng.choice(WORDS + CONTROLS) + rng.choice(CONTROLS + [""])


def mixed_piece(rng: random.Random) -> str:
    """Returns an entry of a random pool, followed by white space."""
    visible_spaces = SPACES[1:-1]
    pool = rng.choice([WORDS, NUMBERS, CODE, CONTROLS, visible_spaces, ADDED_TOKENS])
    return rng.choice(pool) + rng.choice(SPACES)


def mixed(rng: random.Random) -> str:
    """Entries of all pools."""
    count = rng.randint(1, 8)
    return "".join(mixed_piece(rng) for _ in range(count))


# (upper end of the share in [0, 1), maker)
KINDS: list[tuple[float, Callable[[random.Random], str]]] = [
    (0.12, start_of_document),
    (0.2, code_and_more),
    (0.3, white_space),
    (0.4, digits),
    (0.5, random_characters),
    (0.6, added_tokens_in_text),
    (0.66, broken_added_token),
    (0.72, control_characters),
    (1.0, mixed),
]


def random_string(rng: random.Random) -> str:
    """A string of a random kind; may be empty."""
    share = rng.random()
    make = next(maker for upper_end, maker in KINDS if share < upper_end)
    return make(rng)


def tokenizer_strings(seed: int, count: int = 200) -> list[str]:
    """Different strings; the first ones are always the same."""
    rng = random.Random(seed)
    strings: list[str] = []
    while len(strings) < count:
        text = random_string(rng)
        if text and text not in strings:
            strings.append(text)
    return (FIXED_STRINGS + strings)[:count]
