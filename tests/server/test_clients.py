# SPDX-License-Identifier: Apache-2.0
"""Loops of agents through PyPI's clients, streamed and not. Skipped where they are not installed."""

import json
import sys
import unittest

from support import PARIS, TOOLS, Server

try:
    import anthropic
    import openai
except ImportError:
    print("skipped: PyPI's openai and anthropic are not installed")
    sys.exit(77)

ANSWER = "It is sunny in Paris with 27 degrees."


def use(name, arguments):
    return json.dumps({"temperature": 27, "condition": "sunny"} if (name, arguments) == ("get_weather", {"city": "Paris"}) else {})


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server("--api-key", "secret"))
        url = "http://%s:%d" % cls.server.address
        cls.openai = openai.OpenAI(base_url=url + "/v1", api_key="secret", max_retries=0, timeout=60)
        cls.anthropic = anthropic.Anthropic(base_url=url, api_key="secret", max_retries=0, timeout=60)

    def test_chat(self):
        for stream in (False, True):
            messages = list(PARIS)
            for _ in range(3):
                options = dict(model="m", messages=messages, tools=TOOLS, temperature=0, max_tokens=200)
                if stream:
                    with self.openai.chat.completions.stream(**options) as events:
                        for _ in events:
                            pass
                        message = events.get_final_completion().choices[0].message
                else:
                    message = self.openai.chat.completions.create(**options).choices[0].message
                messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
                if not message.tool_calls:
                    break
                for call in message.tool_calls:
                    content = use(call.function.name, json.loads(call.function.arguments))
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
            self.assertEqual(message.content, ANSWER)

    def test_responses(self):
        tools = [{"type": "function", **tool["function"], "strict": False} for tool in TOOLS]
        for stream in (False, True):
            items = list(PARIS)
            for _ in range(3):
                options = dict(model="m", input=items, tools=tools, temperature=0, max_output_tokens=200)
                if stream:
                    with self.openai.responses.stream(**options) as events:
                        for _ in events:
                            pass
                        response = events.get_final_response()
                else:
                    response = self.openai.responses.create(**options)
                items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in response.output]
                calls = [item for item in response.output if item.type == "function_call"]
                items += [{"type": "function_call_output", "call_id": call.call_id,
                           "output": use(call.name, json.loads(call.arguments))} for call in calls]
                if not calls:
                    break
            self.assertEqual(response.output_text, ANSWER)

    def test_messages(self):
        tools = [{"name": t["function"]["name"], "description": t["function"]["description"],
                  "input_schema": t["function"]["parameters"]} for t in TOOLS]
        for stream in (False, True):
            messages = list(PARIS)
            for _ in range(3):
                options = dict(model="m", messages=messages, tools=tools, max_tokens=2000, extra_body={"temperature": 0},
                               thinking={"type": "enabled", "budget_tokens": 1024})
                if stream:
                    with self.anthropic.messages.stream(**options) as events:
                        message = events.get_final_message()
                else:
                    message = self.anthropic.messages.create(**options)
                self.assertEqual(message.content[0].type, "thinking")
                messages.append({"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in message.content]})
                if message.stop_reason != "tool_use":
                    break
                messages.append({"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": b.id, "content": use(b.name, b.input)}
                    for b in message.content if b.type == "tool_use"]})
            self.assertEqual(message.content[-1].text, ANSWER)

    def test_errors(self):
        with self.assertRaises(openai.BadRequestError) as raised:
            self.openai.chat.completions.create(model="m", messages=[{"role": "user", "content": "word " * 9000}])
        self.assertEqual(raised.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.AuthenticationError):
            self.openai.with_options(api_key="other").models.list()
        with self.assertRaises(anthropic.AuthenticationError):
            self.anthropic.with_options(api_key="other").messages.create(model="m", max_tokens=1, messages=PARIS)
        self.assertEqual(self.openai.models.list().data[0].id, "minim-tiny")


if __name__ == "__main__":
    unittest.main()
