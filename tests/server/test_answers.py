# SPDX-License-Identifier: Apache-2.0
"""Options of requests for their answers: number, repetitions, reasoning budgets, calls that fit their tools."""

import json
import unittest

from support import CHAT, COUNT, HELLO, PARIS, Server, joined, tool

ODD = tool("get_weather", "Get the weather in a city.",
           city={"enum": ["Oslo", "Rome"]}, days={"type": "array", "items": {"type": "integer", "minimum": 4, "maximum": 31}, "minItems": 1, "maxItems": 2})


class Several(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server("--parallel", "3"))

    def test_several_answers_have_seeds_of_their_own_and_one_prompt(self):
        body = {"messages": COUNT, "temperature": 1.4, "top_k": 0, "top_p": 1, "seed": 3, "max_tokens": 30}
        whole = self.server.ok(CHAT, {**body, "n": 5})
        texts = [choice["message"] for choice in whole["choices"]]
        self.assertEqual([choice["index"] for choice in whole["choices"]], list(range(5)))
        self.assertGreater(len({json.dumps(text) for text in texts}), 1)
        alone = [self.server.ok(CHAT, {**body, "seed": 3 + i}) for i in range(5)]
        self.assertEqual(texts, [answer["choices"][0]["message"] for answer in alone])
        usage = whole["usage"]
        self.assertEqual(usage["prompt_tokens"], alone[0]["usage"]["prompt_tokens"])
        self.assertEqual(usage["completion_tokens"], sum(answer["usage"]["completion_tokens"] for answer in alone))
        events = self.server.events(CHAT, {**body, "n": 5, "stream_options": {"include_usage": True}})
        chunks = [data for _, data in events if isinstance(data, dict)]
        for i in range(5):
            message, _, reason = joined(chunks, i)
            self.assertEqual(message["content"], texts[i]["content"] or "")
            self.assertEqual(reason, whole["choices"][i]["finish_reason"])
        streamed = chunks[-1]["usage"]
        for field in ("prompt_tokens", "completion_tokens", "total_tokens"):
            self.assertEqual(streamed[field], usage[field])

    def test_several_completions(self):
        body = {"prompt": ["One two three", "A B C"], "n": 3, "max_tokens": 6, "temperature": 1.2, "seed": 1}
        answer = self.server.ok("/v1/completions", body)
        self.assertEqual([choice["index"] for choice in answer["choices"]], list(range(6)))
        alone = self.server.ok("/v1/completions", {**body, "prompt": "A B C", "n": 1, "seed": 2})
        self.assertEqual(answer["choices"][4]["text"], alone["choices"][0]["text"])
        single = self.server.ok("/v1/completions", {**body, "n": 1})
        self.assertEqual(answer["usage"]["prompt_tokens"], single["usage"]["prompt_tokens"])


class Fields(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server())

    def refused(self, field, value):
        status, _, answer = self.server.post(CHAT, {"messages": HELLO, "max_tokens": 3, field: value})
        self.assertEqual((status, answer["error"]["type"]), (400, "invalid_request_error"), value)
        self.assertIn(field, answer["error"]["message"])

    def test_dry(self):
        text = "alpha beta gamma delta " * 12

        def ask(**fields):
            body = {"prompt": text, "max_tokens": 24, "temperature": 0, "ignore_eos": True, **fields}
            return self.server.ok("/v1/completions", body)["choices"][0]["text"]

        free = ask()
        self.assertEqual(ask(dry_multiplier=0, dry_base=9), free)
        lowered = ask(dry_multiplier=40)
        self.assertNotEqual(lowered, free)
        self.assertEqual(ask(dry_multiplier=40, dry_penalty_last_n=0), free)
        self.assertEqual(ask(dry_multiplier=40, dry_allowed_length=500), free)
        self.assertEqual(ask(dry_multiplier=40, dry_base=0.5, dry_sequence_breakers=["\n", ":", '"', "*"]), lowered)
        for value in ([""], [5], "x", ["x"] * 65):
            self.refused("dry_sequence_breakers", value)
        for field in ("dry_multiplier", "dry_base"):
            for value in (-1, "x", True):
                self.refused(field, value)
        for field in ("dry_allowed_length", "dry_penalty_last_n"):
            for value in (-2, 1.5, "x"):
                self.refused(field, value)

    def test_loops_end_answers(self):
        body = {"prompt": "1 2 3 4 5 6 7 8 " * 10, "max_tokens": 300, "temperature": 0, "ignore_eos": True}
        free = self.server.ok("/v1/completions", body)
        self.assertEqual(free["usage"]["completion_tokens"], 300)
        answer = self.server.ok("/v1/completions", {**body, "loop_tokens": 64})
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        self.assertLessEqual(answer["usage"]["completion_tokens"], 80)
        self.assertTrue(free["choices"][0]["text"].startswith(answer["choices"][0]["text"]))

    def test_the_budget_of_thought(self):
        def reasoning_tokens(**fields):
            usage = self.server.chat(COUNT, **fields)["usage"]
            return usage["completion_tokens_details"]["reasoning_tokens"]

        self.assertGreater(reasoning_tokens(), 4)
        for field in ("thinking_budget_tokens", "thinking_token_budget", "max_reasoning_tokens"):
            self.assertLessEqual(reasoning_tokens(**{field: 3}), 5)  # with the line end before </think>
            self.assertEqual(reasoning_tokens(**{field: 0}), 0)
            self.assertEqual(reasoning_tokens(**{field: -1}), reasoning_tokens())
            self.refused(field, "many")
            self.refused(field, 1.5)
        self.assertLessEqual(reasoning_tokens(reasoning={"max_tokens": 3}), 5)
        answer = self.server.chat(COUNT, thinking_budget_tokens=3)["choices"][0]
        self.assertEqual(answer["finish_reason"], "stop")
        self.assertTrue(answer["message"]["content"])

    def test_the_budget_of_thought_of_anthropic(self):
        body = {"messages": COUNT, "max_tokens": 200, "temperature": 0}
        free = self.server.ok("/v1/messages", {**body, "thinking": {"type": "enabled", "budget_tokens": 100}})
        short = self.server.ok("/v1/messages", {**body, "thinking": {"type": "enabled", "budget_tokens": 3}})
        thoughts = [answer["content"][0]["thinking"] for answer in (free, short)]
        self.assertEqual([block["type"] for block in short["content"]], ["thinking", "text"])
        self.assertTrue(thoughts[0].startswith(thoughts[1].rstrip()))
        self.assertLess(len(thoughts[1]), len(thoughts[0]))
        self.assertEqual(short["stop_reason"], "end_turn")

    def test_props_say_what_is_recommended(self):
        settings = self.server.get("/props")[2]["default_generation_settings"]
        self.assertEqual(settings["recommended_by"], "general.sampling")
        recommended = {"temperature": 1.0, "top_p": 0.95, "top_k": 40, "min_p": 0.0, "repeat_penalty": 1.0, "repeat_last_n": -1}
        self.assertEqual({name: settings["params"][name] for name in recommended}, recommended)


