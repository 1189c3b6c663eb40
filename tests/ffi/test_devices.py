# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import tempfile
import unittest

from support import Q8_0, minim, np

os.environ["MINIM_PLUGIN_PATH"] = os.environ["MINIM_SIM_FOLDER"]


class Devices(unittest.TestCase):
    def test_devices_are_listed(self):
        devices = {device.name: device for device in minim.devices()}
        self.assertEqual(next(iter(devices)), "cpu")
        self.assertTrue(devices["cpu"].usable)
        self.assertGreater(devices["cpu"].memory_bytes, 0)
        self.assertEqual(devices["sim:0"].description, "simulated accelerator")
        self.assertEqual(devices["sim:0"].memory_bytes, 1 << 30)
        self.assertFalse(devices["cpu"].unified or devices["sim:0"].unified)
        self.assertEqual((devices["sim:2"].usable, devices["sim:2"].reason), (False, "it is simulated to be too old"))

    def test_a_model_on_devices_says_where_its_layers_are_and_answers_the_same(self):
        ids = list(range(40, 90))
        expected = minim.Model(Q8_0, threads=2)
        self.assertEqual(expected.info.placement, "cpu (layers 0-2)")
        logits = expected.session(200).eval(ids)
        for options, placement in (
            ({"devices": "sim:0"}, "sim:0 (layers 0-2)"),
            ({"devices": ["sim:0", "sim:1"], "split": [1, 2]}, "sim:0 (layer 0), sim:1 (layers 1-2)"),
            ({"devices": ["sim:1"], "device_layers": 1}, "cpu (layers 0-1), sim:1 (layer 2)"),
            ({"devices": ["sim:1"], "device_layers": 0}, "cpu (layers 0-2)"),
            ({"devices": ["sim:5"], "allow_cpu": True}, "cpu (layers 0-2)"),
        ):
            with self.subTest(options):
                model = minim.Model(Q8_0, threads=2, **options)
                self.assertEqual(model.info.placement, placement)
                self.assertEqual(model.info.backend, placement.split(" ")[0])
                self.assertTrue((model.session(200).eval(ids) == logits).all())

    def test_what_each_device_holds_is_told_and_adds_up(self):
        model = minim.Model(Q8_0, threads=2, devices=["sim:0", "sim:1"], device_layers=2, mmap=True)
        cpu, first, second = before = model.memory()
        self.assertEqual([device.name for device in before], ["cpu", "sim:0", "sim:1"])
        self.assertEqual([(device.first_layer, device.n_layer) for device in before], [(0, 1), (1, 1), (2, 1)])
        self.assertEqual([device.weights_mapped for device in before], [True, False, False])
        self.assertEqual([device.kv for device in before], [0, 0, 0])
        self.assertEqual(first.work, 0)
        weights = sum(device.weights for device in before)
        self.assertLess(abs(weights - model.info.weight_bytes), 0.02 * model.info.weight_bytes)
        self.assertTrue(0 < first.experts < first.weights < second.weights)  # the last one has the head too
        # A simulated device has 1 GiB, and rounds each block up to pages.
        page = 4096
        self.assertEqual((1 << 30) - second.free, -(-second.weights // page) * page)

        session = model.session(128)
        during = model.memory()
        self.assertEqual([device.kv for device in during], [128 * model.info.kv_token_bytes_f16 // 3] * 3)
        for device, was in zip(during[1:], before[1:]):
            self.assertGreater(device.work, 0)
            self.assertEqual((device.budget, device.kept), (None, 0))
            self.assertTrue(0 <= was.free - device.free - device.kv - device.work < 3 * page)
        session.close()
        after = model.memory()
        self.assertGreater(after[1].kept, 0)
        for device, was in zip(after[1:], before[1:]):
            self.assertLess(was.free - device.free, 3 * page)
            self.assertEqual(device._replace(free=0, kept=0), was._replace(free=0))

    def test_a_packed_file_has_the_weights_of_the_cpu(self):
        ids = list(range(40, 90))
        expected = minim.Model(Q8_0, threads=2).session(200).eval(ids)
        with tempfile.TemporaryDirectory() as folder:
            packed = pathlib.Path(folder, "packed")
            sizes = []
            for experts in (True, 1, -1, True):  # the packed file is written again for another placement, even if layers have the same shape
                model = minim.Model(Q8_0, threads=2, devices="sim:0", host_experts=experts, packed_file=packed)
                cpu = {device.name: device for device in model.memory()}["cpu"]
                self.assertTrue(cpu.weights_mapped)
                self.assertTrue(0 <= packed.stat().st_size - cpu.weights < 1 << 14)
                self.assertTrue((model.session(200).eval(ids) == expected).all())
                sizes.append(packed.stat().st_size)
            self.assertEqual(sizes[0], sizes[3])
            self.assertEqual(sizes[1], sizes[2])
            self.assertLess(sizes[1], sizes[0])
            with self.assertRaisesRegex(minim.Error, "no weights"):
                minim.Model(Q8_0, threads=2, devices="sim:0", packed_file=packed)
            with self.assertRaisesRegex(minim.Error, "2 backends compute on the host"):
                minim.Model(Q8_0, threads=2, devices="sim:0", overrides="blk.0.*exps=cpu,exps=reference", packed_file=packed)

    def test_a_budget_is_kept_and_the_error_has_its_figures(self):
        model = minim.Model(Q8_0, threads=2, devices=["sim:0", "sim:1"], budgets=[200 << 20, 100 << 20])
        first, second = model.memory()
        self.assertEqual((first.n_layer, second.n_layer), (2, 1))
        self.assertEqual((first.budget, second.budget), (200 << 20, 100 << 20))
        self.assertEqual(second.free + second.weights, 100 << 20)
        with self.assertRaises(minim.Error) as caught:
            model.session(1 << 20)
        self.assertEqual(caught.exception.status, "out_of_device_memory")
        self.assertRegex(
            caught.exception.message,
            r"on sim:0: .*; a context of \d+ would fit; \d+ of the budget of 209715200 bytes",
        )
        model.session(100).close()
        trained = model.info.n_context_train
        self.assertEqual(model.session().context_size, trained)
        roomy, lines = minim.Model(Q8_0, threads=2, devices="sim:0"), []
        with roomy.session(trained):
            [taken] = roomy.memory()
        budget = taken.weights + taken.work + taken.kv // 4 + (1 << 20)
        tight = minim.Model(Q8_0, threads=2, devices="sim:0", budgets=[budget], log=lambda _, line: lines.append(line))
        with tight.session() as session:
            self.assertLess(session.context_size, trained)
            self.assertGreaterEqual(session.context_size, 64)
        self.assertTrue(any("tokens are taken" in line for line in lines))
        self.assertGreater(model.memory()[1].kept, 0)
        for options, message in (
            ({"devices": "sim:0", "budgets": [1 << 20]}, "sim:0: .* of the budget of 1048576 bytes"),
            ({"devices": "sim:0", "budgets": [1, 2]}, "2 budgets for 1 devices"),
            ({"budgets": [1]}, "none is named"),
            ({"devices": "cpu,sim:0", "budgets": [1, 0]}, "a budget is for a device with memory of its own"),
            ({"devices": "sim:0,sim:1,sim:0"}, "device sim:0 is named twice"),
        ):
            with self.subTest(options):
                with self.assertRaisesRegex(minim.Error, message):
                    minim.Model(Q8_0, threads=2, **options)

    def test_experts_lie_where_they_are_asked_to_and_the_logits_are_the_same(self):
        ids = list(range(40, 90))
        logits = minim.Model(Q8_0, threads=2).session(200).eval(ids)
        layers = "sim:0 (layers 0-1), sim:1 (layer 2)"
        for options, placement, experts in (
            ({"host_experts": True}, f"{layers}, cpu (experts of layers 0-2)", [2, 2, 2]),
            ({"host_experts": 2}, f"{layers}, cpu (experts of layers 0-1)", [2, 2, 1]),
            ({"host_experts": -1}, f"{layers}, cpu (experts of layer 2)", [0, 0, 2]),
            ({"overrides": "exps=CPU"}, f"{layers}, cpu (experts of layers 0-2)", [2, 2, 2]),
            (
                {"overrides": {r"blk\.(0|2)\..*exps": "sim:0"}},
                "sim:0 (layers 0-1, experts of layer 2), sim:1 (layer 2)",
                [0, 0, 0],
            ),
            (
                {"overrides": r"blk\.1\..*exps=sim:1", "host_experts": 3},
                "sim:0 (layers 0-1), sim:1 (layer 2, experts of layer 1), cpu (experts of layers 0, 2)",
                [2, 1, 2],
            ),
            ({"fit_context": 256}, layers, [0, 0, 1]),
        ):
            with self.subTest(options):
                model = minim.Model(Q8_0, threads=2, devices=["sim:0", "sim:1"], split=[2, 1], **options)
                self.assertEqual(model.info.placement, placement)
                places = [model.layer_devices(layer) for layer in range(3)]
                self.assertEqual(places, list(zip([0, 0, 1], experts)))
                self.assertEqual(
                    [device.n_expert_layers for device in model.memory()],
                    [experts.count(index) for index in range(len(model.memory()))],
                )
                self.assertTrue((model.session(200).eval(ids) == logits).all())

    def test_a_device_for_experts_alone_is_opened_and_told(self):
        model = minim.Model(Q8_0, threads=2, devices="sim:1", overrides="exps=sim:0", mmap=True)
        layers, experts = model.memory()
        self.assertEqual(model.info.placement, "sim:1 (layers 0-2), sim:0 (experts of layers 0-2)")
        self.assertEqual((experts.name, experts.n_layer, experts.n_expert_layers), ("sim:0", 0, 3))
        self.assertEqual((layers.n_layer, layers.n_expert_layers, layers.experts), (3, 0, 0))
        x, routing = 4 * model.info.hidden, 8 * model.info.n_expert_used
        self.assertEqual((layers.token_in, layers.token_out), (3 * x, 3 * (x + routing)))
        self.assertEqual((experts.token_in, experts.token_out), (3 * (x + routing), 3 * x))
        norms = 3 * x
        self.assertEqual(experts.weights, experts.experts + norms)
        weights = layers.weights + experts.weights
        self.assertLess(abs(weights - model.info.weight_bytes), 0.02 * model.info.weight_bytes)
        session = model.session(128)
        layers, experts = model.memory()
        self.assertEqual((layers.kv, experts.kv), (128 * model.info.kv_token_bytes_f16, 0))
        self.assertGreater(experts.work, 0)
        session.close()

    def test_experts_that_do_not_fit_a_budget_stay_on_the_cpu(self):
        def placed(budget):
            return minim.Model(Q8_0, threads=2, devices="sim:0", budgets=[budget], fit_context=256)

        whole = placed(1 << 29)
        self.assertEqual(whole.info.placement, "sim:0 (layers 0-2)")
        one = whole.memory()[0].experts // 3
        # The budget covers what a session of that context needs beside experts, and the experts of one layer.
        session = whole.session(256)
        taken = whole.memory()[0]
        session.close()
        budget = taken.weights - taken.experts + taken.kv + taken.work + one + one // 2
        model = placed(budget)
        self.assertEqual(model.info.placement, "sim:0 (layers 0-2), cpu (experts of layers 0-1)")
        self.assertEqual(model.session(256).eval([1, 2, 3]).tolist(), whole.session(256).eval([1, 2, 3]).tolist())
        with self.assertRaisesRegex(minim.Error, "sim:0: .* need .* bytes without experts") as caught:
            minim.Model(Q8_0, threads=2, devices="sim:0", budgets=[budget], fit_context=20000)
        self.assertEqual(caught.exception.status, "out_of_device_memory")

    def test_a_cache_of_experts_answers_the_same_and_tells_what_it_did(self):
        ids = list(range(40, 90))
        logits = minim.Model(Q8_0, threads=2).session(200).eval(ids)
        with tempfile.TemporaryDirectory() as folder:
            profile = pathlib.Path(folder) / "uses.json"
            for moves in ("fixed", "reproducible", "eager", "auto"):
                model = minim.Model(Q8_0, threads=2, devices="sim:0", expert_cache="1MiB", expert_moves=moves)
                places = model.expert_cache["places"]
                self.assertEqual(
                    model.info.placement, f"sim:0 (layers 0-2, cache of {places} experts), cpu (experts of layers 0-2)"
                )
                session = model.session(200)
                self.assertTrue((session.eval(ids) == logits).all())
                cache = model.expert_cache
                # The last layer computes only the last row.
                self.assertEqual(cache["hits"] + cache["misses"], (2 * len(ids) + 1) * model.info.n_expert_used)
                self.assertTrue(0 < cache["bytes"] <= 1 << 20)
                self.assertTrue(0 < places < 3 * model.info.n_expert)
                for token in range(100, 120):
                    session.eval([token])
                self.assertEqual(model.expert_cache["moves"] > 0, moves != "fixed")
                self.assertEqual(model.expert_cache["moved_bytes"] > 0, moves != "fixed")
                self.assertGreaterEqual(model.memory()[0].experts, cache["bytes"])
                model.save_expert_profile(profile)
            model = minim.Model(
                Q8_0, threads=2, devices="sim:0", expert_cache="1MiB", expert_moves="fixed", expert_profile=profile
            )
            self.assertTrue((model.session(200).eval(ids) == logits).all())
            profile.write_text("{}")
            with self.assertRaisesRegex(minim.Error, "uses.json: no profile of experts"):
                minim.Model(Q8_0, threads=2, devices="sim:0", expert_profile=profile)
        self.assertEqual(minim.Model(Q8_0, threads=2).expert_cache["places"], 0)

    def test_with_nothing_said_of_experts_what_does_not_fit_shares_the_rest(self):
        roomy = minim.Model(Q8_0, threads=2, devices="sim:0")
        self.assertEqual(roomy.info.placement, "sim:0 (layers 0-2)")
        session = roomy.session(256)
        taken = roomy.memory()[0]
        ids = list(range(40, 60))
        logits = session.eval(ids)
        session.close()
        budget = taken.weights - taken.experts // 2 + taken.work + 2 * taken.kv
        for options in ({"devices": f"SIM0={budget}B"}, {"devices": "sim:0", "budgets": [budget]}):
            model = minim.Model(Q8_0, threads=2, **options)
            self.assertRegex(model.info.placement, r"sim:0 \(layers 0-2(, cache of \d+ experts)?\), cpu \(experts of layers 0-2\)")
            self.assertTrue((model.session(256).eval(ids) == logits).all())
            self.assertEqual(model.memory()[0].budget, budget)
        model = minim.Model(Q8_0, threads=2, devices="sim:0", budgets=[budget], fit_context=256, expert_cache="room")
        self.assertGreater(model.expert_cache["places"], 0)
        self.assertEqual(minim.Model(Q8_0, threads=2, devices="sim:0=0.25").memory()[0].budget, 1 << 28)
        self.assertEqual(minim.Model(Q8_0, threads=2, devices="sim:0", budgets=[0.5]).memory()[0].budget, 1 << 29)
        self.assertIn("sim:0", minim.Model(Q8_0, threads=2, devices="auto").info.placement)

    def test_contradictions_about_caches_name_both_sides(self):
        for options, message in (
            ({"devices": "sim:0=1GiB", "budgets": [1 << 20]}, "sim:0 has two budgets"),
            ({"devices": "sim:0=1.5"}, "'sim:0=1.5' is no device with a budget"),
            ({"devices": "sim:0=lots"}, "'sim:0=lots' is no device with a budget"),
            ({"devices": "sim:0,SIM0"}, "device sim:0 is named twice"),
            ({"expert_cache": "1MiB"}, "expert_cache_bytes is for devices, and none is named"),
            (
                {"devices": "sim:0", "expert_moves": "reproducible", "deterministic": True},
                "expert_moves is reproducible, but the model is deterministic",
            ),
        ):
            with self.subTest(options):
                with self.assertRaisesRegex(minim.Error, message):
                    minim.Model(Q8_0, threads=2, **options)
        for value in ("4 bananas", -1, "MiB"):
            with self.assertRaisesRegex(ValueError, "expert_cache is"):
                minim.Model(Q8_0, devices="sim:0", expert_cache=value)

    def test_rules_that_place_nothing_or_too_much_are_refused(self):
        for options, status, message in (
            ({"overrides": "expz=cpu"}, "invalid", "override expz=cpu: no tensor has such a name"),
            ({"overrides": "exps"}, "invalid", "'exps' is not of the form PATTERN=DEVICE"),
            ({"overrides": "(=cpu"}, "invalid", "at byte"),
            ({"overrides": "exps=cpu,up_exps=sim:1"}, "invalid", "earlier overrides place all tensors"),
            ({"overrides": "exps=sim:7"}, "not_found", "device sim:7: there are 3 devices"),
            ({"overrides": "exps=sim:2"}, "unsupported", "simulated to be too old"),
            ({"overrides": "exps=abacus"}, "invalid", "'abacus' is not a device name"),
            ({"overrides": "attn=cpu"}, "unsupported", "blk.0.attn_norm.weight stays on sim:0"),
            ({"overrides": "ffn_up_exps=cpu"}, "unsupported", "experts of layer 0 would be on"),
            ({"fit_context": -1}, "invalid", "fit_context is -1"),
            ({"fit_ubatch": -1}, "invalid", "fit_n_ubatch is -1"),
            ({"devices": None, "overrides": "exps=cpu"}, "invalid", "none is named"),
            ({"devices": None, "host_experts": 1}, "invalid", "none is named"),
        ):
            with self.subTest(options):
                with self.assertRaisesRegex(minim.Error, message) as caught:
                    minim.Model(Q8_0, threads=2, **{"devices": "sim:0", **options})
                self.assertEqual(caught.exception.status, status)
        model = minim.Model(Q8_0, threads=2, devices="sim:0", overrides="exps=sim:7", allow_cpu=True)
        self.assertEqual(model.info.placement, "sim:0 (layers 0-2), cpu (experts of layers 0-2)")
        for layer in (-1, 3):
            with self.assertRaisesRegex(minim.Error, f"layer {layer} of 3"):
                model.layer_devices(layer)

    def test_an_error_says_which_device_it_concerns(self):
        def device_of(call, **settings):
            os.environ["MINIM_SIM"] = " ".join(f"{name}={value}" for name, value in settings.items())
            try:
                with self.assertRaises(minim.Error) as caught:
                    call()
                return caught.exception.device
            finally:
                del os.environ["MINIM_SIM"]

        def opened(devices="sim:0,sim:1", **options):
            return minim.Model(Q8_0, threads=2, devices=devices, **options)

        evenly = {"split": [1, 1]}

        def talked(**options):
            session = opened(**options).session(500)
            for _ in range(400):
                session.eval([1])

        # Errors of minim_model_open give the device's index in `devices`.
        self.assertEqual(device_of(lambda: opened("sim:0,sim:5")), 1)
        self.assertEqual(device_of(lambda: opened("sim:2,sim:0")), 0)
        self.assertEqual(device_of(lambda: opened("sim:0,abacus:0")), 1)
        self.assertEqual(device_of(lambda: opened(budgets=[0, 1 << 16], **evenly)), 1)
        self.assertEqual(device_of(lambda: opened(fit_context=1 << 18, budgets=[0, 1 << 24], **evenly)), 1)
        for kind in ("failing_allocation", "failing_transfer"):
            for device in (0, 1):
                self.assertEqual(device_of(opened, failing_device=device, **{kind: 1}), device)
        self.assertEqual(device_of(lambda: opened("sim:0", overrides="exps=sim:5")), -1)
        # Later errors give the index that minim_model_device_memory uses.
        for device in (0, 1):
            self.assertEqual(device_of(talked, failing_device=device, failing_operation=2000), device)
        on_cpu_too = {"devices": "sim:1", "device_layers": 1}
        self.assertEqual(device_of(lambda: talked(**on_cpu_too), failing_operation=2000), 1)
        self.assertEqual(device_of(lambda: opened(budgets=[0, 1 << 24], **evenly).session(1 << 18)), 1)

        def answered():
            with minim.Engine(opened(), kv_tokens=1024) as engine:
                engine.submit([1, 2, 3], max_tokens=400, ignore_end=True).result()

        self.assertEqual(device_of(answered, failing_device=1, failing_operation=2000), 1)
        # Errors of the CPU, and errors without a device, give -1.
        self.assertEqual(device_of(lambda: minim.Model(Q8_0, threads=2).session(1 << 40)), -1)
        self.assertEqual(device_of(lambda: opened().session(100).eval([1] * 101)), -1)
        self.assertEqual(device_of(lambda: opened("sim:0,")), -1)

    def test_deterministic_devices_answer_as_the_others(self):
        ids = list(range(40, 60))
        expected = minim.Model(Q8_0, threads=2).session(200).eval(ids)
        for devices in (None, "sim:0"):
            model = minim.Model(Q8_0, threads=2, devices=devices, deterministic=True)
            self.assertTrue((model.session(200).eval(ids) == expected).all())

    def test_a_model_on_the_cpu_reports_its_memory(self):
        for mmap in (True, False):
            model = minim.Model(Q8_0, threads=2, mmap=mmap)
            (cpu,) = model.memory()
            self.assertEqual((cpu.name, cpu.n_layer, cpu.weights_mapped), ("cpu", 3, mmap))
            self.assertLess(abs(cpu.weights - model.info.weight_bytes), 0.02 * model.info.weight_bytes)
            self.assertGreater(cpu.free, 0)
            with model.session(64):
                self.assertEqual(model.memory()[0].kv, 64 * model.info.kv_token_bytes_f16)

    def test_devices_as_users_write_them(self):
        two = "sim:0 (layers 0-1), sim:1 (layer 2)"
        for options, placement in (
            ({"devices": []}, "cpu (layers 0-2)"),
            ({"devices": ()}, "cpu (layers 0-2)"),
            ({"devices": " "}, "cpu (layers 0-2)"),
            ({"devices": [], "budgets": [], "split": []}, "cpu (layers 0-2)"),
            ({"devices": "sim:0, sim:1"}, two),
            ({"devices": [" sim:0", "SIM1 "]}, two),
            ({"devices": "sim:0 = 200MiB,\tsim:1= 0.5"}, two),
            ({"devices": "sim:0, sim:1", "budgets": 0.9}, two),
            ({"devices": ["sim:0, sim:1"], "budgets": [2**31, "2GiB"]}, two),
            ({"devices": [one for one in minim.devices() if one.name in ("sim:0", "sim:1")]}, two),
            ({"devices": ["sim:0"], "budgets": np.array([10**9])}, "sim:0 (layers 0-2)"),
        ):
            with self.subTest(options), minim.Model(Q8_0, threads=2, **options) as model:
                self.assertEqual(model.info.placement, placement)
        with self.assertRaisesRegex(TypeError, "the device 0 is not a text"):
            minim.Model(Q8_0, devices=[0])
        for devices, names in (([], []), ("", []), ("cuda:0 = 96GiB, 1790GB/s, pcie=50GB/s", ["cuda:0"])):
            plan = minim.plan(Q8_0, context=512, devices=devices, host="768GiB, 576GB/s")
            self.assertEqual([device["name"] for device in plan["devices"]], names)

    def test_what_cannot_be_is_an_error(self):
        for options, status in (
            ({"devices": "sim:5"}, "not_found"),
            ({"devices": "sim:2"}, "unsupported"),
            ({"devices": "abacus:0"}, "not_found"),
            ({"devices": "abacus"}, "invalid"),
            ({"devices": "sim:0,"}, "invalid"),
            ({"devices": "sim:0", "split": [1, 2]}, "invalid"),
            ({"devices": "sim:0", "split": [-1]}, "invalid"),
            ({"devices": "sim:0", "device_layers": -3}, "invalid"),
            ({"split": [1]}, "invalid"),
        ):
            with self.subTest(options):
                with self.assertRaises(minim.Error) as caught:
                    minim.Model(Q8_0, threads=2, **options)
                self.assertEqual(caught.exception.status, status)


if __name__ == "__main__":
    unittest.main()
