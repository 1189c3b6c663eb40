# SPDX-License-Identifier: Apache-2.0
"""Random words shared by the parts of the synthetic world: invented names, people, places and clock times."""

import random

from world_tables import CITIES, ENDINGS, NAMES, ONSETS, SINGLE_ONSETS, VOWELS


def made_up_name(rng: random.Random) -> str:
    """A pronounceable capitalised name of two or three syllables that is in no table (except by accident)."""
    syllable_count = rng.choice([1, 2, 2])
    start = "".join(rng.choice(ONSETS) + rng.choice(VOWELS) for _ in range(syllable_count))
    return start.capitalize() + rng.choice(SINGLE_ONSETS) + rng.choice(VOWELS) + rng.choice(ENDINGS)


def person_name(rng: random.Random) -> str:
    """A first name from the table or, as often, an invented one, so that names have to be copied."""
    return rng.choice(NAMES) if rng.random() < 0.5 else made_up_name(rng)


def place_name(rng: random.Random) -> str:
    """A capital or, less often, an invented place."""
    return rng.choice(CITIES) if rng.random() < 0.7 else made_up_name(rng)


def clock_time(rng: random.Random) -> str:
    """A time of day as HH:MM."""
    hour = rng.randrange(24)
    minute = rng.randrange(60)
    return f"{hour:02d}:{minute:02d}"


def with_article(noun: str) -> str:
    """The noun with its indefinite article, chosen by the first letter."""
    article = "an" if noun[0].lower() in "aeiou" else "a"
    return f"{article} {noun}"
