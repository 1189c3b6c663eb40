# SPDX-License-Identifier: Apache-2.0
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from support import DATA, MADE_MODELS, Q8_0, Gguf, errors_of, run

TINY_M3 = DATA / "models" / "minim-tiny-m3"


class Check(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def damaged(self):
        """Returns the path of a copy in which the last tensor has other bytes."""
        data = bytearray(Q8_0.read_bytes())
        data[-1] ^= 1
        path = self.folder / Q8_0.name
        path.write_bytes(data)
        return path

    def test_a_good_model(self):
        done = run("check", Q8_0)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, "checked: headers, configuration, vocabulary, weights, probe\nno faults\n")
        report = json.loads(run("check", "-m", MADE_MODELS / "minim-tiny", "--json").stdout)
        self.assertEqual(report, {"faults": [], "warnings": [], "stages": ["headers", "configuration", "vocabulary", "weights", "probe"]})

    def test_faults_have_an_exit_code_of_their_own(self):
        path = self.folder / "cut.gguf"
        path.write_bytes(Q8_0.read_bytes()[:-1])
        done = run("check", path)
        self.assertEqual((done.returncode, done.stderr), (3, ""))
        lines = done.stdout.splitlines()
        self.assertTrue(lines[1].startswith(f"fault [header] {path}: "), lines)
        self.assertEqual(lines[-1], "1 fault")

    def test_sums_are_those_of_sha256sum(self):
        sums = self.folder / "sums"
        self.assertEqual(run("check", Q8_0, "--quick", "--write-sums", sums).returncode, 0)
        self.assertEqual(subprocess.run(["sha256sum", "-c", sums], cwd=Q8_0.parent, capture_output=True).returncode, 0)
        self.assertEqual(run("check", Q8_0, "--quick", "--sums", sums).returncode, 0)
        done = run("check", self.damaged(), "--quick", "--sums", sums)
        self.assertEqual(done.returncode, 3)
        self.assertIn(f"fault [hash] {Q8_0.name}: has SHA-256 ", done.stdout)

    def test_files_to_compare_with_must_have_something(self):
        empty = self.folder / "empty"
        empty.write_text("\n")
        for option in ("--sums", "--answers"):
            done = run("check", Q8_0, option, empty)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(f"{option}: the file '{empty}' is empty", errors_of(done)[0])

    def test_a_record_is_compared_on_another_cpu(self):
        record = self.folder / "record.json"
        self.assertEqual(run("check", Q8_0, "--record", record).returncode, 0)
        done = run("check", Q8_0, "--answers", record, "-t", 1, env={**os.environ, "MINIM_CPU": "scalar"})
        self.assertEqual((done.returncode, errors_of(done)), (0, []))
        self.assertIn("answers\nno faults\n", done.stdout)

    def test_the_divergence_from_a_reference_over_a_text(self):
        reference, text = MADE_MODELS / "minim-tiny", self.folder / "text"
        text.write_text(pathlib.Path(__file__).read_text(encoding="utf-8"), encoding="utf-8")
        compared = ("check", Q8_0, "--reference", reference, "--text", text)
        report = json.loads(run(*compared, "--json").stdout)
        saved = self.folder / "kl"
        self.assertEqual(run("eval", "kl", "-m", reference, "-f", text, "--save", saved, "--compact").returncode, 0)
        self.assertEqual(report["kl"], json.loads(run("eval", "kl", "-m", Q8_0, "--reference", saved, "--json").stdout))
        self.assertEqual(report["faults"], [])
        self.assertLess(report["kl"]["kl_mean"], 0.1)
        self.assertRegex(run(*compared).stdout, r"KL divergence from the reference over \d+ tokens: mean 0\.0\d+, 99 % 0\.\d+; same top token 9\d\.\d+ %\n")
        text.write_text("short")
        done = run(*compared)
        self.assertEqual((done.returncode, len(errors_of(done))), (1, 1))
        self.assertIn("fewer than a chunk of 512", errors_of(done)[0])
        self.assertEqual(run("check", Q8_0, "--text", text).returncode, 2)
        self.assertEqual(run("check", Q8_0, "--reference", reference, "--text", text, "--quick").returncode, 2)

    def test_a_device_that_computes_wrong_is_found(self):
        simulated = {**os.environ, "MINIM_PLUGIN_PATH": os.environ["MINIM_SIM_FOLDER"]}
        for settings, device in (("devices=1", None), ("devices=1 wrong_products=1", "sim:0")):
            with self.subTest(settings):
                done = run("check", Q8_0, "--machine", "--json", env={**simulated, "MINIM_SIM": settings})
                faults = json.loads(done.stdout)["faults"]
                self.assertEqual((done.returncode, {(fault["class"], fault["tensor"]) for fault in faults}),
                                 (3, {("machine", device)}) if device else (0, set()))
                for fault in faults:
                    self.assertRegex(fault["detail"], r"products of \d+ inputs with rows of \S+ differ by 0?\.\d+ from those of plain code")

    def test_files_of_minimax_m3_are_compared_with_their_folder(self):
        file = self.folder / "m3.gguf"
        self.assertEqual(run("quantize", TINY_M3, file, "Q8_0", "--pure", "--no-hashes").returncode, 0)

        def faults():
            """Without those of the probe: random weights know no text."""
            report = json.loads(run("check", file, "--reference", TINY_M3, "--json").stdout)
            return [fault for fault in report["faults"] if fault["class"] != "probe"]

        self.assertEqual(faults(), [])
        data = bytearray(file.read_bytes())
        names = ["blk.0.ffn_down.weight", "blk.2.ffn_up_shexp.weight", "blk.3.indexer.k_proj.weight"]
        for name in names:
            begin = Gguf(file).tensor_at[name]
            data[begin : begin + 1024] = data[begin + 1024 : begin + 2048]
        file.write_bytes(data)
        self.assertEqual(sorted({fault["tensor"] for fault in faults()}), names)

    def test_errors(self):
        self.assertEqual(run("check").returncode, 2)
        self.assertEqual(run("check", Q8_0, "--quick", "--record", self.folder / "x").returncode, 1)
        self.assertIn("cannot open", errors_of(run("check", self.folder / "none.gguf"))[0])
        done = run("check", Q8_0, "--quick", "--write-sums", self.folder / "none" / "sums")
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write", errors_of(done)[0])


if __name__ == "__main__":
    unittest.main()
