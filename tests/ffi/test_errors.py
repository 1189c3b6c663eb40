# SPDX-License-Identifier: Apache-2.0
"""Calls that fail report what was wrong and change nothing."""

import copy
import errno
import pickle
import unittest

from support import Q8_0, minim, model, prompt

CAPITAL = prompt("chat_capital")


class Errors(unittest.TestCase):
    def assert_fails(self, status, call, *arguments, **options):
        with self.assertRaises(minim.Error) as caught:
            call(*arguments, **options)
        self.assertEqual(caught.exception.status, status)
        self.assertTrue(caught.exception.message)
        self.assertEqual(str(caught.exception), caught.exception.message)
        return caught.exception

    def assert_usable(self, session):
        self.assertEqual(len(session), 0)
        answer = [token.id for token in session.generate(CAPITAL["ids"])]
        self.assertEqual(answer, CAPITAL["greedy_ids"][:-1])

    def test_an_error_can_be_pickled_and_copied(self):
        with self.assertRaises(minim.Error) as caught:
            minim.Model("/nonexistent")
        error = caught.exception
        for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
            self.assertIs(type(other), type(error))
            self.assertEqual(str(other), str(error))
            self.assertEqual(vars(other), vars(error))
            self.assertIs(other.status, minim.Status.NOT_FOUND)

    def test_errors_of_files_and_memory_are_also_python_s_own(self):
        with self.assertRaises(FileNotFoundError) as missing:
            minim.Model("/nonexistent/model.gguf")
        self.assertIsInstance(missing.exception, minim.Error)
        self.assertEqual(missing.exception.errno, errno.ENOENT)
        self.assertIn("/nonexistent/model.gguf", str(missing.exception))
        with model().session(context=64) as session:
            session.eval([1])
            with self.assertRaises(OSError) as failed:
                session.save("/proc/self/state")
        self.assertIsInstance(failed.exception, minim.Error)
        self.assertNotIn("[Errno", str(failed.exception))
        with self.assertRaises(MemoryError) as short:
            model().session(context=10**9)
        self.assertIsInstance(short.exception, minim.Error)
        self.assertGreater(short.exception.requested, short.exception.available)
        with self.assertRaises(minim.Error) as other:
            model().token_text(-1)
        self.assertNotIsInstance(other.exception, (OSError, MemoryError))

    def test_a_number_is_no_text(self):
        for call in (model().tokenize, lambda n: model().constraint(choices=[n])):
            with self.assertRaises(TypeError):
                call(5)
        with model().session(context=64) as session, self.assertRaises(TypeError):
            session.generate([5], stop=[5])
        self.assertEqual(model().tokenize(bytearray(b"a")), model().tokenize("a"))

    def test_a_path_with_a_null_character_is_refused(self):
        with self.assertRaises(ValueError):
            minim.Model(str(Q8_0) + "\0x")

    def test_an_empty_prompt_is_invalid(self):
        with model().session(context=128) as session:
            for empty in ([], "", ()):
                self.assertIsNone(self.assert_fails("invalid", session.generate, empty).reason)
            self.assert_fails("invalid", session.eval, [])
            self.assert_usable(session)

    def test_an_id_out_of_range_is_invalid(self):
        with model().session(context=128) as session:
            for id in (-1, model().n_vocab, 2**31 - 1, 2**40):
                self.assert_fails("invalid", session.eval, [1, id, 2])
                self.assert_fails("invalid", session.generate, [1, id, 2])
            self.assert_fails("invalid", session.generate, [1], stop_tokens=[2**32 + 5])
            self.assert_usable(session)

    def test_a_prompt_that_does_not_fit_is_refused_whole(self):
        with model().session(context=48) as session:
            error = self.assert_fails("context_full", session.eval, [20] * 49)
            self.assertEqual((error.requested, error.available), (49, 48))
            self.assert_fails("context_full", session.generate, [20] * 49)
            self.assert_usable(session)

    def test_an_answer_ends_where_the_context_does(self):
        with model().session(context=len(CAPITAL["ids"]) + 4) as session:
            answer = [token.id for token in session.generate(CAPITAL["ids"])]
            self.assertEqual(answer, CAPITAL["greedy_ids"][:4])
            self.assertEqual(session.finish_reason, "context_full")
            self.assertEqual(len(session), session.context_size)
            self.assert_fails("context_full", session.eval, [20])

    def test_truncating_to_more_than_there_is_is_invalid(self):
        with model().session(context=64) as session:
            session.eval([20, 21])
            self.assert_fails("invalid", session.truncate, 3)
            self.assert_fails("invalid", session.truncate, 2**64)
            with self.assertRaises(ValueError):
                session.truncate(-1)
            self.assertEqual(len(session), 2)
            session.truncate(0)
            self.assert_usable(session)

    def test_a_session_nobody_could_hold_is_refused(self):
        self.assert_fails("invalid", model().session, context=2**64)
        self.assert_fails("invalid", model().session, context=-1)
        self.assert_fails("invalid", model().session, n_batch=-1)
        with self.assertRaises(ValueError):
            model().session(kv="q3")

    def test_a_session_without_a_generation_has_no_finish_reason(self):
        with model().session(context=64) as session:
            self.assert_fails("invalid", lambda: session.finish_reason)

    def test_models_that_cannot_be_opened(self):
        self.assert_fails("not_found", minim.Model, "no such file.gguf")
        self.assert_fails("invalid", minim.Model, Q8_0, backend="abacus")
        with self.assertRaises(TypeError):
            minim.Model(Q8_0, bakend="cpu")

    def test_a_closed_handle_says_so(self):
        session = model().session(context=64)
        session.close()
        session.close()
        with self.assertRaises(ValueError):
            len(session)


if __name__ == "__main__":
    unittest.main()
