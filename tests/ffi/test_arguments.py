# SPDX-License-Identifier: Apache-2.0
"""Arguments of wrong types and values are refused, and results are values of their own."""

import array
import copy
import pickle
import time
import unittest

from support import Q8_0, minim, model, np

HALF = "\ud83d"  # half of a pair of surrogates


class Texts(unittest.TestCase):
    def test_half_a_surrogate_pair_is_refused_with_its_place(self):
        with model().session(context=64) as session:
            for call in (
                lambda: model().tokenize("ab" + HALF),
                lambda: session.generate("ab" + HALF),
                lambda: session.generate([5], stop=["x", "ab" + HALF]),
                lambda: minim.has_feature("ab" + HALF),
            ):
                with self.assertRaisesRegex(ValueError, r"half of a surrogate pair, '\\ud83d', at position 2"):
                    call()

    def test_a_message_that_is_no_unicode_is_named(self):
        for messages, place in (
            ([{"role": "user", "content": "Hi " + HALF}], r"messages\[0\]\.content"),
            (
                [{"role": "user", "content": "x"}, {"role": "assistant", "content": "\udc00 y"}],
                r"messages\[1\]\.content",
            ),
            ([{"role": "user", "content": [{"type": "text", "text": HALF}]}], r"messages\[0\]\.content\[0\]\.text"),
        ):
            with self.assertRaisesRegex(minim.Error, place + ".*half of a surrogate pair") as caught:
                model().tokenize_chat(messages)
            self.assertEqual(caught.exception.status, minim.Status.INVALID)

    def test_an_argument_that_is_not_finite_is_named(self):
        for number in (float("inf"), float("-inf"), float("nan")):
            call = {"function": {"name": "f", "arguments": {"deep": {"x": [1, number]}}}}
            messages = [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]}]
            place = r"messages\[1\]\.tool_calls\[0\]\.function\.arguments\.deep\.x\[1\]"
            with self.assertRaisesRegex(minim.Error, place + ".*JSON has no NaN and no Infinity"):
                model().render_chat(messages)
            tool = {"type": "function", "function": {"name": "f", "parameters": {"minimum": number}}}
            with self.assertRaisesRegex(minim.Error, r"tools\[0\]\.function\.parameters\.minimum"):
                model().render_chat([{"role": "user", "content": "x"}], tools=[tool])

    def test_null_characters_are_kept_or_refused(self):
        for call in (
            lambda: minim.Model(Q8_0, backend="cpu\0x"),
            lambda: minim.Model(Q8_0, devices=["cpu\0"]),
            lambda: minim.Model(Q8_0, devices="cpu", overrides="exps=cpu\0,x=cpu"),
            lambda: minim.Model(Q8_0, packed_file="x\0y"),
            lambda: minim.has_feature("gguf\0"),
            lambda: minim.decode_format("F32\0", bytes(4), 1),
            lambda: minim.encode_format("F32\0", [1.0]),
        ):
            with self.assertRaisesRegex(ValueError, "null character"):
                call()
        with self.assertRaises(KeyError):
            model().checkpoint().metadata["general.architecture\0x"]
        ids = model().tokenize("a\0b")
        self.assertEqual(model().detokenize(ids), "a\0b")
        with_null = model().render_chat([{"role": "user", "content": "a\0b"}])
        self.assertIn("a\0b", with_null)

    def test_only_texts_and_bytes_are_texts(self):
        for other in (5, None, ["a"], array.array("i", [1]), np.array([1.5])):
            with self.assertRaises(TypeError):
                model().tokenize(other)
        with model().session(context=64) as session:
            for stop in ([5], [None], 5):
                with self.assertRaises(TypeError):
                    session.generate([5], stop=stop)
            for prompt in (5, 1.5, [1.5], [[1]], None, {"a": 1}):
                with self.assertRaises(TypeError):
                    session.generate(prompt)


