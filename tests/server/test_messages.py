# SPDX-License-Identifier: Apache-2.0
"""/v1/messages and /v1/messages/count_tokens"""

import json
import unittest

from support import COUNT, HELLO, PARIS, TOOLS, Server

PATH = "/v1/messages"
FORM = [{"name": t["function"]["name"], "description": t["function"]["description"],
         "input_schema": t["function"]["parameters"]} for t in TOOLS]


def fold(events):
    """Returns the message that the events of a stream add up to; checks their order."""
    events = [(kind, data) for kind, data in events if kind != "ping"]
    assert all(kind == data["type"] for kind, data in events)
    kinds = [kind for kind, _ in events]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"], kinds
    message, texts, open_index = dict(events[0][1]["message"]), [], None
    assert message["content"] == [] and message["stop_reason"] is None
    for kind, data in events[1:-2]:
        if kind == "content_block_start":
            assert open_index is None and data["index"] == len(texts)
            open_index = data["index"]
            message["content"].append(dict(data["content_block"]))
            texts.append("")
        elif kind == "content_block_delta":
            assert data["index"] == open_index
            delta = data["delta"]
            if delta["type"] == "signature_delta":
                message["content"][-1]["signature"] += delta["signature"]
            else:
                texts[-1] += delta.get("text") or delta.get("thinking") or delta.get("partial_json") or ""
        else:
            assert kind == "content_block_stop" and data["index"] == open_index
            open_index = None
    for block, text in zip(message["content"], texts):
        if block["type"] == "tool_use":
            block["input"] = json.loads(text or "{}")
        else:
            block[block["type"]] = text
    message.update(events[-2][1]["delta"])
    message["usage"].update(events[-2][1]["usage"])
    return message


def plain(message):
    """Returns the message without the fields that differ from one answer to the next."""
    blocks = [{k: v for k, v in block.items() if k not in ("id", "signature")} for block in message["content"]]
    return blocks, message["stop_reason"], message["stop_sequence"], message["usage"]["output_tokens"]


