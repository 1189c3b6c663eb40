# SPDX-License-Identifier: Apache-2.0
import os
import tempfile
import unittest

from support import Q8_0, errors_of, run

QUESTION = ("-m", Q8_0, "-p", "What is the capital of France?", "--temp", 0)
ANSWER = "The user asks for the capital of France.\n</think>\n\nThe capital of France is Paris.\n"


def run_with(plugins, *arguments, **settings):
    environment = {**os.environ, "MINIM_PLUGIN_PATH": str(plugins), **settings}
    return run(*arguments, env=environment)


class Devices(unittest.TestCase):
    """tests/sim as a plug-in: devices sim:0 ... that the CPU simulates."""

    plugins = os.environ["MINIM_SIM_FOLDER"]

    def test_the_list_says_what_there_is_and_why_something_is_not_usable(self):
        done = run_with(self.plugins, "devices", MINIM_SIM="devices=1 memory=512")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = done.stdout.splitlines()
        self.assertRegex(lines[0], r"^cpu +\d+ cores, .* GiB free$")
        self.assertIn("sim:0    simulated accelerator, 0.5 GiB, 0.5 GiB free", lines)
        self.assertIn("sim:1    simulated accelerator, not usable: it is simulated to be too old", lines)
        done = run_with(self.plugins, "devices", MINIM_SIM="devices=1 memory=512 unified=1")
        self.assertIn("sim:0    simulated accelerator, 0.5 GiB (the host's), 0.5 GiB free", done.stdout.splitlines())

    def test_a_plug_in_that_cannot_be_loaded_is_in_the_list(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "libminim-broken.so"), "w") as file:
                file.write("no library")
            done = run_with(folder, "devices")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"(?m)^broken +not usable: .*libminim-broken.so cannot be loaded: ")

    def test_layers_go_where_they_are_asked_to_and_the_answer_is_the_same(self):
        for options, placement in (
            (("--device", "sim:0"), "sim:0 (layers 0-2)"),
            (("-dev", "sim:0,sim:1"), "sim:0 (layers 0-1), sim:1 (layer 2)"),
            (("--device", "sim:0,sim:1", "-ts", "1,2"), "sim:0 (layer 0), sim:1 (layers 1-2)"),
            (("--device", "sim:1", "-ngl", 1), "cpu (layers 0-1), sim:1 (layer 2)"),
            (("--device", "sim:1", "-ngl", 0), "cpu (layers 0-2)"),
            (("--device", "cpu,sim:0", "-ts", "2,1"), "cpu (layers 0-1), sim:0 (layer 2)"),
            (("-ngl", 99), "sim:0 (layers 0-1), sim:1 (layer 2)"),
            ((), "sim:0 (layers 0-1), sim:1 (layer 2)"),
            (("--device", "none"), "cpu (layers 0-2)"),
            (("--device", "sim:0", "--gpu-memory-utilization", "0.9"), "sim:0 (layers 0-2)"),
            (("--device", "sim:0", "--cpu-offload-gb", "0.0023"), "sim:0 (layers 0-2), cpu (experts of layer 0)"),
            (("--device", "sim:0", "--cpu-offload-gb", "5"), "sim:0 (layers 0-2), cpu (experts of layers 0-2)"),
            (("--device", "sim:0", "--cpu-moe"), "sim:0 (layers 0-2), cpu (experts of layers 0-2)"),
            (("--device", "sim:0", "-ot", "exps=CPU"), "sim:0 (layers 0-2), cpu (experts of layers 0-2)"),
            (("-ngl", 99, "-ncmoe", 2), "sim:0 (layers 0-1), sim:1 (layer 2), cpu (experts of layers 0-1)"),
            (("--n-cpu-moe", -1), "sim:0 (layer 0), sim:1 (layers 1-2), cpu (experts of layer 2)"),
            (("--device", "sim:0", "-ngl", 2, "--cpu-moe"), "cpu (layer 0, experts of layers 1-2), sim:0 (layers 1-2)"),
            (
                ("--device", "sim:0", "-ot", r"blk\.(1|2)\..*exps=sim:1", "-ot", "exps=cpu"),
                "sim:0 (layers 0-2), cpu (experts of layer 0), sim:1 (experts of layers 1-2)",
            ),
            (("--device", "sim:0", "--fit-ctx", 4096), "sim:0 (layers 0-2)"),
        ):
            with self.subTest(options):
                done = run_with(self.plugins, *QUESTION, *options, "--verbose")
                self.assertEqual((done.returncode, done.stdout), (0, ANSWER))
                self.assertIn(f"{Q8_0}: {placement}\n", done.stderr)

    def test_the_summary_says_what_each_device_holds(self):
        done = run_with(self.plugins, *QUESTION, "--device", "sim:0", "-ngl", 2, "--mmap")
        size = r"\d+\.\d MiB"
        cpu, sim = done.stderr.splitlines()[-2:]
        self.assertRegex(
            cpu,
            rf"^memory:     cpu: layers 0-0, weights {size} \(experts {size}; mapped\), KV {size}, work {size}, free ",
        )
        self.assertRegex(
            sim, rf"^            sim:0: layers 1-2, weights {size} \(experts {size}\), KV {size}, work {size}, free "
        )

    def test_the_summary_says_whose_experts_lie_elsewhere_and_what_crosses_for_a_token(self):
        done = run_with(self.plugins, *QUESTION, "--device", "sim:0", "--n-cpu-moe", 2, "--mmap")
        size = r"\d+\.\d MiB"
        sim, cpu = done.stderr.splitlines()[-2:]
        # A token's stream has 256 numbers (1024 bytes), its routing two experts (16 bytes); for two layers: 2 * 1024 bytes in, 2 * (1024 + 16) out.
        self.assertRegex(
            sim,
            rf"^memory:     sim:0: layers 0-2, experts of 1, weights {size} \(experts {size}\), KV {size}, work {size}, "
            r"free .*, a token brings 2\.0 KiB and takes 2\.0 KiB$",
        )
        self.assertRegex(
            cpu,
            rf"^            cpu: experts of 2 layers, weights {size} \(experts {size}; mapped\), KV 0.0 MiB, .*, a token "
            r"brings 2\.0 KiB and takes 2\.0 KiB$",
        )

    def test_rules_for_experts_that_make_no_sense_are_refused(self):
        for options, why in (
            (("-ot", "expz=cpu"), "-ot expz=cpu: no tensor has such a name"),
            (("-ot", "exps"), "-ot 'exps' is not of the form PATTERN=DEVICE"),
            (("-ot", "exps=sim:9"), "device sim:9: there are 3 devices"),
            (("-ot", "ffn_gate=cpu"), "blk.0.ffn_gate_inp.weight stays on sim:0 with its layer"),
            (("--device-memory", "1MiB", "--fit-ctx", 4096), "budget of 1048576 bytes"),
        ):
            with self.subTest(options):
                done = run_with(self.plugins, *QUESTION, "--device", "sim:0", *options)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertIn(why, errors_of(done)[0])
        done = run_with(self.plugins, *QUESTION, "--device", "sim:0", "--cpu-moe", "--n-cpu-moe", 1)
        self.assertEqual(done.returncode, 2)

    def test_a_device_with_the_host_s_memory_refuses_options_by_their_names(self):
        for options, why in (
            (("--cpu-moe",), "--cpu-moe keeps experts on the CPU, but sim:0 shares the host's memory"),
            (("-ncmoe", 3), "-ncmoe (3) keeps experts on the CPU, but sim:0"),
            (("--cpu-offload-gb", 1), "--cpu-offload-gb keeps experts on the CPU, but sim:0"),
            (("-ot", "exps=CPU"), "-ot exps=CPU keeps experts on the CPU, but sim:0"),
            (("--expert-cache", "1MiB"), "--expert-cache (1048576) asks for a cache of experts, but sim:0"),
        ):
            with self.subTest(options):
                done = run_with(self.plugins, *QUESTION, "--device", "sim:0", *options, MINIM_SIM="devices=1 memory=512 unified=1")
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                [error] = errors_of(done)
                self.assertTrue(error.startswith(f"minim: error: {why}"), error)
                self.assertEqual("fewer layers on the device are possible (-ngl)" in error, "--expert-cache" not in options, error)

    def test_a_device_gives_no_more_than_it_is_asked_for(self):
        done = run_with(self.plugins, *QUESTION, "--device", "sim:0,sim:1", "--device-memory", "128MiB,64MiB")
        self.assertEqual((done.returncode, done.stdout), (0, ANSWER))
        self.assertRegex(done.stderr, r"sim:0: .* free \d+\.\d MiB of a budget of 128\.0 MiB, a token ")
        self.assertRegex(done.stderr, r"sim:1: .* free \d+\.\d MiB of a budget of 64\.0 MiB, a token ")
        done = run_with(self.plugins, *QUESTION, "--device", "sim:0", "--device-memory", "2MB")
        self.assertEqual(done.returncode, 1)
        self.assertIn("of the budget of 2000000 bytes are used (MINIM_E_OUT_OF_DEVICE_MEMORY)", errors_of(done)[0])
        done = run_with(self.plugins, *QUESTION, "--device", "sim:0", "--device-memory", "1GiB,1GiB")
        self.assertIn("2 budgets for 1 devices", errors_of(done)[0])

    def test_a_missing_device_is_an_error_unless_the_cpu_is_allowed(self):
        for device, why in (
            ("sim:7", "device sim:7: there are 3 devices"),
            ("sim:2", "device sim:2: it is simulated to be too old"),
            ("abacus:0", "device abacus:0: no plug-in libminim-abacus.so in "),
        ):
            with self.subTest(device):
                done = run_with(self.plugins, *QUESTION, "--device", device)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertIn(why, errors_of(done)[0])
                done = run_with(self.plugins, *QUESTION, "--device", device, "--allow-cpu")
                self.assertEqual((done.returncode, done.stdout), (0, ANSWER))
                self.assertIn(why, done.stderr)
        done = run_with(self.plugins, *QUESTION, "--device", "sim")
        self.assertIn("'sim' is not a device name", errors_of(done)[0])
        with tempfile.TemporaryDirectory() as empty:
            for words, name in (
                (("-ngl", 5), "-ngl"),
                (("-ot", "exps=cpu"), "-ot"),
                (("--cpu-moe",), "--cpu-moe"),
                (("-ts", "3,1"), "-ts"),
                (("--expert-cache", "1MiB"), "--expert-cache"),
                (("--gpu-memory-utilization", 0.9, "--cpu-offload-gb", 1), "--device-memory, --cpu-offload-gb"),
            ):
                done = run_with(empty, *QUESTION, *words)
                self.assertEqual(done.returncode, 1)
                self.assertIn(f"error: {name}: only the CPU is usable", errors_of(done)[0])
                done = run_with(empty, *QUESTION, *words, "--allow-cpu")
                self.assertEqual(done.stdout, ANSWER)
                self.assertIn(f"minim: note: {name} ha", done.stderr)
            for words in ((), ("-ngl", -1), ("-ngl", "all"), ("--device", "auto"), ("--device", "none")):
                self.assertEqual(run_with(empty, *QUESTION, *words).stdout, ANSWER)

    def test_shares_that_make_no_sense_are_refused(self):
        done = run_with(self.plugins, *QUESTION, "--device", "sim:0,sim:1", "-ts", "1,2,3")
        self.assertIn("3 shares of the layers for 2 devices", errors_of(done)[0])
        done = run_with(self.plugins, *QUESTION, "--device", "sim:0,sim:1", "-ts", "0,0")
        self.assertIn("add up to 0", errors_of(done)[0])

    def test_a_device_that_fails_or_is_too_small_ends_the_program_with_its_name(self):
        for settings, why, status in (
            ("memory=1", "bytes available", "MINIM_E_OUT_OF_DEVICE_MEMORY"),
            ("failing_transfer=3", "sim:0: a transfer failed", "MINIM_E_DEVICE_LOST"),
            ("failing_operation=100", "sim:0: the device was lost", "MINIM_E_DEVICE_LOST"),
        ):
            with self.subTest(settings):
                done = run_with(self.plugins, *QUESTION, "--device", "sim:0", MINIM_SIM=settings)
                self.assertEqual(done.returncode, 1)
                self.assertIn(why, errors_of(done)[0])
                self.assertIn(status, errors_of(done)[0])


if __name__ == "__main__":
    unittest.main()
