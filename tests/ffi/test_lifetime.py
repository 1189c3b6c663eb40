# SPDX-License-Identifier: Apache-2.0
"""Handles released in any order, and exceptions in callbacks."""

import gc
import subprocess
import sys
import unittest

from support import PACKAGES, Q8_0, minim, prompt


def run_program(program):
    """Runs a program with the folder of the package and a model as arguments."""
    arguments = [sys.executable, "-c", program, str(PACKAGES), str(Q8_0)]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=120)


class Lifetime(unittest.TestCase):
    def test_a_session_outlives_its_closed_model(self):
        golden = prompt("chat_capital")
        opened = minim.Model(Q8_0, threads=1)
        session = opened.session(context=128)
        checkpoint = opened.checkpoint()
        opened.close()
        opened._runtime.close()
        ids = [token.id for token in session.generate(golden["ids"])]
        self.assertEqual(ids, golden["greedy_ids"][:-1])
        self.assertEqual(checkpoint.metadata["general.name"], "minim-tiny")

    def test_cycles_are_collected_in_any_order(self):
        for _ in range(3):
            opened = minim.Model(Q8_0, threads=1)
            opened.log = opened.session(context=64)
            opened.log.owner = opened
            del opened
            gc.collect()

    def test_a_program_may_end_with_everything_open(self):
        program = (
            "import sys; sys.path.insert(0, sys.argv[1]); import minim\n"
            "model = minim.Model(sys.argv[2], log=lambda *line: None, log_level='debug')\n"
            "session = model.session(context=64)\n"
            "generation = session.generate('Hello')\n"
            "print(next(generation).id)\n"
        )
        done = run_program(program)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_child_is_not_stopped_by_a_lock_of_another_thread(self):
        program = (
            "import os, signal, sys, threading; sys.path.insert(0, sys.argv[1]); import minim\n"
            "model = minim.Model(sys.argv[2], threads=1)\n"
            "engine = minim.Engine(model, kv_tokens=4096)\n"
            "request = engine.submit([5, 6], max_tokens=3000, ignore_end=1)\n"
            "reader = threading.Thread(target=lambda: [0 for _ in request.tokens()])\n"
            "reader.start()\n"
            "while not request._reading.locked(): pass\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    signal.alarm(20)\n"
            "    try:\n"
            "        request.poll()\n"
            "    except minim.Error as error:\n"
            "        for handle in (request, engine, model):\n"
            "            handle.close()\n"
            "        os._exit(0 if 'made before fork()' in str(error) else 1)\n"
            "    os._exit(2)\n"
            "request.cancel()\n"
            "reader.join()\n"
            "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        )
        done = run_program(program)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_forked_child_ends_and_is_told_what_it_cannot_use(self):
        program = (
            "import gc, os, sys; sys.path.insert(0, sys.argv[1]); import minim\n"
            "model = minim.Model(sys.argv[2], threads=4)\n"
            "session = model.session(context=64)\n"
            "engine = minim.Engine(model, kv_tokens=1024)\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    try:\n"
            "        session.eval([5])\n"
            "    except minim.Error as error:\n"
            "        if 'made before fork()' in str(error):\n"
            "            del engine, session, model\n"
            "            gc.collect()\n"
            "            sys.exit(7)\n"
            "    sys.exit(1)\n"
            "_, status = os.waitpid(child, 0)\n"
            "if os.fork() == 0:\n"
            "    sys.exit(0)\n"
            "session.eval([5])\n"
            "print(os.waitstatus_to_exitcode(status), os.waitstatus_to_exitcode(os.wait()[1]))\n"
        )
        done = run_program(program)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "7 0\n", ""))

    def test_a_model_in_memory_answers_like_a_mapped_one(self):
        golden = prompt("chat_capital")
        for mmap in (True, False, None):
            with (
                self.subTest(mmap=mmap),
                minim.Model(Q8_0, threads=1, mmap=mmap) as opened,
                opened.session(context=128) as session,
            ):
                ids = [token.id for token in session.generate(golden["ids"])]
                self.assertEqual(ids, golden["greedy_ids"][:-1])


class Callbacks(unittest.TestCase):
    def test_progress_is_monotonic_and_reaches_the_whole(self):
        steps = []
        minim.Model(
            Q8_0, mmap=False, threads=1, progress=lambda done, total: steps.append((done, total))
        ).close()
        self.assertEqual(sorted(steps), steps)
        self.assertEqual(steps[-1][0], steps[-1][1])

    def test_an_exception_in_progress_cancels_and_propagates(self):
        def stop(done, total):
            raise RuntimeError("enough")

        with self.assertRaisesRegex(RuntimeError, "enough"):
            minim.Model(Q8_0, threads=1, progress=stop)

    def test_the_log_gets_lines_and_its_exceptions_propagate(self):
        lines = []
        minim.Model(
            Q8_0, threads=1, log=lambda level, line: lines.append((level, line)), log_level="debug"
        ).close()
        for level, line in lines:
            self.assertIn(level, range(1, 5))
            self.assertNotIn("\n", line)
        with minim.Model(Q8_0, threads=1, log=lambda level, line: 1 // 0) as opened:
            with self.assertRaises(ZeroDivisionError):
                opened.session(context=5000)  # longer than trained for: a warning
            with opened.session(context=64) as session:
                self.assertEqual(session.context_size, 64)


if __name__ == "__main__":
    unittest.main()
