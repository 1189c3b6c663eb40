# SPDX-License-Identifier: Apache-2.0
"""`minim chat`: a conversation through a pipe and through a terminal."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
import unittest

from support import PROGRAM, Q8_0, run

CAPITAL = "What is the capital of France?"
ANSWER = "The user asks for the capital of France.\n\nThe capital of France is Paris.\n"


def chat(text, *options):
    return run("chat", "-m", Q8_0, "--temp", 0, *options, input=text)


class Pipe(unittest.TestCase):
    def test_lines_are_messages_and_answers_go_to_standard_output(self):
        done = chat(f"{CAPITAL}\n")
        self.assertEqual((done.returncode, done.stdout), (0, ANSWER))
        self.assertRegex(done.stderr, r"\[18 tokens, [\d.]+ tokens/s\]\n$")
        self.assertEqual(chat(CAPITAL).stdout, ANSWER)  # without a line end
        self.assertEqual(chat(f"{CAPITAL}\r\n").stdout, ANSWER)

    def test_reasoning_can_be_hidden(self):
        self.assertEqual(chat(CAPITAL, "--hide-reasoning").stdout, "The capital of France is Paris.\n")

    def test_the_conversation_goes_on_until_it_is_reset(self):
        question = "Count from 1 to 9."
        both = chat(f"{CAPITAL}\n{question}\n").stdout
        self.assertTrue(both.startswith(ANSWER))
        second = both.removeprefix(ANSWER)
        alone = chat(question).stdout
        reset = chat(f"{CAPITAL}\n/reset\n{question}\n").stdout
        self.assertEqual(reset, ANSWER + alone)
        self.assertIn("9", second)

    def test_commands(self):
        done = chat(f"/help\n/nothing\n\n   \n/exit\n{CAPITAL}\n")
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertIn("/reset begins a new conversation", done.stderr)
        self.assertIn("the command /nothing is not known", done.stderr)
        self.assertEqual(chat("").returncode, 0)

    def test_a_message_of_several_lines(self):
        self.assertEqual(chat("What is the capital\\\n of France?\n", "--seed", 1).returncode, 0)
        done = chat("/exit \\\nis no command in two lines\n", "-n", 3)
        self.assertRegex(done.stderr, r"\[3 tokens, [\d.]+ tokens/s, -n reached\]")

    def test_what_cannot_be_answered_ends_no_conversation(self):
        done = run("chat", "-m", Q8_0, "--temp", 0, "-c", 64, input=f"{'word ' * 100}\n{CAPITAL}\n")
        self.assertEqual((done.returncode, done.stdout), (0, ANSWER))
        self.assertIn("the conversation has", done.stderr)
        self.assertIn("the context 64", done.stderr)
        raw = subprocess.run([PROGRAM, "chat", "-m", str(Q8_0), "--temp", "0"], input=b"\xff\xfe\xff\n" + CAPITAL.encode(),
                             capture_output=True, timeout=60)
        self.assertEqual((raw.returncode, raw.stdout.decode()), (0, ANSWER))
        self.assertIn(b"not UTF-8", raw.stderr)

    def test_markup_in_a_message_is_text(self):
        done = chat("Say [e~[ and <think> and </think>.", "-n", 5)
        self.assertEqual(done.returncode, 0)

    def test_options(self):
        self.assertIn("--hide-reasoning", run("chat", "--help").stdout)
        self.assertEqual(run("chat").returncode, 2)
        self.assertEqual(run("chat", "-m", Q8_0, "-p", "x").returncode, 2)


class Terminal(unittest.TestCase):
    def setUp(self):
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen([PROGRAM, "chat", "-m", str(Q8_0), *self.options()], stdin=slave,
                                        stdout=slave, stderr=slave, start_new_session=True)
        os.close(slave)
        self.seen = ""

    def options(self):
        endless = {"type": "array", "items": {"type": "integer"}, "minItems": 3000}
        return ["--temp", "0", *(["--json-schema", json.dumps(endless)] if "endless" in self._testMethodName else [])]

    def tearDown(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)

    def read_until(self, pattern, seconds=60):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = re.search(pattern, self.seen)
            if found:
                self.seen = self.seen[found.end():]
                return found
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.master, 65536).decode(errors="replace")
                except OSError:  # the program has ended
                    break
        self.fail(f"{pattern!r} did not come; the last that came was {self.seen[-500:]!r}")

    def type(self, text):
        os.write(self.master, text.encode())

    def test_reasoning_is_dim(self):
        self.read_until("> $")
        self.type(CAPITAL + "\n")
        self.read_until(re.escape("\x1b[2mThe user asks for the capital of France.\x1b[0m\r\n\r\nThe capital of France is Paris.\r\n"))
        self.read_until("> $")
        self.type("\x04")
        self.assertEqual(self.process.wait(30), 0)

    def test_an_interrupt_stops_an_endless_answer_and_not_the_program(self):
        self.read_until("> $")
        for _ in range(2):
            self.type(CAPITAL + "\n")
            self.read_until(r"\[\s*\d")
            self.process.send_signal(signal.SIGINT)
            self.read_until(r"tokens/s, stopped\]")
            self.read_until("> $")
        self.type("/exit\n")
        self.assertEqual(self.process.wait(30), 0)

    def test_interrupts_of_a_line(self):
        self.read_until("> $")
        self.process.send_signal(signal.SIGINT)
        self.read_until("ends the program")
        self.read_until("> $")
        self.type(CAPITAL + "\n")
        self.read_until("Paris")
        self.read_until("> $")
        self.process.send_signal(signal.SIGINT)
        self.read_until("> $")
        self.process.send_signal(signal.SIGINT)
        self.assertEqual(self.process.wait(30), 0)


if __name__ == "__main__":
    unittest.main()
