# SPDX-License-Identifier: Apache-2.0
"""The command line: where models are found, and the effect of other servers' flags."""

import fcntl
import os
import pathlib
import re
import subprocess
import tempfile
import time
import unittest
import urllib.request

from support import CHAT, HELLO, MODEL, PROGRAM, Server


def run(*arguments, **environment):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=60, env={**os.environ, **environment})


class Options(unittest.TestCase):
    def test_flags_of_other_servers(self):
        flags = ["--jinja", "--enable-auto-tool-choice", "--tool-call-parser", "minimax_m2", "--reasoning-parser", "minimax_m2",
                 "--trust-remote-code", "--enable-expert-parallel", "--gpu-memory-utilization", "0.9", "-fa", "on",
                 "--max-num-seqs", "3", "--max-model-len", "2048"]
        with Server(*flags) as server:
            self.assertEqual(len(server.get("/slots")[2]), 3)
            self.assertEqual(server.get("/v1/models")[2]["data"][0]["max_model_len"], 2048)
            text = server.text()
            for flag in ("--trust-remote-code", "--jinja", "--enable-expert-parallel", "-fa"):
                self.assertIn(f"{flag} has no effect: ", text)
            self.assertIn("--device-memory has no effect: only the CPU is usable", text)

    def test_defaults_of_requests(self):
        with Server("--seed", 2**64 - 1, "--temp", 1.5, "-n", 7, "--draft-tokens", 4, "--dry-multiplier", 0.5, "--reasoning-budget", 0,
                    "--chat-template-kwargs", '{"model_identity": "You are a lighthouse."}') as server:
            first, again = (server.chat(HELLO) for _ in range(2))
            self.assertEqual(first["choices"][0]["message"], again["choices"][0]["message"])
            self.assertEqual(first["usage"]["completion_tokens"], 7)
            rendered = server.ok("/apply-template", {"messages": HELLO})["prompt"]
            self.assertIn("You are a lighthouse.", rendered)
            self.assertTrue(rendered.endswith("</think>\n\n"))

    def test_another_chat_template(self):
        own = "{% for turn in messages %}<{{ turn.role }}>{{ turn.content }}{% endfor %}"
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "own.jinja")
            file.write_text(own)
            with Server("--chat-template", file) as server:
                self.assertEqual(server.get("/props")[2]["chat_template"], own)
                self.assertEqual(server.ok("/apply-template", {"messages": HELLO})["prompt"], "<user>Hello!")
                message = server.chat(HELLO, max_tokens=8, ignore_eos=True)["choices"][0]["message"]
                self.assertFalse(message.get("reasoning_content"))  # the template opens no thought
                self.assertTrue(message["content"])
                both = [*HELLO, {"role": "assistant", "content": "Hi"}]
                answer = server.ok("/apply-template", {"messages": both, "continue_final_message": True})
                self.assertEqual(answer["prompt"], "<user>Hello!<assistant>Hi")
                server.chat(HELLO, max_tokens=4, enable_thinking=False)

    def test_no_line_of_the_start_is_lost_and_lost_lines_of_requests_are_counted(self):
        read, write = os.pipe()
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
        command = [PROGRAM, "-m", str(MODEL), "--port", "0", "-c", "1024", *["--jinja"] * 100]
        process = subprocess.Popen(command, stderr=write)
        os.close(write)
        text = b""

        def ask():
            with urllib.request.urlopen(f"http://127.0.0.1:{port[1].decode()}/v1/models", timeout=10) as answer:
                answer.read()

        try:
            time.sleep(0.5)  # a reader that is late
            port = None
            while port is None:
                text += os.read(read, 65536)
                port = re.search(rb" at http://\S+:(\d+)\n", text)
            self.assertEqual(text.count(b"--jinja has no effect"), 100)
            for _ in range(200):
                ask()
            os.read(read, 65536)
            ask()
            process.terminate()
            self.assertEqual(process.wait(60), 0)
            lost = re.search(rb"(\d+) lines of the log were lost", os.read(read, 65536))
            self.assertTrue(lost)
            self.assertGreater(int(lost[1]), 50)
        finally:
            process.kill()
            process.wait()
            os.close(read)

    def test_several_keys(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "keys")
            file.write_text("# a comment\nfirst\n\nsecond\n")
            with Server("--api-key", "one,two", "--api-key", "three", "--api-key-file", file) as server:
                for key, status in (("one", 200), ("two", 200), ("three", 200), ("first", 200), ("second", 200), ("four", 401), ("", 401), ("one,two", 401)):
                    self.assertEqual(server.get("/v1/models", headers={"Authorization": f"Bearer {key}"})[0], status, key)

    def test_an_answer_and_a_connection_have_limits_of_their_own(self):
        with Server("--answer-timeout", 1, "--timeout", 600) as server:
            answer = server.chat(HELLO, max_tokens=100000, ignore_eos=True)
            self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        with Server("--timeout", 1) as server:
            answer = server.chat(HELLO, max_tokens=400, ignore_eos=True)
            self.assertEqual(answer["usage"]["completion_tokens"], 400)

    def test_options_from_the_environment_and_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "server.toml")
            file.write_text('[minim-server]\nalias = "named"\napi-key = ["a", "b"]\n[minim]\nseed = 5\n')
            for settings, name in (({}, "named"), ({"MINIM_ALIAS": "other"}, "other")):
                with Server("--config", file, environment=settings) as server:
                    models = server.get("/v1/models", headers={"x-api-key": "b"})[2]
                    self.assertEqual(models["data"][0]["id"], name)

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

    def test_options_are_refused_by_their_own_names(self):
        for arguments in (["--fits", "on"], ["-mqkw"], ["-cramm", "1"], ["-toto"], ["-bsx"], ["--slot-save-path", "x"], ["--kv-cache-dtype", "fp8"],
                          ["--max-model-len", "130q"], ["-ctk", "q9"], ["--timeout", "soon"], ["--max-model-le", "5"], ["-md", "x"], ["--hide-reasoning"]):
            done = run("-m", str(MODEL), *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertRegex(done.stderr, rf"error: .*{arguments[0]}\b")

    def test_keys_and_values_have_formats_of_their_own(self):
        def wanted(*flags):
            """Returns the bytes of a KV cache that is too large for any machine."""
            done = run("-m", str(MODEL), "--kv-tokens", "200000M", "--port", "0", *flags)
            self.assertEqual(done.returncode, 1)
            return int(re.search(r"(\d+) bytes", done.stderr)[1])

        full, both, keys, values = wanted(), wanted("--kv", "q8_0"), wanted("-ctk", "q8_0"), wanted("--cache-type-v=q8_0")
        self.assertEqual((keys, values), ((full + both) // 2,) * 2)
        self.assertEqual(wanted("-ctk", "q8_0", "-ctv", "Q8_0"), both)
        self.assertEqual(wanted("--kv-cache-dtype", "q8_0", "-ctv", "f16"), keys)
        self.assertLess(wanted("-ctk", "q8_0", "-ctv", "q4_0"), both)

    def test_metrics_for_other_boards_and_pages_of_other_origins(self):
        with Server("--metrics-prefix", "vllm:", "--cors-origin", "https://example.org") as server:
            self.assertIn('\nvllm:num_requests_running{model_name="minim-tiny"} 0\n', server.get("/metrics")[2].decode())
            self.assertEqual(server.get("/health")[1]["Access-Control-Allow-Origin"], "https://example.org")
            self.assertEqual(server.request("OPTIONS", CHAT)[0], 204)


if __name__ == "__main__":
    unittest.main()
