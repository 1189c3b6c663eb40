# SPDX-License-Identifier: Apache-2.0
"""Tests that minim-bench runs and prints what it should, but not its speeds. MINIM_BENCH names the program."""

import json
import os
import pathlib
import subprocess
import unittest

MODEL = pathlib.Path(__file__).resolve().parents[2] / "examples" / "models" / "minim-tiny-q8_0.gguf"
SMALL = ("--synthetic", "--layers", "2", "--hidden", "256", "--expert-ff", "256", "--experts", "8", "--vocab", "256",
         "-p", "8", "-n", "2", "-r", "1")


def run(*arguments, sim="devices=2 memory=1024"):
    environment = {**os.environ, "MINIM_PLUGIN_PATH": os.environ["MINIM_SIM_FOLDER"], "MINIM_SIM": sim}
    return subprocess.run([os.environ["MINIM_BENCH"], *map(str, arguments)], capture_output=True, text=True,
                          timeout=600, env=environment)


class Bench(unittest.TestCase):
    def results(self, *arguments):
        done = run(*arguments, "-o", "json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)

    def test_the_cpu_and_devices_are_measured_alike(self):
        for devices in ("cpu", "sim:0", "sim:0,sim:1"):
            for model in (SMALL, ("-m", MODEL, "-p", "8", "-n", "2", "-r", "1")):
                with self.subTest(devices=devices, model=model[0]):
                    results = self.results(*model, "--device", devices, "--parallel", "1,3")
                    self.assertEqual([r["test"] for r in results], ["pp8", "tg2", "tg2 x3"])
                    for result in results:
                        self.assertEqual(result["device"], devices)
                        self.assertGreater(result["tokens_per_second"], 0)
                        self.assertGreater(result["read_bandwidth_gbps"], 0)
                        self.assertEqual("share_of_time" in result, devices == "cpu")
                    self.assertIn("limit_bytes", results[2])
                    self.assertIn("limit_arithmetic", results[2])

    def test_weights_are_prefetched_as_asked_for(self):
        for prefetch in ("auto", "off", "on"):
            self.assertEqual([r["prefetch"] for r in self.results(*SMALL, "--prefetch", prefetch)], [prefetch] * 2)
        done = run(*SMALL, "--prefetch", "some")
        self.assertEqual(done.returncode, 105)
        self.assertIn("--prefetch", done.stderr)

    def test_minimax_m3_has_its_shape(self):
        m3 = ("--synthetic", "--m3", "--layers", "2", "--hidden", "256", "--expert-ff", "256", "--experts", "8", "--vocab", "256", "-p", "8", "-n", "2", "-r", "1")
        for devices in ("cpu", "sim:0"):
            done = run(*m3, "--device", devices)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("synthetic M3, 2 layers", done.stdout)
        # Behind 2,048 positions a token reads index keys of 256 bytes in one layer, and K and V of 2,048 bytes in the other.
        near, far = (self.results(*m3, "-p", "0", "--synthetic-depth", "-d", depth)[-1]["bytes_per_token"] for depth in (4096, 8192))
        self.assertEqual(far - near, 4096 * (2048 + 256))

    def test_devices_of_one_size_share_the_layers(self):
        for model, where in (
            (SMALL, "sim:0 (layer 0), sim:1 (layer 1)"),
            (("-m", MODEL, "-p", "0", "-n", "2", "-r", "1"), "sim:0 (layers 0-1), sim:1 (layer 2)"),
        ):
            with self.subTest(model=model[0]):
                done = run(*model, "--device", "sim:0,sim:1")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertIn(where, done.stdout)

    def test_experts_may_be_on_another_device_than_their_layers(self):
        for model in (SMALL, ("-m", MODEL, "-p", "8", "-n", "2", "-r", "1")):
            for options, where in (
                (("--cpu-moe",), "sim:0 (layers 0-{}), cpu (experts of layers 0-{})"),
                (("--n-cpu-moe", 1), "sim:0 (layers 0-{}), cpu (experts of layer 0)"),
                (("--override-tensor", r"blk\.1\..*exps=sim:1"), "sim:0 (layers 0-{}), sim:1 (experts of layer 1)"),
            ):
                with self.subTest(model=model[0], options=options):
                    last = 1 if model is SMALL else 2
                    done = run(*model, "--device", "sim:0", *options)
                    self.assertEqual((done.returncode, done.stderr), (0, ""))
                    self.assertIn(where.format(last, last), done.stdout)
                    self.assertEqual(len(self.results(*model, "--device", "sim:0", *options, "--operations")), 2)
        done = run(*SMALL, "--device", "sim:0", "--override-tensor", "expz=cpu")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no tensor has such a name", done.stderr)

    def test_a_cache_of_experts_is_measured_with_what_it_did(self):
        for model in (SMALL, ("-m", MODEL, "-p", "8", "-n", "8", "-r", "2")):
            for moves in ("fixed", "reproducible", "eager"):
                with self.subTest(model=model[0], moves=moves):
                    results = self.results(*model, "--device", "sim:0", "--expert-cache", "512KiB", "--expert-moves", moves)
                    for result in results:
                        cache = result["expert_cache"]
                        self.assertGreater(cache["places"], 0)
                        self.assertLessEqual(cache["bytes"], 512 << 10)
                        self.assertAlmostEqual(cache["hit_rate"], cache["hits"] / (cache["hits"] + cache["misses"]))
                        self.assertEqual(cache["moved_bytes"] * cache["places"], cache["moves"] * cache["bytes"])
                    if moves == "fixed":
                        self.assertEqual({r["expert_cache"]["moves"] for r in results}, {0})
        done = run(*SMALL, "--device", "sim:0", "--expert-cache", "512KiB", "-n", 40)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"cache of \d+ experts: [\d.]+ % hits \(\d+ of \d+\), \d+ moves of [\d.]+ MB")
        self.assertTrue(all("expert_cache" not in result for result in self.results(*SMALL, "--device", "sim:0")))

    def test_a_cache_hits_as_often_as_the_routing_lets_it(self):
        # Two layers of 32 experts, 8 of them used: with room for half of the experts, chance hits half of the time.
        shape = ("--layers", 2, "--hidden", 256, "--expert-ff", 256, "--experts", 32, "--vocab", 2048)
        model = ("--synthetic", *shape, "-p", 0, "-n", 600, "-r", 1, "--device", "sim:0")
        whole = self.results(*model, "--expert-cache", "1GiB")[0]["expert_cache"]
        self.assertEqual((whole["places"], whole["hit_rate"]), (64, 1.0))

        def rate(routing, moves):
            options = ("--expert-cache", whole["bytes"] // 2, "--expert-moves", moves, "--routing", routing)
            return self.results(*model, *options)[0]["expert_cache"]["hit_rate"]

        self.assertAlmostEqual(rate("uniform", "fixed"), 0.5, delta=0.04)
        self.assertAlmostEqual(rate("zipf:0", "fixed"), 0.5, delta=0.04)
        self.assertAlmostEqual(rate("uniform", "reproducible"), 0.5, delta=0.06)
        # The cache has the 16 of 32 experts that are used most; their use falls as 1/r^1.5, and the first few are used 0.95 of the time.
        self.assertGreater(rate("zipf:1.5", "reproducible"), 0.8)
        fixed = rate("drift:1.5", "fixed")
        self.assertAlmostEqual(fixed, 0.5, delta=0.1)
        self.assertGreater(rate("drift:1.5", "reproducible"), fixed + 0.05)

    def test_a_routing_or_cache_that_is_none_is_refused(self):
        for options, why in (
            (("--routing", "zipf"), "routing 'zipf' is not uniform, zipf:S or drift:S with S from 0 to 4"),
            (("--routing", "zipf:x"), "routing 'zipf:x' is not"),
            (("--routing", "drift:9"), "routing 'drift:9' is not"),
            (("--routing", "uniform:1"), "routing 'uniform:1' is not"),
            (("--expert-cache", "much", "--device", "sim:0"), "--expert-cache"),
            (("--expert-moves", "often"), "--expert-moves"),
        ):
            with self.subTest(options=options):
                done = run(*SMALL, *options)
                self.assertEqual((done.returncode != 0, done.stdout), (True, ""))
                self.assertIn(why, done.stderr)
        done = run("-m", MODEL, "--routing", "uniform")
        self.assertIn("a model file has routers of its own", done.stderr)

    def test_without_a_device_the_cpu_is_measured(self):
        self.assertEqual({r["device"] for r in self.results(*SMALL)}, {"cpu"})

    def test_operations_are_timed_on_devices_where_asked_for(self):
        for result in self.results(*SMALL, "--device", "sim:0,sim:1", "--operations"):
            shares = result["share_of_time"]
            self.assertTrue(all(share > 0 for share in shares.values()))
            self.assertLess(sum(shares.values()), 1)

    def test_a_mixture_has_the_bytes_of_its_formats(self):
        def bytes_per_token(*formats):
            return self.results(*SMALL, "-n", "0", *formats)[0]["bytes_per_token"]

        q8_0 = bytes_per_token("--experts-format", "Q8_0")
        # 2 layers, 8 experts of 256 x 256 weights; Q8_0 takes 8.5 bits each, IQ2_S 2.5625, IQ3_S 3.4375
        weights = 2 * 8 * 256 * 256
        mixed = bytes_per_token("--experts-format", "IQ2_S,IQ2_S,IQ3_S")
        self.assertEqual(8 * (q8_0 - mixed), weights * (2 * (8.5 - 2.5625) + (8.5 - 3.4375)) / 8)
        # Embedding and head
        head = bytes_per_token("--experts-format", "Q8_0", "--head-format", "Q6_K")
        self.assertEqual(8 * (q8_0 - head), 2 * 256 * 256 * (8.5 - 6.5625) / 8)

    def test_a_depth_can_be_simulated(self):
        for kv in ("F16", "Q8_0"):
            for devices in ("cpu", "sim:0,sim:1"):
                results = self.results(*SMALL, "-d", "1000", "--synthetic-depth", "-k", kv, "--device", devices, "--parallel",
                                       "2")
                self.assertEqual([r["test"] for r in results], ["pp8 @ d1000", "tg2 @ d1000 x2"])

    def test_a_device_that_cannot_be_used_is_an_error(self):
        for device, sim, why in (
            ("sim:7", "", "device sim:7: there are 3 devices"),
            ("sim:2", "", "device sim:2: it is simulated to be too old"),
            ("abacus:0", "", "device abacus:0: no plug-in libminim-abacus.so in "),
            ("sim", "", "'sim' is not a device name"),
            ("sim:0", "memory=1", "bytes for weights needed, 1048576 bytes available"),
            ("sim:0", "failing_operation=100", "sim:0: the device was lost"),
            ("sim:0", "failing_transfer=3", "sim:0: a transfer failed"),
        ):
            with self.subTest(device=device, sim=sim):
                done = run(*SMALL, "-o", "json", "--device", device, sim=sim)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertRegex(done.stderr, "^minim-bench: ")
                self.assertIn(why, done.stderr)


if __name__ == "__main__":
    unittest.main()
