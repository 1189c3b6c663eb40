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
