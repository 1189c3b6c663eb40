# SPDX-License-Identifier: Apache-2.0
"""The synthetic world the model is trained on: an endless supply of documents from a random generator.

All text is made from the tables and phrasings of the world_*.py files:

    world_tables         facts and word lists
    world_words          invented names, people, places, times
    world_questions      question-and-answer skills, the held-out split
    world_tools          tools and the exchanges that call them
    world_conversations  conversations as chat messages
    world_render         chat messages -> text with training weights
    world_texts          stories, facts, lines to copy

A seed gives the same documents everywhere; test_world.py holds checksums.
"""

import random
from collections.abc import Callable

from world_conversations import (
    Conversation,
    memory_conversation,
    several_exchanges,
    single_exchange,
    tool_conversation,
    unanswerable_without_tool,
)
from world_render import EOS, OUTPUT_WEIGHT, Segment, render
from world_texts import fact_text, random_line, story

Document = list[Segment]

KEPT_THOUGHTS_SHARE = 0.7


def text_document(text: str) -> Document:
    """A plain text that ends with the end-of-turn token."""
    return [Segment(text + EOS, OUTPUT_WEIGHT)]


def copied_line(rng: random.Random) -> Document:
    """A random line twice; only the second one, which can be predicted from the first, is trained on."""
    line = random_line(rng)
    return [Segment(f"{line}\n", 0.0), Segment(line + EOS, OUTPUT_WEIGHT)]


# (maker, share of the documents)
MIX: list[tuple[Callable[[random.Random], Document | Conversation | str], int]] = [
    (copied_line, 8),
    (single_exchange, 80),
    (several_exchanges, 16),
    (memory_conversation, 8),
    (tool_conversation, 10),
    (unanswerable_without_tool, 4),
    (story, 10),
    (fact_text, 10),
]


def document(rng: random.Random) -> Document:
    """The next training document."""
    makers = [maker for maker, _ in MIX]
    shares = [share for _, share in MIX]
    made = rng.choices(makers, shares)[0](rng)
    if isinstance(made, str):
        return text_document(made)
    if isinstance(made, Conversation):
        keep_thoughts = rng.random() < KEPT_THOUGHTS_SHARE
        return render(made.messages, made.tools, keep_thoughts=keep_thoughts)
    return made


def document_text(rng: random.Random) -> str:
    """The next training document without its weights."""
    return "".join(segment.text for segment in document(rng))
