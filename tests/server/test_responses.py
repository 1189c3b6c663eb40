# SPDX-License-Identifier: Apache-2.0
"""/v1/responses"""

import json
import unittest

from support import COUNT, HELLO, PARIS, TOOLS, Server

PATH = "/v1/responses"
FLAT = [{"type": "function", **tool["function"], "strict": False} for tool in TOOLS]


def fold(events):
    """Returns the response at the end of a stream; checks that the events fit together."""
    kinds = [data["type"] for _, data in events]
    assert all(kind == data["type"] for kind, data in events)
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert [data["sequence_number"] for _, data in events] == list(range(len(events)))
    response = events[-1][1]["response"]
    assert kinds[-1] == f"response.{response['status']}", kinds[-1]
    added = [data for kind, data in events if kind == "response.output_item.added"]
    done = [data for kind, data in events if kind == "response.output_item.done"]
    assert [data["output_index"] for data in added] == [data["output_index"] for data in done] == list(range(len(response["output"])))
    assert [data["item"] for data in done] == response["output"]
    for item in response["output"]:
        deltas = "".join(data["delta"] for kind, data in events if kind.endswith(".delta") and data["item_id"] == item["id"])
        assert deltas == (item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"])
    return response


def plain(response):
    items = [{k: v for k, v in item.items() if k not in ("id", "call_id")} for item in response["output"]]
    return items, response["status"], response["incomplete_details"], response["usage"]["output_tokens"]


class Responses(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server())

    def ask(self, items, **fields):
        body = {"model": "x", "input": items, "temperature": 0, "max_output_tokens": 300, **fields}
        response = self.server.ok(PATH, body)
        self.assertEqual(plain(response), plain(fold(self.server.events(PATH, body))))
        return response

    def test_an_answer(self):
        response = self.ask("What is the capital of France?", instructions="Be brief.")
        self.assertEqual((response["object"], response["status"], response["error"]), ("response", "completed", None))
        self.assertEqual([item["type"] for item in response["output"]], ["reasoning", "message"])
        self.assertIn("Paris", response["output"][1]["content"][0]["text"])
        self.assertEqual(response["instructions"], "Be brief.")
        usage = response["usage"]
        self.assertEqual(usage["total_tokens"], usage["input_tokens"] + usage["output_tokens"])
        self.assertGreater(usage["output_tokens_details"]["reasoning_tokens"], 0)

    def test_the_loop_of_an_agent(self):
        items = list(PARIS)
        first = self.ask(items, tools=[*FLAT, {"type": "web_search"}])
        call = first["output"][-1]
        self.assertEqual((call["type"], call["name"], json.loads(call["arguments"])), ("function_call", "get_weather", {"city": "Paris"}))
        items += first["output"]
        items.append({"type": "function_call_output", "call_id": call["call_id"], "output": '{"temperature": 27, "condition": "sunny"}'})
        second = self.ask(items, tools=FLAT)
        self.assertEqual(second["output"][-1]["content"][0]["text"], "It is sunny in Paris with 27 degrees.")
        self.assertGreater(second["usage"]["input_tokens_details"]["cached_tokens"], 100)

    def test_items_become_turns(self):
        items = [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be kind."}]},
                 {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
                 {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
                 {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Wait."}]},
                 {"type": "function_call", "call_id": "a", "name": "f", "arguments": '{"x": 1}'},
                 {"type": "function_call", "call_id": "b", "name": "f", "arguments": ""},
                 {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "two"}]},
                 {"type": "function_call_output", "call_id": "a", "output": "one"}]
        same = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Wait.", "reasoning_content": "hm", "tool_calls": [
                    {"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}, {"id": "b", "function": {"name": "f"}}]},
                {"role": "tool", "tool_call_id": "a", "content": "one"}, {"role": "tool", "tool_call_id": "b", "content": "two"}]
        used = self.server.ok(PATH, {"input": items, "max_output_tokens": 1})["usage"]["input_tokens"]
        self.assertEqual(used, self.server.ok("/tokenize", {"messages": same})["count"])

    def test_cut_by_length(self):
        response = self.ask(COUNT, max_output_tokens=3)
        self.assertEqual((response["status"], response["incomplete_details"]), ("incomplete", {"reason": "max_output_tokens"}))

    def test_forms_and_choices(self):
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
        response = self.ask("Hi", text={"format": {"type": "json_schema", "name": "x", "schema": schema}})
        self.assertEqual(list(json.loads(response["output"][-1]["content"][0]["text"])), ["n"])
        response = self.ask(PARIS, tools=FLAT, tool_choice={"type": "function", "name": "calculator"}, parallel_tool_calls=False)
        self.assertEqual([item["name"] for item in response["output"] if item["type"] == "function_call"], ["calculator"])

    def test_log_probabilities(self):
        response = self.ask(COUNT, include=["message.output_text.logprobs"], top_logprobs=2)
        self.assertEqual(len(response["output"][-1]["content"][0]["logprobs"][0]["top_logprobs"]), 2)

    def test_refused(self):
        for change, field in (({"input": None}, "input"), ({"input": 5}, "input"), ({"input": []}, "input"),
                              ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
                              ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0].content[0].type"),
                              ({"previous_response_id": "resp_1"}, "previous_response_id"), ({"background": True}, "background"),
                              ({"max_output_tokens": 1.5}, "max_output_tokens"), ({"tools": [{"type": "function"}]}, "tools[0].function.name"),
                              ({"tool_choice": "required"}, "tool_choice"), ({"top_logprobs": 21}, "top_logprobs"),
                              ({"input": [{"type": "function_call", "call_id": "a", "arguments": "{}"}]}, "input[0].name"),
                              ({"text": {"format": {"type": "xml"}}}, "text.format.type"), ({"stream": 1}, "stream")):
            status, _, answer = self.server.post(PATH, {"input": "Hi", **change})
            self.assertEqual((status, answer["error"]["param"]), (400, field), change)
        # The call was cut off from the conversation, which goes on.
        self.assertEqual(self.server.post(PATH, {"input": [{"type": "function_call_output", "call_id": "x", "output": "1"}]})[0], 200)
        self.ask(HELLO, max_output_tokens=2)


if __name__ == "__main__":
    unittest.main()
