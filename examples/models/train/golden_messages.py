# SPDX-License-Identifier: Apache-2.0
"""Short constructors for the chat messages of the golden prompts and template cases."""

from typing import Any

from world_conversations import Message
from world_tools import TOOLS


def system(content: Any, **fields: Any) -> Message:
    """A system message; fields such as current_date are read by the template."""
    return {"role": "system", "content": content, **fields}


def user(content: Any) -> Message:
    """A user message."""
    return {"role": "user", "content": content}


def assistant(
    content: str | None, thought: str | None = None, calls: list[dict[str, Any]] | None = None
) -> Message:
    """An assistant message; thought and tool calls are left out of it when there are none."""
    message: Message = {"role": "assistant", "content": content}
    if thought:
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = calls
    return message


def tool_response(content: Any) -> Message:
    """The response of a tool."""
    return {"role": "tool", "content": content}


def tool_call(name: str, **arguments: Any) -> dict[str, Any]:
    """An entry of an assistant message's tool_calls."""
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def tools(*names: str) -> list[dict[str, Any]]:
    """The descriptions of the named tools."""
    return [TOOLS[name] for name in names]
