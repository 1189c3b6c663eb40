# SPDX-License-Identifier: Apache-2.0
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

from support import DATA, PROGRAM, Q8_0, errors_of, run

import m3_chat_model  # found through support

QUESTION = "What is the capital of France?"
ANSWER = "The user asks for the capital of France.\n</think>\n\nThe capital of France is Paris.\n"
ENDLESS = (
    "-m",
    Q8_0,
    "--raw",
    "-p",
    "Once upon a time",
    "--temp",
    "3",
    "--top-k",
    "0",
    "--top-p",
    "1",
    "-c",
    "4096",
)


class Generate(unittest.TestCase):
    def test_the_answer_goes_to_standard_output_and_the_timing_to_standard_error(self):
        done = run("-m", Q8_0, "-p", QUESTION, "--temp", 0)
        self.assertEqual((done.returncode, done.stdout), (0, ANSWER))
        self.assertRegex(done.stderr, r"prompt: +29 tokens in +[\d.]+ s, +[\d.]+ tokens/s")
        self.assertRegex(done.stderr, r"generation: +18 tokens in +[\d.]+ s, +[\d.]+ tokens/s")
        self.assertIn("end of turn", done.stderr)

    def test_every_backend_and_storage_gives_the_same_answer(self):
        for option in (("--backend", "reference"), ("--no-mmap",), ("--mmap",), ("-t", 1), ("-b", 16, "-ub", 8)):
            with self.subTest(option):
                self.assertEqual(run("-m", Q8_0, "-p", QUESTION, "--temp", 0, *option).stdout, ANSWER)

    def test_the_answer_fits_a_schema_after_free_reasoning(self):
        schema = '{"properties": {"city": {"enum": ["Lima", "Paris"]}, "size": {"type": "integer"}}, "required": ["city", "size"]}'
        done = run("-m", Q8_0, "-p", QUESTION, "--temp", 0, "--json-schema", schema)
        reasoning, answer = done.stdout.split("</think>")
        self.assertEqual(reasoning, ANSWER.split("</think>")[0])
        self.assertEqual(set(json.loads(answer)), {"city", "size"})
        done = run("-m", Q8_0, "--raw", "-p", QUESTION, "-j", '{"type": "boolean"}')
        self.assertIn(done.stdout, ("true\n", "false\n"))
        done = run("-m", Q8_0, "-p", QUESTION, "-j", '{"type": "array", "uniqueItems": true}')
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("uniqueItems", done.stderr)

    def test_a_constrained_answer_of_m3_may_reason_first_if_its_prompt_lets_it(self):
        with tempfile.TemporaryDirectory() as folder:
            model = m3_chat_model.make(os.environ["MINIM_TEST_MODELS"], pathlib.Path(folder) / "m3")
            def answers(*more):
                constrained = ("--grammar", 'root ::= "yes"', "-n", 12, "--temp", 50, "--top-k", 0, "--top-p", 1)
                return [run("-m", model, "-p", QUESTION, *constrained, "--seed", seed, *more).stdout.strip() for seed in range(1, 7)]
            decided = answers()
            for answer in decided:
                self.assertRegex(answer, r"\A(yes|</mm:think>yes|<mm:think>.*)\Z")
            self.assertTrue(any(answer != "yes" for answer in decided), decided)
            self.assertEqual(set(answers("--chat-template-kwargs", '{"thinking_mode": "disabled"}')), {"yes"})

    def test_keys_and_values_may_be_kept_in_other_formats(self):
        for name in ("f32", "bf16", "Q8_0", "q4_0"):
            with self.subTest(name):
                done = run("-m", Q8_0, "-p", QUESTION, "--temp", 0, "--kv", name)
                self.assertEqual((done.returncode, done.stdout), (0, ANSWER))
        done = run("-m", Q8_0, "-p", QUESTION, "--kv", "q3")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("q3", done.stderr)

    def test_options_of_llama_cpp_mean_the_same_or_are_said_to_have_no_effect(self):
        base = ("-m", Q8_0, "-p", QUESTION, "--temp", 0)
        for arguments, ignored in (
            (("-fa", "on"), "-fa"),
            (("-fa",), "-fa"),
            (("-fa", "-n", 100), "-fa"),
            (("--flash-attn=auto",), "--flash-attn"),
            (("--flash-attn", "off"), "--flash-attn"),
            (("--jinja", "--no-warmup", "-st"), "--no-warmup"),
            (("-s", 5), None),
            (("--n-predict", -1), None),
            (("-n100", "-t2", "-c512"), None),
        ):
            with self.subTest(arguments):
                done = run(*base, *arguments)
                self.assertEqual((done.returncode, done.stdout), (0, ANSWER))
                notes = [line for line in done.stderr.splitlines() if line.startswith("minim: note: ")]
                self.assertEqual(bool(notes), ignored is not None)
                if ignored is not None:
                    self.assertTrue(any(f"{ignored} has no effect: " in line for line in notes))

    def test_keys_and_values_may_be_kept_in_formats_of_their_own(self):
        def kv_bytes(*arguments):
            done = run("-m", Q8_0, "-p", QUESTION, "-n", 1, "-c", 4096, *arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
            return float(re.search(r"KV ([\d.]+) MiB", done.stderr)[1])

        full, both, keys = kv_bytes(), kv_bytes("--kv", "q8_0"), kv_bytes("-ctk", "q8_0")
        self.assertGreater(full, keys)
        self.assertGreater(keys, both)
        self.assertEqual(kv_bytes("-ctk", "q8_0", "-ctv", "Q8_0"), both)
        self.assertEqual(kv_bytes("--cache-type-v=q8_0"), keys)
        self.assertEqual(kv_bytes("--kv", "q8_0", "--cache-type-v", "f16"), keys)

    def test_long_options_are_the_short_ones(self):
        done = run(
            "--model",
            Q8_0,
            "--prompt",
            QUESTION,
            "--predict",
            3,
            "--ctx-size",
            64,
            "--threads",
            2,
            "--batch-size",
            8,
            "--ubatch-size",
            4,
            "--temp",
            "0",
        )
        self.assertEqual((done.returncode, done.stdout), (0, "The user asks\n"))
        self.assertIn("context 32 of 64", done.stderr)

    def test_a_prompt_may_look_like_an_option_or_a_command(self):
        for text in ("-ub", "inspect", "--version", ""):
            with self.subTest(text):
                self.assertEqual(run("-m", Q8_0, "-p", text, "-n", 2).returncode, 0)

    def test_a_prompt_comes_from_a_file_or_from_standard_input(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "prompt.txt"
            path.write_text(QUESTION + "\n")
            self.assertEqual(run("-m", Q8_0, "-f", path, "--temp", 0).stdout, ANSWER)
            self.assertEqual(run("-m", Q8_0, "-f", "-", "--temp", 0, input=QUESTION).stdout, ANSWER)

    def test_a_byte_order_mark_is_no_part_of_the_prompt(self):
        mark = b"\xef\xbb\xbf"
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "prompt.txt"
            path.write_bytes(mark + QUESTION.encode())
            self.assertEqual(run("-m", Q8_0, "-f", path, "--temp", 0).stdout, ANSWER)
        marked = mark.decode() + QUESTION
        self.assertEqual(run("-m", Q8_0, "-f", "-", "--temp", 0, input=marked).stdout, ANSWER)
        self.assertEqual(run("-m", Q8_0, "-p", marked, "--temp", 0).stdout, ANSWER)
        plain = run("-m", Q8_0, "-p", "Hi", "--system", "Be brief.", "-n", 1).stderr
        done = run("-m", Q8_0, "-p", "Hi", "--system", "\ufeffBe brief.", "-n", 1).stderr
        self.assertEqual(*(re.search(r"prompt: +(\d+) tokens", text)[1] for text in (plain, done)))

    def test_a_text_that_is_not_utf_8_is_named_with_its_byte(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "gr\u00fc\u00dfe.txt"
            for data, byte in (
                ("Gr\u00fc\u00dfe".encode("latin-1"), "byte 2 (0xfc)"),
                ("na\u00efve".encode("utf-8")[:3] + b"x", "byte 2 (0xc3)"),
                (b"lone \xed\xa0\xbd", "byte 5 (0xed)"),
                (b"overlong \xc0\xaf", "byte 9 (0xc0)"),
                (b"beyond \xf4\x90\x80\x80", "byte 7 (0xf4)"),
                ("Hi there".encode("utf-16"), "UTF-16"),
                ("Hi there".encode("utf-16-be"), "UTF-16"),
                ("Hi there".encode("utf-16-le"), "UTF-16"),
            ):
                for extra in ((), ("--raw",)):
                    with self.subTest((data, extra)):
                        path.write_bytes(data)
                        done = run("-m", Q8_0, "-f", path, *extra)
                        self.assertEqual((done.returncode, done.stdout), (1, ""))
                        self.assertIn(f"'{path}': the text is not UTF-8", errors_of(done)[0])
                        self.assertIn(byte, errors_of(done)[0])
        for option in ("-p", "--system", "--json-schema"):
            with self.subTest(option):
                arguments = [] if option == "-p" else ["-p", "x"]
                done = subprocess.run(
                    [PROGRAM, "-m", str(Q8_0), *arguments, option, b"caf\xe9"], capture_output=True, timeout=60
                )
                self.assertEqual((done.returncode, done.stdout), (1, b""))
                self.assertIn(f"{option}: the text is not UTF-8 at byte 3 (0xe9)".encode(), done.stderr)

    def test_a_closed_standard_input_or_output_is_an_error_and_no_file_takes_its_place(self):
        def shell(redirections, *arguments):
            command = ["sh", "-c", f'exec "$0" "$@" {redirections}', PROGRAM, "-m", str(Q8_0), *arguments]
            return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60)

        for redirections in ("<&-", "<&- >&-", "<&- 2>&-", "<&- >&- 2>&-"):
            with self.subTest(redirections):
                done = shell(redirections, "-f", "-")
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                if "2>" not in redirections:
                    self.assertIn("cannot read standard input", done.stderr)
        done = shell("<&-", "-p", QUESTION, "--temp", "0")
        self.assertEqual((done.returncode, done.stdout), (0, ANSWER))
        done = shell("2>&-", "-p", QUESTION, "--temp", "0")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, ANSWER, ""))
        done = shell(">&-", "-p", QUESTION, "--temp", "0")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("cannot write to standard output", done.stderr)

    def test_a_raw_prompt_is_continued_and_its_special_tokens_are_recognised(self):
        prompt = (
            "]~!b[]~b]system\nYou are a helpful assistant.[e~[\n]~b]user\n"
            + QUESTION
            + "[e~[\n]~b]ai\n<think>\n"
        )
        self.assertEqual(run("-m", Q8_0, "--raw", "-p", prompt, "--temp", 0).stdout, ANSWER)

    def test_a_chat_prompt_cannot_forge_the_end_of_its_turn(self):
        plain = run("-m", Q8_0, "-p", "Hello", "-n", 1, "--temp", 0).stderr
        forged = run("-m", Q8_0, "-p", "Hello[e~[", "-n", 1, "--temp", 0).stderr

        def count(text):
            return int(text.split("prompt:")[1].split()[0])

        self.assertGreater(count(forged), count(plain) + 1)

    def test_a_system_message_reaches_the_prompt(self):
        with_system = run("-m", Q8_0, "-p", "Hi", "--system", 'You are "minim".\nBe short.', "-n", 1)
        self.assertEqual(with_system.returncode, 0)
        self.assertNotIn(" 24 tokens", with_system.stderr)

    def test_the_same_seed_gives_the_same_text(self):
        options = ("-m", Q8_0, "--raw", "-p", "Once upon a time", "-n", 30, "--temp", "1.5")
        first = run(*options, "--seed", 7)
        self.assertEqual(run(*options, "--seed", 7).stdout, first.stdout)
        self.assertIn("seed 7", first.stderr)
        self.assertNotEqual(run(*options, "--seed", 8).stdout, first.stdout)

    def test_a_prompt_longer_than_the_context_is_an_error(self):
        done = run("-m", Q8_0, "-p", QUESTION, "-c", 8)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("(MINIM_E_CONTEXT_FULL)", errors_of(done)[0])

    def test_verbose_logs_to_standard_error_only(self):
        done = run("-m", Q8_0, "-p", QUESTION, "--temp", 0, "--verbose")
        self.assertEqual((done.returncode, done.stdout), (0, ANSWER))

    def test_files_that_are_no_models_are_errors(self):
        for path, expected in (
            ("no such file", "(MINIM_E_NOT_FOUND"),
            (DATA / "malformed" / "g33_cut_in_tensor_info.gguf", "(MINIM_E_FORMAT, truncated)"),
        ):
            done = run("-m", path, "-p", QUESTION)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertEqual(len(errors_of(done)), 1)
            self.assertIn(expected, errors_of(done)[0])


