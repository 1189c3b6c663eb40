# SPDX-License-Identifier: Apache-2.0
"""Question-and-answer skills: facts, arithmetic, order, opposites, copying, small talk.

A skill is a function from a random generator to one Exchange. One exchange in ten, chosen by a checksum of
its category and key, is held out of training and used to measure accuracy.
"""

import random
import zlib
from collections.abc import Callable
from typing import NamedTuple

from world_tables import (
    ANIMALS,
    COLOUR_WORDS,
    COUNTRIES,
    DAYS,
    GREETINGS,
    MONTHS,
    NAMES,
    OPPOSITES,
    THING_COLOURS,
)
from world_words import made_up_name, with_article

HELD_OUT_MODULUS = 10


class Exchange(NamedTuple):
    """One question with its thought and answer; `key` names the fact and the phrasing inside the category."""

    category: str
    key: str
    question: str
    thought: str
    answer: str


Skill = Callable[[random.Random], Exchange]


def pick_phrasing(rng: random.Random, phrasings: list[str]) -> tuple[int, str]:
    """A random phrasing and its index; the index becomes part of the exchange's key."""
    index = rng.randrange(len(phrasings))
    return index, phrasings[index]


def ask_capital(rng: random.Random) -> Exchange:
    """The capital of a country."""
    country = rng.choice(COUNTRIES)
    index, phrasing = pick_phrasing(
        rng,
        [
            "What is the capital of {}?",
            "Which city is the capital of {}?",
            "Tell me the capital of {}.",
            "Name the capital city of {}.",
            "{}: what is its capital?",
            "Do you know the capital of {}?",
        ],
    )
    return Exchange(
        "capital",
        f"{country.name}/{index}",
        phrasing.format(country.name),
        f"The user asks for the capital of {country.name}.",
        f"The capital of {country.name} is {country.capital}.",
    )


def ask_country(rng: random.Random) -> Exchange:
    """The country of a capital."""
    country = rng.choice(COUNTRIES)
    index, phrasing = pick_phrasing(
        rng,
        [
            "Which country has the capital {}?",
            "{} is the capital of which country?",
            "Of which country is {} the capital?",
        ],
    )
    return Exchange(
        "country",
        f"{country.name}/{index}",
        phrasing.format(country.capital),
        f"The user asks which country has the capital {country.capital}.",
        f"{country.capital} is the capital of {country.name}.",
    )


def ask_continent(rng: random.Random) -> Exchange:
    """The continent of a country."""
    country = rng.choice(COUNTRIES)
    index, phrasing = pick_phrasing(
        rng,
        [
            "On which continent is {}?",
            "Where is {}?",
            "Which continent is {} in?",
            "Tell me the continent of {}.",
        ],
    )
    return Exchange(
        "continent",
        f"{country.name}/{index}",
        phrasing.format(country.name),
        f"The user asks for the continent of {country.name}.",
        f"{country.name} is in {country.continent}.",
    )


def ask_language(rng: random.Random) -> Exchange:
    """The language of a country."""
    country = rng.choice(COUNTRIES)
    index, phrasing = pick_phrasing(
        rng,
        [
            "What language do people speak in {}?",
            "Which language is spoken in {}?",
            "What is the language of {}?",
            "Tell me the language of {}.",
        ],
    )
    return Exchange(
        "language",
        f"{country.name}/{index}",
        phrasing.format(country.name),
        f"The user asks for the language of {country.name}.",
        f"People in {country.name} speak {country.language}.",
    )


def ask_unknown_country(rng: random.Random) -> Exchange:
    """A question about a country that does not exist; the right answer is not to know."""
    name = made_up_name(rng)
    phrasing = rng.choice(
        [
            "What is the capital of {}?",
            "What language do people speak in {}?",
            "On which continent is {}?",
            "Tell me the capital of {}.",
            "Which language is spoken in {}?",
        ]
    )
    return Exchange(
        "unknown",
        name,
        phrasing.format(name),
        f"I have never heard of {name}.",
        f"I don't know. I have never heard of {name}.",
    )


def addition_thought(a: int, b: int) -> str:
    """Column addition of two two-digit numbers, written out with the carry."""
    ones = a % 10 + b % 10
    tens = a // 10 + b // 10
    ones_step = f"Ones: {a % 10} + {b % 10} = {ones}."
    if ones >= 10:
        tens_step = f"Carry 1. Tens: {a // 10} + {b // 10} + 1 = {tens + 1}."
    else:
        tens_step = f"Tens: {a // 10} + {b // 10} = {tens}."
    return f"{ones_step} {tens_step} So {a} + {b} = {a + b}."


