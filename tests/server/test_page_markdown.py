# SPDX-License-Identifier: Apache-2.0
"""How the chat page shows Markdown: what it can, how fast, and that nothing in it is executed or fetched."""

import json
import pathlib
import unittest

from browser import mock, pieces
from test_page import PageTest

HOSTILE = json.loads(pathlib.Path(__file__).with_name("data").joinpath("hostile_markdown.json").read_text(encoding="utf-8"))

SAMPLE = """# Title

Some **bold**, *slanted*, ~~gone~~ and `code` &amp; [a link](https://a.example/x "title"), <b>raw</b>, https://b.example and a\u00a0formula $a_1 + b_1$.\\
Next line

- one
- two
  - deeper

    ```c
    int x;
    ```
- [x] done
- [ ] open

3. three
4. four

> quoted
> more

| left | right |
|:-----|------:|
| `a`  | **2** |

```python
def f(x):
    return "text"  # comment
```

$$
E = mc^2
$$

\\[ x_1 * y_1 * z_1 \\]

![a picture](https://c.example/p.png) and [later]

---

[later]: https://d.example/
"""

RENDER = """(() => { const box = document.createElement("div"); const view = markdownView(box); const text = %s; const step = %d;
  for (let i = step; i < text.length; i += step) view.update(text.slice(0, i)); view.update(text); view.end(); return %s; })()"""
OUTER = "box.innerHTML"

ALLOWED = {
    "a": {"href", "target", "rel", "title", "class"}, "span": {"class", "title", "role", "aria-label"}, "div": {"class", "tabindex", "role", "aria-label"},
    "button": {"type", "class", "aria-label", "title"}, "svg": {"aria-hidden"}, "use": {"href"}, "pre": {"class", "tabindex"}, "code": {"class"}, "ol": {"start"},
    "th": {"class", "scope"}, "td": {"class"}, "li": {"class"}, "p": {"class"},
    **{name: set() for name in "h1 h2 h3 h4 h5 h6 ul table thead tbody tr blockquote hr br strong em del".split()}}
CHECK = """(() => { const allowed = %s, found = new Set();
  for (const node of document.querySelectorAll("#messages article.assistant .content *")) {
    if (!allowed[node.localName]) found.add("<" + node.localName + ">");
    for (const {name, value} of node.attributes) if (!allowed[node.localName]?.includes(name)) found.add(node.localName + " " + name + "=" + value);
    if (node.localName === "a" && !/^(https?|mailto):/.test(node.protocol)) found.add(node.href);
    if (node.localName === "a" && (node.rel !== "noopener noreferrer" || node.target !== "_blank")) found.add("rel of " + node.href);
  }
  return [...found]; })()""" % json.dumps({name: sorted(attributes) for name, attributes in ALLOWED.items()})


