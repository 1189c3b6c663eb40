# SPDX-License-Identifier: Apache-2.0
"""Chat messages -> the text chat_template.jinja renders, cut into segments with a training weight each.

The template stays the definition of the format; this second implementation exists because training needs to
know which characters the model writes itself. It covers what the synthetic world uses: string contents, at
most one system message, arguments as mappings.
"""

import json
from typing import Any, NamedTuple

from world_conversations import Message

BOS = "]~!b["
ROLE = "]~b]"
EOS = "[e~["
TOOL_CALL_START = "<minimax:tool_call>"
TOOL_CALL_END = "</minimax:tool_call>"
DEFAULT_SYSTEM = "You are a helpful assistant."

# Weight of a segment's tokens in the training loss.
SYSTEM_WEIGHT = 0.05
INPUT_WEIGHT = 0.1
OUTPUT_WEIGHT = 1.0

TOOL_INTRODUCTION = """

# Tools
You may call one or more tools to assist with the user query.
Here are the tools available in JSONSchema format:

<tools>
"""
TOOL_INSTRUCTION = """</tools>

When making tool calls, use XML format to invoke tools and pass parameters:

<minimax:tool_call>
<invoke name="tool-name-1">
<parameter name="param-key-1">param-value-1</parameter>
<parameter name="param-key-2">param-value-2</parameter>
...
</invoke>
</minimax:tool_call>"""


class Segment(NamedTuple):
    """A piece of a training document and the loss weight of its tokens."""

    text: str
    weight: float


def to_json(value: Any) -> str:
    """JSON as the template's tojson filter writes it."""
    return json.dumps(value, ensure_ascii=False)


def render_system(text: str, tools: list[dict[str, Any]] | None) -> str:
    """The system turn with the descriptions of the tools."""
    rendered = f"{BOS}{ROLE}system\n{text}"
    if tools:
        descriptions = "".join(f"<tool>{to_json(tool['function'])}</tool>\n" for tool in tools)
        rendered += TOOL_INTRODUCTION + descriptions + TOOL_INSTRUCTION
    return f"{rendered}{EOS}\n"


def render_call(function: dict[str, Any]) -> str:
    """One tool call; string arguments are written as they are, others as JSON."""
    parameters = "".join(
        f'<parameter name="{name}">{value if isinstance(value, str) else to_json(value)}</parameter>\n'
        for name, value in function["arguments"].items()
    )
    return f'<invoke name="{function["name"]}">\n{parameters}</invoke>\n'


def render_assistant(message: Message, with_thought: bool) -> str:
    """Returns the text that the assistant writes after its role header: thought, answer, tool calls."""
    rendered = ""
    if with_thought and message.get("reasoning_content"):
        rendered += f"<think>\n{message['reasoning_content']}\n</think>\n\n"
    rendered += message["content"] or ""
    if message.get("tool_calls"):
        calls = "".join(render_call(call["function"]) for call in message["tool_calls"])
        rendered += f"\n{TOOL_CALL_START}\n{calls}{TOOL_CALL_END}"
    return rendered


def render_response(message: Message, is_first: bool, is_last: bool) -> str:
    """One tool response; responses that follow each other share one turn."""
    start = f"{ROLE}tool" if is_first else ""
    end = f"{EOS}\n" if is_last else ""
    return f"{start}\n<response>{message['content']}</response>{end}"


def render(
    messages: list[Message],
    tools: list[dict[str, Any]] | None = None,
    keep_thoughts: bool = False,
    add_generation_prompt: bool = False,
) -> list[Segment]:
    """The segments of a conversation.

    As in the template, thoughts before the last user message are left out; `keep_thoughts` keeps them, so
    that every answer of a long conversation trains the thought too.
    """
    system_text = DEFAULT_SYSTEM
    if messages and messages[0]["role"] == "system":
        system_text = messages[0]["content"] or DEFAULT_SYSTEM
        messages = messages[1:]
    segments = [Segment(render_system(system_text, tools), SYSTEM_WEIGHT)]

    roles = [message["role"] for message in messages]
    last_question = max((index for index, role in enumerate(roles) if role == "user"), default=-1)
    for index, message in enumerate(messages):
        if roles[index] == "user":
            segments.append(Segment(f"{ROLE}user\n{message['content']}{EOS}\n", INPUT_WEIGHT))
        elif roles[index] == "assistant":
            output = render_assistant(message, keep_thoughts or index > last_question)
            segments.append(Segment(f"{ROLE}ai\n", INPUT_WEIGHT))
            segments.append(Segment(f"{output}{EOS}", OUTPUT_WEIGHT))
            segments.append(Segment("\n", INPUT_WEIGHT))
        else:
            is_first = index == 0 or roles[index - 1] != "tool"
            is_last = index + 1 == len(roles) or roles[index + 1] != "tool"
            segments.append(Segment(render_response(message, is_first, is_last), INPUT_WEIGHT))
    if add_generation_prompt:
        segments.append(Segment(f"{ROLE}ai\n<think>\n", 0.0))
    return segments
