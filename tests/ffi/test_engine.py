# SPDX-License-Identifier: Apache-2.0
"""Many requests at once."""

import math
import pathlib
import tempfile
import threading
import time
import unittest

from support import minim, model, prompt, prompt_names


class Engine(unittest.TestCase):
    def test_all_golden_prompts_at_once_are_answered_as_alone(self):
        goldens = [prompt(name) for name in prompt_names()]
        expected = []
        for golden in goldens:
            with model().session(context=2048) as session:
                expected.append([t.id for t in session.generate(golden["ids"], max_tokens=20)])
        with minim.Engine(model(), kv_tokens=16384, max_requests=8) as engine:
            requests = [engine.submit(golden["ids"], max_tokens=20) for golden in goldens]
            self.assertEqual([request.result().ids for request in requests], expected)
            self.assertEqual(engine.state.n_running + engine.state.n_waiting, 0)

    def test_tokens_come_as_they_are_made(self):
        golden = prompt("chat_capital")
        with minim.Engine(model(), kv_tokens=1024) as engine:
            request = engine.submit(golden["ids"])
            self.assertIsNone(request.finish_reason)
            tokens = list(request.tokens())
            self.assertEqual([token.id for token in tokens], golden["greedy_ids"][:-1])
            self.assertTrue(golden["greedy_text"].startswith("".join(token.text for token in tokens)))
            self.assertEqual(request.finish_reason, minim.FinishReason.END)
            self.assertEqual(request.state.n_generated, len(tokens))
            self.assertEqual(request.result().ids, [])

    def test_a_prompt_seen_before_is_cached(self):
        ids = [7] * 300
        with minim.Engine(model(), kv_tokens=2048) as engine:
            first = engine.submit(ids, max_tokens=2)
            first.result()
            again = engine.submit(ids, max_tokens=2)
            again.result()
            self.assertEqual((first.cached_tokens, again.cached_tokens), (0, 299))
        with minim.Engine(model(), kv_tokens=2048, prefix_cache=False) as engine:
            engine.submit(ids, max_tokens=2).result()
            again = engine.submit(ids, max_tokens=2)
            again.result()
            self.assertEqual(again.cached_tokens, 0)

    def test_several_answers_to_one_prompt(self):
        ids = list(range(7, 107))
        options = dict(max_tokens=8, temperature=1.2, seed=11)
        with minim.Engine(model(), kv_tokens=8192, max_requests=3) as engine:
            requests = engine.submit(ids, n=5, **options)
            answers = [request.result() for request in requests]
            self.assertEqual([request.state.seed for request in requests], [11, 12, 13, 14, 15])
            self.assertGreater(len({tuple(answer.ids) for answer in answers}), 1)
            self.assertLess(engine.state.n_evaluated, len(ids) + 5 * 9 + 1)
            for i, answer in enumerate(answers):
                alone = engine.submit(ids, **{**options, "seed": 11 + i})
                self.assertEqual(alone.result().ids, answer.ids)
                self.assertEqual(alone.result(), answer)
            for n in (0, -1, 1025, 10**12):
                with self.subTest(n=n), self.assertRaisesRegex(minim.Error, "n_answers is"):
                    engine.submit(ids, n=n)

    def test_prefixes_are_known_to_a_later_engine(self):
        ids = list(range(5, 405))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "prefixes"
            with minim.Engine(model(), kv_tokens=2048) as engine:
                expected = engine.submit(ids, max_tokens=3).result().ids
                engine.save_prefixes(path)
            with minim.Engine(model(), kv_tokens=2048) as engine:
                self.assertEqual(engine.load_prefixes(path), 7)
                request = engine.submit(ids, max_tokens=3)
                self.assertEqual(request.result().ids, expected)
                self.assertEqual(request.cached_tokens, 399)
                data = bytearray(path.read_bytes())
                data[len(data) // 2] ^= 1
                path.write_bytes(data)
            with minim.Engine(model(), kv_tokens=2048) as engine, self.assertRaises(minim.Error) as raised:
                engine.load_prefixes(path)
            self.assertEqual(raised.exception.reason, minim.Reason.VALUE)

    def test_prompt_states_in_host_memory_come_back_with_the_same_bits(self):
        prompts = [list(range(5 + n, 305 + n)) for n in range(4)]
        options = {"max_tokens": 3, "logprobs": 1, "top_logprobs": 5}

        def logprobs(engine):
            requests = [engine.submit(prompt, **options) for prompt in prompts * 2]
            return [[(token.id, token.logprob, token.top_logprobs) for token in request.tokens()] for request in requests], requests

        with minim.Engine(model(), kv_tokens=4096, max_requests=1) as engine:
            expected, _ = logprobs(engine)
            self.assertEqual(engine.state.host_cache_bytes, 0)
        for host_cache in (-1, 64 << 20):
            with minim.Engine(model(), kv_tokens=640, max_requests=1, host_cache=host_cache) as engine:
                got, requests = logprobs(engine)
                self.assertEqual(got, expected)
                self.assertEqual([request.cached_tokens for request in requests], [0] * 4 + [299] * 4)
                state = engine.state
                self.assertGreater(state.host_cache_bytes, 0)
                self.assertGreater(state.n_host_pages, 0)
                self.assertGreaterEqual(state.n_host_restored, 4 * 4)
                self.assertGreater(state.n_host_stored, state.n_host_restored)
        with self.assertRaises(ValueError):
            minim.Engine(model(), host_cache=-2)

    def test_one_conversation_is_saved_erased_and_read(self):
        ids = list(range(5, 305))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "prefix"
            with minim.Engine(model(), kv_tokens=2048) as engine:
                expected = engine.submit(ids, max_tokens=3).result().ids
                self.assertEqual(engine.save_prefix(ids, path), 300)
                self.assertEqual(engine.erase_prefix(ids + expected), 302)
                self.assertEqual(engine.erase_prefix([]), 0)
                self.assertEqual(engine.save_prefix(ids, pathlib.Path(folder) / "none"), 0)
                self.assertEqual(engine.load_prefix(pathlib.Path(folder) / "none"), [])
                self.assertEqual(engine.load_prefix(path), ids)
                request = engine.submit(ids, max_tokens=3)
                self.assertEqual(request.result().ids, expected)
                self.assertEqual(request.cached_tokens, 299)
            with minim.Engine(model(), kv_tokens=2048, prefix_cache=False) as engine:
                for call in (lambda: engine.save_prefix(ids, path), lambda: engine.load_prefix(path), lambda: engine.erase_prefix(ids)):
                    with self.assertRaisesRegex(minim.Error, "keeps no prefixes"):
                        call()

    def test_log_probabilities_of_a_prompt(self):
        ids = list(range(7, 107))
        with minim.Engine(model(), kv_tokens=2048) as engine:
            without = engine.submit(ids, max_tokens=3)
            expected = without.result()
            self.assertEqual(without.prompt_tokens, [])
            request = engine.submit(ids, max_tokens=3, prompt_logprobs=2)
            answer = request.result()
            self.assertEqual((answer.ids, answer.text), (expected.ids, expected.text))
            self.assertEqual((request.state.n_generated, request.cached_tokens), (3, 0))
        with model().session(context=128) as session:
            rows = session.eval(ids, all_logits=True)
        self.assertEqual([token.id for token in request.prompt_tokens], ids[1:])
        for token, row in zip(request.prompt_tokens, rows):
            total = math.log(sum(math.exp(logit) for logit in row))
            self.assertAlmostEqual(token.logprob, row[token.id] - total, places=4)
            self.assertEqual(token.prompt_rank, 1 + sum(logit > row[token.id] for logit in row))
            self.assertEqual((len(token.top_logprobs), token.text), (2, ""))
        with model().session(context=128) as session, self.assertRaisesRegex(minim.Error, "prompt_logprobs is 0: it is for requests"):
            list(session.generate(ids, prompt_logprobs=0))

    def test_drafts_are_counted(self):
        ids = [20, 21, 22, 23, 24, 25, 26] * 8
        with minim.Engine(model(), kv_tokens=2048) as engine:
            request = engine.submit(ids, max_tokens=150, ignore_end=1, draft_tokens=8, logit_bias={40: 1000.0})
            self.assertEqual(request.result().ids, [40] * 150)
            self.assertGreaterEqual(request.state.n_drafted, request.state.n_drafts_accepted)
            self.assertGreater(request.state.n_drafts_accepted, 0)
        with model().session(context=512) as session:
            self.assertEqual(len(list(session.generate(ids, max_tokens=150, ignore_end=1, draft_tokens=8, logit_bias={40: 1000.0}))), 150)
            self.assertGreater(session.result.n_drafts_accepted, 0)

    def test_another_thread_cancels(self):
        with minim.Engine(model(), kv_tokens=65536) as engine:
            request = engine.submit([5, 6, 7], ignore_end=1)
            threading.Timer(0.1, request.cancel).start()
            started = time.monotonic()
            answer = request.result()
            self.assertLess(time.monotonic() - started, 30)
            self.assertEqual(answer.finish_reason, minim.FinishReason.STOPPED)

    def test_a_timeout_ends_an_answer(self):
        with minim.Engine(model(), kv_tokens=65536) as engine:
            answer = engine.submit([5, 6, 7], ignore_end=1, timeout=0.1).result()
            self.assertEqual(answer.finish_reason, minim.FinishReason.TIMEOUT)

    def test_closing_the_engine_ends_its_requests(self):
        engine = minim.Engine(model(), kv_tokens=65536)
        request = engine.submit([5, 6, 7], ignore_end=1)
        next(request.tokens())
        engine.close()
        self.assertEqual(request.result().finish_reason, minim.FinishReason.STOPPED)
        with self.assertRaises(ValueError):
            engine.submit([1])

    def test_draining(self):
        with minim.Engine(model(), kv_tokens=2048) as engine:
            request = engine.submit([5, 6, 7], ignore_end=1, max_tokens=30)
            self.assertTrue(engine.drain(timeout=60))
            self.assertTrue(engine.drain())
            self.assertEqual(len(request.result().ids), 30)
            with self.assertRaises(minim.Error) as raised:
                engine.submit([1])
            self.assertEqual(raised.exception.status, minim.Status.INVALID)

    def test_the_context_of_one_request(self):
        trained = model().info.n_context_train
        with minim.Engine(model(), kv_tokens=2 * trained, context=200) as engine:
            answer = engine.submit([5, 6, 7], ignore_end=1).result()
            self.assertEqual(answer.finish_reason, minim.FinishReason.CONTEXT_FULL)
            self.assertEqual(len(answer.ids), 200 - 3)
            with self.assertRaises(minim.Error) as raised:
                engine.submit([1] * 200)
            self.assertEqual(raised.exception.available, 199)
        with minim.Engine(model(), kv_tokens=2 * trained, context=trained + 100) as engine:
            answer = engine.submit([5] * (trained + 50), max_tokens=1).result()
            self.assertEqual(len(answer.ids), 1)
        with self.assertRaises(minim.Error) as raised:
            minim.Engine(model(), kv_tokens=2048, context=2**40)
        self.assertEqual(raised.exception.status, minim.Status.INVALID)

    def test_sizes_that_are_not_given_become_what_fits(self):
        trained = model().info.n_context_train
        with minim.Engine(model(), max_requests=4) as engine:
            state = engine.state
            self.assertEqual((state.max_context, state.n_pages, state.n_requests), (trained, 4 * trained // 64, 4))
            self.assertIn(f"context of {trained} tokens, KV cache of {4 * trained} tokens", state.sizes)
        with minim.Engine(model(), context=100, max_requests=3) as engine:
            self.assertEqual((engine.state.max_context, engine.state.n_pages), (100, 5))
        with minim.Engine(model(), context=64, max_requests=40, fewer_requests=True) as engine:
            self.assertEqual((engine.state.n_pages, engine.state.n_requests), (40, 40))
        with self.assertRaises(minim.Error) as raised:
            minim.Engine(model(), context=2**31)
        self.assertRegex(str(raised.exception), r"a context of 2147483648 tokens does not fit: .*; a context of \d+ tokens would fit")

    def test_a_warm_up_leaves_no_trace(self):
        with minim.Engine(model(), kv_tokens=512, warm_up=True) as engine:
            state = engine.state
            self.assertEqual((state.n_steps, state.n_evaluated, state.n_pages_held, state.n_pages_cached), (0, 0, 0, 0))
            request = engine.submit([0] * 100, max_tokens=4)
            warm = request.result().ids
            self.assertEqual(request.cached_tokens, 0)
        with minim.Engine(model(), kv_tokens=512) as engine:
            self.assertEqual(engine.submit([0] * 100, max_tokens=4).result().ids, warm)

    def test_bad_arguments(self):
        with minim.Engine(model(), kv_tokens=128) as engine:
            for ids, status in (
                ([], minim.Status.INVALID),
                ([-1], minim.Status.INVALID),
                ([1] * 128, minim.Status.CONTEXT_FULL),
            ):
                with self.assertRaises(minim.Error) as raised:
                    engine.submit(ids)
                self.assertEqual(raised.exception.status, status)
            with self.assertRaises(TypeError):
                engine.submit([1], no_such_option=1)
        with self.assertRaises(minim.Error) as raised:
            minim.Engine(model(), kv_tokens=2**45)
        self.assertEqual(raised.exception.status, minim.Status.INVALID)


if __name__ == "__main__":
    unittest.main()
