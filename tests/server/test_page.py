# SPDX-License-Identifier: Apache-2.0
"""The chat page with a server: answers, errors, branches, files, settings. Without Chromium it exits with 77."""

import importlib.util
import json
import pathlib
import unittest

from browser import HOLD, MOCK, Browser, Tab, mock, pieces
from support import TOOLS, Server

USAGE = {"prompt_tokens": 120, "completion_tokens": 30, "total_tokens": 150, "prompt_tokens_details": {"cached_tokens": 100}}
TIMINGS = {"cache_n": 100, "prompt_n": 20, "prompt_per_second": 400.0, "predicted_n": 30, "predicted_per_second": 12.25}


EVERYTHING = [
    {"role": "user", "content": "Show me.", "files": [{"name": "notes.md", "text": "text", "n_tokens": 3}]},
    {"role": "assistant", "content": "", "reasoning_content": "Hm.", "reasoning_ms": 900, "tool_calls": [{"id": "c1", "function": {"name": "look", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c1", "name": "look", "content": '{"a": 1}'},
    {"role": "assistant", "finish": "length", "usage": USAGE, "timings": TIMINGS, "content": "# Title\n\n**bold** `code` [a link](https://a.example) ![a picture](https://a.example)\n\n- [x] one\n- [ ] two\n\n> quoted\n\n"
     "| a | b |\n|---|---|\n| c | d |\n\n```python\n@mark\ndef f(x: int):  # comment\n    return \"text\" + 1\n```\n\n```diff\n- a\n+ b\n```\n\n```html\n<p class=\"a\">b</p>\n```\n\n$x_1$ and [no](javascript:1)"},
]


class PageTest(unittest.TestCase):
    """Each test has a profile of its own: nothing that another test's tabs keep."""

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server("--temp", "0"))
        cls.browser = cls.enterClassContext(Browser())

    def setUp(self):
        self.profile = self.enterContext(self.browser.profile())
        self.tabs = []

    def tearDown(self):
        for tab in self.tabs:
            self.assertEqual(tab.errors(), [])

    def open(self, server=None, path="/", **options):
        tab = Tab(self.browser, self.profile, "http://%s:%d%s" % (*(server or self.server).address, path), script=MOCK, **options)
        self.tabs.append(tab)
        tab.wait_for('server.props !== null || document.querySelector("#notice .error")')
        return tab


class Answers(PageTest):
    def test_a_conversation(self):
        tab = self.open()
        self.assertEqual(tab.text("#name"), "minim-tiny")
        tab.send("What is the capital of France?")
        self.assertEqual(tab.texts("article .content"), ["What is the capital of France?", "The capital of France is Paris."])
        self.assertEqual(tab.run('document.querySelector("details.thinking div").textContent').strip(), "The user asks for the capital of France.")
        self.assertFalse(tab.run('document.querySelector("details.thinking").open'))
        self.assertRegex(tab.text("details.thinking summary"), r"Thought for \d+\.\d s")
        self.assertRegex(tab.text("article.assistant small"), r"^18 tokens · [\d.,]+ tokens/s · prompt 29, [\d.,]+ tokens/s$")
        self.assertEqual(tab.text("#context-text"), "47 of 4,096 tokens")
        self.assertEqual(tab.text("#title"), "What is the capital of France?")
        tab.send("Count from 1 to 9.")
        self.assertEqual(tab.run("asked[1].messages.map(m => m.role).join(' ')"), "user assistant user")
        self.assertEqual(tab.run("asked[1].messages[1].reasoning_content").strip(), "The user asks for the capital of France.")
        self.assertIn("cached", tab.texts("article.assistant small")[1])
        self.assertTrue(tab.has_no_overflow())
        tab.click("#new")
        self.assertEqual(tab.count("article"), 0)

    def test_figures_are_those_of_the_server(self):
        tab = self.open()
        mock(tab, pieces("Yes.", 2), finish="stop", usage=USAGE, timings=TIMINGS)
        tab.send("Well?")
        self.assertEqual(tab.text("article.assistant small"), "30 tokens · 12.3 tokens/s · prompt 120 (100 cached), 400 tokens/s")
        self.assertEqual(tab.run("document.getElementById('context').getAttribute('aria-valuenow')"), "150")

    def test_the_context_bar_warns(self):
        tab = self.open()
        for total, state, words in ((3000, "", "3,000 of 4,096 tokens"), (3400, "near", "nearly full"), (4000, "full", "context is full")):
            mock(tab, pieces("Yes.", 2), finish="stop", usage={**USAGE, "total_tokens": total})
            tab.send("Well?")
            self.assertEqual(tab.run("['near', 'full'].filter(c => document.querySelector('.tools').classList.contains(c)).join()"), state)
            self.assertIn(words, tab.text("#context-text"))
        tab.fill("#text", "word " * 300)  # what is not sent yet counts too
        tab.wait_for("document.getElementById('context-text').textContent.includes('too long')")

    def test_thinking_is_open_while_it_goes_on(self):
        tab = self.open()
        mock(tab, [{"reasoning_content": "Hm, "}, {"reasoning_content": "let me see."}], 100, hold=True)
        tab.send("Well?", waits=False)
        tab.wait_for("document.querySelector('details.thinking[open]')?.innerText.includes('let me see')")
        self.assertEqual(tab.text("details.thinking summary"), "Thinking …")
        tab.run("new Promise(done => setTimeout(done, 300))")
        tab.key("Escape")
        tab.wait_until_done()
        self.assertFalse(tab.run("document.querySelector('details.thinking').open"))
        self.assertGreaterEqual(tab.run("shown.views.at(-1).message.reasoning_ms"), 250)
        tab.click("details.thinking summary")
        self.assertTrue(tab.run("document.querySelector('details.thinking').open"))

    def test_stop_and_continue(self):
        tab = self.open()
        tab.run("shown.conversation.settings.sampling.max_tokens = 14")
        tab.send("What is the capital of France?")
        self.assertEqual(tab.text(".cut").replace("\n", " "), "Cut: the limit of tokens was reached. Continue")
        first = tab.texts("article.assistant .content")[0]
        self.assertTrue("The capital of France is Paris.".startswith(first) and first != "The capital of France is Paris.", first)
        tab.run("delete shown.conversation.settings.sampling.max_tokens")
        tab.click('.cut button')
        tab.wait_until_done()
        self.assertEqual(tab.texts("article.assistant .content"), ["The capital of France is Paris."])
        self.assertEqual(tab.run("[asked[1].continue_final_message, asked[1].add_generation_prompt, asked[1].messages.at(-1).role]"), [True, False, "assistant"])
        self.assertEqual(tab.run("document.querySelector('.cut').hidden"), True)
        self.assertEqual(tab.count('.cut button'), 0)

    def test_an_answer_from_a_cut_thought(self):
        tab = self.open()
        tab.run("shown.conversation.settings.sampling.max_tokens = 4")
        tab.send("What is the capital of France?")
        self.assertEqual(tab.texts("article.assistant .content"), [""])
        thought = tab.run("document.querySelector('details.thinking div').textContent")
        self.assertEqual(tab.text(".cut button"), "Answer from this thought")
        mock(tab, pieces("It is Paris.", 3))
        tab.click('.cut button')
        tab.wait_until_done()
        self.assertEqual(tab.run("asked[1].messages.at(-1)"), {"role": "assistant", "content": "", "reasoning_content": thought})
        self.assertTrue(tab.run("asked[1].continue_final_message"))
        self.assertEqual(tab.texts("article.assistant .content"), ["It is Paris."])
        self.assertEqual(tab.run("document.querySelector('details.thinking div').textContent"), thought)

    def test_stop(self):
        tab = self.open()
        tab.run("""(() => { const ask = fetch; window.fetch = (url, options) => ask(url, options && options.body ?
            {...options, body: JSON.stringify({...JSON.parse(options.body), ignore_eos: true, max_tokens: 3500})} : options); })()""")
        tab.send("Hello!", waits=False)
        tab.wait_for('document.getElementById("send").textContent === "Stop" && !!document.querySelector("details.thinking")')
        tab.click("#send")
        tab.wait_until_done()
        self.assertIn("stopped", tab.text(".cut"))
        self.assertEqual(tab.count('.cut button'), 1)
        self.server.wait_until_free(10)

    def test_answer_again_and_branches(self):
        tab = self.open()
        mock(tab, pieces("First answer", 3))
        tab.send("Well?")
        tab.run("saving")
        mock(tab, [*pieces("Second answer", 3), HOLD])
        tab.click('[aria-label="Answer again"]')
        tab.wait_for("document.querySelector('#list .running') && window.release")
        tab.run("window.release()")
        tab.wait_until_done()
        self.assertEqual(tab.texts("article.assistant .content"), ["Second answer"])
        self.assertEqual(tab.text("article.assistant .branches"), "2/2")
        self.assertEqual(tab.run("asked[1].messages.length"), 1)
        tab.run("saving")
        tab.click('[aria-label="Previous branch"]')
        self.assertEqual(tab.texts("article.assistant .content"), ["First answer"])
        self.assertEqual(tab.text("article.assistant .branches"), "1/2")
        tab.reload()  # the branch that was chosen is kept
        self.assertEqual(tab.texts("article.assistant .content"), ["First answer"])
        tab.click('[aria-label="Next branch"]')
        self.assertEqual(tab.texts("article.assistant .content"), ["Second answer"])

    def test_edit(self):
        tab = self.open()
        mock(tab, pieces("Apples are red.", 3))
        tab.send("Apples?")
        mock(tab, pieces("Pears are green.", 3))
        tab.click('article.user [aria-label="Edit"]')
        self.assertEqual(tab.run("document.querySelector('.edit textarea').value"), "Apples?")
        tab.fill(".edit textarea", "Pears?")
        tab.click(".edit .primary")
        tab.wait_until_done()
        self.assertEqual(tab.texts("article .content"), ["Pears?", "Pears are green."])
        tab.click('article.user [aria-label="Previous branch"]')
        self.assertEqual(tab.texts("article .content"), ["Apples?", "Apples are red."])
        tab.click('article.assistant [aria-label="Edit"]')
        tab.fill(".edit textarea", "Apples are green.")
        tab.click(".edit .primary")
        tab.wait_for("document.querySelector('article.assistant .branches')?.textContent === '2/2'")
        self.assertEqual(tab.texts("article .content"), ["Apples?", "Apples are green."])
        self.assertEqual(tab.run("asked.length"), 2)
        tab.click('article.user [aria-label="Edit"]')
        tab.key("Escape")
        self.assertEqual(tab.count(".edit"), 0)

    def test_copy(self):
        tab = self.open()
        tab.run("navigator.clipboard.writeText = async text => { window.copied = text; }")
        mock(tab, pieces("Some **bold**:\n\n```python\nprint(1)\n```\n", 5))
        tab.send("Well?")
        tab.click('article.assistant [aria-label="Copy the message"]')
        tab.wait_for("window.copied")
        self.assertEqual(tab.run("copied"), "Some **bold**:\n\n```python\nprint(1)\n```\n")
        tab.click('[aria-label="Copy the code"]')
        tab.wait_for("copied === 'print(1)'")
        # Without TLS, pages of another machine have no clipboard.
        tab.run("navigator.clipboard.writeText = () => Promise.reject(new Error('no')); document.execCommand = () => { window.copied = 'by command: ' + document.activeElement.value; return true; }")
        tab.click('article.user [aria-label="Copy the message"]')
        tab.wait_for("copied === 'by command: Well?'")

    def test_tool_calls_are_shown(self):
        tab = self.open()
        tab.run("""(() => { const ask = fetch; window.fetch = (url, options) => ask(url, String(url).endsWith("completions") ?
            {...options, body: JSON.stringify({...JSON.parse(options.body), tools: %s})} : options); })()""" % json.dumps(TOOLS))
        tab.send("What is the weather in Paris?")
        self.assertEqual(tab.text("details.tool summary"), "Call of get_weather")
        self.assertEqual(json.loads(tab.run('document.querySelector("details.tool pre").textContent')), {"city": "Paris"})
        tab.send("And now?")
        self.assertEqual(tab.run("asked[1].messages[1].tool_calls[0].function.name"), "get_weather")

    def test_two_answers_at_once(self):
        tab = self.open()
        mock(tab, [*pieces("slow and steady " * 20, 4), HOLD, *pieces("slow and steady " * 20, 4)])
        tab.send("First", waits=False)
        tab.wait_for("document.querySelector('article.assistant .content').innerText.includes('steady')")
        tab.click("#new")
        self.assertEqual(tab.count("article"), 0)
        tab.wait_for("document.querySelectorAll('#list .running').length === 1")
        mock(tab, pieces("quick", 4))
        tab.fill("#text", "Second")
        tab.click("#send")
        tab.wait_for("document.querySelector('article.assistant .content')?.innerText === 'quick'")
        tab.wait_for("runs.size === 1")
        tab.run("window.release()")
        tab.run("[...document.querySelectorAll('#list .open')].find(node => node.textContent === 'First').click()")
        tab.wait_for("document.querySelector('article.user .content').innerText === 'First'")
        tab.wait_until_done()
        self.assertEqual(tab.texts("article.assistant .content"), [("slow and steady " * 40).strip()])


    def test_an_answer_that_is_opened_again_and_stopped(self):
        tab = self.open()
        mock(tab, [], 1, hold=True)
        tab.send("First", waits=False)
        tab.wait_for("document.querySelector('.waiting')")
        tab.click("#new")
        tab.wait_for("document.querySelector('#list .open')")
        tab.click("#list .open")
        tab.wait_for("document.querySelector('.waiting')")
        tab.key("Escape")
        tab.wait_until_done()
        self.assertEqual(tab.texts("article .content"), ["First"])
        mock(tab, pieces("Yes.", 2))
        tab.send("Second")
        self.assertEqual(tab.run("asked[1].messages.map(m => m.content)"), ["Second"])


class Errors(PageTest):
    def test_a_message_that_is_too_long_is_taken_out(self):
        tab = self.open()
        tab.send("What is the capital of France?")
        tab.send("word " * 6000)
        self.assertIn("context", tab.text("#notice .error"))
        self.assertIn("shorten it", tab.text("#notice"))
        self.assertEqual(tab.count("article"), 2)
        self.assertEqual(tab.run("document.getElementById('text').value.length"), 30000)
        tab.wait_for("document.getElementById('context-text').textContent.includes('too long for the context')")
        tab.send("What is the capital of Peru?")
        self.assertEqual(tab.texts("article.assistant .content")[1], "The capital of Peru is Lima.")
        tab.reload()
        self.assertEqual(tab.count("article"), 4)

    def test_an_answer_again_that_is_too_long(self):
        tab = self.open()
        mock(tab, pieces("Yes.", 2))
        tab.send("Well?")
        mock(tab, [], status=400, message="too long", code="context_length_exceeded")
        tab.click('[aria-label="Answer again"]')
        tab.wait_until_done()
        self.assertIn("edit an earlier message", tab.text("#notice"))
        self.assertEqual([tab.texts("article .content"), tab.run("text.value")], [["Well?", "Yes."], ""])

    def test_a_server_that_is_gone(self):
        tab = self.open()
        tab.run("(() => { const ask = fetch; "
                "window.fetch = (url, options) => String(url).endsWith('completions') && !window.is_back ? Promise.reject(new TypeError('Failed to fetch')) : ask(url, options); })()")
        tab.send("What is the capital of France?")
        self.assertIn("cannot be reached", tab.text("#notice"))
        self.assertEqual(tab.texts("article .content"), ["What is the capital of France?"])
        tab.run("window.is_back = true; [...document.querySelectorAll('#notice button')].find(b => b.textContent === 'Try again').click()")
        tab.wait_for("runs.size === 0 && document.querySelector('article.assistant')")
        self.assertEqual(tab.texts("article.assistant .content"), ["The capital of France is Paris."])
        self.assertEqual(tab.text("#notice"), "")

    def test_a_server_that_was_not_there_at_first(self):
        tab = Tab(self.browser, self.profile, "http://%s:%d/" % self.server.address,
                  script="(() => { const ask = fetch; window.fetch = (...given) => window.is_back ? ask(...given) : Promise.reject(new TypeError('Failed to fetch')); })();" + MOCK)
        tab.wait_for("document.querySelector('#notice .error')")
        self.assertIn("cannot be reached", tab.text("#notice"))
        tab.run("window.is_back = true")
        tab.send("What is the capital of France?")
        tab.wait_for("server.props !== null && !document.querySelector('#notice *')")
        self.assertEqual(tab.texts("article.assistant .content"), ["The capital of France is Paris."])

    def test_a_message_without_an_answer_does_not_stand_before_the_next(self):
        tab = self.open()
        mock(tab, [], status=503, message="out of memory")
        tab.send("First")
        self.assertIn("out of memory", tab.text("#notice"))
        mock(tab, pieces("Yes.", 2))
        tab.send("Second")
        self.assertEqual(tab.run("asked[1].messages.map(m => m.content)"), ["Second"])
        self.assertEqual(tab.text("article.user .branches"), "2/2")

    def test_an_error_in_the_stream(self):
        tab = self.open()
        mock(tab, pieces("Half an ans", 3), error="a rank is lost")
        tab.send("Well?")
        self.assertEqual(tab.texts("article.assistant .content"), ["Half an ans"])
        self.assertIn("a rank is lost", tab.text("#notice"))
        self.assertIn("a rank is lost", tab.text(".cut"))
        mock(tab, pieces("wer", 3))
        tab.click('.cut button')
        tab.wait_until_done()
        self.assertEqual(tab.texts("article.assistant .content"), ["Half an answer"])

    def test_a_stream_that_breaks(self):
        tab = self.open()
        mock(tab, pieces("Half an ans", 3), finish="")
        tab.send("Well?")
        self.assertIn("connection to the server broke", tab.text("#notice"))
        self.assertIn("Cut", tab.text(".cut"))

    def test_a_busy_server_says_what_to_do(self):
        tab = self.open()
        for status, words in ((429, "wait a little"), (400, "Change the message"), (404, "another model"), (500, "log of the server")):
            mock(tab, [], status=status, message="no")
            tab.send("Well?")
            self.assertIn(words, tab.text("#notice"))

    def test_stopped_before_it_began(self):
        tab = self.open()
        mock(tab, [], 1, hold=True)
        tab.send("Well?", waits=False)
        tab.wait_for("document.querySelector('.waiting')")
        tab.key("Escape")
        tab.wait_until_done()
        self.assertIn("Stopped before", tab.text("#notice"))
        self.assertEqual(tab.count("article.assistant"), 0)


class Settings(PageTest):
    def test_a_key_is_asked_for_and_kept(self):
        with Server("--temp", "0", "--api-key", "s3cret") as server:
            tab = self.open(server)
            self.assertIn("API key", tab.text("#notice"))
            tab.run("[...document.querySelectorAll('#notice button')].find(b => b.textContent === 'Enter the key').click()")
            self.assertEqual(tab.run("document.activeElement.id"), "key")
            tab.fill("#key", "s3cret")
            tab.click("#settings-save")
            tab.wait_for('document.getElementById("name").textContent === "minim-tiny" && !document.querySelector("#notice *")')
            tab.reload()
            tab.wait_for('document.getElementById("name").textContent === "minim-tiny"')
            tab.send("What is the capital of France?")
            self.assertEqual(tab.texts("article.assistant .content"), ["The capital of France is Paris."])
            self.assertEqual(self.open(server).text("#notice .error"), "a valid API key is required")  # a tab of its own: not kept
            tab.click("#settings")
            tab.run("document.getElementById('keep-key').checked = true")
            tab.click("#settings-save")
            self.assertEqual(self.open(server).text("#notice"), "")

    def test_the_dialog_shows_the_defaults(self):
        tab = self.open()
        tab.click("#settings")
        self.assertTrue(tab.run("document.getElementById('settings-dialog').open"))
        params = self.server.get("/props")[2]["default_generation_settings"]["params"]
        shown = tab.run("Object.fromEntries([...document.querySelectorAll('#sampling input')].map(i => [i.name, i.placeholder]))")
        self.assertEqual({name: float(shown[name]) for name in ("temperature", "top_p", "top_k", "min_p", "repeat_penalty")},
                         {name: round(params[name], 4) for name in ("temperature", "top_p", "top_k", "min_p", "repeat_penalty")})
        tab.fill("[name=temperature]", "-1")  # not accepted
        tab.click("#settings-save")
        self.assertTrue(tab.run("document.getElementById('settings-dialog').open"))
        tab.fill("[name=temperature]", "0.5")
        tab.fill("[name=seed]", "7")
        tab.fill("#system", "Be brief.")
        tab.run("document.getElementById('thinking').checked = false")
        tab.click("#settings-save")
        mock(tab, pieces("Yes.", 2))
        tab.send("Well?")
        asked = tab.run("asked[0]")
        self.assertEqual([asked["temperature"], asked["seed"], asked["enable_thinking"], "top_p" in asked], [0.5, 7, False, False])
        self.assertEqual(asked["messages"][0], {"role": "system", "content": "Be brief."})
        tab.reload()  # they belong to the conversation
        self.assertEqual(tab.run("shown.conversation.settings.system"), "Be brief.")
        tab.click("#new")
        self.assertEqual(tab.run("shown.conversation.settings"), {"system": "", "thinks": True, "sampling": {}})
        tab.click("#settings")
        tab.fill("#system", "Always.")
        tab.run("document.getElementById('for-new').checked = true")
        tab.click("#settings-save")
        tab.click("#new")
        self.assertEqual(tab.run("shown.conversation.settings.system"), "Always.")

    def test_several_models(self):
        with Server("--temp", "0", "--alias", "one,two") as server:
            tab = self.open(server)
            tab.wait_for("document.getElementById('model').options.length === 2")
            tab.fill("#model", "two")
            tab.send("What is the capital of France?")
            self.assertEqual(tab.run("asked[0].model"), "two")
            self.assertTrue(tab.text("article.assistant small").startswith("two · 18 tokens"))
            tab.reload()
            tab.wait_for("document.getElementById('model').value === 'two'")
            tab.run("(() => { const ask = fetch; window.fetch = (url, options) => String(url).includes('props') ? new Response('{}', {status: 400}) : String(url).endsWith('v1/models') ? new Response(JSON.stringify({data: [{id: 'one', status: {value: 'unloaded'}}, "
                    "{id: 'two', status: {value: 'loaded'}}, {id: 'six', status: {value: 'failed'}}]})) : ask(url, options); document.getElementById('model').onfocus(); })()")
            tab.wait_for("document.getElementById('model').options.length === 3")
            self.assertEqual(tab.run("[...document.getElementById('model').options].map(o => o.textContent)"), ["one (unloaded)", "two", "six (failed)"])
            tab.fill("#model", "six")  # its properties are not known
            tab.wait_for("server.model === 'six' && server.props === null")
            self.assertEqual(tab.text("#notice"), "")


class Files(PageTest):
    def test_a_text_file(self):
        tab = self.open()
        tab.choose_files("#attach-file", ("notes.md", b"The code word is ```swan```.\n"))
        tab.wait_for("document.querySelector('#files .chip small')?.textContent.includes('tokens')")
        n_tokens = self.server.ok("/tokenize", {"content": "The code word is ```swan```.\n"})["count"]
        self.assertEqual(tab.texts("#files .chip > span, #files .chip small"), ["notes.md", f"{n_tokens} tokens"])
        mock(tab, pieces("Swan.", 2))
        tab.send("What is it?")
        self.assertEqual(tab.run("asked[0].messages[0].content"), "File notes.md:\n````\nThe code word is ```swan```.\n````\n\nWhat is it?")
        self.assertEqual(tab.count("#files .chip"), 0)
        self.assertEqual(tab.count("article.user .chip"), 1)
        tab.reload()
        self.assertEqual(tab.count("article.user .chip"), 1)

    def test_dropped_and_pasted_files(self):
        tab = self.open()
        tab.run("""(() => { const data = name => { const made = new DataTransfer(); made.items.add(new File(["text"], name)); return made; };
            const over = new DragEvent("dragover", {dataTransfer: data("a.txt"), bubbles: true, cancelable: true});
            document.body.dispatchEvent(over);
            window.isTaken = over.defaultPrevented;
            document.body.dispatchEvent(new DragEvent("drop", {dataTransfer: data("dropped.txt"), bubbles: true, cancelable: true}));
            text.dispatchEvent(new ClipboardEvent("paste", {clipboardData: data("pasted.txt"), bubbles: true, cancelable: true})); })()""")
        tab.wait_for("attached.all().length === 2")
        self.assertEqual(tab.run("attached.all().map(file => file.name).sort()"), ["dropped.txt", "pasted.txt"])
        self.assertTrue(tab.run("isTaken"))
        self.assertFalse(tab.run("document.querySelector('.composer').classList.contains('drop')"))

    def test_what_is_no_text_is_refused(self):
        tab = self.open()
        tab.choose_files("#attach-file", ("picture.png", b"\x89PNG\r\n\x1a\n\0\0\xff"))
        tab.wait_for("document.getElementById('toast').innerText.includes('picture.png is not a text file')")
        tab.choose_files("#attach-file", ("large.txt", b"a" * 5_000_001))
        tab.wait_for("document.getElementById('toast').innerText.includes('large.txt has 5.0 MB; at most 5.0 MB')")
        self.assertEqual(tab.count("#files .chip"), 0)
        tab.choose_files("#attach-file", ("a.txt", b"a"), ("b.txt", b"b"))
        tab.wait_for("document.querySelectorAll('#files .chip').length === 2")
        tab.click('[aria-label="Remove a.txt"]')
        self.assertEqual(tab.run("attached.all().map(file => file.name)"), ["b.txt"])


class Use(PageTest):
    def test_keys(self):
        tab = self.open()
        self.assertEqual(tab.run("document.activeElement.id"), "text")
        mock(tab, pieces("Yes.", 2))
        tab.call("Input.insertText", text="one")
        tab.key("Enter", 8)
        tab.call("Input.insertText", text="two")
        self.assertEqual(tab.run("document.getElementById('text').value"), "one\ntwo")
        tab.key("Enter")
        tab.wait_for("document.querySelector('article.assistant .content')?.innerText === 'Yes.'")
        self.assertEqual(tab.run("asked[0].messages[0].content"), "one\ntwo")
        tab.key("k", 2)
        self.assertEqual(tab.run("document.activeElement.id"), "search")
        tab.key("Escape")
        self.assertEqual(tab.run("document.activeElement.id"), "text")

    def test_the_order_of_the_focus_and_the_labels(self):
        tab = self.open()
        mock(tab, pieces("Yes.", 2))
        tab.send("Well?")
        self.assertEqual(tab.run("document.getElementById('status').textContent"), "The answer is complete")
        self.assertEqual(tab.run("document.getElementById('status').getAttribute('role')"), "status")
        tab.run("document.getElementById('skip').focus()")
        order = []
        for _ in range(30):
            order.append(tab.run("document.activeElement.id || document.activeElement.getAttribute('aria-label') || document.activeElement.className"))
            tab.key("Tab")
        places = [order.index(name) for name in ("skip", "new", "search", "settings", "log", "text", "attach", "send")]
        self.assertEqual(places, sorted(places), order)
        unnamed = tab.run("[...document.querySelectorAll('button, input:not([hidden]), textarea, select')].filter(node => "
                          "!(node.textContent.trim() || node.getAttribute('aria-label') || node.labels?.length)).map(node => node.outerHTML)")
        self.assertEqual(unnamed, [])

    def test_the_reader_is_not_moved(self):
        tab = self.open(height=500)
        mock(tab, [*pieces("A line.\n\n" * 60, 9), HOLD, *pieces("A line.\n\n" * 20, 9), HOLD])
        tab.send("Well?", waits=False)
        tab.wait_for("log.scrollTop > 300")
        self.assertTrue(tab.run("isAtEnd()"))
        tab.run("log.scrollTop = 0")
        tab.run("window.release()")
        tab.wait_for("!document.getElementById('down').hidden")
        self.assertEqual(tab.run("log.scrollTop"), 0)
        tab.run("window.release()")
        tab.wait_until_done()
        self.assertEqual(tab.run("log.scrollTop"), 0)

    def test_a_phone(self):
        tab = self.open(width=360, height=640, is_phone=True)
        self.assertTrue(tab.run("getComputedStyle(document.getElementById('sidebar')).display === 'none'"))
        tab.send("What is the capital of France? " + "Averylongwordwithoutanyspace" * 8)
        self.assertTrue(tab.has_no_overflow())
        box = tab.run("document.getElementById('send').getBoundingClientRect().toJSON()")
        self.assertLessEqual(box["right"], 360)
        self.assertLessEqual(box["bottom"], 640)
        self.assertGreaterEqual(min(box["width"], box["height"]), 32)  # large enough for a thumb
        tab.click("#menu")
        self.assertTrue(tab.run("document.getElementById('chat').inert && getComputedStyle(document.getElementById('sidebar')).display !== 'none'"))
        tab.key("Escape")
        self.assertFalse(tab.run("document.getElementById('chat').inert"))
        tab.click("#menu")
        tab.wait_for("document.querySelector('#list .open')")
        tab.click("#list .open")
        self.assertTrue(tab.run("document.body.classList.contains('folded')"))
        tab.click("#menu")
        tab.call("Emulation.setDeviceMetricsOverride", width=1100, height=640, deviceScaleFactor=2, mobile=True)  # turned
        tab.wait_for("!document.getElementById('chat').inert && !document.body.classList.contains('folded')")

    def test_dark_light_and_reduced_motion(self):
        tab = self.open()
        colour = "getComputedStyle(document.body).backgroundColor"
        self.assertEqual(tab.run(colour), "rgb(255, 255, 255)")
        tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}, {"name": "prefers-reduced-motion", "value": "reduce"}])
        self.assertEqual(tab.run(colour), "rgb(23, 24, 27)")
        tab.run("byId('messages').append(element('p', {class: 'waiting'}, 'x'))")
        self.assertEqual(tab.run("getComputedStyle(document.querySelector('.waiting')).animationName"), "none")

    def test_axe(self):
        """The rules of axe-core, from PyPI's axe-playwright-python (which needs no other package for this)."""
        found = importlib.util.find_spec("axe_playwright_python")
        if found is None:
            self.skipTest("axe_playwright_python is not installed")
        script = pathlib.Path(found.submodule_search_locations[0], "axe.min.js").read_text(encoding="utf-8")
        for options in ({}, {"is_dark": True}, {"width": 360, "height": 640, "is_phone": True}):
            tab = self.open(**options)
            states = {"empty": "", "conversation": "importConversations(new File([%s], 'a'))" % json.dumps(json.dumps({"messages": EVERYTHING})),
                      "branches": "messageActions.edit(shown.views.at(-1).message, 'Other.')", "edit": "document.querySelector('[aria-label=Edit]').click()",
                      "error": "notices.set(currentId(), {error: failure('It failed.', 'Try it.'), again() {}}); showNotice()", "list": "showSidebar(true)",
                      "renaming": "document.querySelector('[aria-label^=Rename]').click()", "settings": "openSettings()"}
            tab.run(script)
            for state, action in states.items():
                tab.run(action)
                tab.run("conversationList.load()")
                found = tab.run("axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.map(v => [v.impact, v.id, v.nodes.map(n => n.html.slice(0, 120) + ' ' + n.any.map(a => a.message).join())]))")
                self.assertEqual(found, [], (options, state))

    def test_one_document_with_a_policy(self):
        status, headers, body = self.server.get("/")
        self.assertEqual(status, 200)
        self.assertLess(len(body), 250_000)
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        self.assertEqual(policy["default-src"], "'none'")
        self.assertRegex(policy["script-src"], r"^'sha256-[A-Za-z0-9+/]{43}='$")
        self.assertRegex(policy["style-src"], r"^'sha256-[A-Za-z0-9+/]{43}='$")
        self.assertEqual([policy["connect-src"], policy["require-trusted-types-for"], policy["base-uri"]], ["'self'", "'script'", "'none'"])
        tab = self.open()
        tab.run("new Promise(done => setTimeout(done, 200))")
        base = "http://%s:%d/" % self.server.address
        urls = [event["request"]["url"] for event in tab.events("Network.requestWillBeSent")]
        self.assertEqual(sorted(url for url in urls if not url.startswith("data:")), [base, base + "props", base + "v1/models"])

    def test_a_path_prefix(self):
        with PrefixProxy(self.server.address, "/llm") as proxy:
            for path in ("/llm/", "/llm"):
                tab = self.open(proxy, path)
                self.assertEqual(tab.text("#notice"), "")
                tab.send("What is the capital of France?")
                self.assertEqual(tab.texts("article.assistant .content"), ["The capital of France is Paris."])


class PrefixProxy:
    """Passes requests below a path on to a server."""

    def __init__(self, address, prefix):
        import http.client
        import http.server
        import threading

        class Handler(http.server.BaseHTTPRequestHandler):
            def pass_on(self):
                path = self.path.split("?")[0]
                if path != prefix and not path.startswith(prefix + "/"):
                    self.send_error(404)
                    return
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                connection = http.client.HTTPConnection(*address)
                connection.request(self.command, self.path[len(prefix):] or "/", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                data = answer.read()
                self.send_response(answer.status)
                for name in ("content-type", "content-security-policy"):
                    if name in answer.headers:
                        self.send_header(name, answer.headers[name])
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                connection.close()

            do_GET = do_POST = pass_on

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.address = self.server.server_address

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


if __name__ == "__main__":
    unittest.main()
