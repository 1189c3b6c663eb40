# SPDX-License-Identifier: Apache-2.0
"""What the server takes at its start: devices, context, KV cache and requests, of memory that may be short."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from support import HELLO, ROOT, SANITIZER, Server, run_to_end

SIM = os.environ["MINIM_SIM_FOLDER"]
TRAINED = 4096  # context of the tiny model


def sim(memory, devices=1):
    return {"MINIM_PLUGIN_PATH": SIM, "MINIM_SIM": f"devices={devices} memory={memory}"}


def sizes(server):
    """Returns (context, KV tokens, requests, rows) of the log, which must be what the routes say."""
    found = re.search(r"sizes: context of (\d+) tokens, KV cache of (\d+) tokens \(.* GiB\), (\d+) requests at once, steps of (\d+) rows",
                      server.text())
    context, tokens, requests, rows = map(int, found.groups())
    props = server.get("/props")[2]
    assert props["total_slots"] == requests, props
    assert server.get("/v1/models")[2]["data"][0]["max_model_len"] == context
    assert len(server.get("/slots")[2]) == requests
    return context, tokens, requests, rows


class Sizes(unittest.TestCase):
    def test_all_requests_get_their_context_if_memory_suffices(self):
        with Server("-c", 0, "--parallel", 4) as server:
            context, tokens, requests, _ = sizes(server)
            self.assertEqual((context, tokens, requests), (TRAINED, 4 * TRAINED, 4))
        with Server("-c", 1000, "--parallel", 3) as server:
            self.assertEqual(sizes(server)[:3], (1000, 3008, 3))

    def test_rows_of_the_embedding_may_stand_for_no_token(self):
        with Server(model=pathlib.Path(os.environ["MINIM_TEST_MODELS"], "minim-tiny-nvfp4")) as server:
            self.assertEqual(server.get("/v1/models")[2]["data"][0]["meta"]["n_vocab"], 2048)
            self.assertTrue(server.chat(HELLO, max_tokens=4)["choices"][0]["message"])

    def test_a_cache_of_experts_and_the_kv_cache_share_a_device(self):
        for memory in (12, 16, 24, 40):
            for arguments in (("-c", 0), ("-c", 0, "--expert-cache", "2MiB"), ("-c", 2048, "--cpu-moe"), ("-c", 4096)):
                if arguments[1] * 7 > memory << 10:
                    continue  # a context of 4,096 tokens takes 20 MiB with work space
                with self.subTest(memory=memory, arguments=arguments):
                    with Server(*arguments, "--device", "sim:0", environment=sim(memory)) as server:
                        context, tokens, requests, rows = sizes(server)
                        self.assertGreaterEqual(tokens, context)
                        self.assertEqual(requests, 8)
                        if arguments[1]:
                            self.assertEqual(context, arguments[1])
                        self.assertGreaterEqual(context, 512)
                        self.assertRegex(server.text(), r"memory: sim:0: layers 0-2.*weights .*KV .*work .*free ")
                        server.chat(HELLO, max_tokens=3)

    def test_what_was_asked_for_and_does_not_fit_is_an_error_that_says_what_fits(self):
        for arguments in (("-c", 200000), ("-c", 200000, "--cpu-moe"), ("-c", 200000, "--parallel", 2)):
            with self.subTest(arguments=arguments):
                done = run_to_end(*arguments, "--device", "sim:0", environment=sim(24))
                self.assertEqual(done.returncode, 1, done.stderr)
                found = re.search(r"error: .*a context of (\d+) tokens would fit", done.stderr)
                self.assertIsNotNone(found, done.stderr)
                with Server(*arguments, "-c", found.group(1), "--device", "sim:0", environment=sim(24)) as server:
                    self.assertEqual(sizes(server)[0], int(found.group(1)))
        done = run_to_end("-c", 64, "--parallel", 4096, "--device", "sim:0", environment=sim(24))
        self.assertEqual(done.returncode, 1, done.stderr)
        found = re.search(r"error: 4096 requests at once do not fit.* (\d+) would fit", done.stderr)
        self.assertIsNotNone(found, done.stderr)
        done = run_to_end("-c", 8192, "--kv-tokens", 4096)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("a context of 8192 tokens does not fit a KV cache of 4096 tokens", done.stderr)

    def test_usable_devices_are_taken_if_none_is_named(self):
        with Server(environment=sim(256, devices=2)) as server:
            self.assertIn("sim:0 (layers", server.text())
            self.assertIn("sim:1 (layer", server.text())
        with Server("-ngl", 0, environment=sim(256)) as server:
            self.assertIn("cpu (layers 0-2)", server.text())
        with Server("-ngl", 99, "--cpu-moe", "-ts", "1", "--expert-cache", "1MiB") as server:
            self.assertIn("cpu (layers 0-2)", server.text())
            self.assertIn("-ngl, -ts, --cpu-moe, --expert-cache have no effect: only the CPU is usable", server.text())

    def test_the_warm_up_leaves_no_trace(self):
        with Server("--device", "sim:0", environment=sim(256)) as server:
            text = server.get("/metrics")[2].decode()
            for line in text.splitlines():
                if re.match(r"minim_(prompt|generation|evaluated|preempt|cached)\w* ", line):
                    self.assertTrue(line.endswith((" 0", " 0.0")), line)
            self.assertNotRegex(text, r"minim_\w*steps\w* [1-9]")


@unittest.skipIf(SANITIZER, "a sanitizer maps more than the limit of the address space")
class FullSize(unittest.TestCase):
    """A checkpoint of the real size with headers only: its weights are mapped, and read as zeros."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = pathlib.Path(cls.folder.name, "full.gguf")
        subprocess.run([sys.executable, str(ROOT / "tests" / "placement" / "make_headers.py"), str(cls.model), "--mix", "iq2_m"],
                       check=True, stdout=subprocess.DEVNULL)
        cls.size = cls.model.stat().st_size

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def server(self, *arguments, gib):
        """Returns a server that may map the checkpoint and take so many GiB beside it."""
        return Server(*arguments, model=self.model, usual=(), address_space=self.size + int(gib * 2**30))

    def test_a_default_takes_what_fits(self):
        for gib in (2, 3):
            for arguments in ((), ("--kv", "q4_0"), ("-c", 2048)):
                with self.subTest(gib=gib, arguments=arguments), self.server(*arguments, gib=gib) as server:
                    context, tokens, requests, rows = sizes(server)
                    self.assertEqual((requests, rows), (16, 512))
                    self.assertEqual(context, 2048 if "-c" in arguments else tokens)
                    self.assertGreaterEqual(tokens, 2048)
                    self.assertLess(tokens, 60000)
                    self.assertRegex(server.text(), r"a context of 196608 tokens, for which the model was trained, needs \d+\.\d GiB "
                                                    "more memory on host memory")
                    self.assertRegex(server.text(), r"memory: cpu: layers 0-61, weights 72\.\d GiB \(experts 69\.\d GiB; mapped\)")

    def test_a_context_that_does_not_fit_is_an_error(self):
        with self.assertRaises(RuntimeError) as caught:
            self.server("-c", 196608, gib=3)
        found = re.search(r"error: a context of 196608 tokens does not fit: \d+ bytes needed in host memory for KV cache and work space, "
                          r"\d+ bytes available; a context of (\d+) tokens would fit", str(caught.exception))
        self.assertIsNotNone(found, str(caught.exception))
        with self.server("-c", found.group(1), gib=3) as server:
            self.assertEqual(sizes(server)[:3], (int(found.group(1)), -(-int(found.group(1)) // 64) * 64, 16))


if __name__ == "__main__":
    unittest.main()
