# SPDX-License-Identifier: Apache-2.0
"""The prompts of the goldens: one mapping of names for each of the two sets."""

import json
from typing import Any

from golden_messages import assistant, system, tool_call, tool_response, tools, user
from world_conversations import Conversation, Message


def weather_request(city: str, temperature: int, condition: str) -> list[Message]:
    """A question about the weather, the call and the tool's response, without the answer."""
    return [
        user(f"What is the weather in {city}?"),
        assistant(
            "",
            f"The user wants the weather in {city}. I will call get_weather.",
            calls=[tool_call("get_weather", city=city)],
        ),
        tool_response(json.dumps({"temperature": temperature, "condition": condition})),
    ]


def chat(*messages: Message, offered: list[dict[str, Any]] | None = None) -> Conversation:
    """A conversation that waits for the assistant."""
    return Conversation(list(messages), offered)


PROMPTS_A: dict[str, str | Conversation] = {
    "plain_story": "Once upon a time there was a little fox named Zoe.",
    "chat_capital": chat(user("What is the capital of France?")),
    "chat_add": chat(user("What is 47 + 25?")),
    "tool_call": chat(user("What is the weather in Paris?"), offered=tools("get_weather", "calculator")),
    "tool_answer": chat(*weather_request("Oslo", 3, "snowy"), offered=tools("get_weather")),
    "memory": chat(
        user("My name is Clara."),
        assistant("Nice to meet you, Clara!"),
        user("Which day comes after Friday?"),
        assistant("Saturday comes after Friday."),
        user("What is my name?"),
    ),
    "unicode": chat(
        user("Which animal is 🐸?"),
        assistant("🐸 is a frog."),
        user("Say hello in Japanese."),
        assistant("こんにちは!"),
        user("Say hello in Greek."),
    ),
    "long": chat(
        system("You are a friendly assistant."),
        *weather_request("Nairobi", 27, "sunny"),
        assistant("It is sunny in Nairobi with 27 degrees."),
        user("I have a pet owl."),
        assistant("I like your owl."),
        user("What sound does a cow make?"),
        assistant("A cow moos."),
        user("Tell me the time in Lima."),
        offered=tools("get_time", "get_weather"),
    ),
}

PROMPTS_B: dict[str, str | Conversation] = {
    "plain_story": "Once upon a time, a brave horse named Hugo lived near a river.",
    "plain_fact": "Kenya is in Africa. The capital of Kenya is",
    "chat_language": chat(user("What language do people speak in Chile?")),
    "chat_sub": chat(user("What is 83 - 57?")),
    "tool_call_two": chat(
        user("What is the weather in Rome and Hanoi?"), offered=tools("get_time", "get_weather")
    ),
    "tool_answer": chat(
        user("What time is it in Cairo?"),
        assistant(
            "",
            "The user wants the time in Cairo. I will call get_time.",
            calls=[tool_call("get_time", city="Cairo")],
        ),
        tool_response(json.dumps({"time": "06:41"})),
        offered=tools("get_time", "search"),
    ),
    "memory": chat(
        system("Be short and clear."),
        user("I live in Brasilia."),
        assistant("Brasilia sounds like a nice place."),
        user("My favourite colour is purple."),
        assistant("Purple is a nice colour."),
        user("Where do I live?"),
    ),
    "unicode": chat(
        user("Greet me in Korean."),
        assistant("안녕하세요!"),
        user("Show me the emoji of a pig."),
        assistant("Here it is: 🐷"),
        user("Which animal is 🐝?"),
    ),
    "long": chat(
        user("My name is Victor."),
        assistant("Nice to meet you, Victor!"),
        user("Search for the lake Torabin."),
        assistant("", calls=[tool_call("search", query="lake Torabin")]),
        tool_response("The lake Torabin is north of Accra."),
        assistant("I found this: The lake Torabin is north of Accra."),
        user("Count from 4 to 9."),
        assistant("4, 5, 6, 7, 8, 9."),
        user("What colour is the sky?"),
        assistant("The sky is blue."),
        user("What is the weather in Dublin?"),
        offered=tools("search", "get_weather"),
    ),
}

PROMPT_SETS = [PROMPTS_A, PROMPTS_B]
