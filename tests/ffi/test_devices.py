import os
import unittest

from support import Q8_0, minim

os.environ["MINIM_PLUGIN_PATH"] = os.environ["MINIM_SIM_FOLDER"]


class Devices(unittest.TestCase):
    def test_devices_are_listed(self):
        devices = {device.name: device for device in minim.devices()}
        self.assertEqual(next(iter(devices)), "cpu")
        self.assertTrue(devices["cpu"].usable)
        self.assertGreater(devices["cpu"].memory_bytes, 0)
        self.assertEqual(devices["sim:0"].description, "simulated accelerator")
        self.assertEqual(devices["sim:0"].memory_bytes, 1 << 30)
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
        # 1 GiB is what a simulated device has, and it rounds a block up to pages.
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

    def test_a_model_on_the_processor_says_what_it_holds(self):
        for mmap in (True, False):
            model = minim.Model(Q8_0, threads=2, mmap=mmap)
            (cpu,) = model.memory()
            self.assertEqual((cpu.name, cpu.n_layer, cpu.weights_mapped), ("cpu", 3, mmap))
            self.assertLess(abs(cpu.weights - model.info.weight_bytes), 0.02 * model.info.weight_bytes)
            self.assertGreater(cpu.free, 0)
            session = model.session(64)
            self.assertEqual(model.memory()[0].kv, 64 * model.info.kv_token_bytes_f16)

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
