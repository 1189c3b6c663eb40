# SPDX-License-Identifier: Apache-2.0
"""Prompt states: in host memory (--cache-ram), in files of slots (POST /slots), and over a restart (--save-prefixes)."""

import os
import pathlib
import re
import subprocess
import tempfile
import threading
import time
import unittest

from support import MODEL, PROGRAM, ROOT, Server

SIM = {"MINIM_PLUGIN_PATH": os.environ["MINIM_SIM_FOLDER"], "MINIM_SIM": "devices=1 memory=40"}
OTHER_MODEL = ROOT / "examples" / "models" / "minim-tiny-mix-ik.gguf"
PAGE = 64
SMALL = ("-c", 512, "--parallel", 1, "--kv-tokens", 1024)


def prompt_of(number, n_tokens):
    return [5 + (number * 97 + i * 31 + i // 7) % 1900 for i in range(n_tokens)]


def complete(server, tokens, max_tokens=4, **fields):
    """Returns the generated ids and the number of tokens of the prompt that were cached."""
    answer = server.ok("/v1/completions", {"prompt": tokens, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True,
                                           "return_token_ids": True, **fields})
    return answer["choices"][0]["token_ids"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def converse(server, n_conversations, n_first, n_rounds):
    """Holds conversations in turn. Returns all answers, the tokens of all prompts, and those that were computed."""
    texts = [prompt_of(number, n_first) for number in range(n_conversations)]
    answers, n_prompt, n_computed = [], 0, 0
    for turn in range(n_rounds):
        for number, text in enumerate(texts):
            ids, cached = complete(server, text)
            answers.append(ids)
            n_prompt += len(text)
            n_computed += len(text) - cached
            texts[number] = text + ids + prompt_of(number + turn, 6)
    return answers, n_prompt, n_computed


def metric(server, name):
    return float(re.search(rf"^minim_{name}{{.*}} (\S+)$", server.get("/metrics")[2].decode(), re.MULTILINE).group(1))


class HostMemory(unittest.TestCase):
    def test_conversations_in_turn_are_computed_once(self):
        # Eight conversations of up to 380 tokens, with room for two of them.
        with Server(*SMALL) as server:
            expected, n_prompt, n_computed = converse(server, 8, 300, 7)
            self.assertEqual(n_computed, n_prompt)
            self.assertEqual(metric(server, "host_cache_bytes"), 0)
        with Server(*SMALL, "--cache-ram", 64) as server:
            answers, n_same, n_left = converse(server, 8, 300, 7)
            self.assertEqual(answers, expected)
            self.assertEqual(n_same, n_prompt)
            self.assertLessEqual(n_left, 0.18 * n_computed)  # all of the first round, a seventh, is new
            self.assertGreater(metric(server, "host_cache_bytes"), 0)
            self.assertGreaterEqual(metric(server, "host_cache_pages_restored_total"), 6 * 8 * 4)
            self.assertGreater(metric(server, "host_cache_pages_stored_total"), metric(server, "host_cache_pages_restored_total"))

    def test_the_limit_is_kept(self):
        with Server(*SMALL, "--cache-ram", 1) as server:
            converse(server, 8, 300, 2)
            self.assertGreater(metric(server, "host_cache_bytes"), 0)
            self.assertLessEqual(metric(server, "host_cache_bytes"), 1 << 20)

    def test_a_kv_cache_on_a_device_has_host_memory_by_default(self):
        for arguments, has_some in (((), True), (("--cache-ram", 0), False), (("--cache-ram", -1), True), (("--hicache-size", "0.5"), True)):
            with self.subTest(arguments), Server(*SMALL, "--device", "sim:0", *arguments, environment=SIM) as server:
                answers, _, n_computed = converse(server, 4, 300, 2)
                self.assertEqual(metric(server, "host_cache_pages_restored_total") > 0, has_some)
                self.assertEqual(n_computed < 1400, has_some)
                if not has_some:
                    continue
                with Server(*SMALL) as host:
                    self.assertEqual(converse(host, 4, 300, 2)[0], answers)

    def test_what_has_no_effect_is_said(self):
        with Server(*SMALL, "--cache-ram", 64, "--no-enable-prefix-caching") as server:
            self.assertIn("host_cache_bytes has no effect: the engine keeps no prefixes", server.text())
        with Server(*SMALL, "--kv-offloading-size", "0.25", "--enable-hierarchical-cache", "--hicache-ratio", 2) as server:
            self.assertIn("prompt states in host memory have the limit of --cache-ram", server.text())
            converse(server, 4, 300, 1)
            self.assertGreater(metric(server, "host_cache_bytes"), 0)


class Slots(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.server = Server("-c", 1024, "--parallel", 2, "--slot-save-path", cls.folder.name)
        cls.addClassCleanup(cls.server.__exit__, None, None, None)

    def act(self, action, filename=None, slot=0, status=200):
        got, _, body = self.server.post(f"/slots/{slot}?action={action}", {} if filename is None else {"filename": filename})
        self.assertEqual(got, status, body)
        return body

    def test_a_conversation_is_saved_erased_and_restored(self):
        tokens = prompt_of(1, 300)
        ids, cached = complete(self.server, tokens)
        self.assertEqual(cached, 0)
        saved = self.act("save", "one.bin")
        path = pathlib.Path(self.folder.name, "one.bin")
        self.assertEqual(saved["id_slot"], 0)
        self.assertEqual(saved["filename"], "one.bin")
        self.assertEqual(saved["n_saved"], 303)  # the last token of an answer is never evaluated
        self.assertEqual(saved["n_written"], path.stat().st_size)
        self.assertGreater(saved["timings"]["save_ms"], 0)
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        self.assertEqual(self.act("erase"), {"id_slot": 0, "n_erased": 303})
        status, _, body = self.server.request("POST", "/slots/0?action=erase")  # llama.cpp's clients send no body
        self.assertEqual((status, body), (200, {"id_slot": 0, "n_erased": 0}))
        self.assertEqual(complete(self.server, tokens, 1), (ids[:1], 0))
        self.assertEqual(self.act("erase")["n_erased"], 300)
        restored = self.act("restore", "one.bin", slot=1)
        self.assertEqual({key: restored[key] for key in ("id_slot", "filename", "n_restored", "n_read")},
                         {"id_slot": 1, "filename": "one.bin", "n_restored": 303, "n_read": path.stat().st_size})
        self.assertGreater(restored["timings"]["restore_ms"], 0)
        self.assertEqual(self.act("save", "again.bin", slot=1)["n_saved"], 303)
        self.assertEqual(pathlib.Path(self.folder.name, "again.bin").read_bytes(), path.read_bytes())
        again, cached = complete(self.server, tokens + ids + [7, 8])
        self.assertEqual(cached, 303)
        with Server("-c", 1024) as other:
            self.assertEqual(complete(other, tokens + ids + [7, 8])[0], again)

    def test_a_later_server_restores_it(self):
        tokens = prompt_of(2, 200)
        ids, _ = complete(self.server, tokens)
        self.act("save", "later.bin")
        usual = ("-c", 1024, "--slot-save-path", self.folder.name)
        with Server(*usual) as server:
            self.assertEqual(server.ok("/slots/0?action=restore", {"filename": "later.bin"})["n_restored"], 203)
            self.assertEqual(complete(server, tokens), (ids, 199))
        with Server(*usual, model=OTHER_MODEL) as server:
            status, _, body = server.post("/slots/0?action=restore", {"filename": "later.bin"})
            self.assertEqual(status, 400)
            self.assertEqual(body["error"]["message"], "later.bin: these prefixes are of another model")

    def test_what_is_not_possible_is_refused(self):
        complete(self.server, prompt_of(3, 100))
        for name in ("", ".", "..", "../x", "a/b", "/tmp/x", ".hidden", "a\\b", "a\nb", "a\0b", "x" * 256):
            with self.subTest(name=name):
                for action in ("save", "restore"):
                    self.assertEqual(self.act(action, name, status=400)["error"]["param"], "filename")
        self.assertEqual(self.act("save", None, status=400)["error"]["param"], "filename")
        self.assertEqual(self.act("restore", "nothing", status=404)["error"]["message"][:7], "nothing")
        pathlib.Path(self.folder.name, "damaged").write_bytes(b"minim-px" + bytes(100))
        self.assertIn("damaged", self.act("restore", "damaged", status=400)["error"]["message"])
        for action in ("", "load", "save=1"):
            self.assertEqual(self.act(action, "x", status=400)["error"]["param"], "action")
        for slot in ("2", "-1", "x", "1x", "0/1", "99999999999999999999"):
            self.act("save", "x", slot=slot, status=404)
        self.assertEqual(self.server.get("/slots/0?action=save")[0], 405)
        with Server("-c", 1024) as server:
            self.assertEqual(server.ok("/slots/0?action=erase", {})["n_erased"], 0)
            for action in ("save", "restore"):
                status, _, body = server.post(f"/slots/0?action={action}", {"filename": "x"})
                self.assertEqual((status, body["error"]["type"]), (501, "not_supported_error"))
                self.assertIn("--slot-save-path", body["error"]["message"])

    def test_a_slot_that_has_answered_nothing_cannot_be_saved(self):
        with Server("-c", 1024, "--slot-save-path", self.folder.name) as server:
            status, _, body = server.post("/slots/3?action=save", {"filename": "x"})
            self.assertEqual(status, 400)
            self.assertIn("slot 3 has answered nothing yet", body["error"]["message"])

    def test_a_slot_that_is_answering_is_busy(self):
        with Server("-c", 4096, "--parallel", 1, "--slot-save-path", self.folder.name) as server:
            answer = threading.Thread(target=complete, args=(server, prompt_of(4, 50), 3000))
            answer.start()
            while not server.get("/slots")[2][0]["is_processing"]:
                time.sleep(0.01)
            status, _, body = server.post("/slots/0?action=save", {"filename": "busy"})
            self.assertEqual(status, 409)
            self.assertIn("slot 0 is answering a request", body["error"]["message"])
            answer.join()
            self.assertEqual(server.ok("/slots/0?action=save", {"filename": "busy"})["n_saved"], 3049)

    def test_a_folder_that_is_gone_is_an_error_of_the_server(self):
        with tempfile.TemporaryDirectory() as parent:
            folder = pathlib.Path(parent, "slots")
            folder.mkdir()
            with Server("-c", 1024, "--slot-save-path", folder) as server:
                complete(server, prompt_of(5, 100))
                folder.rmdir()
                status, _, body = server.post("/slots/0?action=save", {"filename": "x"})
                self.assertIn(status, (404, 503))
                self.assertTrue(body["error"]["message"].startswith("x"), body)
                self.assertEqual(complete(server, prompt_of(5, 100))[1], 99)

    def test_the_folder_must_exist_at_the_start(self):
        started = subprocess.run([PROGRAM, "-m", str(MODEL), "--slot-save-path", self.folder.name + "/none"], capture_output=True, text=True)
        self.assertEqual(started.returncode, 2)
        self.assertRegex(started.stderr, "--slot-save-path: '.*/none' is not a folder")


class Restart(unittest.TestCase):
    def test_prefixes_are_known_after_a_restart(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "prefixes")
            options = (*SMALL, "--cache-ram", 64, "--save-prefixes", path)
            with Server(*options) as server:
                self.assertIn("the server starts without cached prefixes", server.text())
                expected = converse(server, 6, 300, 1)[0]
            with Server(*options) as server:
                self.assertRegex(server.text(), "--save-prefixes: [0-9]+ pages of prefixes were read")
                for number, ids in enumerate(expected):
                    self.assertEqual(complete(server, prompt_of(number, 300)), (ids, 299))
            with Server(*options, model=OTHER_MODEL) as server:
                self.assertRegex(server.text(), "starts without cached prefixes: .* of another model")
                complete(server, prompt_of(0, 100))
                os.truncate(path, 1000)
            self.assertGreater(path.stat().st_size, 1000)  # written at the end
            path.write_bytes(path.read_bytes()[:-1])
            with Server(*options) as server:
                self.assertIn("starts without cached prefixes", server.text())


if __name__ == "__main__":
    unittest.main()