class Messages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server())

    def ask(self, messages, **fields):
        body = {"model": "x", "max_tokens": 300, "temperature": 0, "messages": messages, **fields}
        message = self.server.ok(PATH, body)
        streamed = fold(self.server.events(PATH, body))
        self.assertEqual(plain(message), plain(streamed))
        return message

    def test_an_answer(self):
        message = self.ask([{"role": "user", "content": "What is the capital of France?"}])
        self.assertEqual((message["type"], message["role"], message["stop_reason"]), ("message", "assistant", "end_turn"))
        self.assertEqual([block["type"] for block in message["content"]], ["text"])
        self.assertIn("Paris", message["content"][0]["text"])

    def test_thinking(self):
        for kind in ({"type": "enabled", "budget_tokens": 1024}, {"type": "adaptive"}):
            message = self.ask(HELLO, thinking=kind)
            self.assertEqual([block["type"] for block in message["content"]], ["thinking", "text"])
            self.assertTrue(message["content"][0]["thinking"] and message["content"][0]["signature"])
        self.assertEqual(self.ask(HELLO, thinking={"type": "disabled"})["content"][0]["type"], "text")

    def test_the_loop_of_an_agent(self):
        for options in ({}, {"thinking": {"type": "adaptive"}}):
            first = self.ask(PARIS, tools=FORM, **options)
            self.assertEqual(first["stop_reason"], "tool_use")
            call = first["content"][-1]
            self.assertRegex(call["id"], "^toolu_[0-9a-f]{24}$")
            self.assertEqual((call["name"], call["input"]), ("get_weather", {"city": "Paris"}))
            result = {"type": "tool_result", "tool_use_id": call["id"], "content": '{"temperature": 27, "condition": "sunny"}'}
            turns = [*PARIS, {"role": "assistant", "content": first["content"]}, {"role": "user", "content": [result]}]
            second = self.ask(turns, tools=FORM, **options)
            self.assertEqual(second["content"][-1]["text"], "It is sunny in Paris with 27 degrees.")
            self.assertGreater(second["usage"]["cache_read_input_tokens"], 50)

    def test_results_follow_the_order_of_calls_and_come_before_text(self):
        calls = [{"type": "tool_use", "id": f"toolu_{i}", "name": "f", "input": {"i": i}} for i in range(2)]
        results = [{"type": "tool_result", "tool_use_id": f"toolu_{i}",
                    "content": [{"type": "text", "text": f"r{i}"}, {"type": "text", "text": "more"}]} for i in (1, 0)]
        turns = [*HELLO, {"role": "assistant", "content": calls},
                 {"role": "user", "content": [*results, {"type": "text", "text": "Go on."}]}]
        count = self.server.ok(PATH + "/count_tokens", {"messages": turns})["input_tokens"]
        same = [*HELLO, {"role": "assistant", "content": "", "tool_calls": [
                    {"id": str(i), "function": {"name": "f", "arguments": {"i": i}}} for i in range(2)]},
                *({"role": "tool", "tool_call_id": str(i), "content": f"r{i}\nmore"} for i in range(2)),
                {"role": "user", "content": "Go on."}]
        self.assertEqual(count, self.server.ok("/tokenize", {"messages": same})["count"])

    def test_the_billing_header_is_left_out(self):
        def count(system):
            return self.server.ok(PATH + "/count_tokens", {"messages": HELLO, "system": system})["input_tokens"]
        header = "x-anthropic-billing-header: cc_version=1.0; cch=a1b2c;"
        self.assertEqual(count([{"type": "text", "text": header}, {"type": "text", "text": "Be brief."}]), count("Be brief."))
        self.assertEqual(count(header + "\nBe brief."), count("Be brief."))
        self.assertGreater(count("Be brief. And kind."), count("Be brief."))

    def test_choice_of_tools(self):
        message = self.ask(HELLO, tools=FORM, tool_choice={"type": "any"})
        self.assertEqual(message["stop_reason"], "tool_use")
        message = self.ask(PARIS, tools=FORM, tool_choice={"type": "tool", "name": "calculator", "disable_parallel_tool_use": True})
        self.assertEqual([block["name"] for block in message["content"] if block["type"] == "tool_use"], ["calculator"])
        message = self.ask(PARIS, tools=FORM, tool_choice={"type": "none"})
        self.assertFalse([block for block in message["content"] if block["type"] == "tool_use"])

    def test_ends(self):
        self.assertEqual(self.ask(COUNT, max_tokens=2)["stop_reason"], "max_tokens")
        for stops in (["5"], ["zzz", "5", "6"]):
            message = self.ask(COUNT, stop_sequences=stops)
            self.assertEqual((message["stop_reason"], message["stop_sequence"]), ("stop_sequence", "5"))
        message = self.ask([*COUNT, {"role": "assistant", "content": "1, 2, 3,"}], max_tokens=10)
        self.assertEqual(message["content"][0]["type"], "text")

    def test_a_call_that_was_cut_is_no_call(self):
        whole = self.server.ok(PATH, {"max_tokens": 300, "temperature": 0, "messages": PARIS, "tools": FORM})
        for short in range(1, 16):
            body = {"max_tokens": whole["usage"]["output_tokens"] - short, "temperature": 0, "messages": PARIS, "tools": FORM}
            message = self.server.ok(PATH, body)
            calls = [block for block in message["content"] if block["type"] == "tool_use"]
            self.assertEqual(message["stop_reason"], "tool_use" if calls else "max_tokens")
            self.assertTrue(all(call["input"] == {"city": "Paris"} for call in calls))

    def test_refused(self):
        good = {"max_tokens": 5, "messages": HELLO}
        for change, field in (({"max_tokens": None}, "max_tokens"), ({"max_tokens": "5"}, "max_tokens"), ({"messages": None}, "messages"),
                              ({"messages": []}, "messages"), ({"temperature": True}, "temperature"), ({"system": 5}, "system"),
                              ({"tools": [{"name": "f"}]}, "tools[0].input_schema"), ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
                              ({"tool_choice": {"type": "any"}}, "tool_choice"), ({"tool_choice": {"type": "some"}}, "tool_choice.type"),
                              ({"thinking": {"type": "maybe"}}, "thinking.type"), ({"stop_sequences": [1]}, "stop_sequences"),
                              ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0].type"),
                              ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
                              ({"messages": [{"role": "user"}]}, "messages[0].content")):
            status, _, answer = self.server.post(PATH, {**good, **change})
            self.assertEqual((status, answer["type"], answer["error"]["type"]), (400, "error", "invalid_request_error"), change)
            self.assertIn(field, answer["error"]["message"])


if __name__ == "__main__":
    unittest.main()