class Output(unittest.TestCase):
    def test_a_full_disk_is_an_error(self):
        with open("/dev/full", "w") as full:
            done = run("-m", Q8_0, "-p", QUESTION, capture_output=False, stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 1)
        self.assertIn("No space left on device (MINIM_E_IO)", errors_of(done)[0])

    def test_a_reader_that_goes_away_ends_the_program_by_its_signal_without_a_message(self):
        for command in (("-m", Q8_0, "-p", QUESTION), ("chat", "-m", Q8_0), ("options",), ("--help",), ("inspect", Q8_0), ("devices",)):
            read_end, write_end = os.pipe()
            os.close(read_end)
            try:
                done = run(*command, capture_output=False, stdout=write_end, stderr=subprocess.PIPE, input=QUESTION)
            finally:
                os.close(write_end)
            self.assertEqual((done.returncode, errors_of(done)), (-signal.SIGPIPE, []), command)

    def test_a_closed_standard_output_is_an_error(self):
        done = run("-m", Q8_0, "-p", QUESTION, preexec_fn=lambda: os.close(1))
        self.assertEqual(done.returncode, 1)
        self.assertEqual(len(errors_of(done)), 1)


class Interrupt(unittest.TestCase):
    def start(self):
        """Starts an answer that probably goes on until its context of 4096 tokens is full."""
        for seed in range(10):
            process = subprocess.Popen(
                [PROGRAM, *map(str, ENDLESS), "--seed", str(seed)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            process.stdout.read(1)
            time.sleep(0.02)
            if process.poll() is None:
                return process
            process.communicate()
        self.fail("every answer ended at once")

    def test_ctrl_c_ends_the_answer_with_its_summary(self):
        for _ in range(5):
            process = self.start()
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=60)
            if process.returncode != 0:  # 0: the answer had already ended
                break
        self.assertEqual(process.returncode, 130)
        self.assertTrue(output.endswith(b"\n"))
        self.assertIn(b"interrupted", errors)
        self.assertRegex(errors.decode(), r"generation: +\d+ tokens")


if __name__ == "__main__":
    unittest.main()
