# SPDX-License-Identifier: Apache-2.0
"""Logits of the golden prompts: exact float arithmetic on the BF16 weights with an F32 KV cache."""

import unittest

from support import BF16, DATA, Q8_0, divergence, golden_logits, model, np, prompt, prompt_names


class Logits(unittest.TestCase):
    def test_the_reference_backend_agrees_with_the_goldens_to_rounding(self):
        for name in ("plain_story", "chat_capital", "unicode"):
            with self.subTest(name), model(BF16, "reference").session(context=512, kv="f32") as session:
                logits = session.eval(prompt(name)["ids"], all_logits=True)
                self.assertLess(np.abs(logits - golden_logits(name)).max(), 1e-3)

    def test_the_cpu_backend_agrees_with_the_goldens_to_rounding_on_bf16_weights(self):
        for name in prompt_names():
            with self.subTest(name), model(BF16).session(context=512, kv="f32") as session:
                logits = session.eval(prompt(name)["ids"], all_logits=True)
                self.assertEqual(logits.dtype, np.float32)
                self.assertLess(np.abs(logits - golden_logits(name)).max(), 1e-3)

    def test_q8_0_weights_and_an_f16_cache_cost_little(self):
        for name in prompt_names():
            with self.subTest(name), model(Q8_0).session(context=512) as session:
                logits = session.eval(prompt(name)["ids"], all_logits=True)
                expected = golden_logits(name)
                self.assertLess(divergence(expected, logits).mean(), 5e-3)
                self.assertGreaterEqual((logits.argmax(axis=1) == expected.argmax(axis=1)).mean(), 0.95)

    def test_a_smaller_or_wider_cache_costs_little(self):
        sizes = {}
        for kv in ("f32", "f16", "bf16", "q8_0"):
            for name in ("chat_capital", "memory"):
                with self.subTest(kv=kv, prompt=name), model(BF16).session(context=512, kv=kv) as session:
                    sizes[kv] = session.kv_bytes
                    logits = session.eval(prompt(name)["ids"], all_logits=True)
                    self.assertLess(divergence(golden_logits(name), logits).mean(), 1e-3)
        self.assertEqual(sizes["f32"], 2 * sizes["f16"])
        self.assertEqual(sizes["bf16"], sizes["f16"])
        self.assertEqual(sizes["q8_0"] * 32, sizes["f16"] * 17)

    def test_q8_0_agrees_with_its_own_golden_on_each_prompt_s_last_position(self):
        expected = np.load(DATA / "golden" / "quant" / "q8_0.npy")
        for row, name in enumerate(prompt_names()):
            with self.subTest(name), model(Q8_0).session(context=512) as session:
                logits = session.eval(prompt(name)["ids"])
                self.assertEqual(logits.shape, (1, model().n_vocab))
                self.assertLess(divergence(expected[row], logits[0]), 2e-3)

    def test_how_a_prompt_is_cut_changes_no_bit(self):
        ids = prompt("memory")["ids"]
        with model().session(context=128) as session:
            whole = session.eval(ids, all_logits=True)
        with model().session(context=128, n_batch=32, n_ubatch=7) as session:
            np.testing.assert_array_equal(session.eval(ids, all_logits=True), whole)
        with model().session(context=128) as session:
            parts = [
                session.eval(ids[:1], all_logits=True),
                session.eval(ids[1:40], all_logits=True),
                session.eval(ids[40:]),
            ]
            np.testing.assert_array_equal(np.concatenate(parts), np.concatenate([whole[:40], whole[-1:]]))

    def test_a_truncated_session_continues_as_if_the_rest_had_never_been(self):
        ids = prompt("chat_add")["ids"]
        with model().session(context=128) as session:
            whole = session.eval(ids, all_logits=True)
            session.truncate(10)
            self.assertEqual(len(session), 10)
            np.testing.assert_array_equal(session.eval(ids[10:], all_logits=True), whole[10:])


if __name__ == "__main__":
    unittest.main()
