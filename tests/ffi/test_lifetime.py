# SPDX-License-Identifier: Apache-2.0
"""Handles released in any order, at the exit of the interpreter too, and exceptions in callbacks."""

import copy
import gc
import os
import pickle
import subprocess
import sys
import time
import unittest
import weakref

from support import DATA, PACKAGES, Q8_0, abi, minim, model, prompt


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

    def test_what_a_refused_call_made_is_released_with_its_error(self):
        model()  # which stays
        gc.collect()
        gc.disable()
        try:
            before = len(abi.Handle._all)
            n_errors = 0
            for work in (lambda: minim.Model(DATA / "malformed" / "g03_wrong_magic.gguf"), lambda: model().restore_bytes(b"no state")):
                try:  # assertRaises() would empty the frames
                    work()
                except minim.Error:
                    n_errors += 1
            self.assertEqual(n_errors, 2)
            # A runtime that waited for the collector would keep its threads until then.
            self.assertEqual(len(abi.Handle._all), before)
        finally:
            gc.enable()

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


def run_threads(body, n_threads=2, pause=0.03):
    """Runs a program whose daemon threads are in calls when the interpreter exits, with freed memory overwritten."""
    program = (
        "import asyncio, sys, threading, time; sys.path.insert(0, sys.argv[1]); import minim\n"
        "path = sys.argv[2]\n"
        "model = minim.Model(path, threads=2)\n"
        "engine = minim.Engine(model, kv_tokens=4096)\n"
        # A session is one thread's at a time. All are made before the exit, and live until then.
        f"sessions = [model.session(context=1000) for _ in range({n_threads})]\n"
        "def run(session):\n"
        f"    while True: {body}\n"
        "for one in sessions: threading.Thread(target=run, args=(one,), daemon=True).start()\n"
        f"time.sleep({pause})\n"
    )
    environment = {**os.environ, "MALLOC_PERTURB_": "165", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
    arguments = [sys.executable, "-c", program, str(PACKAGES), str(Q8_0)]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=60, env=environment)


class Exit(unittest.TestCase):
    def test_daemon_threads_in_calls_end_with_the_process(self):
        bodies = (
            "session.tokens; model.tokenize('hello')",
            "engine.submit([5, 6], max_tokens=2000, ignore_end=1, notify=lambda: None).result()",
            "minim.Model(path, mmap=False, progress=lambda *done: None, log=print, log_level='info').close()",
            "asyncio.run(minim.aio.Engine(model, kv_tokens=512).generate([5], max_tokens=20, ignore_end=1))",
            "model.output_parser().feed('<think>'); model.constraint(choices=['a']).matches('a')",
            "list(model.session(context=600).generate([5], max_tokens=500, ignore_end=1))",
        )
        for body in bodies:
            for pause in (0.03, 0.05):
                with self.subTest(body=body, pause=pause):
                    done = run_threads(body, pause=pause)
                    self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_thread_that_goes_on_after_errors_does_not_keep_the_process(self):
        done = run_threads("\n".join(["", "        try: session.tokens, engine.state", "        except Exception: pass"]))
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_handlers_that_run_after_the_release_get_an_error(self):
        calls = (
            "list(session.generate([5], max_tokens=2))",
            "session.tokens",
            "engine.submit([5], max_tokens=2)",
            "request.result()",
            "next(generation)",
            "model.tokenize('hello')",
            "parser.feed('hello')",
            "cancel.trigger()",
            "minim.Model(sys.argv[2])",
            "minim.Cancel()",
            "llama.create_chat_completion([{'role': 'user', 'content': 'Hello'}])",
            "llm.generate('Hello')",
        )
        program = (
            "import atexit, sys; sys.path.insert(0, sys.argv[1])\n"
            "def late():\n"
            f"    for call in {calls!r}:\n"
            "        try: eval(call)\n"
            "        except Exception as error: print(type(error).__name__)\n"
            "        else: print(call, 'works')\n"
            "    for handle in (session, engine, model, llama, llm): handle.close()\n"
            "atexit.register(late)\n"
            "import minim\n"
            "model = minim.Model(sys.argv[2], threads=1); session = model.session(context=64)\n"
            "engine = minim.Engine(model, kv_tokens=256); request = engine.submit([5], max_tokens=5)\n"
            "llama, llm = minim.Llama(sys.argv[2], n_ctx=256), minim.LLM(sys.argv[2], max_model_len=256)\n"
            "generation = session.generate([5], max_tokens=5); parser, cancel = model.output_parser(), minim.Cancel()\n"
            "atexit.register(lambda: session.tokens)  # registered after the import: runs before the release\n"
        )
        done = run_program(program)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.split(), ["ValueError"] * len(calls))

    def test_closing_an_engine_does_not_wait_for_a_callback_that_waits_for_it(self):
        with minim.Model(Q8_0, threads=1) as opened:
            engine = minim.Engine(opened, kv_tokens=512)
            states = []

            def notify():
                try:
                    states.append(engine.state)
                except ValueError:
                    states.append(None)

            request = engine.submit([5], max_tokens=300, ignore_end=1, notify=notify)
            next(request.tokens())
            engine.close()
            while not states:  # close() does not wait for a callback that is in a call on the engine
                time.sleep(0.001)


    def test_an_engine_may_be_closed_or_collected_by_its_own_callback(self):
        for name in ("close", "collect"):
            for _ in range(20):
                with self.subTest(how=name), minim.Model(Q8_0, threads=1) as opened:
                    engines = [minim.Engine(opened, kv_tokens=512)]
                    ended = weakref.ref(engines[0])

                    def notify(engines=engines, name=name):
                        while engines:
                            engine = engines.pop()
                            if name == "close":
                                engine.close()

                    request = engines[0].submit([5], max_tokens=300, ignore_end=1, notify=notify)
                    for _ in request.tokens():
                        pass
                    while ended() is not None:
                        time.sleep(0.001)


class Copies(unittest.TestCase):
    def test_handles_cannot_be_copied_or_pickled(self):
        with minim.Model(Q8_0, threads=1) as opened:
            session = opened.session(context=64)
            engine = minim.Engine(opened, kv_tokens=256)
            handles = [opened, session, engine, engine.submit([5], max_tokens=2), session.generate([5], max_tokens=2)]
            handles += [opened.checkpoint(), opened.decoder(), opened.output_parser(), opened.constraint(choices=["a"])]
            handles += [minim.Cancel(), minim.aio.Engine(opened, kv_tokens=256)]
            handles += [minim.LLM(str(Q8_0), max_model_len=64), minim.Llama(str(Q8_0), n_ctx=64)]
            for handle in handles:
                for duplicate in (copy.copy, copy.deepcopy, pickle.dumps, lambda one: copy.deepcopy({"a": [one]})):
                    with self.subTest(handle=type(handle)), self.assertRaisesRegex(TypeError, f"a minim {type(handle).__name__} cannot be copied"):
                        duplicate(handle)
            with self.assertRaisesRegex(TypeError, r"fork\(\) makes a second session"):
                copy.copy(session)
            self.assertEqual(len(list(session.generate([5], max_tokens=2, ignore_end=1))), 2)
            for handle in (session.tokens, opened.info, session.result, minim.devices(), minim.SamplingParams(n=2)):
                copy.deepcopy(handle)


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
