# SPDX-License-Identifier: Apache-2.0
"""The chat page with a model in the chat format of M3: reasoning, its end alone, and tool calls are shown and sent back. The model's words make
no sense, so constraints say what it writes. Without Chromium it exits with 77."""

import json
import os
import pathlib
import sys
import tempfile
import unittest

from browser import MOCK, Browser, Tab
from support import ROOT, Server

sys.path.insert(0, str(ROOT / "tests" / "support"))
import m3_chat_model  # noqa: E402

TOOL = {"type": "function", "function": {"name": "plan", "parameters": {"type": "object", "required": ["steps"], "properties": {
    "steps": {"type": "array", "minItems": 1, "maxItems": 1, "items": {"type": "object", "properties": {"do": {"const": "go"}}, "required": ["do"]}}}}}}


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        model = m3_chat_model.make(os.environ["MINIM_TEST_MODELS"], pathlib.Path(folder) / "m3")
        cls.server = cls.enterClassContext(Server("--temp", "0", model=model))
        cls.browser = cls.enterClassContext(Browser())

    def setUp(self):
        profile = self.enterContext(self.browser.profile())
        self.tab = Tab(self.browser, profile, "http://%s:%d/" % self.server.address, script=MOCK)
        self.tab.wait_for("server.props !== null")
        self.addCleanup(lambda: self.assertEqual(self.tab.errors(), []))

    def ask(self, text, **fields):
        """Sends a message, with more fields of the request than the page has settings for."""
        self.tab.run("shown.conversation.settings.sampling = %s" % json.dumps(fields))
        self.tab.send(text)

    def thought(self):
        return self.tab.run("[...document.querySelectorAll('details.thinking div')].map(node => node.textContent)")

    def test_reasoning_is_shown_apart_from_the_answer(self):
        self.ask("Well?", grammar='root ::= <mm:think> "let me see" </mm:think> "hello"')
        self.assertEqual(self.thought(), ["let me see"])
        self.assertRegex(self.tab.text("details.thinking summary"), r"Thought for \d+\.\d s")
        self.assertEqual(self.tab.texts("article.assistant .content"), ["hello"])
        self.assertNotIn("mm:think", self.tab.run("document.body.innerText"))
        # The next prompt has the reasoning of the turn before.
        self.ask("And?", grammar='root ::= </mm:think> "again"')
        self.assertEqual(self.tab.run("asked[1].messages[1].reasoning_content"), "let me see")
        self.assertEqual(self.tab.texts("article.assistant .content"), ["hello", "again"])
        self.assertEqual(len(self.thought()), 1)

    def test_thinking_is_turned_off(self):
        self.tab.run("shown.conversation.settings.thinks = false")
        self.ask("Well?", guided_regex="hello")
        self.assertEqual(self.tab.run("asked[0].enable_thinking"), False)
        self.assertEqual(self.tab.texts("article.assistant .content"), ["hello"])
        self.assertEqual(self.thought(), [])

    def test_calls_are_shown(self):
        self.ask("Go.", tools=[TOOL], tool_choice="required", parallel_tool_calls=False, thinking={"type": "disabled"})
        self.assertEqual(self.tab.text("details.tool summary"), "Call of plan")
        self.assertEqual(json.loads(self.tab.run('document.querySelector("details.tool pre").textContent')), {"steps": [{"do": "go"}]})
        self.assertNotIn("minimax", self.tab.run("document.querySelector('article.assistant').innerText"))
        self.ask("And now?", guided_regex="hello", thinking={"type": "disabled"})
        call = self.tab.run("asked[1].messages[1].tool_calls[0].function")
        self.assertEqual((call["name"], json.loads(call["arguments"])), ("plan", {"steps": [{"do": "go"}]}))
        self.assertEqual(self.tab.texts("article.assistant .content")[-1], "hello")

    def test_a_cut_answer_goes_on(self):
        self.ask("Well?", grammar='root ::= </mm:think> "one two three four five six seven"', max_tokens=4)
        self.assertTrue(self.tab.text(".cut").startswith("Cut"))
        first = self.tab.texts("article.assistant .content")[0]
        self.tab.run("shown.conversation.settings.sampling = {guided_regex: ' and so on'}")
        self.tab.click(".cut button")
        self.tab.wait_until_done()
        self.assertEqual(self.tab.texts("article.assistant .content"), [first + " and so on"])
        self.assertEqual(self.thought(), [])


if __name__ == "__main__":
    unittest.main()
