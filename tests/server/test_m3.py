# SPDX-License-Identifier: Apache-2.0
"""The chat format of M3 in all APIs: thinking modes, reasoning, tool calls, roles. The model's words make no sense, so constraints say what it
writes."""

import json
import os
import pathlib
import sys
import tempfile
import unittest

from support import CHAT, HELLO, ROOT, Server
from test_messages import fold as fold_messages
from test_responses import fold as fold_response

sys.path.insert(0, str(ROOT / "tests" / "support"))
import m3_chat_model  # noqa: E402

MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
PARAMETERS = {"type": "object", "required": ["steps"], "properties": {"steps": {"type": "array", "minItems": 1, "maxItems": 2, "items": {
    "type": "object", "properties": {"do": {"enum": ["pack", "go"]}, "far": {"type": "boolean"}}, "required": ["do"]}}}}
TOOL = {"type": "function", "function": {"name": "plan", "parameters": PARAMETERS}}
PICTURE = [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]}]


class M3(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.model = m3_chat_model.make(os.environ["MINIM_TEST_MODELS"], pathlib.Path(folder) / "m3")
        cls.server = cls.enterClassContext(Server(model=cls.model))

    def prompt(self, messages=HELLO, **fields):
        return self.server.ok("/apply-template", {"messages": messages, **fields})["prompt"]

    def test_thinking_modes(self):
        modes = {
            "enabled": [{"thinking": {"type": "enabled"}}, {"enable_thinking": True}, {"thinking": True}, {"think": True}, {"reasoning": {"enabled": True}},
                        {"chat_template_kwargs": {"enable_thinking": True}}, {"chat_template_kwargs": {"thinking_mode": "enabled"}},
                        {"thinking": {"type": "enabled"}, "reasoning_effort": "minimal"}],
            "disabled": [{"thinking": {"type": "disabled"}}, {"enable_thinking": False}, {"reasoning_effort": "none"}, {"reasoning_effort": "minimal"},
                         {"reasoning": {"effort": "minimal"}}, {"thinking_budget_tokens": 0}, {"chat_template_kwargs": {"thinking_mode": "disabled"}},
                         {"chat_template_kwargs": {"thinking": False}}, {"thinking": {"type": "adaptive"}, "reasoning_effort": "none"}],
            "adaptive": [{}, {"thinking": {"type": "adaptive"}}, {"thinking": {"type": "auto"}}, {"reasoning_effort": "high"}, {"reasoning_effort": "low"}],
        }
        ends = {"enabled": "]~b]ai\n<mm:think>", "disabled": "]~b]ai\n</mm:think>", "adaptive": "]~b]ai\n"}
        for mode, all_fields in modes.items():
            for fields in all_fields:
                with self.subTest(fields):
                    prompt = self.prompt(**fields)
                    self.assertTrue(prompt.endswith(ends[mode]), prompt[-40:])
                    self.assertIn(f"Current thinking mode: {mode}.", prompt)
        self.assertNotIn("does not use the variable", self.server.text())

    def test_roles(self):
        messages = [{"role": "root", "content": "ROOT"}, {"role": "developer", "content": "A"}, *HELLO, {"role": "system", "content": "B"}]
        prompt = self.prompt(messages)
        self.assertTrue(prompt.startswith("]~!b[]~b]system\nROOT\n\n"), prompt)
        self.assertIn("]~b]developer\nA\n\nB[e~[", prompt)
        for messages in ([*HELLO, {"role": "root", "content": "x"}], [{"role": "owner", "content": "x"}]):
            status, _, answer = self.server.post(CHAT, {"messages": messages})
            self.assertEqual((status, answer["error"]["param"][-5:]), (400, ".role"), answer)

    def test_reasoning_of_every_turn_is_kept(self):
        messages = [*HELLO, {"role": "assistant", "content": "A", "reasoning_content": "one"}, *HELLO,
                    {"role": "assistant", "content": "B", "reasoning_content": "two"}, *HELLO]
        prompt = self.prompt(messages)
        self.assertIn("<mm:think>one</mm:think>A[e~[", prompt)
        self.assertIn("<mm:think>two</mm:think>B[e~[", prompt)

    def test_pictures_are_refused(self):
        status, _, answer = self.server.post(CHAT, {"messages": PICTURE})
        self.assertEqual((status, answer["error"]["param"]), (400, "messages[0].content[1].type"))
        self.assertIn("image_url", answer["error"]["message"])

    def check_call(self, name, arguments):
        self.assertEqual(name, "plan")
        steps = json.loads(arguments)["steps"] if isinstance(arguments, str) else arguments["steps"]
        self.assertIn(len(steps), (1, 2))
        for step in steps:
            self.assertIn(step["do"], ("pack", "go"))
            self.assertIn(step.get("far", True), (True, False))

    def test_calls(self):
        fields = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False, "thinking": {"type": "disabled"}, "max_tokens": 300}
        choice = self.server.chat(HELLO, **fields)["choices"][0]
        self.assertEqual((choice["finish_reason"], choice["message"]["content"]), ("tool_calls", None))
        call = choice["message"]["tool_calls"][0]["function"]
        self.check_call(call["name"], call["arguments"])
        deltas = [chunk["choices"][0]["delta"] for chunk in self.server.chunks(HELLO, **fields)]
        pieces = [piece["function"] for delta in deltas for piece in delta.get("tool_calls") or []]
        self.assertEqual("".join(piece.get("arguments", "") for piece in pieces), call["arguments"])
        self.assertEqual(pieces[0]["name"], "plan")

        anthropic = {"messages": HELLO, "max_tokens": 300, "temperature": 0, "thinking": {"type": "disabled"},
                     "tools": [{"name": "plan", "input_schema": PARAMETERS}], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}
        message = self.server.ok(MESSAGES, anthropic)
        self.assertEqual([block["type"] for block in message["content"]], ["tool_use"])
        self.check_call(message["content"][0]["name"], message["content"][0]["input"])
        self.assertEqual(fold_messages(self.server.events(MESSAGES, anthropic))["content"][0]["input"], message["content"][0]["input"])

        openai = {"input": HELLO, "max_output_tokens": 300, "temperature": 0, "thinking": {"type": "disabled"}, "tool_choice": "required",
                  "parallel_tool_calls": False, "tools": [{"type": "function", "name": "plan", "parameters": PARAMETERS}]}
        item = self.server.ok(RESPONSES, openai)["output"][-1]
        self.check_call(item["name"], item["arguments"])
        self.assertEqual(fold_response(self.server.events(RESPONSES, openai))["output"][-1]["arguments"], item["arguments"])

    def test_calls_that_must_come_may_follow_reasoning(self):
        # The likeliest first tokens: reasoning, its end alone, or the call. The budget ends reasoning, since these words make no sense.
        server = self.server
        bias = {tag: server.ok("/tokenize", {"content": tag, "parse_special": True})["tokens"][0] for tag in ("<mm:think>", "</mm:think>")}
        fields = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 300, "temperature": 0}
        for first, thinks in (("<mm:think>", True), ("</mm:think>", False), (None, False)):
            other = {"logit_bias": {str(token): 100 if tag == first else -100 for tag, token in bias.items()}}
            choice = server.chat(HELLO, thinking_budget_tokens=3, **fields, **other)["choices"][0]
            with self.subTest(first):
                self.assertEqual(choice["finish_reason"], "tool_calls")
                self.assertEqual(bool(choice["message"].get("reasoning_content")), thinks, choice)
                self.assertFalse(choice["message"]["content"])
                call = choice["message"]["tool_calls"][0]["function"]
                self.check_call(call["name"], call["arguments"])
        # A prompt that ends reasoning has none, whatever the model would like.
        choice = server.chat(HELLO, thinking={"type": "disabled"}, logit_bias={str(bias["<mm:think>"]): 100}, **fields)["choices"][0]
        self.assertFalse(choice["message"].get("reasoning_content"))
        # The same for other structured output.
        other = {"guided_regex": "hello", "logit_bias": {str(bias["<mm:think>"]): 100, str(bias["</mm:think>"]): 0}}
        message = server.chat(HELLO, thinking_budget_tokens=3, max_tokens=30, temperature=0, **other)["choices"][0]["message"]
        self.assertEqual(message["content"], "hello")
        self.assertTrue(message["reasoning_content"])

    def test_a_call_and_its_result_go_on(self):
        call = {"id": "call_1", "type": "function", "function": {"name": "plan", "arguments": '{"steps": [{"do": "go"}]}'}}
        prompt = self.prompt([*HELLO, {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "call_1", "content": "done"}], tools=[TOOL])
        mark = "]<]minimax[>["
        self.assertIn(f"]~b]ai\n</mm:think>{mark}<tool_call>\n{mark}<invoke name=\"plan\">{mark}<steps>{mark}<item>{mark}<do>go{mark}</do>{mark}</item>{mark}</steps>"
                      f"{mark}</invoke>\n{mark}</tool_call>[e~[\n]~b]tool\n<response>done</response>[e~[\n", prompt)

    def test_reasoning(self):
        enabled = {"thinking": {"type": "enabled", "budget_tokens": 3}, "guided_regex": "hello", "temperature": 0}
        answer = self.server.chat(HELLO, max_tokens=30, **enabled)
        message = answer["choices"][0]["message"]
        self.assertEqual(message["content"], "hello")
        self.assertTrue(message["reasoning_content"])
        self.assertEqual(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], 3)
        deltas = [chunk["choices"][0]["delta"] for chunk in self.server.chunks(HELLO, max_tokens=30, **enabled)]
        self.assertEqual("".join(delta.get("reasoning_content") or "" for delta in deltas), message["reasoning_content"])
        blocks = self.server.ok(MESSAGES, {"messages": HELLO, "max_tokens": 30, **enabled})["content"]
        self.assertEqual([block["type"] for block in blocks], ["thinking", "text"])
        output = self.server.ok(RESPONSES, {"input": HELLO, "max_output_tokens": 30, **enabled})["output"]
        self.assertEqual([item["type"] for item in output], ["reasoning", "message"])

    def test_reasoning_that_the_model_opens(self):
        grammar = 'root ::= <mm:think> "let me see" </mm:think> "hello"'
        for fields in ({}, {"thinking": {"type": "adaptive"}}):
            message = self.server.chat(HELLO, max_tokens=30, grammar=grammar, **fields)["choices"][0]["message"]
            self.assertEqual((message["reasoning_content"], message["content"]), ("let me see", "hello"))
        closer = self.server.chat(HELLO, max_tokens=30, grammar='root ::= </mm:think> "hello"')["choices"][0]["message"]
        self.assertEqual((closer.get("reasoning_content"), closer["content"]), (None, "hello"))
        tags = self.server.chat(HELLO, max_tokens=30, grammar=grammar, reasoning_split=False)["choices"][0]["message"]
        self.assertEqual(tags["content"], "<mm:think>let me see</mm:think>hello")


if __name__ == "__main__":
    unittest.main()