class Markdown(PageTest):
    def setUp(self):
        super().setUp()
        self.tab = self.open()

    def render(self, text, step=10**9, result=OUTER):
        return self.tab.run(RENDER % (json.dumps(text), step, result))

    def test_what_it_shows(self):
        mock(self.tab, pieces(SAMPLE, 7))
        self.tab.send("Show me.")
        tab, content = self.tab, "article.assistant .content "
        for selector, texts in {"h1": ["Title"], "strong": ["bold", "2"], "em": ["slanted"], "del": ["gone"], "p > code:not(.formula)": ["code"],
                                "ul ul li": ["deeper\n" + tab.text(content + "ul ul li .code")], "ol li": ["three", "four"], "blockquote": ["quoted\nmore"], "th": ["left", "right"],
                                "td": ["a", "2"], "td.to-right": ["2"], ".code-head span": ["c", "python"], "code.formula": ["a_1 + b_1"],
                                "pre.formula": ["E = mc^2", "x_1 * y_1 * z_1"], "a:not(.image)": ["a link", "https://b.example", "later"], "a.image": ["a picture"],
                                ".hl-keyword": ["def", "return"], ".hl-string": ['"text"'], ".hl-comment": ["# comment"], ".box": ["☑", "☐"]}.items():
            self.assertEqual([text.replace("\n\n", "\n") for text in tab.texts(content + selector)], [text.replace("\n\n", "\n") for text in texts], selector)
        self.assertIn("& a link, <b>raw</b>", tab.text(content + "p"))
        self.assertEqual(tab.run(f"document.querySelector('{content}ol').start"), 3)
        self.assertEqual(tab.count(content + "hr"), 1)
        self.assertEqual(tab.run(CHECK), [])

    def test_what_comes_in_pieces_looks_the_same(self):
        whole = self.render(SAMPLE)
        for step in (1, 3, 50):
            self.assertEqual(self.render(SAMPLE, step), whole)
        for text in ("1. a\n2. b\n3. c\n\n   more\n4. d\n\nend", "- a\n\n- b\n\n- c\n- d\n* e\n* f\n", "a\n\n\n\nb\n\n***\n\nc\n===\nd", "| a |\n|---|\n| b |\n\nc", "```\nopen", "* a\n  - b\n  - c\n    1. d\n    2. e\n* f\n* g",
                     "- [ ] a\n- [x] b\n- c\n\n- d\n- e\n", "- a\n\n- b\n- c\n- d\n- e", "$$\na\n\n# b\n$$\nc", "$$ open\n\n# b", "\\[ a\n- b \\]\n- c", "> $$\n> a", "a [x]\n\nb\n\n[x]: http://c.example"):
            self.assertEqual(self.render(text, 1), self.render(text), text)
        self.assertIn("<h1>b</h1>", self.render("$$ never closed\n\n# b", 1))

    def test_items_that_are_done_are_not_made_again(self):
        n_made = self.tab.run("""(() => { const box = document.createElement("div"), view = markdownView(box), made = new Set();
            for (let i = 1; i <= 60; ++i) { view.update("- item\\n".repeat(i)); for (const item of box.querySelectorAll("li")) made.add(item); } return made.size; })()""")
        self.assertLessEqual(n_made, 3 * 60)

    def test_line_breaks(self):
        self.assertEqual(self.render("| a |\n|---|\n| b<br>c<BR/>d |", result="box.querySelectorAll('td br').length"), 2)
        self.assertEqual(self.render("a\nb"), "<p>a<br>b</p>")

    def test_languages_have_colours(self):
        for language, text in {"python": "def f(): pass", "c++": "int x = 1;", "cuda": "int x = 1;", "c": "int x = 1;", "rust": "fn f() {}", "go": "func f() {}", "java": "class A {}", "js": "let x = 1;", "ts": "let x = 1;",
                               "json": '{"a": 1}', "yaml": "a: 1", "bash": "if true; then", "sql": "SELECT 1", "html": "<b>x</b>", "css": "a { color: red; }", "diff": "+ a", "markdown": "# a", "toml": "a = 1", "makefile": "a: b\n\tc $(X)", "cmake": "add_test(a)"}.items():
            self.assertGreater(self.render(f"```{language}\n{text}\n```\n\nend", result='box.querySelectorAll("[class^=hl-]").length'), 0, language)

    def test_hostile_texts(self):
        """Without the page's policy too: nothing depends on it."""
        self.assertGreaterEqual(len(HOSTILE), 300)
        for has_policy in (True, False):
            self.tab.call("Page.setBypassCSP", enabled=not has_policy)
            self.tab.load()
            self.tab.events("Network.requestWillBeSent")
            n_events = len(self.browser.events)
            messages = [{"role": "assistant", "content": text, "reasoning_content": text, "tool_calls": [{"id": "1", "function": {"name": text, "arguments": text}}]} for text in HOSTILE]
            messages += [{"role": "tool", "content": text, "name": text, "tool_call_id": "1"} for text in HOSTILE] + [{"role": "user", "content": text, "files": [{"name": text, "text": text}]} for text in HOSTILE]
            self.tab.run("importConversations(new File([%s], 'a.json'))" % json.dumps(json.dumps({"title": HOSTILE[0], "messages": messages})))
            self.assertEqual(self.tab.count("article"), 3 * len(HOSTILE))
            self.assertEqual(self.tab.run(CHECK), [])
            self.assertEqual(self.tab.count("article :is(script, img, iframe, style, link, object, embed, video, audio, form, input, base, meta, math)"), 0)
            # Each text is there, not swallowed; and in pieces it looks the same.
            self.assertEqual(self.tab.run("[...document.querySelectorAll('article.user > .content')].map(node => node.textContent)"), HOSTILE)
            bad = self.tab.run("%s.filter(text => { const make = step => %s; return make(2) !== make(1e9); })" % (json.dumps(HOSTILE), RENDER.replace("%s", "text", 1).replace("const text = text; const step = %d;", "").replace("%s", OUTER)))
            self.assertEqual(bad, [])
            self.tab.run("document.querySelectorAll('article a, article .code, article summary').forEach(node => { for (const kind of ['mouseover', 'focus', 'toggle', 'pointerenter', 'animationstart']) node.dispatchEvent(new Event(kind, {bubbles: true})); })")
            self.tab.run("new Promise(done => setTimeout(done, 300))")
            self.assertIsNone(self.tab.run("window.hit ?? null"))
            base = "http://%s:%d/" % self.server.address
            urls = {event["params"]["request"]["url"] for event in self.browser.events[n_events:] if event["method"] == "Network.requestWillBeSent"}
            self.assertEqual({url for url in urls if url not in (base + "tokenize", base + "props", base + "v1/models")}, set())
            dialogs = [event for event in self.browser.events[n_events:] if event["method"] in ("Page.javascriptDialogOpening", "Page.frameAttached", "Target.targetCreated")]
            self.assertEqual(dialogs, [])
        self.tab.run("store.conversations().then(list => Promise.all(list.map(c => store.deleteConversation(c.id))))")

    def test_links(self):
        for text, address in {"[x](https://a.example)": "https://a.example/", "[x](mailto:a@b.example)": "mailto:a@b.example", "[x](javascript:1)": None, "[x](/etc)": None, "[x](#a)": None, "[x](ftp://a)": None}.items():
            self.assertEqual(self.render(text, result='box.querySelector("a")?.href ?? null'), address, text)

    def cpu_seconds(self):
        """Returns the time that the page's thread has computed: other work of the machine does not count."""
        self.tab.call("Performance.enable", timeDomain="threadTicks")
        return next(metric["value"] for metric in self.tab.call("Performance.getMetrics")["metrics"] if metric["name"] == "TaskDuration")

    def test_texts_that_take_the_parser_long(self):
        for text in ("_a" * 25000, "![](" * 12500, "*a* **b** " * 5000, "[" * 50000, "> " * 25000, "- " * 25000, "|a" * 25000, "`" * 50000, "$a" * 25000, "<a " * 17000, "&" * 50000, "\\(" * 25000):
            begun = self.cpu_seconds()
            self.render(text, result="1")
            self.assertLess(self.cpu_seconds() - begun, 1, text[:10])

    def test_a_long_answer_is_streamed_without_pauses(self):
        """50,000 characters at 500 deltas a second."""
        block = SAMPLE.replace("[later]: https://d.example/\n", "") + "\n" + "\n".join(f"- item {i} with **bold** and `code`" for i in range(40)) + "\n\n```c\n" + "int x = 1; // a line\n" * 60 + "```\n\n"
        text = (block * 20)[:50000]
        self.tab.run("""window.renders = []; window.nodes = new Set();
            new PerformanceObserver(list => { for (const entry of list.getEntries()) renders.push(entry.duration); }).observe({entryTypes: ["measure"]});
            (function look() { nodes.add(document.querySelector("article.assistant h1")); requestAnimationFrame(look); })()""")
        mock(self.tab, pieces(text, 12), 500)
        self.tab.send("Write.", waits=False)
        self.tab.wait_until_done(120)
        self.assertGreater(self.tab.run("document.querySelector('article.assistant').innerText.length"), 30000)
        renders = sorted(self.tab.run("renders"))
        self.assertGreater(len(renders), 50)
        # Blocks that are done are not made again.
        self.assertLessEqual(self.tab.run("[...nodes].filter(node => node).length"), 3)
        # The machine of a test may have other work: its worst frames are left out.
        self.assertLess(renders[int(len(renders) * 0.75)], 100, renders[-10:])
        print(f"{len(renders)} frames, median {renders[len(renders) // 2]:.1f} ms, longest {renders[-1]:.1f} ms")

    def test_200_messages_open_quickly(self):
        messages = [{"role": ("user", "assistant")[i % 2], "content": SAMPLE if i % 2 else f"Question {i}"} for i in range(200)]
        self.tab.run("importConversations(new File([%s], 'a.json'))" % json.dumps(json.dumps({"messages": messages})))
        self.tab.run("saving")
        self.tab.click("#new")
        begun = self.cpu_seconds()
        self.tab.run("store.conversations().then(([first]) => openConversation(first.id)).then(() => document.getElementById('log').scrollHeight)")
        seconds = self.cpu_seconds() - begun
        self.assertEqual(self.tab.count("article"), 200)
        self.assertTrue(self.tab.run("isAtEnd()"))
        self.assertLess(seconds, 2)
        print(f"200 messages in {1000 * seconds:.0f} ms")


if __name__ == "__main__":
    unittest.main()
