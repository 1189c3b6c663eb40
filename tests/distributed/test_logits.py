# SPDX-License-Identifier: Apache-2.0
"""Logits of ranks beside those of one rank, in all bundled formats, KV formats and chunkings; engines, cancelled requests, saved states."""

import pathlib
import tempfile
import unittest

from support import IS_FULL, LONG_PROMPT, MADE, MIX_K, Q8_0, QUESTIONS, ROOT, Case, simulated

FOLDERS = ("minim-tiny", "minim-tiny-awq", "minim-tiny-fp8", "minim-tiny-nvfp4", "minim-tiny-bf16.gguf")
DATA = ROOT / "tests" / "data" / "models"
MODELS = [
    Q8_0,
    ROOT / "examples" / "models" / "minim-tiny-mix-ik.gguf",
    MIX_K,
    DATA / "minim-tiny-q4_k_m.gguf",
    DATA / "minim-tiny-mix-iq-00001-of-00003.gguf",
    *(MADE / name for name in FOLDERS),
]
# Weights with 8 mantissa bits or activations in float: the last bits of sums alone differ.
NEAR = {"minim-tiny": 0.01, "minim-tiny-bf16.gguf": 0.01, "minim-tiny-fp8": 0.01}
NEAR_OF_8_BITS = 0.4
MOST_DIVERGENCE = 3e-4


class Logits(Case):
    def compare(self, n, ranks, models, kv, chunks, **environment):
        result = self.result_of(n, "logits", models=models, kv=kv, chunks=chunks, ranks=ranks, environment=environment)
        self.assertEqual(len(result), len(models) * len(kv) * len(ranks))
        for name, rows in result.items():
            self.assertEqual(len(rows), len(chunks))
            for chunk, found in zip(chunks, rows):
                with self.subTest(name, chunk=chunk):
                    if " tp" in name:
                        self.assertLessEqual(found["largest"], NEAR.get(name.split()[0], NEAR_OF_8_BITS))
                        self.assertLessEqual(found["divergence"], MOST_DIVERGENCE)
                    else:
                        self.assertEqual(found["rows"], 0, f"the largest difference is {found['largest']}")

    def test_two_ranks(self):
        ranks = {"experts": {"expert_parallel": 2}, "tp": {"tensor_parallel": 2}, "pipeline": {"pipeline_parallel": 2}}
        self.compare(2, ranks, MODELS, ["f16"], [70, 7, 1] if IS_FULL else [70, 7])
        self.compare(2, ranks, MODELS if IS_FULL else MODELS[:2], ["q8_0"], [70, 1])

    def test_three_ranks(self):
        ranks = {"experts": {"expert_parallel": 3}, "pipeline": {"pipeline_parallel": 3}}
        self.compare(3, ranks, MODELS if IS_FULL else MODELS[:2], ["f16", "q8_0"], [70, 7])

    def test_simulated_devices(self):
        devices = {"devices": ["sim:0", "sim:1"]}
        ranks = {"experts": {"expert_parallel": 2, **devices}, "tp": {"tensor_parallel": 2, **devices}}
        self.compare(0, ranks, MODELS if IS_FULL else MODELS[:3], ["f16"], [70, 7], **simulated("devices=2"))


class Engines(Case):
    def test_sixteen_requests(self):
        for n, options in ((2, {"expert_parallel": 2}), (3, {"pipeline_parallel": 3}), (2, {"tensor_parallel": 2})):
            with self.subTest(n=n, options=options):
                result = self.result_of(n, "engine", model=Q8_0, options=options, questions=QUESTIONS)
                self.assertEqual(result["again"], result["first"])
                self.assertEqual(result["cached"], [0] * 4 + [299] * 4)
                if "tensor_parallel" not in options:
                    self.assertEqual(result["answers"], result["one_rank"])
                    continue
                # Sampled tokens may be others where the last bits of logits differ.
                greedy = [i for i in range(16) if i % 4 != 3]
                self.assertEqual([result["answers"][i] for i in greedy], [result["one_rank"][i] for i in greedy])

    def test_cancelled_requests(self):
        for n, options in ((2, {"tensor_parallel": 2}), (3, {"expert_parallel": 3}), (2, {"pipeline_parallel": 2})):
            with self.subTest(n=n, options=options):
                rounds = 200 if IS_FULL else 5
                result = self.result_of(n, "cancelled", model=Q8_0, options=options, questions=QUESTIONS, long=LONG_PROMPT, rounds=rounds, short=12)
                self.assertGreaterEqual(result["cancelled"], rounds)
                greedy = [i for i in range(16) if i % 4 != 3]
                self.assertEqual([result["answers"][i] for i in greedy], [result["one_rank"][i] for i in greedy])

    def test_a_cancelled_prompt_of_a_session(self):
        after = [0.001, 0.01, 0.03, 0.08, 0.15] if IS_FULL else [0.001, 0.05]
        for n, options in ((2, {"expert_parallel": 2}), (3, {"pipeline_parallel": 3})):
            with self.subTest(n=n, options=options):
                results = self.result_of(n, "cancelled_session", model=Q8_0, options=options, long=LONG_PROMPT, after=after)["results"]
                self.assertEqual(results, [["cancelled", 0]] * len(after))


class Offline(Case):
    def test_every_process_runs_the_same_lines(self):
        """LLM with vLLM's arguments: processes other than the first one end with it."""
        want = self.result_of(0, "offline", model=Q8_0, llm={})["ids"]
        for n, llm in ((2, {"tensor_parallel_size": 2}), (2, {"tensor_parallel_size": 2, "enable_expert_parallel": True}), (3, {"pipeline_parallel_size": 3})):
            with self.subTest(llm):
                self.assertEqual(self.result_of(n, "offline", model=Q8_0, llm=llm), {"ids": want, "ranks": n})


class States(Case):
    def test_states_move_between_numbers_of_ranks(self):
        experts = {n: {"expert_parallel": n} for n in (2, 3)}
        one, halves, stages = (0, {}), (2, {"tensor_parallel": 2}), (2, {"pipeline_parallel": 2})
        moves = [((2, experts[2]), one), (stages, (3, experts[3])), (halves, one)]
        if IS_FULL:
            moves += [(one, (3, experts[3])), ((3, experts[3]), (2, experts[2])), (one, halves)]
        with tempfile.TemporaryDirectory() as folder:
            for i, ((n_before, before), (n_after, after)) in enumerate(moves):
                kv = ("f16", "q8_0")[i % 2]
                with self.subTest(before=before, after=after, kv=kv):
                    state = pathlib.Path(folder, f"{i}.state")
                    self.result_of(n_before, "save", model=Q8_0, options=before, state=state, kv=kv)
                    found = self.result_of(n_after, "go_on", model=Q8_0, options=after, state=state, kv=kv)["difference"]
                    if "tensor_parallel" in {**before, **after}:
                        self.assertLessEqual(found["largest"], NEAR_OF_8_BITS)
                        self.assertLessEqual(found["divergence"], MOST_DIVERGENCE)
                    else:
                        self.assertEqual(found["rows"], 0)


if __name__ == "__main__":
    unittest.main()
