# SPDX-License-Identifier: Apache-2.0
"""Plain texts of the synthetic world: short stories, statements of facts and lines to be copied."""

import random

from world_tables import (
    ANIMALS,
    CITIES,
    COLOUR_WORDS,
    COUNTRIES,
    DAYS,
    MONTHS,
    NAMES,
    STORY_OBJECTS,
    STORY_PLACES,
    STORY_TRAITS,
    Country,
)
from world_words import clock_time, made_up_name, with_article


def story(rng: random.Random) -> str:
    """Five sentences about an animal that finds or loses something and a friend who joins it."""
    hero = rng.choice(NAMES)
    animal = rng.choice(ANIMALS).name
    trait = with_article(rng.choice(STORY_TRAITS))
    thing = rng.choice(STORY_OBJECTS)
    colour = rng.choice(COLOUR_WORDS)
    place = rng.choice(STORY_PLACES)
    friend = rng.choice([name for name in NAMES if name != hero])

    opening = rng.choice(
        [
            f"Once upon a time there was {trait} {animal} named {hero}.",
            f"Once upon a time, {trait} {animal} named {hero} lived near a {place}.",
            f"There was once {trait} {animal} called {hero}.",
        ]
    )
    found_outside = f"One day {hero} found a {colour} {thing} near the {place}."
    found_going_out = f"One morning {hero} went to the {place} and saw a {colour} {thing}."
    lost = f"{hero} lost a {colour} {thing} in the {place}."
    event = rng.choice([found_outside, found_going_out, lost])

    if event == lost:
        reactions = [
            f"{hero} was sad and asked {friend} for help.",
            f"{hero} looked for the {thing} all day.",
        ]
        outcomes = [
            f"{friend} found the {thing} and gave it back to {hero}.",
            f"In the evening {friend} came with the {colour} {thing}.",
        ]
    else:
        reactions = [
            f"{hero} wanted to show the {colour} {thing} to {friend}.",
            f"{hero} gave the {thing} to {friend}.",
            f'"What a nice {thing}!" said {hero}.',
        ]
        outcomes = [
            f"{friend} was very happy and thanked {hero}.",
            f"{hero} and {friend} played with the {thing} until the evening.",
        ]
    reaction = rng.choice(reactions)
    outcome = rng.choice(outcomes)
    ending = rng.choice(
        [
            "They were friends for ever.",
            f"Then {hero} went home and slept.",
            "From that day on they were best friends.",
        ]
    )
    return " ".join([opening, event, reaction, outcome, ending])


def country_text(country: Country, rng: random.Random) -> str:
    """The three facts about a country, usually in the same order."""
    facts = [
        f"{country.name} is in {country.continent}.",
        f"The capital of {country.name} is {country.capital}.",
        f"People in {country.name} speak {country.language}.",
    ]
    if rng.random() < 0.3:
        rng.shuffle(facts)
    return " ".join(facts)


def animal_text(rng: random.Random) -> str:
    """Legs, sound and home of an animal."""
    animal = rng.choice(ANIMALS)
    subject = with_article(animal.name).capitalize()
    legs = f"{animal.legs or 'no'} legs"
    return f"{subject} has {legs}. {subject} {animal.sound}. {subject} lives in a {animal.home}."


def enumeration(words: list[str]) -> str:
    """The words as an English list: commas, and before the last one."""
    return f"{', '.join(words[:-1])} and {words[-1]}"


def weekday_text(rng: random.Random) -> str:
    """All weekdays, then one pair of neighbours."""
    position = rng.randrange(len(DAYS))
    following = DAYS[(position + 1) % len(DAYS)]
    return f"The days of the week are {enumeration(DAYS)}. After {DAYS[position]} comes {following}."


def fact_text(rng: random.Random) -> str:
    """Statements about a country (6 in 10), an animal (2), the weekdays (1) or the months (1)."""
    country = rng.choice(COUNTRIES)  # drawn even when unused, so that a seed always gives the same text
    kind = rng.random()
    if kind < 0.6:
        return country_text(country, rng)
    if kind < 0.8:
        return animal_text(rng)
    if kind < 0.9:
        return weekday_text(rng)
    return f"The months of the year are {enumeration(MONTHS)}."


def random_word(rng: random.Random) -> str:
    """An invented name (2 in 5), a number, a known word or a clock time."""
    candidates = [
        made_up_name(rng),
        made_up_name(rng),
        str(rng.randint(0, 99999)),
        rng.choice(NAMES + CITIES + COLOUR_WORDS),
        clock_time(rng),
    ]
    return rng.choice(candidates)


def random_line(rng: random.Random) -> str:
    """Three to fourteen unrelated words; repeated as a document, it teaches copying from the context."""
    word_count = rng.randint(3, 14)
    return " ".join(random_word(rng) for _ in range(word_count))
