# SPDX-License-Identifier: Apache-2.0
import json
import pathlib
import tempfile
import unittest

from support import DATA, MADE_MODELS, Q8_0, errors_of, run

MALFORMED = DATA / "malformed"
CASES = json.loads((MALFORMED / "malformed.json").read_text())


class Inspect(unittest.TestCase):
    def test_a_model_shows_its_metadata_tensors_and_totals(self):
        done = run("inspect", Q8_0)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"(?m)^kind: +gguf$")
        self.assertRegex(done.stdout, rf"(?m)^bytes: +{Q8_0.stat().st_size}$")
        self.assertIn("  general.architecture = minimax-m2\n", done.stdout)
        self.assertRegex(done.stdout, r"(?m)^sampling: +temperature 1, top_p 0\.95, top_k 40 are recommended \(general\.sampling\)$")
        self.assertRegex(done.stdout, r"(?m)^  token_embd\.weight +\[2048, 256\] +Q8_0 +557056$")
        self.assertRegex(done.stdout, r"(?m)^  Q8_0 +23 tensors +6946816 elements +7380992 bytes")

    def test_one_section_can_be_asked_for(self):
        metadata = run("inspect", Q8_0, "--metadata").stdout
        self.assertIn("general.architecture", metadata)
        self.assertNotIn("token_embd.weight", metadata)
        tensors = run("inspect", "--tensors", Q8_0).stdout
        self.assertIn("token_embd.weight", tensors)
        self.assertNotIn("general.architecture", tensors)
        self.assertEqual(run("inspect", "--tensors", "--metadata", Q8_0).stdout, run("inspect", Q8_0).stdout)

    def test_long_values_are_abbreviated_and_stay_on_one_line(self):
        lines = run("inspect", Q8_0, "--metadata").stdout.splitlines()
        self.assertLess(max(map(len, lines)), 300)
        self.assertTrue(
            any(line.startswith("  tokenizer.ggml.tokens = ") and "..." in line for line in lines)
        )

    def test_a_quantised_folder_shows_its_method_groups_and_what_is_left_out(self):
        awq = run("inspect", MADE_MODELS / "minim-tiny-awq").stdout
        self.assertRegex(awq, r"(?m)^  quant_method +awq$")
        self.assertRegex(awq, r"(?m)^  weights +bits 4, group_size 128$")
        self.assertRegex(awq, r"(?m)^  modules_to_not_convert .*gate")
        self.assertNotIn("quantisation", run("inspect", MADE_MODELS / "minim-tiny").stdout)
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for path in (MADE_MODELS / "minim-tiny").iterdir():
                if path.name != "config.json":
                    (folder / path.name).symlink_to(path)
            weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
            group = {"weights": weights, "targets": ["re:.*experts.*"], "format": "pack-quantized"}
            config = json.loads((MADE_MODELS / "minim-tiny" / "config.json").read_text())
            config["quantization_config"] = {
                "quant_method": "compressed-tensors", "config_groups": {"group_0": group},
                "ignore": ["lm_head", "evil\x1b[2J", *(f"m{i}" for i in range(20))],
            }  # fmt: skip
            (folder / "config.json").write_text(json.dumps(config))
            text = run("inspect", folder).stdout
        self.assertRegex(
            text,
            r'(?m)^  group_0 +num_bits 4, type int, strategy group, group_size 32, symmetric true, pack-quantized; of \["re:',
        )
        self.assertRegex(text, r"(?m)^  ignore +lm_head, evil.*m9 and 10 more$")
        self.assertNotIn("\x1b", text)

    def test_a_folder_of_safetensors_is_one_checkpoint(self):
        done = run("inspect", MADE_MODELS / "minim-tiny")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"(?m)^kind: +safetensors$")
        self.assertRegex(done.stdout, r"(?m)^files: +2$")
        self.assertRegex(done.stdout, r"(?m)^  BF16 +99 tensors")

    def test_every_control_is_shown_though_it_is_no_model(self):
        for name in CASES["controls"]:
            with self.subTest(name):
                done = run("inspect", MALFORMED / name)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertRegex(done.stdout, rf"(?m)^kind: +{name.rsplit('.', 1)[1]}$")

    def test_every_malformed_file_is_refused_for_its_reason_on_one_line(self):
        for name, case in {**CASES["files"], **CASES["directories"]}.items():
            with self.subTest(name, why=case.get("why")):
                done = run("inspect", MALFORMED / name)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertEqual(done.stderr.count("\n"), 1)
                reasons = "|".join([case["error"], *case["also"]])
                self.assertRegex(errors_of(done)[0], rf" \(MINIM_E_(FORMAT|IO), ({reasons})\)$")

    def test_a_file_that_is_not_there_is_not_found(self):
        done = run("inspect", "nowhere.gguf")
        self.assertEqual(done.returncode, 1)
        self.assertIn("MINIM_E_NOT_FOUND", errors_of(done)[0])


if __name__ == "__main__":
    unittest.main()
