# SPDX-License-Identifier: Apache-2.0
"""Fields of requests, by the names of all APIs: each has its effect, or is refused by its name, or is named in the log."""

import json
import re
import threading
import unittest

from support import CHAT, COUNT, HELLO, PARIS, TOOLS, WEATHER, Server, joined, tool

COMPLETIONS, MESSAGES, RESPONSES = "/v1/completions", "/v1/messages", "/v1/responses"
COLOUR = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"], "additionalProperties": False}
WRAPPED = {"type": "json_schema", "json_schema": {"name": "x", "schema": COLOUR}}
IS_COLOUR = r'\{\s*"colour"\s*:\s*"(red|blue)"\s*\}'
HOUR = r"[01]\d:[0-5]\d"
# Fields that constrain an answer, and what it then is.
RULES = [
    ({"response_format": WRAPPED}, IS_COLOUR), ({"response_format": {"type": "json_schema", "schema": COLOUR}}, IS_COLOUR),
    ({"response_format": {"type": "json_object", "schema": COLOUR}}, IS_COLOUR), ({"response_format": {"type": "regex", "pattern": HOUR}}, HOUR),
    ({"guided_json": COLOUR}, IS_COLOUR), ({"guided_json": json.dumps(COLOUR)}, IS_COLOUR), ({"guided_regex": HOUR}, HOUR),
    ({"guided_choice": ["up", "down, then up"]}, "up|down, then up"), ({"json_schema": COLOUR}, IS_COLOUR),
    ({"json_schema": json.dumps(COLOUR)}, IS_COLOUR), ({"regex": HOUR}, HOUR),
    ({"structured_outputs": {"json": COLOUR}}, IS_COLOUR), ({"structured_outputs": {"regex": HOUR, "json": None, "backend": "auto"}}, HOUR),
    ({"structured_outputs": {"choice": ["7"]}}, "7"), ({"output_format": {"type": "json_schema", "schema": COLOUR}}, IS_COLOUR),
    ({"output_config": {"effort": "high", "format": {"type": "json_schema", "schema": COLOUR}}}, IS_COLOUR),
    ({"text": {"format": {"type": "json_schema", "name": "x", "schema": COLOUR}}}, IS_COLOUR),
]
GRAMMAR = 'root ::= "(" root? ")" | [0-9]'
for name in ("grammar", "guided_grammar", "ebnf"):
    RULES.append(({name: GRAMMAR}, r"\(*\d?\)*"))
