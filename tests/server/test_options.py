# SPDX-License-Identifier: Apache-2.0
"""The command line: where models are found, and the effect of other servers' flags."""

import os
import pathlib
import subprocess
import tempfile
import unittest

from support import CHAT, HELLO, MODEL, PROGRAM, Server


def run(*arguments, **environment):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=60, env={**os.environ, **environment})


class Options(unittest.TestCase):
    def test_flags_of_other_servers(self):
        flags = ["--jinja", "--enable-auto-tool-choice", "--tool-call-parser", "minimax_m2", "--reasoning-parser", "minimax_m2",
                 "--trust-remote-code", "--tensor-parallel-size", "4", "--gpu-memory-utilization", "0.9", "-fa", "on",
                 "--max-num-seqs", "3", "--max-model-len", "2048"]
        with Server(*flags) as server:
            self.assertEqual(len(server.get("/slots")[2]), 3)
            self.assertEqual(server.get("/v1/models")[2]["data"][0]["max_model_len"], 2048)
            self.assertIn("--trust-remote-code has no meaning here", server.text())

    def test_a_context_beyond_the_trained_one(self):
        with Server("-c", "6000") as server:
            answer = server.ok("/v1/completions", {"prompt": [5] * 5000, "max_tokens": 2})
            self.assertEqual(answer["usage"]["prompt_tokens"], 5000)

    def test_names(self):
        with Server("--alias", "tiny") as server:
            self.assertEqual(server.get("/v1/models")[2]["data"][0]["id"], "tiny")
            server.chat(HELLO, max_tokens=1, model="other")
        with Server("--served-model-name", "one") as server:
            server.chat(HELLO, max_tokens=1, model="one")
            status, _, answer = server.post(CHAT, {"messages": HELLO, "model": "other"})
            self.assertEqual((status, answer["error"]["code"]), (404, "model_not_found"))

    def test_models_in_the_cache(self):
        with tempfile.TemporaryDirectory() as folder:
            snapshot = pathlib.Path(folder, "models--org--tiny-gguf", "snapshots", "abc")
            snapshot.mkdir(parents=True)
            pathlib.Path(folder, "models--org--tiny-gguf", "refs").mkdir()
            pathlib.Path(folder, "models--org--tiny-gguf", "refs", "main").write_text("abc")
            (snapshot / "tiny-Q8_0.gguf").symlink_to(MODEL)
            for model in ("org/tiny-gguf", "org/tiny-gguf:q8_0"):
                with Server(model=model, environment={"HF_HUB_CACHE": folder}) as server:
                    self.assertEqual(server.get("/health")[0], 200)
            done = run("-m", "org/tiny-gguf:Q2_K", HF_HUB_CACHE=folder)
            self.assertEqual(done.returncode, 1)
            self.assertIn("hf download org/tiny-gguf --include '*Q2_K*'", done.stderr)
            (snapshot / "tiny-Q4_K.gguf").symlink_to(MODEL)
            self.assertIn("name one, as ORG/NAME:QUANT", run("-m", "org/tiny-gguf", HF_HUB_CACHE=folder).stderr)
            done = run("-m", "org/other", HF_HOME=folder)
            self.assertIn("hf download org/other", done.stderr)
            self.assertIn(str(pathlib.Path(folder, "hub")), done.stderr)

    def test_bad_command_lines(self):
        for arguments, code in (([], 2), (["-m", "/nothing.gguf"], 1), (["-m", str(MODEL), "--port", "99999"], 2),
                                (["-m", str(MODEL), "--parallel", "0"], 2), (["-m", str(MODEL), "--unknown-flag"], 2),
                                (["-m", str(MODEL), "--host", "203.0.113.1", "--port", "0"], 1),
                                (["-m", str(MODEL), "--reasoning-parser", "other"], 2)):
            done = run(*arguments)
            self.assertEqual(done.returncode, code, (arguments, done.stderr))
            self.assertIn("error: ", done.stderr)

    def test_metrics_for_other_boards_and_pages_of_other_origins(self):
        with Server("--metrics-prefix", "vllm:", "--cors-origin", "https://example.org") as server:
            self.assertIn('\nvllm:num_requests_running{model_name="minim-tiny"} 0\n', server.get("/metrics")[2].decode())
            self.assertEqual(server.get("/health")[1]["Access-Control-Allow-Origin"], "https://example.org")
            self.assertEqual(server.request("OPTIONS", CHAT)[0], 204)


if __name__ == "__main__":
    unittest.main()