def subtraction_thought(a: int, b: int) -> str:
    """Column subtraction of two two-digit numbers with a >= b, written out with the borrow."""
    a_tens, a_ones = divmod(a, 10)
    b_tens, b_ones = divmod(b, 10)
    if a_ones < b_ones:
        ones_step = f"Ones: {a_ones} is less than {b_ones}. Borrow 1. "
        ones_step += f"{a_ones + 10} - {b_ones} = {a_ones + 10 - b_ones}."
        tens_step = f"Tens: {a_tens} - 1 - {b_tens} = {a_tens - 1 - b_tens}."
    else:
        ones_step = f"Ones: {a_ones} - {b_ones} = {a_ones - b_ones}."
        tens_step = f"Tens: {a_tens} - {b_tens} = {a_tens - b_tens}."
    return f"{ones_step} {tens_step} So {a} - {b} = {a - b}."


def ask_sum(rng: random.Random) -> Exchange:
    """The sum of two two-digit numbers."""
    a = rng.randint(10, 99)
    b = rng.randint(10, 99)
    phrasing = rng.choice(["What is {} + {}?", "{} + {}", "Add {} + {}.", "Compute {} + {}."])
    return Exchange("add", f"{a}+{b}", phrasing.format(a, b), addition_thought(a, b), f"{a} + {b} = {a + b}.")


def ask_difference(rng: random.Random) -> Exchange:
    """The difference of two two-digit numbers, never negative."""
    first = rng.randint(10, 99)
    second = rng.randint(10, 99)
    a, b = max(first, second), min(first, second)
    phrasing = rng.choice(["What is {} - {}?", "{} - {}", "Compute {} - {}."])
    return Exchange(
        "sub", f"{a}-{b}", phrasing.format(a, b), subtraction_thought(a, b), f"{a} - {b} = {a - b}."
    )


def ask_comparison(rng: random.Random) -> Exchange:
    """The larger or the smaller of two different numbers."""
    a, b = rng.sample(range(10, 100), 2)
    wants_larger = rng.random() < 0.5
    if wants_larger:
        phrasings = ["Which is larger, {} or {}?", "Which number is bigger, {} or {}?"]
        answer = f"{max(a, b)} is larger."
    else:
        phrasings = ["Which is smaller, {} or {}?", "Which number is less, {} or {}?"]
        answer = f"{min(a, b)} is smaller."
    question = rng.choice(phrasings).format(a, b)
    return Exchange(
        "compare", f"{a},{b},{wants_larger}", question, f"{min(a, b)} is less than {max(a, b)}.", answer
    )


def ask_order(rng: random.Random) -> Exchange:
    """The weekday or month before or after another one."""
    kind, series = ("day", DAYS) if rng.random() < 0.5 else ("month", MONTHS)
    position = rng.randrange(len(series))
    item = series[position]
    index, phrasing = pick_phrasing(
        rng,
        [
            "Which {kind} comes after {item}?",
            "What comes after {item}?",
            "Which {kind} comes before {item}?",
            "What comes before {item}?",
        ],
    )
    direction, step = ("after", 1) if index < 2 else ("before", -1)
    neighbour = series[(position + step) % len(series)]
    return Exchange(
        "order",
        f"{item}/{index}",
        phrasing.format(kind=kind, item=item),
        f"The user asks for the {kind} {direction} {item}.",
        f"{neighbour} comes {direction} {item}.",
    )


def ask_animal(rng: random.Random) -> Exchange:
    """Legs, sound, home or emoji of an animal, or the animal behind an emoji or a sound."""
    animal = rng.choice(ANIMALS)
    noun = with_article(animal.name)
    subject = noun.capitalize()
    legs = f"{animal.legs or 'no'} legs"
    aspects = [
        (
            f"How many legs does {noun} have?",
            f"The user asks about the legs of {noun}.",
            f"{subject} has {legs}.",
        ),
        (
            f"What sound does {noun} make?",
            f"The user asks about the sound of {noun}.",
            f"{subject} {animal.sound}.",
        ),
        (
            f"Where does {noun} live?",
            f"The user asks about the home of {noun}.",
            f"{subject} lives in a {animal.home}.",
        ),
        (f"Which animal is {animal.emoji}?", f"The user shows {animal.emoji}.", f"{animal.emoji} is {noun}."),
        (
            f"Show me the emoji of {noun}.",
            f"The user wants the emoji of {noun}.",
            f"Here it is: {animal.emoji}",
        ),
        (
            f"Which animal {animal.sound}?",
            f"The user asks for the animal that {animal.sound}.",
            f"{subject} {animal.sound}.",
        ),
    ]
    index = rng.randrange(len(aspects))
    return Exchange("animal", f"{animal.name}/{index}", *aspects[index])


def ask_colour(rng: random.Random) -> Exchange:
    """The usual colour of a thing."""
    thing = rng.choice(list(THING_COLOURS))
    index, phrasing = pick_phrasing(
        rng, ["What colour is the {}?", "Which colour does the {} have?", "Tell me the colour of the {}."]
    )
    return Exchange(
        "colour",
        f"{thing}/{index}",
        phrasing.format(thing),
        f"The user asks for the colour of the {thing}.",
        f"The {thing} is {THING_COLOURS[thing]}.",
    )