RULES += [({"structured_outputs": {"grammar": 'root ::= "yes" | "no"'}}, "yes|no"), ({"response_format": {"type": "grammar", "grammar": 'root ::= "a" "b"'}}, "ab")]
# Fields that are no constraint that can be kept, and the name that the message has.
WRONG_RULES = [
    ({"response_format": {"type": "structural_tag", "structures": []}}, "response_format.type"), ({"structural_tag": "{}"}, "structural_tag"),
    ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag"), ({"structured_outputs": {"lark": "x"}}, "structured_outputs.lark"),
    ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex"), ({"guided_choice": []}, "guided_choice"), ({"guided_choice": [1]}, "guided_choice"),
    ({"guided_regex": "(?<x>a)\\k<x>"}, "guided_regex"), ({"guided_json": "not JSON"}, "guided_json"), ({"json_schema": {"name": "x", "schema": COLOUR}}, "json_schema"),
    ({"output_format": {"type": "xml"}}, "output_format.type"), ({"output_config": {"format": {"type": "json_object"}}}, "output_config.format.type"),
    ({"guided_grammar": "not a grammar"}, "guided_grammar"), ({"ebnf": 5}, "ebnf"), ({"nvext": {"guided_choice": ["a"]}}, "nvext"),
    ({"extra_body": {"guided_choice": ["a"]}}, "extra_body"), ({"guided_whitespace_pattern": " ?"}, "guided_whitespace_pattern"),
    ({"format": "json"}, "format"), ({"guided_regex": "a", "json_schema": COLOUR}, "guided_regex"), ({"guided_regex": "a", "json_schema": COLOUR}, "json_schema"),
    ({"guided_decoding": {"json": COLOUR}}, "guided_decoding"), ({"guided_structural_tag": "x"}, "guided_structural_tag"), ({"json_mode": True}, "json_mode"),
    ({"structured_output": {"json": COLOUR}}, "structured_output"), ({"output_schema": COLOUR}, "output_schema"), ({"response_mime_type": "application/json"}, "response_mime_type"),
    ({"sampling_params": {"regex": "a"}}, "sampling_params"), ({"choice": ["a", "b"]}, "choice"),
    ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs.choice"),
    ({"response_format": WRAPPED, "grammar": "root ::= \"a\""}, "grammar"), ({"grammar": "root ::= \"a\"", "grammar_lazy": True}, "grammar_lazy"),
]
# Ways of sampling and other changes of the answer that are not possible, and values with which the fields change nothing.
REFUSED = [
    ("typical_p", 0.7, 1.0), ("mirostat", 2, 0), ("xtc_probability", 0.5, 0.0), ("top_n_sigma", 1.5, -1), ("dynatemp_range", 1, 0.0), ("tfs_z", 0.9, 1),
    ("samplers", ["temperature"], "edkypmxt"), ("samplers", "kpt", ["top_k", "typ_p", "top_p", "min_p", "temperature"]), ("use_beam_search", True, False), ("lora", [{"id": 0, "scale": 1}], []), ("chat_template", "{{ x }}", ""),
    ("prompt_logprobs", 3, None), ("logits_processors", ["a.B"], []), ("no_repeat_ngram_size", 3, 0), ("best_of", 3, 1), ("guidance_scale", 2.5, 1),
    ("stop_sequences", ["x"], []), ("max_length", 3, None), ("modalities", ["audio"], ["text"]), ("documents", [{"text": "x"}], []), ("guided_new", {"a": 1}, {}), ("output_schema", {"a": 1}, False),
    ("prompt", "Hi", None), ("conversation", "conv_1", None), ("previous_response_id", "resp_1", None), ("thread", {"type": "continue", "id": "x"}, None),
]


def text_of(answer):
    """The text of an answer of any route."""
    if "choices" in answer:
        return answer["choices"][0].get("text") or answer["choices"][0]["message"]["content"]
    blocks = answer["content"] if answer.get("type") == "message" else answer["output"][-1]["content"]
    return "".join(block["text"] for block in blocks if "text" in block)


def body_of(path, **fields):
    bodies = {CHAT: {"messages": COUNT, "max_tokens": 120}, COMPLETIONS: {"prompt": "The next is", "max_tokens": 60},
              MESSAGES: {"messages": COUNT, "max_tokens": 120}, RESPONSES: {"input": COUNT, "max_output_tokens": 120}}
    return {"temperature": 0, **bodies[path], **fields}