class Options(unittest.TestCase):
    def test_values_that_are_none_of_those_possible_are_refused(self):
        for options, name in (
            ({"mmap": 3}, "mmap"),
            ({"mmap": "yes"}, "mmap"),
            ({"log": print, "log_level": "verbose"}, "log_level"),
            ({"log": print, "log_level": 9}, "log_level"),
            ({"log_level": "debug"}, "log_level"),
            ({"numa": "all"}, "numa"),
            ({"expand": True}, "expand"),
        ):
            with self.subTest(options), self.assertRaisesRegex(ValueError, name):
                minim.Model(Q8_0, **options)

    def test_levels_of_the_log_by_name_or_number(self):
        for level in ("debug", 4, minim_level("info"), None):
            lines = []
            minim.Model(Q8_0, threads=1, log=lambda _, line: lines.append(line), log_level=level).close()
            self.assertEqual(bool(lines), level is not None)

    def test_timeouts(self):
        with minim.Engine(model(), kv_tokens=4096) as engine:
            for none in (None, 0, 0.0, float("inf"), 10**30):
                answer = engine.submit([5, 6, 7], ignore_end=1, max_tokens=20, timeout=none).result()
                self.assertEqual((answer.finish_reason, len(answer.ids)), ("length", 20))
            answer = engine.submit([5, 6, 7], ignore_end=1, timeout=1e-9).result()
            self.assertEqual(answer.finish_reason, "timeout")
            for bad, error in ((-1, ValueError), (float("nan"), ValueError), ("1", TypeError), ([], TypeError)):
                request = engine.submit([5], max_tokens=1)
                for call in (
                    lambda: engine.submit([5], timeout=bad),
                    lambda: request.result(timeout=bad),
                    lambda: engine.drain(timeout=bad),
                ):
                    with self.subTest(bad), self.assertRaises(error):
                        call()
                request.result()

    def test_a_result_that_takes_too_long_is_not_lost(self):
        with minim.Engine(model(), kv_tokens=4096) as engine:
            expected = engine.submit([5, 6, 7], ignore_end=1, max_tokens=600).result(timeout=300).ids
            request = engine.submit([5, 6, 7], ignore_end=1, max_tokens=600)
            n_timeouts = 0
            while True:
                try:
                    answer = request.result(timeout=0.02)
                    break
                except TimeoutError:
                    n_timeouts += 1
            self.assertGreater(n_timeouts, 0)
            self.assertEqual(answer.ids, expected)
            request = engine.submit([5, 6, 7], ignore_end=1, max_tokens=600)
            with self.assertRaises(TimeoutError):
                request.result(timeout=0)
            self.assertEqual([token.id for token in request.tokens()], expected)

    def test_draining_takes_no_longer_than_it_may(self):
        with minim.Engine(model(), kv_tokens=65536) as engine:
            request = engine.submit([5, 6, 7], ignore_end=1)
            for timeout in (0, 0.05):
                started = time.monotonic()
                self.assertFalse(engine.drain(timeout=timeout))
                self.assertLess(time.monotonic() - started, timeout + 2)
            request.cancel()
            self.assertTrue(engine.drain(timeout=60))
            self.assertTrue(engine.drain(timeout=0))


def minim_level(name):
    return ["off", "error", "warning", "info", "debug"].index(name)


class Results(unittest.TestCase):
    def assert_value(self, value, **fields):
        for other in (pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)):
            self.assertEqual(other, value)
            self.assertIs(type(other), type(value))
        for name, expected in fields.items():
            self.assertEqual(getattr(value, name), expected)
            self.assertIn(f"{name}={expected!r}", repr(value))
        self.assertTrue(repr(value).startswith(type(value).__name__ + "("))

    def test_results_and_states_are_values_with_names(self):
        with model().session(context=64) as session:
            list(session.generate([5, 6, 7], max_tokens=4, ignore_end=1, seed=9))
            self.assert_value(session.result, n_prompt=3, n_generated=4, seed=9, finish=3, stop_token=-1)
            self.assertIsInstance(session.result, minim.GenerateResult)
            before = session.result
            session.truncate(0)
            list(session.generate([5], max_tokens=2, ignore_end=1))
            self.assertEqual(before.n_generated, 4)  # a copy: later generations do not change it
        with minim.Engine(model(), kv_tokens=640) as engine:
            request = engine.submit([5, 6, 7], max_tokens=4, ignore_end=1)
            answer = request.result()
            self.assert_value(request.state, n_prompt=3, n_generated=4, n_preempted=0)
            self.assert_value(engine.state, n_running=0, n_waiting=0, n_pages=10)
            self.assert_value(answer, ids=answer.ids)
        self.assert_value(minim.sampling_options()["top_k"], name="top_k", minimum=0.0)
        self.assertIn("n_layer=", repr(model().info))
        self.assertEqual(pickle.loads(pickle.dumps(model().info)), model().info)
        self.assert_value(model().memory()[0], name="cpu")


if __name__ == "__main__":
    unittest.main()
