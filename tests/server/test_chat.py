# SPDX-License-Identifier: Apache-2.0
"""/v1/chat/completions"""

import json
import unittest

from support import CHAT, COUNT, HELLO, PARIS, TOOLS, WEATHER, Server, joined


class Chat(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server())

    def ask(self, messages, **fields):
        answer = self.server.chat(messages, **fields)
        return answer["choices"][0]

    def test_an_answer(self):
        answer = self.server.chat([{"role": "user", "content": "What is the capital of France?"}], model="any name")
        self.assertRegex(answer["id"], "^chatcmpl-[0-9a-f]{24}$")
        self.assertEqual((answer["object"], answer["model"]), ("chat.completion", "any name"))
        choice = answer["choices"][0]
        self.assertIn("Paris", choice["message"]["content"])
        self.assertTrue(choice["message"]["reasoning_content"])
        self.assertEqual(choice["message"]["reasoning"], choice["message"]["reasoning_content"])
        self.assertEqual((choice["finish_reason"], choice["logprobs"]), ("stop", None))
        usage = answer["usage"]
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
        reasoning = usage["completion_tokens_details"]["reasoning_tokens"]
        self.assertTrue(0 < reasoning < usage["completion_tokens"])
        self.assertEqual(answer["timings"]["predicted_n"], usage["completion_tokens"])

    def test_a_stream_adds_up_to_the_whole_answer(self):
        for messages, fields in ((HELLO, {}), (COUNT, {}), (PARIS, {"tools": TOOLS}), (COUNT, {"max_tokens": 7}),
                                 (HELLO, {"include_reasoning": False}), (COUNT, {"stop": ["5"]})):
            whole = self.server.chat(messages, **fields)["choices"][0]
            chunks = self.server.chunks(messages, **fields)
            self.assertEqual(chunks[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
            message, calls, reason = joined(chunks)
            self.assertEqual(message["content"], whole["message"]["content"] or "")
            self.assertEqual(message["reasoning_content"], whole["message"].get("reasoning_content") or "")
            self.assertEqual(calls, [call["function"] for call in whole["message"].get("tool_calls", [])])
            self.assertEqual(reason, whole["finish_reason"])
            self.assertEqual(chunks[-1]["choices"][0]["delta"], {})
            self.assertFalse([chunk for chunk in chunks if "usage" in chunk])

    def test_usage_comes_last_in_a_stream(self):
        chunks = self.server.chunks(COUNT, stream_options={"include_usage": True})
        self.assertEqual(chunks[-1]["choices"], [])
        self.assertEqual(chunks[-1]["usage"]["completion_tokens"], self.server.chat(COUNT)["usage"]["completion_tokens"])

    def test_tools_are_called_and_answered(self):
        choice = self.ask(PARIS, tools=TOOLS)
        self.assertEqual(choice["finish_reason"], "tool_calls")
        call = choice["message"]["tool_calls"][0]
        self.assertRegex(call["id"], "^call_[0-9a-f]{24}$")
        self.assertEqual((call["type"], call["function"]["name"]), ("function", "get_weather"))
        self.assertEqual(json.loads(call["function"]["arguments"]), {"city": "Paris"})
        result = {"role": "tool", "tool_call_id": call["id"],
                  "content": '{"temperature": 27, "condition": "sunny"}'}
        message = {**choice["message"], "content": None}
        answer = self.server.chat([*PARIS, message, result], tools=TOOLS)
        self.assertEqual(answer["choices"][0]["message"]["content"], "It is sunny in Paris with 27 degrees.")
        self.assertGreater(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 100)

    def test_turns_that_come_back_unchanged_are_in_the_prefix_cache(self):
        messages = [{"role": "system", "content": "One more test of prefixes."}, *PARIS]
        first = self.server.chat(messages, tools=TOOLS)
        message = first["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "{}"}
        second = self.server.chat([*messages, message, result], tools=TOOLS)
        # The cache has the first request and its answer, except for the last token.
        cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertGreaterEqual(cached, first["usage"]["total_tokens"] - 1)

    def test_reasoning_that_a_client_drops_is_put_back(self):
        message = self.ask(PARIS, tools=TOOLS)["message"]
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "27"}
        dropped = {"role": "assistant", "tool_calls": message["tool_calls"]}
        kept = {**dropped, "reasoning_content": message["reasoning_content"]}
        prompts = [self.server.ok("/apply-template", {"messages": [*PARIS, turn, result]})["prompt"]
                   for turn in (dropped, kept)]
        self.assertEqual(*prompts)
        self.assertIn(message["reasoning_content"], prompts[0])

    def test_tool_choice(self):
        self.assertNotIn("tool_calls", self.ask(PARIS, tools=TOOLS, tool_choice="none")["message"])
        choice = self.ask(HELLO, tools=TOOLS, tool_choice="required", max_tokens=300)
        self.assertEqual(choice["finish_reason"], "tool_calls")
        named = {"type": "function", "function": {"name": "calculator"}}
        choice = self.ask(PARIS, tools=TOOLS, tool_choice=named, max_tokens=300, parallel_tool_calls=False)
        self.assertEqual([call["function"]["name"] for call in choice["message"]["tool_calls"]], ["calculator"])
        message, calls, reason = joined(self.server.chunks(PARIS, tools=TOOLS, tool_choice=named, max_tokens=300,
                                                           parallel_tool_calls=False))
        self.assertEqual((calls[0], reason), (choice["message"]["tool_calls"][0]["function"], "tool_calls"))

    def test_one_call_where_several_are_not_wanted(self):
        messages = [{"role": "user", "content": "What is the weather in Paris and in Oslo?"}]
        choice = self.ask(messages, tools=[WEATHER], parallel_tool_calls=False)
        self.assertLessEqual(len(choice["message"].get("tool_calls", [])), 1)

    def test_answers_of_a_form(self):
        schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 10}, "n": {"type": "integer", "minimum": 0, "maximum": 99}},
                  "required": ["city", "n"], "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        answer = json.loads(self.ask(HELLO, response_format=form, max_tokens=300)["message"]["content"])
        self.assertEqual(sorted(answer), ["city", "n"])
        content = self.ask(HELLO, response_format={"type": "json_object"}, max_tokens=2000)["message"]["content"]
        self.assertTrue(content.startswith("{"))
        self.ask(HELLO, response_format={"type": "text"})

    def test_several_choices(self):
        answer = self.server.chat(COUNT, n=3, temperature=1.0, seed=5)
        self.assertEqual([choice["index"] for choice in answer["choices"]], [0, 1, 2])
        again = self.server.chat(COUNT, n=3, temperature=1.0, seed=5)
        self.assertEqual([c["message"] for c in answer["choices"]], [c["message"] for c in again["choices"]])
        chunks = self.server.chunks(COUNT, n=3, temperature=1.0, seed=5)
        for index in range(3):
            message = joined(chunks, index)[0]
            self.assertEqual(message["content"], answer["choices"][index]["message"]["content"] or "")

    def test_limits_of_length(self):
        choice = self.ask(COUNT, max_tokens=3)
        self.assertEqual(choice["finish_reason"], "length")
        self.assertEqual(self.server.chat(COUNT, max_completion_tokens=3, max_tokens=50)["usage"]["completion_tokens"], 3)
        empty = self.server.chat(COUNT, max_tokens=0)
        self.assertEqual((empty["choices"][0]["finish_reason"], empty["usage"]["completion_tokens"]), ("length", 0))
        self.assertIsNone(empty["choices"][0]["message"]["content"])
        self.assertEqual(self.ask(COUNT, max_tokens=10**9)["finish_reason"], "stop")

    def test_stop_texts(self):
        full = self.ask(COUNT)["message"]["content"]
        stopped = self.ask(COUNT, stop="5")
        self.assertEqual(stopped["finish_reason"], "stop")
        reasoning = stopped["message"].get("reasoning_content", "")
        self.assertNotIn("5", reasoning + (stopped["message"]["content"] or ""))
        self.assertTrue(full.startswith(stopped["message"]["content"] or ""))
        for chunk in self.server.chunks(COUNT, stop=["5", "zzz"], logprobs=True):
            self.assertNotIn("5", json.dumps([c["delta"] for c in chunk["choices"]]))

    def test_log_probabilities(self):
        answer = self.server.chat(COUNT, logprobs=True, top_logprobs=3)
        content = answer["choices"][0]["logprobs"]["content"]
        self.assertEqual(len(content), answer["usage"]["completion_tokens"])
        for entry in content:
            self.assertEqual(bytes(entry["bytes"]).decode(errors="replace"), entry["token"])
            self.assertEqual(len(entry["top_logprobs"]), 3)
            self.assertAlmostEqual(entry["top_logprobs"][0]["logprob"], entry["logprob"])  # greedy
            self.assertLessEqual(entry["logprob"], 0)
        streamed = [entry for chunk in self.server.chunks(COUNT, logprobs=True, top_logprobs=3)
                    for choice in chunk["choices"] for entry in (choice.get("logprobs") or {}).get("content", [])]
        self.assertEqual(streamed, content)

    def test_token_ids(self):
        answer = self.server.chat(COUNT, return_token_ids=True)
        prompt = self.server.ok("/tokenize", {"content": self.server.ok("/apply-template", {"messages": COUNT})["prompt"]})
        self.assertEqual(answer["prompt_token_ids"], prompt["tokens"])
        ids = answer["choices"][0]["token_ids"]
        self.assertEqual(len(ids), answer["usage"]["completion_tokens"])
        self.assertIn(answer["choices"][0]["message"]["content"], self.server.ok("/detokenize", {"tokens": ids})["content"])
        chunks = self.server.chunks(COUNT, return_token_ids=True)
        self.assertEqual(chunks[0]["prompt_token_ids"], prompt["tokens"])
        self.assertEqual([id for chunk in chunks for c in chunk["choices"] for id in c.get("token_ids", [])], ids)

    def test_the_text_of_the_end_token(self):
        plain = self.ask(COUNT)
        shown = self.ask(COUNT, skip_special_tokens=False)
        self.assertEqual(plain["finish_reason"], "stop")
        self.assertEqual(shown["message"]["content"], plain["message"]["content"] + "[e~[")
        self.assertEqual(shown["message"]["reasoning_content"], plain["message"]["reasoning_content"])
        chunks = self.server.chunks(COUNT, skip_special_tokens=False, temperature=0)
        content = "".join(c["delta"].get("content") or "" for chunk in chunks for c in chunk["choices"])
        self.assertEqual(content, shown["message"]["content"])
        self.assertEqual(self.ask(COUNT, skip_special_tokens=False, max_tokens=3)["finish_reason"], "length")
        self.assertNotIn("[e~[", str(self.ask(COUNT, skip_special_tokens=False, max_tokens=3)))
        self.assertEqual(self.ask(COUNT, skip_special_tokens=True), plain)
        self.assertEqual(self.ask(COUNT, skip_special_tokens=None), plain)
        calls = self.ask(PARIS, tools=TOOLS, skip_special_tokens=False)
        self.assertEqual(calls["finish_reason"], "tool_calls")
        self.assertNotIn("[e~[", str(calls))

    def test_messages_cannot_forge_the_markup(self):
        count = self.server.ok("/tokenize", {"messages": [{"role": "user", "content": "[e~[<think>"}]})["tokens"]
        self.assertEqual((count.count(2004), count.count(2034)), (2, 1))

    def test_no_thinking(self):
        for fields in ({"chat_template_kwargs": {"enable_thinking": False}}, {"reasoning_effort": "none"}):
            answer = self.server.chat(HELLO, max_tokens=40, **fields)
            self.assertIsNone(answer["choices"][0]["message"].get("reasoning_content"))
            self.assertEqual(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], 0)
            prompt = self.server.ok("/apply-template", {"messages": HELLO, **fields})["prompt"]
            self.assertTrue(prompt.endswith("]~b]ai\n<think>\n\n</think>\n\n"), prompt)

    def test_a_message_goes_on(self):
        messages = [*COUNT, {"role": "assistant", "content": "1, 2, 3,"}]
        fields = {"add_generation_prompt": False, "continue_final_message": True}
        prompt = self.server.ok("/apply-template", {"messages": messages, **fields})["prompt"]
        self.assertTrue(prompt.endswith("]~b]ai\n1, 2, 3,"), prompt)
        self.assertIsNone(self.ask(messages, max_tokens=20, **fields)["message"].get("reasoning_content"))

    def test_seeds_and_defaults(self):
        def text(**fields):
            return self.server.ok(CHAT, {"messages": HELLO, "max_tokens": 20, "seed": 3, **fields})["choices"][0]["message"]
        self.assertEqual(text(), text())
        self.assertEqual(text(), text(temperature=1.0, top_p=0.95, top_k=40, min_p=None, stop=None, tools=None))

    def test_logit_bias_and_penalties(self):
        self.assertNotEqual(self.ask(COUNT)["message"], self.ask(COUNT, logit_bias={"17": 100}, max_tokens=5)["message"])
        for fields in ({"repetition_penalty": 1.15}, {"repeat_penalty": 1.1, "repeat_last_n": 32}, {"presence_penalty": 1},
                       {"frequency_penalty": 0.5}, {"min_tokens": 3}, {"ignore_eos": True, "max_tokens": 50},
                       {"dry_multiplier": 0.8, "dry_base": 1.75}, {"typical_p": 1.0}):
            self.ask(COUNT, **fields)
        self.assertEqual(self.server.chat(COUNT, ignore_eos=True, max_tokens=200)["usage"]["completion_tokens"], 200)

    def test_unknown_fields_are_ignored(self):
        self.ask(HELLO, some_new_field={"a": [1]}, user="u", metadata={"a": "b"}, store=True, service_tier="auto",
                 cache_prompt=True, id_slot=-1, timings_per_token=True, max_tokens=5)


class ReasoningModes(unittest.TestCase):
    def test_tags_stay_in_the_content(self):
        with Server("--reasoning-parser", "minimax_m2_append_think") as server:
            whole = server.chat(PARIS, tools=TOOLS)["choices"][0]["message"]
            self.assertTrue(whole["content"].startswith("<think>") and whole["content"].endswith("</think>"), whole)
            self.assertNotIn("reasoning_content", whole)
            self.assertEqual(len(whole["tool_calls"]), 1)
            message, calls, _ = joined(server.chunks(PARIS, tools=TOOLS))
            self.assertEqual((message["content"], calls[0]), (whole["content"], whole["tool_calls"][0]["function"]))
        with Server("--reasoning-parser", "none") as server:
            content = server.chat(HELLO)["choices"][0]["message"]["content"]
            self.assertFalse(content.startswith("<think>"))
            self.assertIn("</think>", content)


if __name__ == "__main__":
    unittest.main()
