# SPDX-License-Identifier: Apache-2.0
"""Ranks as the binding has them in one process; tests/distributed has several."""

import os
import unittest

from support import Q8_0, abi, minim, model

# The library reads these only if ranks are asked for; this process is alone in any case.
LAUNCHERS = ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_SIZE", "PMI_RANK", "SLURM_NTASKS", "SLURM_PROCID")


def opened(**options):
    return minim.Model(Q8_0, threads=1, **options)


class Ranks(unittest.TestCase):
    def setUp(self):
        for name in LAUNCHERS:
            os.environ.pop(name, None)
        os.environ["MINIM_PLUGIN_PATH"] = os.environ["MINIM_SIM_FOLDER"]
        os.environ["MINIM_SIM"] = "devices=4"

    def test_a_model_of_one_rank(self):
        self.assertEqual((model().rank, model().info.n_processes, model().info.n_ranks), (0, 1, 1))
        model().check()
        with self.assertRaisesRegex(minim.Error, "follows no other") as raised:
            model().follow()
        self.assertEqual(raised.exception.status, "invalid")
        with opened(tensor_parallel=1, expert_parallel=1, pipeline_parallel=1, rank_timeout=2.5) as one:
            self.assertEqual(one.info.n_ranks, 1)

    def test_a_model_on_devices_of_one_process(self):
        with opened(devices=["sim:0", "sim:1"], tensor_parallel=2) as several:
            self.assertEqual((several.rank, several.info.n_processes, several.info.n_ranks), (0, 1, 2))
            several.check()
            with self.assertRaisesRegex(minim.Error, "follows no other"):
                several.follow()
            self.assertEqual(several.session(context=64).eval([1, 2, 3]).shape, (1, several.n_vocab))

    def test_what_one_process_cannot_do_is_refused(self):
        pair = {"devices": ["sim:0", "sim:1"]}
        for options, text in (
            ({"tensor_parallel": 2}, "1 process with 1 device is 1 rank, not 2"),
            ({"expert_parallel": 2}, "1 process with 1 device is 1 rank, not 2"),
            ({"pipeline_parallel": 2}, r"\b2\b"),
            ({"tensor_parallel": 3, "devices": ["sim:0", "sim:1", "sim:2"]}, "2 KV heads cannot be divided among 3 ranks"),
            ({"expert_parallel": 9, **pair}, "8 experts cannot be given to 9 ranks"),
            ({"tensor_parallel": 2, "split": [2, 1], **pair}, "a share of 1 of the layers beside 2"),
            ({"tensor_parallel": 2, "host_experts": True, **pair}, "keeping experts on the host"),
            ({"tensor_parallel": 2, "overrides": "exps=CPU", **pair}, "the rule 'exps=CPU'"),
            ({"tensor_parallel": -2}, "-2"),
            ({"tensor_parallel": 2, "rank_timeout": -1, **pair}, "rank_timeout"),
        ):
            with self.subTest(options), self.assertRaisesRegex(minim.Error, text) as raised:
                opened(**options)
            self.assertEqual(raised.exception.status, "invalid")

    def test_the_status_of_a_lost_rank_has_a_name(self):
        self.assertEqual(int(abi.Status.PEER_LOST), 13)
        self.assertEqual(str(abi.Status.PEER_LOST), "peer_lost")

    def test_llm(self):
        greedy = minim.SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
        texts = []
        for options in (
            {},
            {"devices": ["sim:0", "sim:1"], "tensor_parallel_size": 2},
            {"devices": ["sim:0", "sim:1"], "tensor_parallel_size": 2, "enable_expert_parallel": True},
            {"devices": ["sim:0", "sim:1"], "pipeline_parallel_size": 2},
        ):
            with minim.LLM(str(Q8_0), max_model_len=64, threads=1, **options) as llm:
                self.assertEqual(llm.model.info.n_ranks, options.get("tensor_parallel_size", 1))
                texts.append(llm.generate("Once upon a time", greedy)[0].outputs[0].text)
        self.assertEqual(texts, [texts[0]] * 4)
        with self.assertRaisesRegex(minim.Error, "2 KV heads"):
            minim.LLM(str(Q8_0), max_model_len=64, threads=1, tensor_parallel_size=4, devices=[f"sim:{i}" for i in range(4)])


if __name__ == "__main__":
    unittest.main()
