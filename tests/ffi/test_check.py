# SPDX-License-Identifier: Apache-2.0
"""minim.check: the stored models have no faults, and each fault that is planted in a copy of one is found, by its class and tensor."""

import json
import pathlib
import re
import struct
import tempfile
import unittest

from support import BF16, DATA, MADE_MODELS, MIX_IQ, Q8_0, Gguf, minim


def found(report):
    return {(fault["class"], fault["tensor"]) for fault in report["faults"]}


class StoredModels(unittest.TestCase):
    def test_the_stored_models_have_no_faults(self):
        folders = [MADE_MODELS / name for name in ("minim-tiny", "minim-tiny-fp8", "minim-tiny-nvfp4", "minim-tiny-awq")]
        for path in [Q8_0, BF16, MIX_IQ, *sorted((DATA / "models").glob("*.gguf")), *folders]:
            if re.search(r"-0000[2-9]-of-", str(path)):
                continue
            with self.subTest(path.name):
                report = minim.check(path, threads=2)
                self.assertEqual(report["faults"], [])
                self.assertEqual(report["stages"], ["headers", "configuration", "vocabulary", "weights", "probe"])

    def test_a_quick_check_reads_no_weights(self):
        report = minim.check(Q8_0, quick=True)
        self.assertEqual(report["stages"], ["headers", "configuration", "vocabulary"])
        with self.assertRaisesRegex(minim.Error, "computes nothing"):
            minim.check(Q8_0, quick=True, want_answers=True)

    def test_a_file_with_hashes_is_read_once(self):
        """Hashes and numbers come from the same bytes: a file with hashes costs no more reads than one without."""

        def read_bytes(path):
            before = int(re.search(r"rchar: (\d+)", pathlib.Path("/proc/self/io").read_text())[1])
            stages = minim.check(path, threads=2)["stages"]
            return int(re.search(r"rchar: (\d+)", pathlib.Path("/proc/self/io").read_text())[1]) - before, stages

        if not pathlib.Path("/proc/self/io").exists():
            self.skipTest("this system does not count the bytes that a process reads")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "x.gguf")
            minim.convert(MADE_MODELS / "minim-tiny", path, type="q8_0")
            plain = path.with_name("plain.gguf")
            minim.convert(MADE_MODELS / "minim-tiny", plain, type="q8_0", hashes=False)
            (with_hashes, stages), (without, plain_stages) = read_bytes(path), read_bytes(plain)
        self.assertEqual(stages, ["headers", "configuration", "vocabulary", "hashes", "weights", "probe"])
        self.assertEqual(plain_stages, ["headers", "configuration", "vocabulary", "weights", "probe"])
        self.assertGreater(without, 7_000_000)
        self.assertLess(with_hashes, 1.05 * without)

    def test_files_of_every_number_of_types_have_no_fault(self):
        """general.file_type is the recipe's, or that of what rules have made of all matrices."""
        with tempfile.TemporaryDirectory() as folder:
            path, all_matrices = pathlib.Path(folder, "x.gguf"), r"attn_|exps|output\.weight|token_embd"
            for recipe, options, number in (
                ("IQ2_M", {"pure": True}, 29),
                ("Q4_0", {"rules": [f"{all_matrices}=iq2_s"]}, 28),
                ("Q4_0", {"rules": [f"{all_matrices}=iq2_xs"]}, 20),
                ("Q4_K_M", {"rules": [f"{all_matrices}=q8_0"]}, 7),
                ("Q4_K_M", {"rules": ["exps=q8_0"]}, 15),
            ):
                with self.subTest(recipe, **options):
                    minim.convert(MADE_MODELS / "minim-tiny", path, recipe, effort="fast", without_importance=True, overwrite=True, **options)
                    self.assertEqual(minim.Checkpoint(path).metadata["general.file_type"], str(number))
                    self.assertEqual(minim.check(path, quick=True)["faults"], [])

    def test_the_machine_computes_right(self):
        for path in (Q8_0, MIX_IQ, MADE_MODELS / "minim-tiny-nvfp4"):
            with self.subTest(path.name):
                report = minim.check(path, machine=True, threads=2)
                self.assertEqual(report["faults"], [])
                self.assertEqual(report["stages"][-1], "machine")


