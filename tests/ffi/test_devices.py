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