class Calls(unittest.TestCase):
    """With optional calls, a call that the model begins fits the tools."""

    def arguments(self, server, tools, **fields):
        choice = server.chat(PARIS, tools=tools, **fields)["choices"][0]
        self.assertEqual(choice["finish_reason"], "tool_calls")
        (call,) = choice["message"]["tool_calls"]
        chunks = server.chunks(PARIS, tools=tools, **fields)
        self.assertEqual(joined(chunks)[1:], ([call["function"]], "tool_calls"))
        return json.loads(call["function"]["arguments"])

    def test_calls_fit_their_tools(self):
        with Server() as server:
            for fields in ({}, {"tool_choice": "auto"}, {"parallel_tool_calls": False}, {"chat_template_kwargs": {"enable_thinking": False}}):
                arguments = self.arguments(server, [ODD], **fields)
                self.assertIn(arguments["city"], ("Oslo", "Rome"))
                self.assertTrue(arguments["days"] and all(day >= 4 for day in arguments["days"]))
            with_tools = server.chat(HELLO, tools=[ODD])["choices"][0]
            self.assertEqual(with_tools["finish_reason"], "stop")
            self.assertTrue(with_tools["message"]["content"])
            self.assertNotIn("has no effect", server.text())

    def test_calls_are_free_if_asked_for(self):
        with Server("--no-constrain-calls") as server:
            self.assertEqual(self.arguments(server, [ODD]).get("city"), "Paris")

    def test_a_keyword_that_cannot_be_enforced_is_left_out(self):
        tools = [json.loads(json.dumps(ODD)), tool("other", "Another.", names={"type": "array", "uniqueItems": True})]
        tools[0]["function"]["parameters"]["properties"]["days"]["uniqueItems"] = True
        with Server() as server:
            for fields in ({}, {"tool_choice": "required"}, {"tool_choice": {"type": "function", "function": {"name": "get_weather"}}}):
                arguments = self.arguments(server, tools, **fields)
                self.assertIn(arguments["city"], ("Oslo", "Rome"))
                self.assertTrue(all(day >= 4 for day in arguments["days"]))
            log = server.text()
        self.assertIn("tool get_weather/properties/days/uniqueItems is left out", log)
        self.assertIn("tool other/properties/names/uniqueItems is left out", log)


class Defaults(unittest.TestCase):
    def test_options_go_before_what_is_recommended(self):
        with Server("--temp", "0", "--repeat-penalty", "1.1", "--reasoning-budget", "2") as server:
            params = server.get("/props")[2]["default_generation_settings"]["params"]
            self.assertEqual((params["temperature"], params["repeat_penalty"], params["repeat_last_n"]), (0.0, 1.1, 64))
            answers = [server.ok(CHAT, {"messages": COUNT, "max_tokens": 40}) for _ in range(2)]
            self.assertEqual(answers[0]["choices"], answers[1]["choices"])
            self.assertLessEqual(answers[0]["usage"]["completion_tokens_details"]["reasoning_tokens"], 4)
        with Server("--reasoning-budget", "0") as server:
            usage = server.chat(COUNT, max_tokens=40)["usage"]
            self.assertEqual(usage["completion_tokens_details"]["reasoning_tokens"], 0)


if __name__ == "__main__":
    unittest.main()
