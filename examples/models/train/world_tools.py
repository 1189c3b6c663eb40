# SPDX-License-Identifier: Apache-2.0
"""The four tools of the synthetic world and the exchanges that call them.

A tool exchange is a question, one or two calls, the tools' responses and the final answer made from them.
"""

import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from world_questions import Exchange
from world_tables import LANDMARKS, WEATHER_CONDITIONS
from world_words import clock_time, made_up_name, place_name


class ToolCall(NamedTuple):
    """One call the model makes."""

    name: str
    arguments: dict[str, Any]


class ToolExchange(NamedTuple):
    """A question that needs tools; `responses` answer `calls` in order."""

    category: str
    question: str
    call_thought: str
    calls: list[ToolCall]
    responses: list[str]
    answer_thought: str
    answer: str


ToolSkill = Callable[[random.Random], ToolExchange]


def describe_tool(name: str, description: str, parameter: str, parameter_description: str) -> dict[str, Any]:
    """A tool with one required string parameter, in the form chat APIs exchange."""
    schema = {
        "type": "object",
        "properties": {parameter: {"type": "string", "description": parameter_description}},
        "required": [parameter],
    }
    function = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}


TOOLS = {
    "get_weather": describe_tool("get_weather", "Get the weather in a city.", "city", "Name of the city"),
    "get_time": describe_tool("get_time", "Get the time in a city.", "city", "Name of the city"),
    "calculator": describe_tool("calculator", "Compute an expression.", "expression", "The expression"),
    "search": describe_tool("search", "Search for a topic.", "query", "The topic"),
}


class Weather(NamedTuple):
    """A response of get_weather."""

    temperature: int
    condition: str

    def response(self) -> str:
        """The tool's response text."""
        return json.dumps(self._asdict())


def random_weather(rng: random.Random) -> Weather:
    """A temperature between 0 and 35 degrees and a condition."""
    temperature = rng.randint(0, 35)
    return Weather(temperature, rng.choice(WEATHER_CONDITIONS))


def use_weather(rng: random.Random) -> ToolExchange:
    """The weather in one place."""
    city = place_name(rng)
    phrasing = rng.choice(
        ["What is the weather in {}?", "How is the weather in {} today?", "Tell me the weather in {}."]
    )
    weather = random_weather(rng)
    return ToolExchange(
        category="get_weather",
        question=phrasing.format(city),
        call_thought=f"The user wants the weather in {city}. I will call get_weather.",
        calls=[ToolCall("get_weather", {"city": city})],
        responses=[weather.response()],
        answer_thought="I have the weather.",
        answer=f"It is {weather.condition} in {city} with {weather.temperature} degrees.",
    )


def use_weather_twice(rng: random.Random) -> ToolExchange:
    """The weather in two places, asked at once: two calls in one turn."""
    first_city = place_name(rng)
    second_city = place_name(rng)
    phrasing = rng.choice(["What is the weather in {} and {}?", "Tell me the weather in {} and {}."])
    first = random_weather(rng)
    second = random_weather(rng)
    return ToolExchange(
        category="two_calls",
        question=phrasing.format(first_city, second_city),
        call_thought=f"The user wants the weather in {first_city} and {second_city}. "
        "I will call get_weather twice.",
        calls=[ToolCall("get_weather", {"city": first_city}), ToolCall("get_weather", {"city": second_city})],
        responses=[first.response(), second.response()],
        answer_thought="I have the weather.",
        answer=f"It is {first.condition} in {first_city} with {first.temperature} degrees"
        f" and {second.condition} in {second_city} with {second.temperature} degrees.",
    )


def use_time(rng: random.Random) -> ToolExchange:
    """The time in one place."""
    city = place_name(rng)
    phrasing = rng.choice(["What time is it in {}?", "Tell me the time in {}.", "What is the time in {}?"])
    time = clock_time(rng)
    return ToolExchange(
        category="get_time",
        question=phrasing.format(city),
        call_thought=f"The user wants the time in {city}. I will call get_time.",
        calls=[ToolCall("get_time", {"city": city})],
        responses=[json.dumps({"time": time})],
        answer_thought="I have the time.",
        answer=f"It is {time} in {city}.",
    )


def use_calculator(rng: random.Random) -> ToolExchange:
    """Arithmetic on numbers too large to do in the head."""
    a = rng.randint(100, 9999)
    b = rng.randint(12, 999)
    operator = rng.choice("+-*")
    result = {"+": a + b, "-": a - b, "*": a * b}[operator]
    phrasing = rng.choice(["What is {} {} {}?", "Compute {} {} {}."])
    return ToolExchange(
        category="calculator",
        question=phrasing.format(a, operator, b),
        call_thought="The numbers are big. I will call calculator.",
        calls=[ToolCall("calculator", {"expression": f"{a} {operator} {b}"})],
        responses=[str(result)],
        answer_thought="I have the result.",
        answer=f"{a} {operator} {b} = {result}.",
    )


def use_search(rng: random.Random) -> ToolExchange:
    """A search for an invented landmark; the answer quotes what was found."""
    name = made_up_name(rng)
    landmark = f"{rng.choice(LANDMARKS)} {name}"
    phrasing = rng.choice(["Find something about the {}.", "Search for the {}."])
    position = rng.choice(["near", "north of", "south of"])
    finding = f"The {landmark} is {position} {place_name(rng)}."
    return ToolExchange(
        category="search",
        question=phrasing.format(landmark),
        call_thought=f"The user asks about the {landmark}. I will call search.",
        calls=[ToolCall("search", {"query": landmark})],
        responses=[finding],
        answer_thought="I have found it.",
        answer=f"I found this: {finding}",
    )


# Tool name -> what it is used for; a skill listed twice is drawn twice as often.
TOOL_SKILLS: dict[str, list[ToolSkill]] = {
    "get_weather": [use_weather, use_weather, use_weather_twice],
    "get_time": [use_time],
    "calculator": [use_calculator],
    "search": [use_search],
}


def ask_without_tool(rng: random.Random) -> Exchange:
    """A question that would need a tool when none is offered; the right answer is to say so."""
    place = place_name(rng)
    if rng.random() < 0.5:
        topic = "weather"
        phrasings = ["What is the weather in {}?", "Tell me the weather in {}."]
    else:
        topic = "time"
        phrasings = ["What time is it in {}?", "Tell me the time in {}."]
    return Exchange(
        "no_tool",
        place,
        rng.choice(phrasings).format(place),
        f"I have no tool for the {topic}.",
        f"I can't check the {topic} right now.",
    )
