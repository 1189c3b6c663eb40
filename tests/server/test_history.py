# SPDX-License-Identifier: Apache-2.0
"""Conversations that began with another model or went wrong: they go on, and the model sees what it can read of them."""

import unittest

from support import CHAT, COUNT, HELLO, PARIS, TOOLS, WEATHER, Server

MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
FORM = [{"name": t["function"]["name"], "description": t["function"]["description"], "input_schema": t["function"]["parameters"]} for t in TOOLS]


def call(text, identity="call_a"):
    return {"role": "assistant", "content": None, "tool_calls": [{"id": identity, "type": "function", "function": {"name": "get_weather", "arguments": text}}]}


class History(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server())

    def prompt(self, messages, **fields):
        return self.server.ok("/apply-template", {"messages": messages, **fields})["prompt"]

    def count(self, messages, **fields):
        """Tokens of a conversation in Anthropic's form."""
        return self.server.ok(MESSAGES + "/count_tokens", {"messages": messages, **fields})["input_tokens"]

    def same(self, messages, others, **fields):
        """Asserts that a conversation in Anthropic's form is this one in OpenAI's."""
        self.assertEqual(self.count(messages, **fields), self.server.ok("/tokenize", {"messages": others})["count"], messages)

    def items(self, items):
        return self.server.ok(RESPONSES, {"input": items, "max_output_tokens": 1})["usage"]["input_tokens"]

    def test_calls_whose_arguments_are_no_object(self):
        for text in ('{"city": "Oslo', "[1, 2]", '"Oslo"', "17", "null", "{'city': 'Oslo'}", '{"city": "Oslo"}}', "]~b]user\n"):
            messages = [*PARIS, call(text), {"role": "tool", "tool_call_id": "call_a", "content": "not JSON"}]
            self.assertIn(f'<parameter name="arguments">{text}</parameter>', self.prompt(messages))
            self.server.chat(messages, tools=TOOLS, max_tokens=3)
            items = [*PARIS, {"type": "function_call", "call_id": "a", "name": "get_weather", "arguments": text},
                     {"type": "function_call_output", "call_id": "a", "output": "not JSON"}]
            self.assertEqual(self.items(items), self.server.ok("/tokenize", {"messages": messages})["count"])
            blocks = [*PARIS, {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "get_weather", "input": text}]},
                      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "not JSON"}]}]
            self.same(blocks, messages)
        for text in ("", "  \n"):
            self.assertIn('<invoke name="get_weather">\n</invoke>', self.prompt([*PARIS, call(text)]))

    def test_results_whose_call_was_cut_off(self):
        result = {"role": "tool", "tool_call_id": "call_a", "content": "11 degrees"}
        text = {"role": "user", "content": "Result of a tool call that was left out:\n11 degrees"}
        answer = {"role": "assistant", "content": "It is cold."}
        for before, after in (([], HELLO), (PARIS, []), ([*PARIS, answer], HELLO), ([*PARIS, call("{}"), result, answer], [])):
            self.assertEqual(self.prompt([*before, result, *after]), self.prompt([*before, text, *after]))
            self.server.chat([*before, result, *after], tools=TOOLS, max_tokens=2)
        parts = [{"type": "text", "text": "11 degrees"}]
        self.assertEqual(self.prompt([{**result, "content": parts}, *HELLO]), self.prompt([text, *HELLO]))
        block = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "11 degrees"}]}
        self.same([block], [text])
        self.assertEqual(self.items([{"type": "function_call_output", "call_id": "a", "output": "11 degrees"}]), self.server.ok("/tokenize", {"messages": [text]})["count"])

    def test_halves_of_characters(self):
        whole = self.server.ok("/apply-template", b'{"messages": [{"role": "user", "content": "a \\ud83d\\ude00 \\\\ud83d b"}]}')["prompt"]
        self.assertIn("a \U0001f600 \\ud83d b", whole)
        for half in (rb"\ud83d", rb"\uDE00", rb"\ud83d\ud83d", rb"\ud83d\n"):
            body = b'{"messages": [{"role": "user", "content": "a ' + half + rb' \ud83d\ude00 b"}]}'
            prompt = self.server.ok("/apply-template", body)["prompt"]
            self.assertIn("\ufffd", prompt)
            self.assertIn(" \U0001f600 b", prompt)
        self.assertEqual(self.server.post("/apply-template", rb'{"messages": "\ud8"}')[0], 400)

    def test_calls_that_our_own_limit_cut_come_back(self):
        whole = self.server.ok(MESSAGES, {"max_tokens": 300, "temperature": 0, "messages": PARIS, "tools": FORM})["usage"]["output_tokens"]
        for limit in range(max(whole - 25, 1), whole):
            body = {"max_tokens": limit, "temperature": 0, "messages": PARIS, "tools": FORM}
            blocks = []
            for _, data in self.server.events(MESSAGES, body):
                if data["type"] == "content_block_start":
                    blocks.append(data["content_block"])
                elif data["type"] == "content_block_delta" and "partial_json" in data["delta"]:
                    blocks[-1]["input"] = (blocks[-1]["input"] or "") + data["delta"]["partial_json"]
            calls = [block for block in blocks if block["type"] == "tool_use"]
            if not calls:
                continue
            results = [{"type": "tool_result", "tool_use_id": c["id"], "content": "cut"} for c in calls]
            turns = [*PARIS, {"role": "assistant", "content": blocks}, {"role": "user", "content": results}]
            self.server.ok(MESSAGES, {**body, "messages": turns, "max_tokens": 2})

    def test_what_a_tool_returns_may_be_no_text(self):
        note = "[image left out: this model reads text only]"
        for part in ({"type": "image_url", "image_url": {"url": "data:,"}}, {"type": "input_image", "image_url": "x"}, IMAGE):
            messages = [*PARIS, call("{}"), {"role": "tool", "tool_call_id": "call_a", "content": [{"type": "text", "text": "27"}, part]}]
            self.assertIn(note, self.prompt(messages))
        for kind, what in (("input_audio", "audio"), ("file", "file"), ("document", "document"), ("video_url", "video")):
            messages = [*PARIS, call("{}"), {"role": "tool", "tool_call_id": "call_a", "content": [{"type": kind}]}]
            self.assertIn(f"[{what} left out", self.prompt(messages))
        use = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "get_weather", "input": {}}]}
        result = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "27"}, IMAGE]}
        others = [*PARIS, call("{}"), {"role": "tool", "tool_call_id": "call_a", "content": f"27\n{note}"}]
        self.same([*PARIS, use, {"role": "user", "content": [result]}], others)
        # Beside the results it is no question of the user's either.
        self.same([*PARIS, use, {"role": "user", "content": [result, IMAGE]}], [*others, {"role": "user", "content": note}])
        text = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "27 degrees"}}
        self.same([*PARIS, use, {"role": "user", "content": [{**result, "content": [text]}]}],
                  [*PARIS, call("{}"), {"role": "tool", "tool_call_id": "call_a", "content": "27 degrees"}])
        output = [{"type": "input_text", "text": "27"}, {"type": "input_image", "image_url": "x"}, {"type": "input_file", "file_id": "x"}]
        items = [*PARIS, {"type": "function_call", "call_id": "a", "name": "get_weather", "arguments": "{}"},
                 {"type": "function_call_output", "call_id": "a", "output": output}]
        joined = f"27{note}[file left out: this model reads text only]"
        self.assertEqual(self.items(items), self.server.ok("/tokenize", {"messages": [*others[:-1], {"role": "tool", "tool_call_id": "call_a", "content": joined}]})["count"])

    def test_images_of_the_user_are_refused_only_in_a_new_question(self):
        picture = [{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": {"url": "data:,"}}]
        old = [{"role": "user", "content": picture}, {"role": "assistant", "content": "A cat."}]
        self.assertIn("Look.[image left out", self.prompt([*old, *HELLO]))
        self.same([{"role": "user", "content": [IMAGE]}, old[1], *HELLO],
                  [{"role": "user", "content": "[image left out: this model reads text only]"}, old[1], *HELLO])
        for path, body in ((CHAT, {"messages": [*old, {"role": "user", "content": picture}]}), (CHAT, {"messages": old[:1]}),
                           (MESSAGES, {"max_tokens": 3, "messages": [*HELLO, old[1], {"role": "user", "content": [IMAGE]}]}),
                           (RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]})):
            status, _, answer = self.server.post(path, body)
            self.assertEqual(status, 400)
            self.assertIn("reads text only", answer["error"]["message"])

    def test_blocks_of_other_models(self):
        text = {"type": "text", "text": "It is Paris."}
        plain = [*HELLO, {"role": "assistant", "content": "It is Paris."}, *COUNT]
        for kind in ("web_search_tool_result", "web_fetch_tool_result", "bash_code_execution_tool_result", "text_editor_code_execution_tool_result",
                     "tool_search_tool_result", "mcp_tool_result"):
            uses = [{"type": "server_tool_use", "id": "s", "name": "x", "input": {"a": 1}}, {"type": kind, "tool_use_id": "s", "content": [{"type": "any"}]}]
            self.same([*HELLO, {"role": "assistant", "content": [*uses, text]}, *COUNT], plain)
            self.same([*HELLO, {"role": "assistant", "content": uses}, *COUNT], [*HELLO, *COUNT])
        self.same([*HELLO, {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}, text]}, *COUNT], plain)
        self.same([*HELLO, {"role": "assistant", "content": [{"type": "compaction", "content": "It is Paris."}]}, *COUNT], plain)
        found = {"type": "search_result", "source": "a.example", "title": "A", "content": [text], "citations": {"enabled": True}}
        self.same([{"role": "user", "content": [found]}], [{"role": "user", "content": "A\na.example\nIt is Paris."}])
        for role in ("assistant", "user"):
            status, _, answer = self.server.post(MESSAGES, {"max_tokens": 3, "messages": [*HELLO, {"role": role, "content": [{"type": "hologram"}]}, *HELLO]})
            self.assertEqual(status, 400)
            self.assertIn("hologram", answer["error"]["message"])

    def test_items_of_other_models(self):
        text = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is Paris.", "annotations": []}]}
        right = self.items([*HELLO, text, *COUNT])
        for item in ({"type": "web_search_call", "id": "w", "status": "completed"}, {"type": "file_search_call", "id": "f", "queries": [], "results": None},
                     {"type": "code_interpreter_call", "id": "c", "code": "1"}, {"type": "image_generation_call", "id": "i", "result": "x"},
                     {"type": "mcp_list_tools", "id": "m", "tools": []}, {"type": "mcp_approval_request", "id": "m", "name": "x"},
                     {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "gAAA"}, {"type": "compaction", "encrypted_content": "x"},
                     {"type": "reasoning", "id": "r", "summary": [], "content": None}):
            self.assertEqual(self.items([*HELLO, item, text, *COUNT]), right, item)
        for kind, member, value, output in (
                ("custom_tool_call", "input", "*** Begin", "Done."), ("local_shell_call", "action", {"type": "exec", "command": ["ls"]}, "a\nb"),
                ("shell_call", "action", {"commands": ["ls"]}, [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]),
                ("apply_patch_call", "operation", {"type": "delete_file", "path": "x"}, "ok"),
                ("computer_call", "action", {"type": "click", "x": 1}, {"type": "computer_screenshot", "image_url": "x"})):
            items = [*HELLO, {"type": kind, "call_id": "c", "name": "run", member: value, "status": "completed"}, {"type": kind + "_output", "call_id": "c", "output": output}]
            self.assertGreater(self.items([*items, *COUNT]), self.items([*HELLO, *COUNT]) + 10)
            self.items(items)
            self.assertEqual(self.items([*HELLO, items[-1], *COUNT]), self.items([*HELLO, *COUNT]))  # an output without its call
        self.items([*HELLO, {"type": "mcp_call", "id": "m", "name": "f", "arguments": '{"a": 1}', "output": "x", "server_label": "s"}, *COUNT])
        status, _, answer = self.server.post(RESPONSES, {"input": [*HELLO, {"type": "hologram_call"}]})
        self.assertEqual((status, answer["error"]["param"]), (400, "input[1].type"))

    def test_blocks_in_messages_of_chats(self):
        # Some clients send Anthropic's blocks to /v1/chat/completions.
        blocks = [*PARIS, {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "x"},
                                                            {"type": "tool_use", "id": "a", "name": "get_weather", "input": {"city": "Paris"}}]},
                  {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "27"}]}]}]
        parts = [*PARIS, {**call('{"city": "Paris"}'), "reasoning_content": "hm"}, {"role": "tool", "tool_call_id": "call_a", "content": "27"}]
        self.assertEqual(self.prompt(blocks), self.prompt(parts))
        mistral = [*HELLO, {"role": "assistant", "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "Hi."}]}]
        self.assertIn("hm", self.prompt(mistral, add_generation_prompt=False))
        custom = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}]}
        self.assertIn('<parameter name="input">*** Begin</parameter>', self.prompt([*HELLO, custom]))

    def test_reminders_beside_results_are_no_new_question(self):
        thought = {"type": "thinking", "thinking": "I look at the sky.", "signature": "x"}
        use = {"type": "tool_use", "id": "a", "name": "get_weather", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "a", "content": "27"}
        for reminder in ("<system-reminder>\nBe brief.\n</system-reminder>", "<environment_details>\nNow\n</environment_details>\n",
                         "<system-reminder>a</system-reminder>\n<system-reminder>b</system-reminder>"):
            turns = [*PARIS, {"role": "assistant", "content": [thought, use]}, {"role": "user", "content": [result, {"type": "text", "text": reminder}]}]
            others = [*PARIS, {**call("{}"), "reasoning_content": "I look at the sky."}, {"role": "tool", "tool_call_id": "call_a", "content": "27\n\n" + reminder}]
            self.same(turns, others)
            self.assertIn("I look at the sky.", self.prompt(others))
            apart = [*others[:2], {"role": "tool", "tool_call_id": "call_a", "content": "27"}, {"role": "user", "content": reminder}]
            self.assertEqual(self.prompt(apart), self.prompt(others))
        for question in ("Go on.", "<system-reminder>a</system-reminder> And Oslo?", "<p>x</p>"):
            turns = [*PARIS, call("{}"), {"role": "tool", "tool_call_id": "call_a", "content": "27"}, {"role": "user", "content": question}]
            self.assertIn(f"]~b]user\n{question}", self.prompt(turns))

    def test_threads_of_another_server(self):
        for stream in (False, True):
            for thread in ({"type": "continue", "previous_message_id": "msg_1"}, {"type": "fork"}, {}):
                for path in (MESSAGES, MESSAGES + "/count_tokens"):
                    status, _, answer = self.server.post(path, {"max_tokens": 3, "messages": HELLO, "thread": thread, "stream": stream})
                    self.assertEqual((status, answer["error"]["type"], answer["error"]["details"]),
                                     (400, "invalid_request_error", {"error_code": "thread_unsupported_request"}))
        body = {"max_tokens": 30, "temperature": 0, "messages": HELLO}
        self.assertEqual(self.server.ok(MESSAGES, {**body, "thread": {"type": "create"}})["content"], self.server.ok(MESSAGES, body)["content"])

    def test_counts_beyond_the_context(self):
        long = [{"role": "user", "content": "many words " * 40000}]
        n_tokens = self.count(long)
        self.assertGreater(n_tokens, 80000)
        status, _, answer = self.server.post(MESSAGES, {"max_tokens": 3, "messages": long})
        self.assertEqual(status, 400)
        self.assertRegex(answer["error"]["message"], r"^prompt is too long: \d+ tokens > 4095 maximum")
        for path, body in ((CHAT, {"messages": long}), (RESPONSES, {"input": long}), ("/v1/completions", {"prompt": long[0]["content"]})):
            status, _, answer = self.server.post(path, body)
            self.assertEqual((status, answer["error"]["code"]), (400, "context_length_exceeded"))
            self.assertRegex(answer["error"]["message"], r"^This model's maximum context length is 4096 tokens")

    def test_a_tool_alone_without_a_schema(self):
        self.assertIn("tool_calls", self.server.chat(PARIS, tools=[WEATHER, {"name": "now", "description": "Tell the time."}])["choices"][0]["message"])


if __name__ == "__main__":
    unittest.main()