class Rules(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server())

    def test_a_constraint_is_kept_by_every_route(self):
        for path in (CHAT, COMPLETIONS, MESSAGES, RESPONSES):
            for fields, pattern in RULES:
                with self.subTest(path=path, fields=fields):
                    self.assertRegex(text_of(self.server.ok(path, body_of(path, **fields))), f"^(?:{pattern})$")

    def test_what_cannot_be_kept_is_refused_by_its_name(self):
        for path in (CHAT, COMPLETIONS, MESSAGES, RESPONSES):
            for fields, name in WRONG_RULES:
                with self.subTest(path=path, fields=fields):
                    status, _, answer = self.server.post(path, body_of(path, **fields))
                    self.assertEqual(status, 400, answer)
                    self.assertIn(name, answer["error"]["message"])

    def test_thoughts_stay_free(self):
        message = self.server.chat(COUNT, guided_regex=HOUR)["choices"][0]["message"]
        self.assertGreater(len(message["reasoning_content"]), 10)
        self.assertRegex(message["content"], f"^{HOUR}$")

    def test_no_constraint(self):
        free = text_of(self.server.chat(COUNT))
        for fields in ({"response_format": {"type": "text"}}, {"grammar": ""}, {"guided_json": None}, {"structured_outputs": {}},
                       {"structured_outputs": {"json_object": False}}, {"text": {"verbosity": "low"}}, {"guided_decoding_backend": "xgrammar"}):
            self.assertEqual(text_of(self.server.chat(COUNT, **fields)), free, fields)

    def test_equal_constraints_at_once(self):
        # Each is slow to compile or impossible: the ones that come meanwhile wait for the same result.
        for pattern, status in (("(x[0-9]{2,40}y){1,30}", 200), ("(a{1,9000}b{1,9000}){1,9000}", 400)):
            found = []
            body = body_of(COMPLETIONS, guided_regex=pattern, max_tokens=2)
            threads = [threading.Thread(target=lambda: found.append(self.server.post(COMPLETIONS, body)[0])) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(found, [status] * 6)
            self.assertEqual(self.server.post(COMPLETIONS, body)[0], status)


class Sampling(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server())

    def complete(self, **fields):
        return self.server.ok(COMPLETIONS, {"prompt": "1 2 3 4 5 6 7 8 1 2 3 4 5", "max_tokens": 12, "temperature": 0, **fields})["choices"][0]

    def ids_of(self, text):
        return self.server.ok("/tokenize", {"content": text})["tokens"]

    def test_changes_that_are_not_possible_are_refused_by_name(self):
        for path in (CHAT, MESSAGES, RESPONSES):
            for name, value, harmless in REFUSED:
                if (path, name) == (MESSAGES, "stop_sequences"):
                    continue
                with self.subTest(path=path, name=name):
                    status, _, answer = self.server.post(path, body_of(path, **{name: value}))
                    self.assertEqual(status, 400, answer)
                    self.assertIn(name, answer["error"]["message"])
                    body = body_of(path, **{name: harmless})
                    body = {**body, **({"max_output_tokens": 2} if path == RESPONSES else {"max_tokens": 2})}
                    self.assertEqual(self.server.post(path, body)[0], 200, (path, name))

    def test_fields_without_effect_are_in_the_log_once(self):
        free = text_of(self.server.ok(CHAT, body_of(CHAT)))
        for _ in range(3):
            fields = {"prompt_cache_key": "k", "service_tier": "flex", "brand_new_field": [1], "t_max_predict_ms": 5, "speculative.p_min": 0.5, "odd\nname": 1}
            self.assertEqual(text_of(self.server.ok(CHAT, body_of(CHAT, **fields))), free)
        log = self.server.text()
        for name in ("prompt_cache_key", "service_tier", "brand_new_field", "t_max_predict_ms", "speculative.p_min", "odd?name"):
            self.assertEqual(log.count(f"'{name}'"), 1, log)

    def test_an_unknown_field_cannot_fill_the_log(self):
        with Server() as server:
            for i in range(3):
                server.ok(CHAT, body_of(CHAT, max_tokens=1, **{f"field_{i}_{j}": 1 for j in range(60)}))
            self.assertEqual(server.text().count("is not known"), 100)

    def test_no_limit(self):
        for path, name in ((COMPLETIONS, "max_tokens"), (CHAT, "max_tokens"), (CHAT, "max_completion_tokens"), (COMPLETIONS, "n_predict")):
            body = {**({"prompt": "1 2"} if path == COMPLETIONS else {"messages": HELLO}), name: -1, "stop_token_ids": list(range(1000)), "seed": 1}
            self.assertEqual(self.server.ok(path, body)["choices"][0]["finish_reason"], "stop", name)
        self.assertEqual(self.server.post(MESSAGES, {"messages": HELLO, "max_tokens": -1})[0], 400)

    def test_integers_with_a_point(self):
        body = {"prompt": "1 2 3 4", "max_tokens": 5.0, "top_k": 1.0, "n": 1.0, "seed": 42.0, "min_tokens": 0.0}
        self.assertEqual(self.server.ok(COMPLETIONS, body)["usage"]["completion_tokens"], 5)
        for name, value in (("max_tokens", 1.5), ("top_k", -2.0), ("n", 1e300), ("seed", 0.5), ("max_tokens", -2.0)):
            status, _, answer = self.server.post(COMPLETIONS, {"prompt": "x", name: value})
            self.assertEqual(status, 400, name)
            self.assertIn(name, answer["error"]["message"])

    def test_a_request_that_leaves_no_token_is_wrong(self):
        status, _, answer = self.server.post(COMPLETIONS, {"prompt": "x", "guided_choice": ["up"], "allowed_token_ids": self.ids_of(" 7")})
        self.assertEqual((status, "no token can be chosen" in answer["error"]["message"]), (400, True), answer)

    def test_allowed_and_forbidden_tokens(self):
        allowed = self.ids_of(" 7")
        answer = self.complete(allowed_token_ids=allowed, return_token_ids=True)
        self.assertEqual(set(answer["token_ids"]), set(allowed))
        words = [word for word in self.complete()["text"].split() if len(self.ids_of(word)) == 1]
        self.assertTrue(words)
        self.assertNotIn(words[0], self.complete(bad_words=[words[0]])["text"].split())
        for fields, name in (({"bad_words": ["a word of many tokens"]}, "bad_words"), ({"bad_words": [5]}, "bad_words"), ({"bad_words": "x"}, "bad_words"),
                             ({"allowed_token_ids": []}, "allowed_token_ids"), ({"allowed_token_ids": [10**6]}, "allowed_token_ids"),
                             ({"stop_token_ids": ["5"]}, "stop_token_ids"), ({"stop_token_ids": [-1]}, "stop_token_ids")):
            status, _, answer = self.server.post(COMPLETIONS, {"prompt": "x", **fields})
            self.assertEqual((status, answer["error"]["param"]), (400, name), fields)

    def test_stop_tokens_and_texts_that_are_shown(self):
        free = self.complete(return_token_ids=True)
        stop = free["token_ids"][5]
        at = free["token_ids"].index(stop)
        stopped = self.complete(stop_token_ids=[stop], return_token_ids=True)
        self.assertEqual((stopped["finish_reason"], stopped["token_ids"]), ("stop", free["token_ids"][:at]))
        shown = self.complete(stop_token_ids=[stop], include_stop_str_in_output=True)
        self.assertEqual(shown["text"], self.server.ok("/detokenize", {"tokens": free["token_ids"][:at + 1]})["content"])
        mark = free["text"][6:8]
        hidden, kept = (self.complete(stop=mark, **fields)["text"] for fields in ({}, {"include_stop_str_in_output": True}))
        self.assertEqual(hidden + mark, kept)
        message = self.server.chat(COUNT, stop="3", include_stop_str_in_output=True)["choices"][0]["message"]
        self.assertTrue((message["content"] or message["reasoning_content"]).endswith("3"), message)

    def test_lengths_by_other_names(self):
        for path, body in ((CHAT, {"messages": COUNT}), (COMPLETIONS, {"prompt": "1 2 3", "ignore_eos": True})):
            for fields in ({"n_predict": 3}, {"max_new_tokens": 3}, {"max_tokens": 3, "n_predict": 9}):
                self.assertEqual(self.server.ok(path, {**body, **fields})["usage"]["completion_tokens"], 3)
        self.assertEqual(self.server.chat(COUNT, n_predict=-1)["choices"][0]["finish_reason"], "stop")
        status, _, answer = self.server.post(RESPONSES, {"input": COUNT, "max_tokens": 3})
        self.assertEqual((status, answer["error"]["param"]), (400, "max_tokens"))

    def test_prompts_that_are_cut(self):
        ids = self.ids_of("1 2 3 4 5 6 7 8")
        whole = self.server.ok(COMPLETIONS, {"prompt": ids, "max_tokens": 4, "temperature": 0, "truncate_prompt_tokens": 3})
        self.assertEqual(whole["usage"]["prompt_tokens"], 3)
        same = self.server.ok(COMPLETIONS, {"prompt": ids[-3:], "max_tokens": 4, "temperature": 0})
        self.assertEqual(whole["choices"], same["choices"])
        long = self.server.ok(COMPLETIONS, {"prompt": "word " * 9000, "max_tokens": 0, "truncate_prompt_tokens": -1})
        self.assertEqual(long["usage"]["prompt_tokens"], 4095)
        self.assertEqual(self.server.post(COMPLETIONS, {"prompt": "x", "truncate_prompt_tokens": 0})[0], 400)

    def test_sampling_fields_of_messages(self):
        # They have their effect, though Anthropic's API has no such fields.
        body = body_of(MESSAGES, allowed_token_ids=self.ids_of(" 7"), max_tokens=5)
        self.assertNotEqual(self.server.ok(MESSAGES, body), self.server.ok(MESSAGES, body_of(MESSAGES, max_tokens=5)))
        for fields in ({"n": 2}, {"stop": ["x"]}, {"logprobs": True}):
            self.assertEqual(self.server.post(MESSAGES, body_of(MESSAGES, **fields))[0], 400, fields)


class Order(unittest.TestCase):
    def test_requests_of_a_lower_value_come_first(self):
        with Server("--parallel", "1") as server:
            ended = []

            def ask(priority):
                server.ok(COMPLETIONS, {"prompt": "1 2 3", "max_tokens": 40 if priority else 600, "ignore_eos": True, "priority": priority})
                ended.append(priority)

            threads = []
            for priority in (0, 5, 3, 9, 1):  # the first one takes the slot
                threads.append(threading.Thread(target=ask, args=(priority,)))
                threads[-1].start()
                while sum(slot["is_processing"] for slot in server.get("/slots")[2]) < 1:
                    pass
            for thread in threads:
                thread.join()
            self.assertEqual(ended[0], 0)
            self.assertEqual(ended[1:], sorted(ended[1:]))


class Thoughts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server())

    def test_no_thought_in_every_spelling(self):
        for path in (CHAT, MESSAGES, RESPONSES):
            for fields in ({"enable_thinking": False}, {"think": False}, {"thinking": {"type": "disabled"}}, {"thinking": False}, {"reasoning": {"enabled": False}},
                           {"reasoning": {"effort": "none"}}, {"reasoning_effort": "none"}, {"thinking_budget_tokens": 0},
                           {"chat_template_kwargs": {"enable_thinking": False}}, {"chat_template_kwargs": {"thinking": False}},
                           {"enable_thinking": False, "reasoning_effort": "high"}):
                answer = self.server.ok(path, body_of(path, **fields))
                self.assertNotIn("thinking_content", json.dumps(answer))
                with self.subTest(path=path, fields=fields):
                    if path == CHAT:
                        self.assertEqual(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], 0)
                    elif path == RESPONSES:
                        self.assertEqual([item["type"] for item in answer["output"]], ["message"])

    def test_thoughts_in_every_spelling(self):
        free = self.server.chat(COUNT)["choices"][0]["message"]["reasoning_content"]
        for fields in ({"enable_thinking": True}, {"thinking": {"type": "adaptive"}}, {"thinking": {"type": "between_tools"}}, {"thinking": {"type": "auto"}},
                       {"reasoning": {"enabled": True, "effort": "low", "summary": "auto"}}, {"reasoning_effort": "xhigh"}, {"reasoning": True}):
            self.assertEqual(self.server.chat(COUNT, **fields)["choices"][0]["message"]["reasoning_content"], free, fields)
        for fields, name in (({"thinking": {"type": "maybe"}}, "thinking.type"), ({"thinking": {}}, "thinking.type"), ({"thinking": "on"}, "thinking"),
                             ({"reasoning": "high"}, "reasoning"), ({"enable_thinking": "no"}, "enable_thinking"), ({"reasoning": {"enabled": 0}}, "reasoning.enabled")):
            status, _, answer = self.server.post(CHAT, body_of(CHAT, **fields))
            self.assertEqual((status, answer["error"]["param"]), (400, name), fields)

    def test_where_thoughts_go(self):
        plain = self.server.chat(COUNT)["choices"][0]["message"]
        split = self.server.chat(COUNT, reasoning_split=True)["choices"][0]["message"]
        self.assertEqual([detail["text"] for detail in split["reasoning_details"]], [plain["reasoning_content"]])
        self.assertEqual(split["reasoning_details"][0]["type"], "reasoning.text")
        chunks = self.server.chunks(COUNT, reasoning_split=True)
        details = [d for chunk in chunks for c in chunk["choices"] for d in c["delta"].get("reasoning_details", [])]
        self.assertEqual("".join(d["text"] for d in details), plain["reasoning_content"])
        inside = self.server.chat(COUNT, reasoning_split=False)["choices"][0]["message"]
        self.assertTrue(inside["content"].startswith("<think>") and inside["content"].endswith(plain["content"]), inside)
        self.assertIn("</think>", self.server.chat(COUNT, separate_reasoning=False)["choices"][0]["message"]["content"])
        self.assertIn("</think>", self.server.chat(COUNT, reasoning_format="none")["choices"][0]["message"]["content"])
        for fields in ({"reasoning": {"exclude": True}}, {"include_reasoning": False}, {"reasoning_format": "hidden"}):
            message = self.server.chat(COUNT, **fields)["choices"][0]["message"]
            self.assertEqual((message.get("reasoning_content"), message["content"]), (None, plain["content"]), fields)