def ask_opposite(rng: random.Random) -> Exchange:
    """The opposite of an adjective or adverb, asked from either side."""
    pair = rng.choice(OPPOSITES)
    side = rng.randrange(2)
    word, opposite = pair[side], pair[1 - side]
    index, phrasing = pick_phrasing(
        rng,
        ["What is the opposite of {}?", "Name the opposite of {}.", "Which word means the opposite of {}?"],
    )
    return Exchange(
        "opposite",
        f"{word}/{index}",
        phrasing.format(word),
        f"The user asks for the opposite of {word}.",
        f"The opposite of {word} is {opposite}.",
    )


def ask_greeting(rng: random.Random) -> Exchange:
    """A greeting in another language."""
    language = rng.choice(list(GREETINGS))
    index, phrasing = pick_phrasing(
        rng, ["Say hello in {}.", "How do you say hello in {}?", "Greet me in {}."]
    )
    return Exchange(
        "greeting",
        f"{language}/{index}",
        phrasing.format(language),
        f"The user wants a greeting in {language}.",
        GREETINGS[language],
    )


def ask_count(rng: random.Random) -> Exchange:
    """Counting over three to eight numbers."""
    first = rng.randint(1, 30)
    last = first + rng.randint(2, 7)
    numbers = ", ".join(str(number) for number in range(first, last + 1))
    return Exchange(
        "count",
        f"{first}-{last}",
        f"Count from {first} to {last}.",
        f"I count from {first} to {last}.",
        f"{numbers}.",
    )


def ask_repeat(rng: random.Random) -> Exchange:
    """Repeating one to four words, known or invented."""
    known_words = NAMES + COLOUR_WORDS + [animal.name for animal in ANIMALS]
    word_count = rng.randint(1, 4)
    words = [made_up_name(rng) if rng.random() < 0.4 else rng.choice(known_words) for _ in range(word_count)]
    text = " ".join(words)
    phrasing = rng.choice(["Repeat: {}", "Repeat after me: {}", "Please repeat: {}"])
    return Exchange("repeat", text, phrasing.format(text), "The user wants me to repeat the words.", text)


# What the user says -> (thought, answer).
GREETED = ("The user greets me.", "Hello! How can I help you?")
ASKED_ABOUT = ("The user asks about me.", "I am minim, a tiny language model. I can answer simple questions.")
THANKED = ("The user says thanks.", "You are welcome!")
TAKEN_LEAVE_OF = ("The user says goodbye.", "Goodbye! Have a nice day.")
SMALL_TALK = {
    "Hello!": GREETED,
    "Hi!": GREETED,
    "Good morning!": GREETED,
    "Hello, how are you?": GREETED,
    "Hi there!": GREETED,
    "Who are you?": ASKED_ABOUT,
    "What can you do?": ASKED_ABOUT,
    "Thank you!": THANKED,
    "Thanks a lot!": THANKED,
    "Goodbye!": TAKEN_LEAVE_OF,
    "Bye!": TAKEN_LEAVE_OF,
}


def small_talk(rng: random.Random) -> Exchange:
    """Greetings, thanks, goodbyes and questions about the model itself."""
    saying = rng.choice(list(SMALL_TALK))
    return Exchange("hello", saying, saying, *SMALL_TALK[saying])


# (skill, share of the training questions)
SKILLS: list[tuple[Skill, int]] = [
    (ask_capital, 8),
    (ask_country, 6),
    (ask_continent, 5),
    (ask_language, 5),
    (ask_unknown_country, 4),
    (ask_sum, 22),
    (ask_difference, 22),
    (ask_comparison, 6),
    (ask_order, 5),
    (ask_animal, 9),
    (ask_colour, 4),
    (ask_opposite, 4),
    (ask_greeting, 3),
    (ask_count, 5),
    (ask_repeat, 6),
    (small_talk, 3),
]


def is_held_out(exchange: Exchange) -> bool:
    """Returns whether the exchange belongs to the tenth that training never sees."""
    return zlib.crc32(f"{exchange.category}/{exchange.key}".encode()) % HELD_OUT_MODULUS == 0


def random_skill(rng: random.Random) -> Skill:
    """A skill drawn by its share."""
    skills = [skill for skill, _ in SKILLS]
    shares = [share for _, share in SKILLS]
    return rng.choices(skills, shares)[0]


def draw_exchange(rng: random.Random, held_out: bool, skill: Skill | None = None) -> Exchange:
    """Draw until an exchange is on the wanted side of the split; small talk is too little to be split.

    Without a given skill every attempt draws a new one, which keeps the shares of skills whose exchanges are
    rejected more often a little below their nominal value.
    """
    while True:
        exchange = (skill or random_skill(rng))(rng)
        if exchange.category == "hello" or is_held_out(exchange) == held_out:
            return exchange
