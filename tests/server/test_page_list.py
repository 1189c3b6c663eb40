# SPDX-License-Identifier: Apache-2.0
"""The list of the chat page's conversations: what the browser keeps, search, export and import, several tabs."""

import json
import unittest

from browser import HOLD, mock, pieces
from test_page import PageTest

TITLES = "[...document.querySelectorAll('#list .open')].map(node => node.firstChild.textContent)"
OPEN = "[...document.querySelectorAll('#list .open')].find(node => node.firstChild.textContent === %s).click()"


class PageList(PageTest):
    def ask(self, tab, question, answer="Yes."):
        mock(tab, pieces(answer, 3))
        tab.send(question)
        tab.run("saving")

    def titles(self, tab, expected):
        tab.wait_for(f"JSON.stringify({TITLES}) === {json.dumps(json.dumps(expected, separators=(',', ':')))}")

    def import_file(self, tab, data):
        text = data if isinstance(data, bytes) else json.dumps(data).encode()
        tab.choose_files("#import-file", ("conversations.json", text))
        tab.wait_for("!document.getElementById('toast').hidden")
        text = tab.text("#toast")
        tab.click('#toast [aria-label="Close this message"]')
        return text

    def exported(self, tab, action):
        tab.run("window.blob = null; URL.createObjectURL = blob => { window.blob = blob; return 'data:,'; }")
        tab.run(action)
        tab.wait_for("window.blob")
        return json.loads(tab.run("blob.text()"))

    def test_conversations_are_kept(self):
        tab = self.open()
        self.ask(tab, "First question")
        tab.click("#new")
        self.ask(tab, "Second question\nwith another line", "No.")
        self.titles(tab, ["Second question", "First question"])
        tab.reload()
        self.assertEqual(tab.texts("article .content"), ["Second question\nwith another line", "No."])
        self.titles(tab, ["Second question", "First question"])
        tab.run(OPEN % '"First question"')
        tab.wait_for("document.querySelector('article.user .content').textContent === 'First question'")
        self.assertEqual(tab.text("#list .current .open"), "First question")
        tab.run("history.back()")
        tab.wait_for("document.querySelector('article.user .content').textContent.startsWith('Second')")
        tab.load(tab.url)  # without an address of a conversation: a new one
        self.assertEqual(tab.count("article"), 0)

    def test_a_draft_stays_with_its_conversation(self):
        tab = self.open()
        self.ask(tab, "First question")
        tab.fill("#text", "half a thought")
        tab.click("#new")
        self.assertEqual(tab.run("text.value"), "")
        tab.fill("#text", "something new")
        tab.run(OPEN % '"First question"')
        tab.wait_for("text.value === 'half a thought'")
        tab.click("#new")
        self.assertEqual(tab.run("text.value"), "something new")

    def test_search(self):
        tab = self.open()
        for question, answer in (("Apples", "They are red."), ("Pears", "They are GREEN here."), ("Plums", "They are blue.")):
            tab.click("#new")
            self.ask(tab, question, answer)
        tab.fill("#search", "green")
        self.titles(tab, ["Pears"])
        self.assertIn("are GREEN here", tab.text("#list .open small"))
        tab.fill("#search", "plu")
        self.titles(tab, ["Plums"])
        tab.fill("#search", "nothing like it")
        tab.wait_for("document.querySelector('#list .none')?.textContent.includes('No conversation')")
        tab.run("document.getElementById('search').focus()")
        tab.key("Escape")
        self.titles(tab, ["Plums", "Pears", "Apples"])

    def test_rename(self):
        tab = self.open()
        self.ask(tab, "A question")
        tab.click('[aria-label="Rename A question"]')
        tab.fill("#list input", "A title <b>of mine</b>")
        tab.key("Enter")
        self.titles(tab, ["A title <b>of mine</b>"])
        self.assertEqual(tab.text("#title"), "A title <b>of mine</b>")
        tab.run("document.querySelector('#list [aria-label^=Rename]').click()")
        tab.fill("#list input", "Something else")
        tab.key("Escape")
        self.titles(tab, ["A title <b>of mine</b>"])
        tab.reload()
        self.titles(tab, ["A title <b>of mine</b>"])

    def test_delete_and_undo(self):
        tab = self.open()
        self.ask(tab, "Stays")
        tab.click("#new")
        self.ask(tab, "Goes")
        tab.click('[aria-label="Delete Goes"]')
        self.titles(tab, ["Stays"])
        self.assertEqual(tab.count("article"), 0)
        self.assertIn("Deleted: Goes", tab.text("#toast"))
        tab.run("[...document.querySelectorAll('#toast button')].find(b => b.textContent === 'Undo').click()")
        self.titles(tab, ["Goes", "Stays"])
        tab.wait_for("document.querySelectorAll('article').length === 2")
        tab.click('[aria-label="Delete Goes"]')
        self.titles(tab, ["Stays"])
        tab.reload()
        self.titles(tab, ["Stays"])
        self.assertEqual(tab.run("store.allMessages().then(list => list.length)"), 2)

    def test_delete_while_an_answer_is_written(self):
        tab = self.open()
        mock(tab, [*pieces("Half an ans", 3), HOLD])
        tab.send("Goes", waits=False)
        tab.wait_for("document.querySelector('article.assistant .content')?.innerText === 'Half an ans'")
        tab.click('[aria-label="Delete Goes"]')
        self.titles(tab, [])
        tab.wait_until_done()
        tab.run("saving")
        self.assertEqual(tab.run("store.allMessages().then(list => list.length)"), 0)

    def test_export_and_import(self):
        tab = self.open()
        self.ask(tab, "One")
        mock(tab, pieces("Other.", 3))
        tab.click('[aria-label="Answer again"]')
        tab.wait_until_done()
        tab.click("#new")
        self.ask(tab, "Two")
        every = self.exported(tab, "document.getElementById('export').click()")
        self.assertEqual([c["title"] for c in every["conversations"]], ["Two", "One"])
        self.assertEqual(sorted(m["content"] for m in every["conversations"][1]["messages"]), ["One", "Other.", "Yes."])
        one = self.exported(tab, "document.querySelector('[aria-label=\"Export One\"]').click()")
        self.assertEqual([c["title"] for c in one["conversations"]], ["One"])
        self.assertIn("2 conversations imported", self.import_file(tab, every))
        tab.wait_for("document.querySelectorAll('#list .open').length === 4")  # nothing is replaced
        self.import_file(tab, one)
        tab.wait_for("document.querySelector('article.user .content')?.textContent === 'One'")
        self.assertEqual(tab.texts("article .content"), ["One", "Other."])
        self.assertEqual(tab.text("article.assistant .branches"), "2/2")

    def test_imported_tool_results_are_shown_and_sent(self):
        tab = self.open()
        call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'}}
        self.import_file(tab, {"messages": [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": "", "reasoning_content": "I look.", "reasoning_ms": 65000, "tool_calls": [call]},
                                            {"role": "tool", "tool_call_id": "c1", "name": "get_weather", "content": '{"degrees":21}'}, {"role": "assistant", "content": "21 degrees."}]})
        tab.wait_for("document.querySelectorAll('article').length === 4")
        self.assertEqual(tab.texts("details summary"), ["Thought for 1 min 5 s", "Call of get_weather", "Result of get_weather"])
        self.assertEqual(tab.run("document.querySelector('article.tool details div').textContent"), '{\n  "degrees": 21\n}')
        mock(tab, pieces("Yes.", 2))
        tab.send("Sure?")
        self.assertEqual(tab.run("asked[0].messages.slice(1, 3)"), [
            {"role": "assistant", "content": "", "reasoning_content": "I look.", "tool_calls": [call]}, {"role": "tool", "content": '{"degrees":21}', "tool_call_id": "c1"}])

    def test_damaged_files_change_nothing(self):
        tab = self.open()
        self.ask(tab, "Stays")
        good = {"title": "Good", "messages": [{"role": "user", "content": "x"}]}
        m = {"id": "a", "parent": None, "role": "user", "content": "x"}
        for data, words in ((b"{", "not JSON"), (b"", "not JSON"), (b"\xff\xfe\0", "not JSON"), (b"null", "no conversations"), ([], "no list 'conversations'"), ({"format": "other", "conversations": []}, "format is 'other'"),
                            ({"version": 2, "conversations": []}, "version is 2"), ({"conversations": [good, 3]}, "conversation 2"), ({"conversations": [good, {"messages": [3]}]}, "conversation 2, message 1 is not"),
                            ({"conversations": [good, {"messages": [{"role": "robot", "content": "x"}]}]}, "role is 'robot'"), ({"messages": [{"role": "user", "content": 3}]}, "'content' must be a string"),
                            ({"messages": [m, m]}, "there twice"), ({"messages": [{**m, "parent": "b"}]}, "parent is not there"), ({"messages": [{**m, "parent": "b"}, {**m, "id": "b", "parent": "a"}]}, "before its parent"),
                            ({"messages": [{"role": "assistant", "content": "", "tool_calls": {}}]}, "'tool_calls' must be a list"), ({"messages": [{"role": "user", "content": "x", "files": 3}]}, "'files' must be a list")):
            text = self.import_file(tab, data)
            self.assertIn("was not imported, and nothing is changed", text, data)
            self.assertIn(words, text)
        self.titles(tab, ["Stays"])
        self.assertEqual(tab.run("store.allMessages().then(list => list.length)"), 2)

    def test_a_page_that_was_closed_while_it_wrote(self):
        tab = self.open()
        mock(tab, pieces("Half an ans", 3), hold=True)
        tab.send("Well?", waits=False)
        tab.wait_for("store.allMessages().then(list => list.some(m => m.content === 'Half an ans'))")
        tab.reload()
        self.assertEqual(tab.texts("article.assistant .content"), ["Half an ans"])
        self.assertIn("page was closed", tab.text(".cut"))
        mock(tab, pieces("wer", 3))
        tab.click('.cut button')
        tab.wait_until_done()
        self.assertEqual(tab.texts("article.assistant .content"), ["Half an answer"])

    def test_two_tabs(self):
        one, two = self.open(), self.open()
        self.ask(one, "From one")
        self.ask(two, "From two")
        for tab in (one, two):
            self.titles(tab, ["From two", "From one"])
        # The same conversation in both: what one tab writes appears in the other, and answers at the same time are both kept.
        two.run(OPEN % '"From one"')
        two.wait_for("document.querySelector('article.user .content')?.textContent === 'From one'")
        self.ask(one, "More", "Good.")
        two.wait_for("document.querySelectorAll('article').length === 4")
        self.assertEqual(two.texts("article .content"), ["From one", "Yes.", "More", "Good."])
        mock(one, pieces("slow " * 100, 5), 50)
        mock(two, pieces("quick " * 20, 5), 100)
        one.send("A", waits=False)
        two.send("B", waits=False)
        one.wait_until_done()
        two.wait_until_done()
        one.run("saving")
        two.run("saving")
        contents = set(one.run("store.messages(currentId()).then(list => list.map(m => m.content))"))
        self.assertLessEqual({"From one", "More", "A", "B", "slow " * 100, "quick " * 20}, contents)
        one.run("document.querySelector('#list [aria-label=\"Rename From two\"]').click()")
        one.fill("#list input", "Renamed")
        one.key("Enter")
        two.wait_for(f"{TITLES}.includes('Renamed')")
        one.click('[aria-label="Rename From one"]')
        one.fill("#list input", "Renamed too")
        one.key("Enter")
        two.wait_for("document.getElementById('title').textContent === 'Renamed too'")
        one.wait_for("document.querySelector('[aria-label=\"Delete Renamed too\"]')")
        one.click('[aria-label="Delete Renamed too"]')
        two.wait_for("document.querySelectorAll('article').length === 0")
        self.assertIn("deleted in another tab", two.text("#toast"))

    def test_a_growing_answer_in_another_tab(self):
        one, two = self.open(), self.open()
        mock(one, [*pieces("word " * 200, 5), HOLD, *pieces("word " * 200, 5)])
        one.send("Well?", waits=False)
        two.wait_for("document.querySelector('#list .open')")
        two.click("#list .open")
        two.wait_for("document.querySelector('article.assistant .waiting')?.textContent.includes('Another tab')")
        one.run("window.release()")
        one.wait_until_done()
        two.wait_for("document.querySelector('article.assistant .content')?.innerText.length === 1999")
        two.wait_for("!document.querySelector('article.assistant .waiting') && document.querySelector('.cut').hidden")

    def test_a_tab_that_is_gone_while_it_wrote(self):
        one, two = self.open(), self.open()
        mock(one, pieces("word " * 400, 5), 100, hold=True)
        one.send("Well?", waits=False)
        two.wait_for("document.querySelector('#list .open')")
        two.click("#list .open")
        two.wait_for("document.querySelector('article.assistant .waiting')?.textContent.includes('Another tab')")
        self.tabs.remove(one)
        self.browser.call("Target.closeTarget", targetId=one.target)
        two.wait_for("!document.querySelector('article.assistant .waiting') && !document.querySelector('.cut').hidden")
        self.assertEqual(two.count('.cut button'), 1)

    def test_without_a_database(self):
        tab = self.open()
        tab.call("Page.addScriptToEvaluateOnNewDocument", source="indexedDB.open = () => { throw new Error('not allowed'); }")
        tab.load()
        self.assertIn("keeps no data", tab.text("#toast"))
        self.ask(tab, "First")
        tab.click("#new")
        self.ask(tab, "Second")
        tab.run(OPEN % '"First"')
        tab.wait_for("document.querySelector('article.user .content')?.textContent === 'First'")

    def test_a_full_storage(self):
        tab = self.open()
        tab.run("IDBObjectStore.prototype.put = () => { throw new DOMException('full', 'QuotaExceededError'); }")
        mock(tab, pieces("Yes.", 3))
        tab.send("Well?")
        tab.wait_for("document.getElementById('toast').innerText.includes('storage is full')")
        self.assertEqual(tab.texts("article .content"), ["Well?", "Yes."])

    def test_many_conversations(self):
        tab = self.open()
        data = {"conversations": [{"title": f"Number {i}", "updated": 1e12 + i, "messages": [{"role": "user", "content": f"text {i}"}]} for i in range(500)]}
        self.assertIn("500 conversations imported", self.import_file(tab, data))
        tab.wait_for("document.querySelectorAll('#list .open').length === 200")
        tab.click("#list .more")
        tab.wait_for("document.querySelectorAll('#list .open').length === 500")
        tab.fill("#search", "text 417")
        self.titles(tab, ["Number 417"])


if __name__ == "__main__":
    unittest.main()