class Choices(unittest.TestCase):
    """Which tools an answer calls, in every spelling."""

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server())

    def calls(self, path, **fields):
        flat = [{"type": "function", **t["function"]} for t in TOOLS]
        body = {"tools": flat if path == RESPONSES else TOOLS, **body_of(path), ("input" if path == RESPONSES else "messages"): PARIS, **fields}
        body["max_output_tokens" if path == RESPONSES else "max_tokens"] = 300
        answer = self.server.ok(path, body)
        if path == CHAT:
            return [c["function"]["name"] for c in answer["choices"][0]["message"].get("tool_calls", [])]
        items = answer["content"] if path == MESSAGES else answer["output"]
        return [item["name"] for item in items if "name" in item]

    def test_choices(self):
        def allowed(mode):
            return [{"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": "calculator"}, {"type": "web_search"}]},
                    {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [{"type": "function", "function": {"name": "calculator"}}]}}]
        one = {"parallel_tool_calls": False}
        for path in (CHAT, MESSAGES, RESPONSES):
            for choices, right in (([{"type": "auto"}, "auto", {"type": "auto", "disable_parallel_tool_use": True}], ["get_weather"]),
                                   (["none", {"type": "none"}], []),
                                   ([{"type": "function", "name": "calculator"}, {"type": "tool", "name": "calculator"},
                                     {"type": "function", "function": {"name": "calculator"}}, {"function": {"name": "calculator"}}, *allowed("required")], ["calculator"])):
                for choice in choices:
                    with self.subTest(path=path, choice=choice):
                        self.assertEqual(self.calls(path, tool_choice=choice, **one), right)
            for choice in ("required", "any", {"type": "any"}, {"type": "required"}):
                with self.subTest(path=path, choice=choice):
                    self.assertEqual(len(self.calls(path, tool_choice=choice, **one)), 1)
            for choice in allowed("auto"):
                self.assertNotIn("get_weather", self.calls(path, tool_choice=choice, **one))

    def test_choices_that_are_refused(self):
        for choice in ({"type": "web_search"}, {"type": "custom", "custom": {"name": "x"}}, {"type": "tool", "name": "nobody"}, {"type": "tool"}, {}, 5, "perhaps",
                       {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "nobody"}]}, {"type": "allowed_tools"}):
            for path in (CHAT, MESSAGES, RESPONSES):
                flat = [{"type": "function", **t["function"]} for t in TOOLS]
                status, _, answer = self.server.post(path, body_of(path, tools=flat, tool_choice=choice))
                self.assertEqual(status, 400, (path, choice))
                self.assertIn("tool_choice", answer["error"]["message"])

    def test_tools_in_the_forms_of_all_apis(self):
        function = WEATHER["function"]
        named = {"name": "get_weather", "description": function["description"]}
        for form in (WEATHER, {"type": "function", **function}, dict(function), {**named, "input_schema": function["parameters"]},
                     {"type": "custom", **named, "input_schema": function["parameters"]}):
            for path in (CHAT, RESPONSES):
                self.assertEqual(self.calls(path, tools=[form]), ["get_weather"], (path, form))
        self.assertEqual(self.calls(MESSAGES, tools=[{**named, "input_schema": function["parameters"], "cache_control": {"type": "ephemeral"}}]), ["get_weather"])

    def test_tools_of_others_are_left_out_beside_functions(self):
        flat = {"type": "function", **WEATHER["function"]}
        for other in ({"type": "web_fetch_20250910", "name": "web_fetch"}, {"type": "bash_20250124", "name": "bash"}, {"type": "mcp", "server_label": "x"},
                      {"type": "code_interpreter", "container": {"type": "auto"}}, {"type": "local_shell"}, {"type": "brand_new_tool"}):
            for path in (CHAT, MESSAGES, RESPONSES):
                self.assertEqual(self.calls(path, tools=[other, flat]), ["get_weather"], (path, other))
            self.assertIn(f"'{other['type']}'", self.server.text())
            for path in (CHAT, MESSAGES):
                status, _, answer = self.server.post(path, body_of(path, tools=[other]))
                self.assertEqual(status, 400)
                self.assertIn("tools[0].type", answer["error"]["message"])

    def test_functions_from_before_there_were_tools(self):
        functions = [t["function"] for t in TOOLS]
        whole = self.server.chat(PARIS, functions=functions)["choices"][0]
        self.assertEqual((whole["finish_reason"], whole["message"]["function_call"]["name"]), ("function_call", "get_weather"))
        self.assertEqual(json.loads(whole["message"]["function_call"]["arguments"]), {"city": "Paris"})
        self.assertNotIn("tool_calls", whole["message"])
        deltas = [c["delta"]["function_call"] for chunk in self.server.chunks(PARIS, functions=functions) for c in chunk["choices"] if "function_call" in c["delta"]]
        self.assertEqual(deltas[0]["name"], "get_weather")
        self.assertEqual(json.loads("".join(d["arguments"] for d in deltas)), {"city": "Paris"})
        turns = [*PARIS, {"role": "assistant", "content": None, "function_call": whole["message"]["function_call"]},
                 {"role": "function", "name": "get_weather", "content": '{"temperature": 27, "condition": "sunny"}'}]
        answer = self.server.chat(turns, functions=functions)["choices"][0]["message"]
        self.assertIn("27", answer["content"])
        named = self.server.chat(PARIS, functions=functions, function_call={"name": "calculator"}, max_tokens=300)["choices"][0]["message"]
        self.assertEqual(named["function_call"]["name"], "calculator")
        for fields in ({"functions": functions, "tools": TOOLS}, {"functions": [{}]}, {"function_call": {"name": "x"}, "functions": functions}):
            status, _, answer = self.server.post(CHAT, {"messages": PARIS, **fields})
            self.assertEqual(status, 400, fields)
            self.assertIn("function", answer["error"]["message"])

    def test_a_constraint_beside_tools(self):
        schema = {"response_format": WRAPPED}
        self.assertEqual(len(self.calls(CHAT, tool_choice="required", parallel_tool_calls=False, **schema)), 1)
        message = self.server.chat(COUNT, tools=TOOLS, **schema)["choices"][0]["message"]
        self.assertTrue(re.fullmatch(IS_COLOUR, message["content"] or "") or message.get("tool_calls"), message)


class Streams(unittest.TestCase):
    def test_long_lists_of_tools_hold_up_nobody(self):
        def long(i):
            return [tool(f"t{i}_{j}", "x", **{f"s{k}": {"type": "string", "maxLength": 5000 + i} for k in range(2)}) for j in range(5)]
        with Server() as server:
            server.chat(HELLO, max_tokens=2)
            statuses = []

            def ask(i):
                statuses.append(server.post(CHAT, {"messages": HELLO, "max_tokens": 1, "tools": long(i), "tool_choice": "required"})[0])

            threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
            for thread in threads:
                thread.start()
            message = joined(server.chunks(COUNT))[0]
            for thread in threads:
                thread.join()
            self.assertTrue(message["content"])
            self.assertEqual(statuses, [200] * 4)


if __name__ == "__main__":
    unittest.main()