class PlantedFaults(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.file = pathlib.Path(self.folder.name) / "model.gguf"
        self.data = bytearray(Q8_0.read_bytes())
        self.gguf = Gguf(Q8_0)

    def put(self, at, form, *values):
        struct.pack_into(form, self.data, at, *values)

    def check(self, **options):
        self.file.write_bytes(self.data)
        return minim.check(self.file, threads=2, **options)

    def test_numbers_that_are_none(self):
        self.put(self.gguf.tensor_at["blk.2.attn_q.weight"], "<H", 0x7E00)  # the scale of the first block
        self.put(self.gguf.tensor_at["blk.1.ffn_norm.weight"] + 8, "<f", float("inf"))
        report = self.check()
        self.assertEqual(found(report), {("nan", "blk.2.attn_q.weight"), ("nan", "blk.1.ffn_norm.weight")})
        details = {fault["tensor"]: fault["detail"] for fault in report["faults"]}
        self.assertIn("row 0, column 0", details["blk.2.attn_q.weight"])
        self.assertIn("infinity in row 0, column 2", details["blk.1.ffn_norm.weight"])
        self.assertNotIn("probe", report["stages"])

    def test_configurations_of_no_released_model(self):
        values = self.gguf.value_at
        self.put(values["minimax-m2.rope.freq_base"], "<f", 1e4)
        self.put(values["minimax-m2.attention.layer_norm_rms_epsilon"], "<f", 1e-5)
        self.put(values["general.file_type"], "<I", 15)
        self.assertEqual(
            {tensor for kind, tensor in found(self.check(quick=True)) if kind == "config"},
            {"minimax-m2.rope.freq_base", "minimax-m2.attention.layer_norm_rms_epsilon", "general.file_type"},
        )

    def test_more_experts_used_than_there_are(self):
        self.put(self.gguf.value_at["minimax-m2.expert_used_count"], "<I", 99)
        report = self.check()
        self.assertEqual({kind for kind, _ in found(report)}, {"config"})
        self.assertEqual(report["stages"], ["headers"])

    def test_vocabularies(self):
        where = self.gguf.value_at["tokenizer.ggml.pre"]
        self.data[where + 8] = ord("x")
        self.put(self.gguf.value_at["tokenizer.ggml.eos_token_id"], "<I", 5)
        merge = self.gguf.text_at("tokenizer.ggml.merges", 7)
        self.data[merge + 8 : merge + 9] = b"\x01"  # a stand-in that no token has
        faults = found(self.check(quick=True))
        self.assertIn(("tokenizer", "tokenizer.ggml.pre"), faults)
        self.assertIn(("tokenizer", "merges"), faults)
        self.data = bytearray(Q8_0.read_bytes())
        self.put(self.gguf.value_at["tokenizer.ggml.eos_token_id"], "<I", 5)
        self.assertEqual(found(self.check(quick=True)), {("tokenizer", "eos_token_id")})

    def test_markup_and_template(self):
        where = self.data.index(b"<minimax:tool_call>", self.gguf.text_at("tokenizer.ggml.tokens", 0))
        self.data[where + 1] = ord("M")
        self.assertEqual(found(self.check(quick=True)), {("tokenizer", "<minimax:tool_call>")})
        self.data = bytearray(Q8_0.read_bytes())
        at = self.gguf.value_at["tokenizer.chat_template"] + 8
        self.data[at : at + 4] = b"{% x"
        self.assertEqual(found(self.check(quick=True)), {("tokenizer", "chat_template")})

    def test_experts_and_matrices_of_a_wrong_size(self):
        checkpoint = minim.Checkpoint(Q8_0)
        sizes = {tensor.name: tensor.bytes for tensor in checkpoint.tensors}
        name, matrix = "blk.1.ffn_up_exps.weight", "blk.0.attn_k.weight"
        at, size = self.gguf.tensor_at[name], sizes[name] // 8
        self.data[at + 3 * size : at + 4 * size] = bytes(size)
        for block in range(self.gguf.tensor_at[matrix], self.gguf.tensor_at[matrix] + sizes[matrix], 34):
            (scale,) = struct.unpack_from("<e", self.data, block)
            self.put(block, "<e", scale * 40)
        report = self.check()
        self.assertLessEqual({("range", name), ("range", matrix)}, found(report))
        self.assertIn("expert 3 is zero", [fault["detail"] for fault in report["faults"]])

    def test_a_cut_file_is_a_fault_of_its_header(self):
        del self.data[-100:]
        self.assertEqual({kind for kind, _ in found(self.check())}, {"header"})
        with self.assertRaises(minim.Error):
            minim.check(self.file.with_name("none.gguf"))

    def test_tensors_with_other_bytes_than_their_hashes(self):
        source = self.file.with_name("source.gguf")
        minim.convert(MADE_MODELS / "minim-tiny", source, type="q8_0")
        self.data, self.gguf = bytearray(source.read_bytes()), Gguf(source)
        self.assertEqual(self.check()["faults"], [])
        places = [self.gguf.tensor_at["blk.1.ffn_up_exps.weight"] + 70_001, self.gguf.tensor_at["blk.2.attn_norm.weight"], len(self.data) - 33]
        for at in places:
            self.data[at] ^= 1
        last = max(self.gguf.tensor_at, key=self.gguf.tensor_at.get)
        wanted = {("hash", "blk.1.ffn_up_exps.weight"), ("hash", "blk.2.attn_norm.weight"), ("hash", last)}
        self.assertEqual(found(self.check()), wanted)
        self.assertLessEqual(found(self.check(quick=True)), wanted)
        self.assertIn(("hash", "blk.2.attn_norm.weight"), found(self.check(quick=True)))

    def test_files_are_compared_with_sums(self):
        sums = self.check(quick=True, want_sums=True)["sums"]
        self.assertRegex(sums, r"^[0-9a-f]{64}  model\.gguf\n$")
        self.assertEqual(self.check(quick=True, sums=sums)["faults"], [])
        self.data[-1] ^= 1
        self.assertEqual(found(self.check(quick=True, sums=sums)), {("hash", "model.gguf")})
        self.assertEqual(found(self.check(quick=True, sums="")), {("hash", "model.gguf")})
        with self.assertRaisesRegex(minim.Error, "line 1 of the sums"):
            self.check(quick=True, sums="nonsense")

    def test_answers_are_compared_with_a_record(self):
        answers = self.check(want_answers=True)["answers"]
        positions = json.loads(answers)["positions"]
        self.assertEqual([len(position) for position in positions], [5] * 64)
        self.assertEqual(self.check(answers=answers)["faults"], [])
        wrong = json.loads(answers)
        first = wrong["positions"][3]
        first[0][0], first[1][0] = first[1][0], first[0][0]
        first[0][1] = -0.001
        report = self.check(answers=json.dumps(wrong))
        self.assertEqual({kind for kind, _ in found(report)}, {"answers"})
        for text in ("{", "{}", '{"positions": []}'):
            with self.subTest(text), self.assertRaises(minim.Error):
                self.check(answers=text)

    def test_experts_that_were_exchanged(self):
        name = "blk.2.ffn_down_exps.weight"
        size = {tensor.name: tensor.bytes for tensor in minim.Checkpoint(Q8_0).tensors}[name] // 8
        at = self.gguf.tensor_at[name]
        second, fifth = at + 2 * size, at + 5 * size
        parts = self.data[second : second + size], self.data[fifth : fifth + size]
        self.data[second : second + size], self.data[fifth : fifth + size] = parts[1], parts[0]
        report = self.check(reference=BF16)
        self.assertEqual(
            [fault for fault in report["faults"] if fault["class"] == "reference"],
            [{"class": "reference", "tensor": name, "detail": "experts 2 and 5 are exchanged"}],
        )
        self.assertEqual(minim.check(Q8_0, reference=BF16)["faults"], [])
        self.assertEqual(minim.check(MIX_IQ, reference=BF16)["faults"], [])


if __name__ == "__main__":
    unittest.main()
