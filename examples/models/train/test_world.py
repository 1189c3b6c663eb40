# SPDX-License-Identifier: Apache-2.0
"""Checks of the training scripts that need nothing but the standard library.

The synthetic world must give the same documents for the same seed on every machine, or goldens and held-out
questions lose their meaning; the other scripts must at least compile.
"""

import hashlib
import json
import random
import sys
import unittest
from collections.abc import Callable, Iterable
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(SCRIPTS))

import world  # noqa: E402
from world_conversations import exchange_messages, tool_messages  # noqa: E402
from world_questions import SKILLS, Exchange, draw_exchange, is_held_out  # noqa: E402
from world_render import render  # noqa: E402
from world_texts import fact_text, story  # noqa: E402
from world_tools import TOOLS, ToolCall, ToolExchange  # noqa: E402

DOCUMENT_COUNT = 500
DOCUMENT_CHECKSUMS = {
    0: "90a94649cc3c273a8805c28cd4cb6bee27c9674174097479e7b1fc048439f556",
    7: "954793122ad4b5017c2868e12375ea7557a274c15dfed7b7f5169de1c1744a30",
    4242: "99411e4d4bb5a29d5274c8cec70cc5059024e137a1344c13863d6ee27adba192",
}
STORIES_CHECKSUM = "6e20cc89e1ff6d499c069192316d180ad8abde73bb82f1510326072c0dfa36ae"
FACTS_CHECKSUM = "226b178cefc23293a71c1b571e28ce91fc0a88b03dd584d6e2b236b3432c60c6"
TOOLS_CHECKSUM = "bbbdbd59ada2c047136adfe8bbcdb5f5171ff9dba8bf74e16d99e94c41b02856"

TOOL_PROMPT = """]~!b[]~b]system
You are a helpful assistant.

# Tools
You may call one or more tools to assist with the user query.
Here are the tools available in JSONSchema format:

<tools>
<tool>{"name": "get_time", "description": "Get the time in a city.", "parameters": {"type": "object", \
"properties": {"city": {"type": "string", "description": "Name of the city"}}, "required": ["city"]}}</tool>
</tools>

When making tool calls, use XML format to invoke tools and pass parameters:

<minimax:tool_call>
<invoke name="tool-name-1">
<parameter name="param-key-1">param-value-1</parameter>
<parameter name="param-key-2">param-value-2</parameter>
...
</invoke>
</minimax:tool_call>[e~[
]~b]user
What time is it in Oslo?[e~[
]~b]ai
<think>
I need the time.
</think>


<minimax:tool_call>
<invoke name="get_time">
<parameter name="city">Oslo</parameter>
</invoke>
</minimax:tool_call>[e~[
]~b]tool
<response>09:30</response>[e~[
]~b]ai
<think>
I have it.
</think>

It is 09:30.[e~[
"""


def checksum(lines: Iterable[str]) -> str:
    """SHA-256 of the lines, each ended by a line feed."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(f"{line}\n".encode())
    return digest.hexdigest()


def documents_checksum(seed: int) -> str:
    """Checksum of the first documents of a seed, texts and weights."""
    rng = random.Random(seed)
    return checksum(json.dumps(world.document(rng)) for _ in range(DOCUMENT_COUNT))


def texts_checksum(make: Callable[[random.Random], str]) -> str:
    """Checksum of the first texts of one maker."""
    rng = random.Random(1)
    return checksum(make(rng) for _ in range(DOCUMENT_COUNT))


class WorldTest(unittest.TestCase):
    """The synthetic world."""

    def test_a_seed_always_gives_the_same_documents(self) -> None:
        for seed, expected in DOCUMENT_CHECKSUMS.items():
            self.assertEqual(documents_checksum(seed), expected, f"seed {seed}")

    def test_a_seed_always_gives_the_same_plain_texts(self) -> None:
        self.assertEqual(texts_checksum(story), STORIES_CHECKSUM)
        self.assertEqual(texts_checksum(fact_text), FACTS_CHECKSUM)

    def test_the_tools_are_the_ones_the_model_was_trained_with(self) -> None:
        self.assertEqual(checksum([json.dumps(TOOLS)]), TOOLS_CHECKSUM)

    def test_both_sides_of_the_split_have_exchanges_of_every_skill(self) -> None:
        rng = random.Random(2)
        for skill, _ in SKILLS:
            for held_out in (True, False):
                exchange = draw_exchange(rng, held_out, skill)
                if exchange.category != "hello":
                    self.assertEqual(is_held_out(exchange), held_out, exchange)

    def test_thoughts_before_the_last_question_are_rendered_only_on_request(self) -> None:
        exchange = Exchange("", "", "Q?", "thought", "A.")
        messages = exchange_messages(exchange) + exchange_messages(exchange)
        for keep_thoughts, count in ((False, 1), (True, 2)):
            text = "".join(segment.text for segment in render(messages, keep_thoughts=keep_thoughts))
            self.assertEqual(text.count("<think>\nthought\n</think>"), count)

    def test_a_tool_conversation_renders_as_the_chat_template_does(self) -> None:
        exchange = ToolExchange(
            category="get_time",
            question="What time is it in Oslo?",
            call_thought="I need the time.",
            calls=[ToolCall("get_time", {"city": "Oslo"})],
            responses=["09:30"],
            answer_thought="I have it.",
            answer="It is 09:30.",
        )
        segments = render(tool_messages(exchange), [TOOLS["get_time"]])
        self.assertEqual("".join(segment.text for segment in segments), TOOL_PROMPT)


class ScriptsTest(unittest.TestCase):
    """The scripts that need other packages to run."""

    def test_every_script_compiles(self) -> None:
        for path in sorted(SCRIPTS.glob("*.py")):
            with self.subTest(script=path.name):
                compile(path.read_text(encoding="utf-8"), path.name, "exec")


if __name__ == "__main__":
    unittest.main()
