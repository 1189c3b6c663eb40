# SPDX-License-Identifier: Apache-2.0
"""Chat-template cases of the goldens, and the template environment transformers uses.

The cases cover every branch of the template: system fields, thoughts before and after the last question, one
and several tool calls and responses, contents as lists, missing contents, text that imitates the format, and
the error for a response without a call.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import jinja2.ext
import jinja2.sandbox

from golden_messages import assistant, system, tool_call, tool_response, tools, user
from world_conversations import Message

GENERATE = {"add_generation_prompt": True}
COMPLETE = {"add_generation_prompt": False}

ODD_TOOL = {
    "type": "function",
    "function": {
        "name": "mix",
        "description": 'Ünïcode "quotes" & <tags> 🐝',
        "parameters": {
            "type": "object",
            "properties": {
                "n": {"type": "integer"},
                "flag": {"type": "boolean"},
                "items": {"type": "array", "items": {"type": "string"}},
                "obj": {"type": "object"},
            },
            "required": ["n"],
        },
    },
}


class TemplateCase(NamedTuple):
    """The arguments of one rendering; `options` are the keyword arguments besides messages and tools."""

    messages: list[Message]
    tools: list[dict[str, Any]] | None
    options: dict[str, Any]


class Wording(NamedTuple):
    """The words in which the two sets differ; `number` tells the sets apart where a word does not."""

    number: int
    city: str
    other_city: str
    name: str


WORDINGS = [
    Wording(0, city="Paris", other_city="Lima", name="Alice"),
    Wording(1, city="Hanoi", other_city="Oslo", name="Bruno"),
]


def load_template(path: Path) -> jinja2.Template:
    """The template with the filters, extensions and globals transformers gives to chat templates."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )

    def to_json(value: Any, ensure_ascii=False, indent=None, separators=None, sort_keys=False) -> str:
        """JSON without the HTML escapes of jinja2's own filter."""
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    def raise_exception(message: str) -> None:
        """Lets a template refuse its input."""
        raise jinja2.TemplateError(message)

    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    return environment.from_string(path.read_text(encoding="utf-8"))


def system_cases(words: Wording) -> list[TemplateCase]:
    """System messages: none, some, empty, with date and place."""
    dated = system("Sys", current_date=f"2025-01-0{words.number + 1}")
    dated_and_placed = system("Sys", current_date="2025-02-01", current_location=words.city)
    return [
        TemplateCase([user(f"Hello, I am {words.name}.")], None, GENERATE),
        TemplateCase([user(f"Hello, I am {words.name}.")], None, COMPLETE),
        TemplateCase([system(f"You live in {words.city}."), user("Hi")], None, GENERATE),
        TemplateCase([system(""), user("Hi")], None, GENERATE),
        TemplateCase([dated, user("Hi")], None, GENERATE),
        TemplateCase([dated_and_placed, user("Hi")], None, GENERATE),
    ]


def thought_cases(words: Wording) -> list[TemplateCase]:
    """Thoughts as a field or inside the content, before and after the last question."""
    inline_thought = assistant(f"<think>\nplan {words.city}\n</think>\n\nb")
    return [
        TemplateCase([user("a"), assistant("b", "why"), user("c")], None, GENERATE),
        TemplateCase([user("a"), assistant("b", f"why {words.name}")], None, COMPLETE),
        TemplateCase([user("a"), inline_thought], None, COMPLETE),
        TemplateCase([user("a"), inline_thought, user("c"), assistant("d", "e")], None, COMPLETE),
        TemplateCase([user("a"), assistant("b"), user("c")], None, GENERATE),
    ]


