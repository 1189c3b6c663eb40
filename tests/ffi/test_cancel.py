# SPDX-License-Identifier: Apache-2.0
"""Calls that work for long end when a Cancel is triggered, or a signal handler raises."""

import pathlib
import signal
import tempfile
import threading
import time
import unittest
import unittest.mock

from support import Q8_0, minim, model

LONG = [20, 21, 22, 23] * 5000  # many seconds of work


class Interrupted(Exception):
    pass


class Cancelling(unittest.TestCase):
    def assert_cancelled(self, call):
        with self.assertRaises(minim.Error) as caught:
            call()
        self.assertEqual(caught.exception.status, minim.Status.CANCELLED)

    def test_another_thread_ends_a_prompt(self):
        with model().session(context=len(LONG) + 8) as session, minim.Cancel() as cancel:
            for call in (session.eval, session.generate):
                with self.subTest(call.__name__):
                    threading.Timer(0.3, cancel.trigger).start()
                    started = time.monotonic()
                    self.assert_cancelled(lambda: call(LONG, cancel=cancel))
                    self.assertLess(time.monotonic() - started, 5)
                    self.assertEqual(len(session), 0)
                    self.assert_cancelled(lambda: call([5, 6], cancel=cancel))  # the switch stays on until it is reset
                    cancel.reset()
                    call([5, 6], cancel=cancel)
                    session.truncate(0)

    def test_a_call_on_another_thread_is_cancelled_too(self):
        raised = []

        def work(cancel):
            with model().session(context=len(LONG) + 8) as session:
                try:
                    session.eval(LONG, cancel=cancel)
                except minim.Error as error:
                    raised.append(error.status)

        with minim.Cancel() as cancel:
            thread = threading.Thread(target=work, args=(cancel,))
            thread.start()
            time.sleep(0.3)
            cancel.trigger()
            thread.join(30)
        self.assertEqual(raised, [minim.Status.CANCELLED])

    def test_tokens_end_between_two_of_them(self):
        with model().session(context=256) as session, minim.Cancel() as cancel:
            tokens = session.generate([5, 6, 7], ignore_end=1, cancel=cancel)
            first = [next(tokens), next(tokens)]
            cancel.trigger()
            self.assert_cancelled(lambda: next(tokens))
            self.assertGreaterEqual(len(session), 3 + len(first))
            cancel.reset()
            self.assertEqual(session.eval([5]).shape, (1, model().n_vocab))

    def test_files_are_not_written_or_read_when_cancelled(self):
        with tempfile.TemporaryDirectory() as folder, minim.Cancel() as cancel:
            path = pathlib.Path(folder) / "state"
            cancel.trigger()
            with model().session(context=64) as session:
                session.eval([5, 6, 7])
                self.assert_cancelled(lambda: session.save(path, cancel=cancel))
                self.assertFalse(path.exists())
                session.save(path)
            self.assert_cancelled(lambda: model().restore(path, cancel=cancel))
            with minim.Engine(model(), kv_tokens=512) as engine:
                engine.submit([5] * 200, max_tokens=1).result()
                self.assert_cancelled(lambda: engine.save_prefixes(path, cancel=cancel))
                engine.save_prefixes(path)
            with minim.Engine(model(), kv_tokens=512) as engine:
                self.assert_cancelled(lambda: engine.load_prefixes(path, cancel=cancel))
                cancel.reset()
                self.assertGreater(engine.load_prefixes(path, cancel=cancel), 0)

    def test_only_a_cancel_is_taken(self):
        with model().session(context=64) as session:
            for other in (1, "cancel", threading.Event()):
                with self.assertRaises(TypeError):
                    session.eval([5], cancel=other)
            closed = minim.Cancel()
            closed.close()
            with self.assertRaises(ValueError):
                session.eval([5], cancel=closed)


class Signals(unittest.TestCase):
    """A handler that raises, as Python's own does for Ctrl-C."""

    def setUp(self):
        def handler(*_):
            raise Interrupted

        self.before = signal.signal(signal.SIGALRM, handler)

    def tearDown(self):
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self.before)

    def interrupt(self, call, seconds=0.4):
        """Returns how long after the signal the call returned, in seconds."""
        started = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, seconds)
        with self.assertRaises(Interrupted):
            call()
        return time.monotonic() - started - seconds

    def test_a_prompt_ends_at_once(self):
        with model().session(context=len(LONG) + 8) as session, minim.Cancel() as cancel:
            for call in (
                lambda: session.eval(LONG),
                lambda: session.generate(LONG),
                lambda: session.eval(LONG, cancel=cancel),
            ):
                self.assertLess(self.interrupt(call), 2)  # about 10 ms where nothing else runs
                self.assertEqual(len(session), 0)
            session.eval([5, 6], cancel=cancel)  # the signal left the caller's switch off
            self.assertEqual(len(session), 2)

    def test_a_handler_that_does_not_raise_ends_nothing(self):
        calls = []
        signal.signal(signal.SIGALRM, lambda *_: calls.append(threading.current_thread()))
        with model().session(context=4096) as session:
            signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
            session.eval(LONG[:3000])
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.assertEqual(len(session), 3000)
        self.assertTrue(calls)
        self.assertEqual(set(calls), {threading.main_thread()})

    def test_a_signal_around_the_start_of_the_thread_ends_the_call_at_once(self):
        start = threading.Thread.start

        def is_interrupted_before(thread):
            raise Interrupted

        def is_interrupted_after(thread):
            start(thread)
            raise Interrupted

        with model().session(context=len(LONG) + 8) as session:
            for replacement in (is_interrupted_before, is_interrupted_after):
                with self.subTest(replacement.__name__), unittest.mock.patch("threading.Thread.start", replacement):
                    started = time.monotonic()
                    with self.assertRaises(Interrupted):
                        session.eval(LONG)
                    self.assertLess(time.monotonic() - started, 2)
                    self.assertEqual(len(session), 0)

    def test_waiting_for_a_request_ends_at_once_and_the_request_goes_on(self):
        with minim.Engine(model(), kv_tokens=65536) as engine:
            request = engine.submit([5, 6, 7], ignore_end=1)
            self.assertLess(self.interrupt(request.result), 2)
            self.assertIsNone(request.finish_reason)
            self.assertLess(self.interrupt(engine.drain), 2)
            request.cancel()

    def test_opening_a_model_ends(self):
        def open_it():
            while True:  # an opening may end before the signal comes
                minim.Model(Q8_0, threads=1, mmap=False, progress=lambda *_: None).close()

        for _ in range(5):
            self.assertLess(self.interrupt(open_it, 0.2), 5)
        with minim.Cancel() as cancel, self.assertRaises(minim.Error) as caught:
            cancel.trigger()
            minim.Model(Q8_0, mmap=False, cancel=cancel)
        self.assertEqual(caught.exception.status, minim.Status.CANCELLED)


if __name__ == "__main__":
    unittest.main()
