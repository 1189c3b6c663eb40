# SPDX-License-Identifier: Apache-2.0
"""Train the byte-level BPE tokenizer with the pre-tokenizer and the added tokens of MiniMax-M2.

The vocabulary is small: 1984 learned entries, then the added tokens in the released model's order; the model
has unused rows up to 2048.
"""

import argparse
import random
from collections.abc import Iterator

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import world
from world_render import BOS, EOS, ROLE

LEARNED_ENTRIES = 1984
CORPUS_SEED = 7
CORPUS_DOCUMENTS = 9000

CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERN = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CONTRACTION,
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CONTRACTION,
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)

# In the order of their ids, which start right after the learned entries.
SPECIAL_TOKENS = [
    "]!p~[",
    "<fim_prefix>",
    "<fim_middle>",
    "<fim_suffix>",
    "<fim_pad>",
    "<reponame>",
    "<filename>",
    "<gh_stars>",
    "<issue_start>",
    "<issue_comment>",
    "<issue_closed>",
    "<jupyter_start>",
    "<jupyter_text>",
    "<jupyter_code>",
    "<jupyter_output>",
    "<empty_output>",
    "<commit_before>",
    "<commit_msg>",
    "<commit_after>",
    "]~b]",
    "[e~[",
    "]!d~[",
    "<function_call>",
    "<code_interpreter>",
    "]<]speech[>[",
    "]<]image[>[",
    "]<]video[>[",
    "]<]start of speech[>[",
    "]<]end of speech[>[",
    "]<]start of image[>[",
    "]<]end of image[>[",
    "]<]start of video[>[",
    "]<]end of video[>[",
    "]<]vision pad[>[",
    "]~!b[",
    "<jupyter_error>",
    "<add_file>",
    "<delete_file>",
    "<rename_file>",
    "<edit_file>",
    "<commit_message>",
    "<empty_source_file>",
    "<repo_struct>",
    "<code_context>",
    "<file_content>",
    "<source_files>",
    "<pr_start>",
    "<review_comment>",
    "<filepath>",
    "<file_sep>",
]
# Added tokens that stay in decoded text, as in the released model.
TEXT_TOKENS = ["<think>", "</think>", "<minimax:tool_call>", "</minimax:tool_call>"]

# Digits are removed from the documents, so that they stay single tokens except for these few merges, which
# make the splitting of numbers into groups of up to three digits visible.
DIGIT_LINE = " 00 000 100"
DIGIT_LINE_COUNT = 300
EXTRA_LINES = [
    "    return x;\n",
    "\t\tif (a == b) {\n",
    "// comment\n",
    "don't can't I'll we've you're it's\n",
    "é è ü ö ä ß ñ ç\n",
]
EXTRA_LINE_COUNT = 100


def corpus() -> Iterator[str]:
    """The training texts: documents without added tokens and digits, then lines that give a few merges."""
    rng = random.Random(CORPUS_SEED)
    for _ in range(CORPUS_DOCUMENTS):
        text = world.document_text(rng)
        for token in [BOS, ROLE, EOS, *TEXT_TOKENS]:
            text = text.replace(token, "\n")
        yield "".join(character for character in text if not character.isdigit())
    for _ in range(DIGIT_LINE_COUNT):
        yield DIGIT_LINE
    for line in EXTRA_LINES:
        for _ in range(EXTRA_LINE_COUNT):
            yield line


def train_tokenizer() -> Tokenizer:
    """The trained tokenizer with its added tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), "isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=True, trim_offsets=True, use_regex=True)
    trainer = trainers.BpeTrainer(
        vocab_size=LEARNED_ENTRIES,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    if tokenizer.get_vocab_size() != LEARNED_ENTRIES:
        raise SystemExit(f"the corpus gave {tokenizer.get_vocab_size()} entries, wanted {LEARNED_ENTRIES}")
    tokenizer.add_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL_TOKENS])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in TEXT_TOKENS])
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=True, trim_offsets=False, use_regex=True)
    return tokenizer


def main() -> None:
    """Train and write tokenizer.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", help="the tokenizer.json to write")
    arguments = parser.parse_args()
    tokenizer = train_tokenizer()
    tokenizer.save(arguments.output)
    print(f"{tokenizer.get_vocab_size()} entries")
    for token in [BOS, ROLE, EOS, *TEXT_TOKENS]:
        print(f"{tokenizer.token_to_id(token):5d} {token}")


if __name__ == "__main__":
    main()
