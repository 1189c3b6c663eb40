# SPDX-License-Identifier: Apache-2.0
"""Conversations of the synthetic world as lists of chat messages in the usual API form.

Only exchanges of the training side of the split are used here.
"""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from world_questions import Exchange, draw_exchange
from world_tables import ANIMALS, COLOUR_WORDS
from world_tools import TOOL_SKILLS, TOOLS, ToolExchange, ask_without_tool
from world_words import person_name, place_name

Message = dict[str, Any]

SYSTEM_TEXTS = [
    "You are a friendly assistant.",
    "Answer the question.",
    "You are minim.",
    "Be short and clear.",
]
MAX_RECALLED = 3


class Conversation(NamedTuple):
    """Messages and the tools offered with them, if any."""

    messages: list[Message]
    tools: list[dict[str, Any]] | None = None


def user_message(text: str) -> Message:
    """A message of the user."""
    return {"role": "user", "content": text}


def assistant_message(thought: str, answer: str) -> Message:
    """A message of the assistant with its thought."""
    return {"role": "assistant", "reasoning_content": thought, "content": answer}


def exchange_messages(exchange: Exchange) -> list[Message]:
    """Question and answer."""
    return [user_message(exchange.question), assistant_message(exchange.thought, exchange.answer)]


def tool_messages(exchange: ToolExchange) -> list[Message]:
    """Question, tool calls, one response a call, answer."""
    calls = [
        {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in exchange.calls
    ]
    calling = {**assistant_message(exchange.call_thought, ""), "tool_calls": calls}
    responses = [{"role": "tool", "content": response} for response in exchange.responses]
    answering = assistant_message(exchange.answer_thought, exchange.answer)
    return [user_message(exchange.question), calling, *responses, answering]


def maybe_system_message(rng: random.Random) -> list[Message]:
    """A system message in one conversation of four."""
    if rng.random() < 0.75:
        return []
    return [{"role": "system", "content": rng.choice(SYSTEM_TEXTS)}]


def single_exchange(rng: random.Random) -> Conversation:
    """One question and its answer."""
    exchange = draw_exchange(rng, held_out=False)
    return Conversation(maybe_system_message(rng) + exchange_messages(exchange))


def several_exchanges(rng: random.Random) -> Conversation:
    """Two to five unrelated questions."""
    messages = maybe_system_message(rng)
    for _ in range(rng.randint(2, 5)):
        messages += exchange_messages(draw_exchange(rng, held_out=False))
    return Conversation(messages)


def unanswerable_without_tool(rng: random.Random) -> Conversation:
    """A question that needs a tool, with no tool offered."""
    exchange = ask_without_tool(rng)
    return Conversation(maybe_system_message(rng) + exchange_messages(exchange))


class PersonalFact(NamedTuple):
    """Something users tell about themselves and may ask for later; `{}` stands for the value."""

    name: str
    draw: Callable[[random.Random], str]
    statements: list[str]
    reply: str
    questions: list[str]
    answer: str


PERSONAL_FACTS = [
    PersonalFact(
        "name",
        person_name,
        ["My name is {}.", "I am called {}.", "Hello, my name is {}."],
        "Nice to meet you, {}!",
        ["What is my name?", "Do you remember my name?", "Who am I?"],
        "Your name is {}.",
    ),
    PersonalFact(
        "favourite colour",
        lambda rng: rng.choice(COLOUR_WORDS),
        ["My favourite colour is {}.", "I like the colour {} most."],
        "{} is a nice colour.",
        ["What is my favourite colour?", "Which colour do I like most?"],
        "Your favourite colour is {}.",
    ),
    PersonalFact(
        "city",
        place_name,
        ["I live in {}.", "My home is in {}."],
        "{} sounds like a nice place.",
        ["Where do I live?", "In which city do I live?"],
        "You live in {}.",
    ),
    PersonalFact(
        "pet",
        lambda rng: rng.choice(ANIMALS).name,
        ["I have a pet {}.", "My pet is a {}."],
        "I like your {}.",
        ["What pet do I have?", "Which pet is mine?"],
        "You have a pet {}.",
    ),
]
NAME_FACT = 0


def tell_fact(rng: random.Random, fact: PersonalFact, value: str) -> list[Message]:
    """The user tells a personal fact; a reply that starts with the value starts with a capital."""
    statement = rng.choice(fact.statements).format(value)
    starts_with_value = fact.reply.startswith("{}")
    reply = fact.reply.format(value[0].upper() + value[1:] if starts_with_value else value)
    return [user_message(statement), assistant_message(f"The user tells me the {fact.name}: {value}.", reply)]


def recall_fact(rng: random.Random, fact: PersonalFact, value: str | None) -> list[Message]:
    """The user asks for a personal fact; without a value it was never told."""
    question = user_message(rng.choice(fact.questions))
    if value is None:
        thought = f"The user did not tell me the {fact.name}."
        return [question, assistant_message(thought, f"I don't know. You did not tell me your {fact.name}.")]
    thought = f"The user told me the {fact.name}: {value}."
    return [question, assistant_message(thought, fact.answer.format(value))]


def choose_told_facts(rng: random.Random) -> list[int]:
    """Indices of the facts to tell, with the name among them more often than the others."""
    count = rng.randint(0, 3)
    told = rng.sample(range(len(PERSONAL_FACTS)), count)
    if rng.random() < 0.6 and NAME_FACT not in told:
        told.append(NAME_FACT)
    return told


def memory_conversation(rng: random.Random, only_fact: int | None = None) -> Conversation:
    """Personal facts told, other questions in between, then up to three facts asked for.

    With `only_fact` exactly that fact is told and asked for. Otherwise the user may also ask for facts that
    were never told.
    """
    messages = maybe_system_message(rng)
    told = choose_told_facts(rng) if only_fact is None else [only_fact]
    values: dict[int, str] = {}
    for index in told:
        fact = PERSONAL_FACTS[index]
        values[index] = fact.draw(rng)
        messages += tell_fact(rng, fact, values[index])
        for _ in range(rng.choice([0, 0, 1, 2])):
            messages += exchange_messages(draw_exchange(rng, held_out=False))

    asks_everything = rng.random() < 0.2 and only_fact is None
    asked = list(range(len(PERSONAL_FACTS))) if asks_everything else list(values)
    rng.shuffle(asked)
    for index in (asked or [NAME_FACT])[:MAX_RECALLED]:
        messages += recall_fact(rng, PERSONAL_FACTS[index], values.get(index))
    return Conversation(messages)


def tool_conversation(rng: random.Random) -> Conversation:
    """A few questions with some of the tools offered, most of them needing one.

    Three or four tool descriptions take much of the context, so such conversations have two turns at most.
    """
    tool_count = rng.choice([1, 1, 2, 2, 3, 4])
    names = rng.sample(list(TOOLS), tool_count)
    messages = maybe_system_message(rng)
    for _ in range(rng.randint(1, 4 if tool_count < 3 else 2)):
        if rng.random() < 0.85:
            skill = rng.choice(TOOL_SKILLS[rng.choice(names)])
            messages += tool_messages(skill(rng))
        else:
            messages += exchange_messages(draw_exchange(rng, held_out=False))
    return Conversation(messages, [TOOLS[name] for name in names])
