# SPDX-License-Identifier: Apache-2.0
import unittest

from support import Q8_0, abi, minim

GPU = "cuda:0=24GiB,936GB/s,pcie=25GB/s"
HOST = "64GiB,100GB/s"


class Plans(unittest.TestCase):
    def test_a_model_that_fits_lies_on_the_device(self):
        plan = minim.plan(Q8_0, devices=[GPU], host=HOST, context=1024)
        self.assertTrue(plan["fits"])
        self.assertEqual([device["name"] for device in plan["devices"]], ["cuda:0"])
        self.assertEqual(plan["devices"][0]["n_layers"], 3)
        self.assertEqual(plan["host"]["expert_bytes"], 0)
        whole = minim.plan(Q8_0, devices=[], host=HOST, context=1024)
        self.assertEqual(whole["devices"], [])
        for key in ("dense_bytes", "expert_bytes", "kv_bytes"):
            self.assertEqual(whole["host"][key], plan["devices"][0][key])

    def test_rules_shares_and_formats_reach_the_plan(self):
        plan = minim.plan(Q8_0, devices=GPU, host=HOST, context=1024, overrides="exps=CPU")
        self.assertEqual((plan["devices"][0]["n_experts"], plan["devices"][0]["n_layers"]), (0, 3))
        both = [GPU, GPU.replace("cuda:0", "CUDA1")]
        plan = minim.plan(Q8_0, devices=both, host=HOST, context=1024, split=[1, 2])
        self.assertEqual([device["n_layers"] for device in plan["devices"]], [1, 2])
        self.assertEqual(plan["devices"][1]["name"], "cuda:1")
        wide = minim.plan(Q8_0, devices=GPU, host=HOST, context=1024, kv="F32", parallel=2)
        narrow = minim.plan(Q8_0, devices=GPU, host=HOST, context=1024, kv=("q8_0", "f16"))
        self.assertGreater(wide["devices"][0]["kv_bytes"], 5 * narrow["devices"][0]["kv_bytes"])

    def test_cards_stand_for_their_numbers(self):
        plan = minim.plan(Q8_0, devices=["2x RTX 3090", "cuda:7=h200"], host=HOST, context=1024)
        self.assertEqual([device["name"] for device in plan["devices"]], ["cuda:0", "cuda:1", "cuda:7"])
        described = minim.plan(Q8_0, devices=[GPU], host=HOST, context=1024)
        named = minim.plan(Q8_0, devices="RTX 3090", host=HOST, context=1024)
        self.assertEqual(named["devices"], described["devices"])
        for text in ("RTX 3091", "cuda:x=96GiB,1790GB/s", "gpu=24GiB,936GB/s", "4x", "3x cuda:0=24GiB,936GB/s"):
            with self.subTest(text), self.assertRaises(abi.Error) as raised:
                minim.plan(Q8_0, devices=text, host=HOST, context=64)
            self.assertIn(f"'{text}'", str(raised.exception))
        with self.assertRaises(abi.Error) as raised:
            minim.plan(Q8_0, devices="RTX 3091", host=HOST, context=64)
        self.assertIn("RTX 3080 Ti, RTX 3090, RTX 3090 Ti", str(raised.exception))

    def test_a_memory_that_is_shared_is_counted_once(self):
        plan = minim.plan(Q8_0, devices=["cuda:0=64MiB,273GB/s,unified"], context=1024)
        self.assertTrue(plan["unified"])
        self.assertEqual(plan["devices"][0]["free_bytes"], plan["host"]["free_bytes"])
        parts = ("dense_bytes", "expert_bytes", "kv_bytes", "work_bytes")
        self.assertEqual(plan["used_bytes"], sum(place[part] for place in (plan["devices"][0], plan["host"]) for part in parts))
        self.assertFalse(minim.plan(Q8_0, devices=[GPU], host=HOST, context=1024)["unified"])
        for options, named in (
            ({"host": HOST}, ("64MiB,273GB/s,unified", HOST)),
            ({"overrides": "exps=CPU"}, ("exps=CPU", "cuda:0")),
            ({"host_experts": 2}, ("n_host_experts (2)", "cuda:0")),
        ):
            with self.subTest(options), self.assertRaises(abi.Error) as raised:
                minim.plan(Q8_0, devices="cuda:0=64MiB,273GB/s,unified", context=1024, **options)
            for text in named:
                self.assertIn(text, str(raised.exception))

    def test_ranks_share_every_layer(self):
        def plan(**options):
            return minim.plan(Q8_0, devices="2x RTX 3090", host=HOST, context=1024, **options)

        layers = plan()
        self.assertEqual(layers["parallel"], {"tensor": 1, "expert_groups": 1, "expert_parts": 1, "pipeline": 1})
        self.assertEqual(layers["decode_seconds"]["sums"], 0)
        whole = minim.plan(Q8_0, devices="RTX 3090", host=HOST, context=1024)["devices"][0]
        for options in ({"tensor_parallel": 2}, {"tensor_parallel": -1}):
            ranks = plan(**options, link="9us,20GB/s")
            self.assertEqual(ranks["parallel"], {"tensor": 2, "expert_groups": 1, "expert_parts": 2, "pipeline": 1})
            self.assertAlmostEqual(ranks["decode_seconds"]["sums"], 3 * 3 * 9e-6)
            for rank in ranks["devices"]:
                self.assertEqual((rank["n_layers"], rank["n_experts"]), (3, 24))
                self.assertEqual(2 * rank["kv_bytes"], whole["kv_bytes"])
                self.assertEqual(2 * rank["expert_bytes"], whole["expert_bytes"])
        for options in ({"expert_parallel": 2}, {"tensor_parallel": 2, "expert_parallel": -1}):
            ranks = plan(**options)
            self.assertEqual([rank["n_experts"] for rank in ranks["devices"]], [12, 12])
            self.assertEqual(ranks["parallel"]["expert_groups"], 2)
        stages = plan(pipeline_parallel=2)
        self.assertEqual([rank["n_layers"] for rank in stages["devices"]], [2, 1])
        hosts = minim.plan(Q8_0, devices=[], host=HOST, context=1024, tensor_parallel=2)
        self.assertEqual([rank["name"] for rank in hosts["devices"]], ["cpu", "cpu"])

    def test_ranks_that_are_not_possible_are_refused(self):
        for options, says in (
            ({"tensor_parallel": 3}, "2 KV heads cannot be divided among 3 ranks; 1 and 2 ranks can share them"),
            ({"expert_parallel": 16}, "8 experts cannot be given to 16 ranks"),
            ({"expert_parallel": 4}, "expert parallel 4 means 4 ranks, one on each device; 2 devices are named"),
            ({"tensor_parallel": 2, "split": [1, 2]}, "a share of 2 of the layers beside 1 is not possible with tensor parallel 2"),
            ({"tensor_parallel": 2, "host_experts": True}, "keeping experts on the host is not possible with tensor parallel 2"),
            ({"tensor_parallel": 2, "overrides": "exps=CPU"}, "the rule 'exps=CPU' is not possible with tensor parallel 2"),
            ({"tensor_parallel": 2, "expert_cache": 1 << 30}, "a cache of experts is not possible with tensor parallel 2"),
            ({"tensor_parallel": -2}, "tensor parallel -2 is not a number of ranks"),
            ({"tensor_parallel": 2, "link": "9"}, "link '9' is not of the form TIME,BANDWIDTH"),
        ):
            with self.subTest(options), self.assertRaises(abi.Error) as raised:
                minim.plan(Q8_0, devices="2x RTX 3090", host=HOST, context=1024, **options)
            self.assertIn(says, str(raised.exception))
        with self.assertRaises(abi.Error) as raised:
            minim.plan(Q8_0, devices=["RTX 3090", "RTX 4090"], host=HOST, context=1024, tensor_parallel=2)
        self.assertIn("cuda:1 (sm_89) beside cuda:0 (sm_86)", str(raised.exception))

    def test_placement_as_a_model_is_opened(self):
        def plan(**options):
            return minim.plan(Q8_0, devices=GPU, host=HOST, context=1024, **options)

        self.assertEqual(plan(device_layers=2)["devices"][0]["n_layers"], 2)
        whole = plan()["devices"][0]["n_experts"]
        self.assertEqual(plan(host_experts=True)["devices"][0]["n_experts"], 0)
        self.assertEqual(plan(host_experts=1)["devices"][0]["n_experts"], whole // 3 * 2)
        self.assertEqual(plan(host_experts=-2)["devices"][0]["n_experts"], whole // 3)
        # What overrides name is theirs.
        both = plan(host_experts=True, overrides=r"blk\.1\..*exps=cuda:0")
        self.assertEqual(both["devices"][0]["n_experts"], whole // 3)
        cached = plan(host_experts=True, expert_cache=8 << 20)["devices"][0]
        self.assertGreater(cached["n_experts"], 0)
        self.assertLessEqual(cached["expert_bytes"], 8 << 20)
        self.assertGreater(plan(host_experts=True, expert_cache=2**64 - 1)["devices"][0]["n_experts"], 0)
        for options in ({"device_layers": -1}, {"parallel": -1}):
            with self.subTest(options), self.assertRaises(abi.Error):
                plan(**options)

    def test_the_sizes_of_an_engine(self):
        def plan(context, memory, **options):
            return minim.plan(Q8_0, devices=[], host=f"{memory},100GB/s", context=context, engine=True, **options)

        plenty = plan(0, "64GiB", parallel=16)
        self.assertEqual((plenty["n_context"], plenty["kv_tokens"], plenty["n_sequences"]), (4096, 16 * 4096, 16))
        self.assertEqual(plan(1000, "64GiB", parallel=3)["kv_tokens"], 3008)
        self.assertEqual(plan(200000, "64GiB", parallel=3)["kv_tokens"], 200000)
        before = 0
        for memory in range(30, 200, 17):
            taken = plan(0, f"{memory}MiB", parallel=16)
            if not taken["fits"]:
                continue
            self.assertGreaterEqual(taken["n_context"], before)
            self.assertGreaterEqual(taken["kv_tokens"], taken["n_context"])
            before = taken["n_context"]
        self.assertGreater(before, 0)
        self.assertFalse(plan(100000, "60MiB")["fits"])

    def test_this_machine_is_measured(self):
        plan = minim.plan(Q8_0, devices=[], context=512, threads=1)
        self.assertTrue(plan["fits"])
        self.assertGreater(plan["decode_tokens_per_second"], 0)

    def test_what_cannot_be_planned_is_named(self):
        for options, part in (
            ({"devices": ["cuda:0=24GiB"]}, "cuda:0=24GiB"),
            ({"devices": [GPU, GPU]}, "cuda:0 is named twice"),
            ({"devices": [GPU], "overrides": "exps=cuda:3"}, "cuda:3"),
            ({"devices": [GPU], "context": 0}, "a context of 0 tokens"),
            ({"devices": [GPU], "split": [1, 1]}, "2 shares"),
            ({"devices": [GPU], "host": "much"}, "'much'"),
        ):
            with self.subTest(options), self.assertRaises(abi.Error) as raised:
                minim.plan(Q8_0, **{"host": HOST, "context": 64, **options})
            self.assertIn(part, str(raised.exception))
        with self.assertRaises(ValueError):
            minim.plan(Q8_0, context=64, kv="q7")


if __name__ == "__main__":
    unittest.main()
