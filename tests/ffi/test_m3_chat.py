# SPDX-License-Identifier: Apache-2.0
"""The chat format of M3: prompts, outputs and constraints of a model whose vocabulary has its markup."""

import pathlib
import tempfile
import unittest

from support import MADE_MODELS, load_json, minim, model
from test_outputs import collected

import m3_chat_model  # found through support


class M3Chat(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.model = minim.Model(str(m3_chat_model.make(MADE_MODELS, pathlib.Path(folder) / "m3")), threads=2)

    def test_markup(self):
        self.assertEqual(self.model.chat_markup, ("minimax_m3", "<mm:think>", "</mm:think>", "]<]minimax[>["))
        self.assertEqual(model().chat_markup, ("minimax_m2", "<think>", "</think>", "<minimax:tool_call>"))

    def test_conversations(self):
        document = load_json("chat/golden_m3.json")
        for case in document["conversations"]:
            with self.subTest(case["name"]):
                arguments = {"tools": case["tools"], "kwargs": case["kwargs"]}
                if case["rendered"] is None:
                    self.assertRaises(minim.Error, self.model.render_chat, case["messages"], **arguments)
                else:
                    self.assertEqual(self.model.render_chat(case["messages"], **arguments), case["rendered"])
        for case in document["refused"]:
            with self.subTest(case["name"]), self.assertRaisesRegex(minim.Error, rf"messages\[0\].content\[1\].*{case['says']}"):
                self.model.render_chat(case["messages"])

    def test_thinking_off(self):
        hello = [{"role": "user", "content": "Hello!"}]
        self.assertTrue(self.model.render_chat(hello).endswith("]~b]ai\n"))
        off = self.model.render_chat(hello, thinking=False)
        self.assertTrue(off.endswith("]~b]ai\n</mm:think>"))
        self.assertIn("Current thinking mode: disabled.", off)
        forced = self.model.render_chat(hello, kwargs={"thinking_mode": "enabled"}, thinking=False)
        self.assertTrue(forced.endswith("<mm:think></mm:think>"))

    def test_who_decides_on_reasoning(self):
        hello = [{"role": "user", "content": "Hello! <mm:think>"}]
        for opened, kwargs, expected in (
            (self.model, None, (False, True)),
            (self.model, {"thinking_mode": "adaptive"}, (False, True)),
            (self.model, {"thinking_mode": "enabled"}, (True, False)),
            (self.model, {"thinking_mode": "disabled"}, (False, False)),
            (model(), None, (True, False)),
        ):
            ids = opened.tokenize_chat(hello, kwargs=kwargs, special="template")
            with self.subTest(kwargs):
                for more in ([], opened.tokenize("\n"), opened.tokenize(" \n\n")):
                    self.assertEqual((opened.chat_opens_thinking([*ids, *more]), opened.chat_may_reason([*ids, *more])), expected)
        self.assertRaises(TypeError, self.model.chat_may_reason, "text")
        self.assertEqual((self.model.chat_opens_thinking([]), model().chat_may_reason([])), (False, False))

    def test_outputs(self):
        for name in ("outputs_m3", "more_outputs_m3"):
            document = load_json(f"chat/{name}.json")
            for case in document["cases"]:
                options = {"tools": document["tools"].get(case["tools"]), "starts_in_reasoning": case["starts_in_reasoning"]}
                if "reasoning" in case:
                    options["reasoning"] = case["reasoning"]
                with self.subTest(case["name"]):
                    self.assertEqual(self.model.parse_output(case["text"], finish=case["finish"], **options), case["expect"])
                    if "reasoning" not in case:
                        options["reasoning"] = "minimax_m3"  # of any model
                        self.assertEqual(model().parse_output(case["text"], finish=case["finish"], **options), case["expect"])

    def test_parser_of_the_models_format(self):
        parser = self.model.output_parser(starts_in_reasoning=True)
        self.assertEqual(collected([*parser.feed("a</mm:think>b"), *parser.finish()])["reasoning_content"], "a")
        parser = self.model.output_parser(reasoning="minimax_m2", starts_in_reasoning=True)
        self.assertEqual(collected([*parser.feed("a</mm:think></think>b"), *parser.finish()])["reasoning_content"], "a</mm:think>")
        self.assertRaises(ValueError, self.model.output_parser, reasoning="minimax_m4")

    def test_constraints(self):
        document = load_json("chat/tool_constraints_m3.json")
        for case in document["cases"]:
            with self.subTest(case["name"]):
                constraint = self.model.constraint(tools=document["tools"][case["tools"]], tool=case["tool"], single=case["single"])
                self.assertEqual(bool(constraint.matches(case["text"])), case["matches"])

    def test_a_call_that_must_be(self):
        tools = [{"name": "f", "parameters": {"properties": {"l": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2, "maxItems": 2}},
                                              "required": ["l"]}}]
        prompt = self.model.tokenize_chat([{"role": "user", "content": "Hello!"}], tools=tools, kwargs={"thinking_mode": "disabled"})
        constraint = self.model.constraint(tools=tools, single=True)
        session = self.model.session(context=1024)
        text = "".join(token.text for token in session.generate(prompt, schema=constraint, max_tokens=200, temperature=0.0))
        output = self.model.parse_output(text, tools=tools, starts_in_reasoning=False)
        self.assertEqual([call["name"] for call in output["tool_calls"]], ["f"])
        self.assertRegex(output["tool_calls"][0]["arguments"], r'^\{"l": \["[ab]", "[ab]"\]\}$')


if __name__ == "__main__":
    unittest.main()
