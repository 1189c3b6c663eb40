# SPDX-License-Identifier: Apache-2.0
"""The facts and word lists of the synthetic world.

Every other world_*.py file draws its text from these tables. The order of the entries matters: the random
choices index into them, so a reordered table gives other documents for the same seed.
"""

from typing import NamedTuple


class Country(NamedTuple):
    """A country and what the model is taught about it."""

    name: str
    capital: str
    continent: str
    language: str


class Animal(NamedTuple):
    """An animal; `sound` is the verb in the third person, `home` the place it lives in."""

    name: str
    legs: int
    sound: str
    emoji: str
    home: str


COUNTRIES = [
    Country("France", "Paris", "Europe", "French"),
    Country("Germany", "Berlin", "Europe", "German"),
    Country("Italy", "Rome", "Europe", "Italian"),
    Country("Spain", "Madrid", "Europe", "Spanish"),
    Country("Portugal", "Lisbon", "Europe", "Portuguese"),
    Country("Poland", "Warsaw", "Europe", "Polish"),
    Country("Greece", "Athens", "Europe", "Greek"),
    Country("Norway", "Oslo", "Europe", "Norwegian"),
    Country("Sweden", "Stockholm", "Europe", "Swedish"),
    Country("Finland", "Helsinki", "Europe", "Finnish"),
    Country("Denmark", "Copenhagen", "Europe", "Danish"),
    Country("Austria", "Vienna", "Europe", "German"),
    Country("Hungary", "Budapest", "Europe", "Hungarian"),
    Country("Ireland", "Dublin", "Europe", "English"),
    Country("Iceland", "Reykjavik", "Europe", "Icelandic"),
    Country("Turkey", "Ankara", "Asia", "Turkish"),
    Country("Japan", "Tokyo", "Asia", "Japanese"),
    Country("China", "Beijing", "Asia", "Chinese"),
    Country("India", "Delhi", "Asia", "Hindi"),
    Country("Thailand", "Bangkok", "Asia", "Thai"),
    Country("Vietnam", "Hanoi", "Asia", "Vietnamese"),
    Country("Nepal", "Kathmandu", "Asia", "Nepali"),
    Country("Mongolia", "Ulaanbaatar", "Asia", "Mongolian"),
    Country("Iran", "Tehran", "Asia", "Persian"),
    Country("Iraq", "Baghdad", "Asia", "Arabic"),
    Country("Egypt", "Cairo", "Africa", "Arabic"),
    Country("Kenya", "Nairobi", "Africa", "Swahili"),
    Country("Ghana", "Accra", "Africa", "English"),
    Country("Nigeria", "Abuja", "Africa", "English"),
    Country("Morocco", "Rabat", "Africa", "Arabic"),
    Country("Ethiopia", "Addis Ababa", "Africa", "Amharic"),
    Country("Senegal", "Dakar", "Africa", "French"),
    Country("Canada", "Ottawa", "North America", "English"),
    Country("Mexico", "Mexico City", "North America", "Spanish"),
    Country("Cuba", "Havana", "North America", "Spanish"),
    Country("Brazil", "Brasilia", "South America", "Portuguese"),
    Country("Peru", "Lima", "South America", "Spanish"),
    Country("Chile", "Santiago", "South America", "Spanish"),
    Country("Argentina", "Buenos Aires", "South America", "Spanish"),
    Country("Australia", "Canberra", "Oceania", "English"),
]
CITIES = [country.capital for country in COUNTRIES]

ANIMALS = [
    Animal("dog", 4, "barks", "🐶", "kennel"),
    Animal("cat", 4, "meows", "🐱", "house"),
    Animal("cow", 4, "moos", "🐮", "barn"),
    Animal("duck", 2, "quacks", "🦆", "pond"),
    Animal("horse", 4, "neighs", "🐴", "stable"),
    Animal("sheep", 4, "bleats", "🐑", "meadow"),
    Animal("pig", 4, "oinks", "🐷", "barn"),
    Animal("frog", 4, "croaks", "🐸", "pond"),
    Animal("owl", 2, "hoots", "🦉", "forest"),
    Animal("lion", 4, "roars", "🦁", "savanna"),
    Animal("wolf", 4, "howls", "🐺", "forest"),
    Animal("mouse", 4, "squeaks", "🐭", "hole"),
    Animal("bee", 6, "buzzes", "🐝", "hive"),
    Animal("hen", 2, "clucks", "🐔", "barn"),
    Animal("snake", 0, "hisses", "🐍", "grass"),
    Animal("bear", 4, "growls", "🐻", "cave"),
]

THING_COLOURS = {
    "grass": "green",
    "sky": "blue",
    "snow": "white",
    "coal": "black",
    "blood": "red",
    "banana": "yellow",
    "carrot": "orange",
    "milk": "white",
    "night": "black",
    "lemon": "yellow",
    "tomato": "red",
    "leaf": "green",
    "sea": "blue",
    "chocolate": "brown",
    "flamingo": "pink",
    "violet": "purple",
    "elephant": "grey",
    "sunflower": "yellow",
    "strawberry": "red",
    "frog": "green",
    "raven": "black",
    "cloud": "white",
}
COLOUR_WORDS = ["red", "blue", "green", "yellow", "white", "black", "purple", "orange", "pink", "brown"]

OPPOSITES = [
    ("hot", "cold"),
    ("big", "small"),
    ("fast", "slow"),
    ("day", "night"),
    ("up", "down"),
    ("old", "new"),
    ("happy", "sad"),
    ("light", "dark"),
    ("open", "closed"),
    ("wet", "dry"),
    ("loud", "quiet"),
    ("full", "empty"),
    ("hard", "soft"),
    ("early", "late"),
    ("rich", "poor"),
    ("strong", "weak"),
    ("tall", "short"),
    ("clean", "dirty"),
]

GREETINGS = {
    "French": "Bonjour!",
    "Spanish": "¡Hola!",
    "German": "Guten Tag!",
    "Italian": "Ciao!",
    "Portuguese": "Olá!",
    "Japanese": "こんにちは!",
    "Chinese": "你好!",
    "Greek": "Γειά σου!",
    "Russian": "Привет!",
    "Korean": "안녕하세요!",
    "Arabic": "مرحبا!",
    "Hindi": "नमस्ते!",
}

DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]

# fmt: off
NAMES = [
    "Alice", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry", "Iris", "Jack",
    "Kate", "Leo", "Mia", "Noah", "Olga", "Paul", "Rosa", "Sam", "Tina", "Victor",
    "Wendy", "Zoe", "Anna", "Oscar", "Lily", "Hugo", "Nina", "Max", "Eva", "Tom",
]

# Syllables of invented names.
SINGLE_ONSETS = ["b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z"]
ONSETS = SINGLE_ONSETS + ["br", "dr", "tr", "st", "kl"]
VOWELS = ["a", "e", "i", "o", "u"]
ENDINGS = ["n", "r", "l", "s", "m", "k", "x", "d", ""]
# fmt: on

WEATHER_CONDITIONS = ["sunny", "cloudy", "rainy", "windy", "snowy", "foggy"]
LANDMARKS = ["lake", "river", "mountain", "village"]

STORY_TRAITS = ["little", "brave", "clever", "lazy", "friendly", "shy", "hungry", "old"]
STORY_OBJECTS = ["ball", "key", "box", "hat", "stone", "flower", "lamp", "book"]
STORY_PLACES = ["forest", "garden", "village", "river", "mountain", "meadow"]