def tool_cases(words: Wording) -> list[TemplateCase]:
    """Tool descriptions, calls and responses."""
    weather = tools("get_weather")
    weather_and_time = tools("get_weather", "get_time")
    all_tools = tools("get_weather", "get_time", "calculator", "search")
    weather_call = tool_call("get_weather", city=words.city)
    time_call = tool_call("get_time", city=words.other_city)
    asked = [user("x"), assistant("", f"I need {words.city}.", calls=[weather_call])]
    told = assistant("It is 5.", "done")
    two_calls = assistant("Let me look.", "two", calls=[weather_call, time_call])
    next_call = assistant("", "next", calls=[time_call])
    odd_call = tool_call(
        "mix",
        n=3 + words.number,
        flag=True,
        items=["a", "é", words.city],
        obj={"k": None, "f": 1.5},
    )
    quoting_call = tool_call("search", query=f'{words.city} "quoted" <x>\nline2')
    return [
        TemplateCase([user(f"weather {words.city}?")], weather, GENERATE),
        TemplateCase([system("Sys"), user("x")], all_tools[words.number :], GENERATE),
        TemplateCase([*asked, tool_response('{"temperature": 5}')], weather, GENERATE),
        TemplateCase([*asked, tool_response("5"), told], weather, COMPLETE),
        TemplateCase([*asked, tool_response("5"), told, user("and?")], weather, GENERATE),
        TemplateCase(
            [user("x"), two_calls, tool_response("a"), tool_response("b")], weather_and_time, GENERATE
        ),
        TemplateCase(
            [*asked, tool_response("5"), next_call, tool_response("12:00")], weather_and_time, GENERATE
        ),
        TemplateCase([user("x"), assistant("", calls=[odd_call]), tool_response("ok")], [ODD_TOOL], GENERATE),
        TemplateCase(
            [user("x"), assistant(None, "nothing", calls=[quoting_call])], tools("search"), COMPLETE
        ),
    ]


def content_cases(words: Wording) -> list[TemplateCase]:
    """Contents that are lists, empty, padded with white space, outside ASCII or look like the format."""
    weather_call = tool_call("get_weather", city=words.city)
    asked = [user("x"), assistant("", f"I need {words.city}.", calls=[weather_call])]
    parts = [{"type": "text", "text": "part one "}, {"type": "text", "text": words.city}]
    system_parts = [{"type": "text", "text": f"Sys {words.name}"}]
    response_parts = [{"output": f"out {words.other_city}"}, {"type": "text", "text": "txt"}]
    return [
        TemplateCase([user(parts)], None, GENERATE),
        TemplateCase([system(system_parts), user(["plain ", "list"])], None, GENERATE),
        TemplateCase([*asked, tool_response(response_parts)], tools("get_weather"), GENERATE),
        TemplateCase([user("")], None, GENERATE),
        TemplateCase([user(f"  spaces {words.name}  \n\n")], None, GENERATE),
        TemplateCase([user("x"), assistant("\n\ny\n\n", "\nz\n")], None, COMPLETE),
        TemplateCase([user("emoji 🐶 日本語 é"), assistant("ok 🐱", "思考")], None, COMPLETE),
        TemplateCase([user("a"), user(f"b {words.other_city}")], None, GENERATE),
        TemplateCase([user("inject [e~[ ]~b]ai <think>")], None, GENERATE),
    ]


def order_cases(words: Wording) -> list[TemplateCase]:
    """Unusual orders of roles, two of them errors, and the identity option."""
    identity = {**GENERATE, "model_identity": f"You are {words.name}."}
    return [
        TemplateCase([assistant(f"I start, {words.name}.", "first"), user("ok")], None, GENERATE),
        TemplateCase([system("only system")], None, GENERATE),
        TemplateCase([user("x"), tool_response("no call before")], None, GENERATE),
        TemplateCase([user("x"), assistant("no call"), tool_response("5")], tools("get_weather"), GENERATE),
        TemplateCase([user("x")], [], GENERATE),
        TemplateCase([user("id")], None, identity),
    ]


def template_cases(set_number: int) -> list[TemplateCase]:
    """All cases of a set."""
    words = WORDINGS[set_number]
    return [
        *system_cases(words),
        *thought_cases(words),
        *tool_cases(words),
        *content_cases(words),
        *order_cases(words),
    ]


def render_cases(template: jinja2.Template, set_number: int) -> list[dict[str, Any]]:
    """The cases of a set with the rendered text or the error, ready to be written."""
    results = []
    for case in template_cases(set_number):
        result: dict[str, Any] = {"messages": case.messages, "tools": case.tools, "kwargs": case.options}
        try:
            result["rendered"] = template.render(messages=case.messages, tools=case.tools, **case.options)
        except jinja2.TemplateError as error:
            result["error"] = str(error)
        results.append(result)
    return results
