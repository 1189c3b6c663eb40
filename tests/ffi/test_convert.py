# SPDX-License-Identifier: Apache-2.0
import ctypes as c
import pathlib
import tempfile
import unittest

from support import MADE_MODELS, Q8_0, abi, minim, np, prompt

LAYOUTS = ("bf16", "fp8", "mxfp8", "nvfp4", "nvfp4-ct", "mxfp4-ct", "int4-g32", "int4-g128", "int8")


class Conversions(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_a_copy_has_the_bytes_of_the_file(self):
        report = minim.convert(Q8_0, self.folder / "x.gguf", threads=2)
        self.assertEqual((self.folder / "x.gguf").read_bytes(), pathlib.Path(Q8_0).read_bytes())
        self.assertEqual(report["files"], [{"name": "x.gguf", "bytes": pathlib.Path(Q8_0).stat().st_size, "tensors": 42}])

    def test_a_plan_writes_nothing(self):
        plan = minim.convert(Q8_0, self.folder / "x.gguf", "Q4_K_M", dry_run=True)
        self.assertEqual(list(self.folder.iterdir()), [])
        types = {tensor["name"]: tensor["to"] for tensor in plan["tensors"]}
        self.assertEqual((types["output.weight"], types["blk.1.attn_q.weight"]), ("Q6_K", "Q4_K"))

    def test_options_reach_the_library(self):
        seen = []
        report = minim.convert(
            Q8_0, self.folder / "x.gguf", "q4_0", effort="fast", rules={"attn_v": "q5_1", "attn_q": "q5_0"}, output_type="f16", name="small",
            metadata={"general.author": "me", "general.size_label": None, "minimax-m2.context_length": 2048, "own.flag": True},
            part_tensors=20, progress=seen.append, threads=1,
        )  # fmt: skip
        self.assertEqual([file["tensors"] for file in report["files"]], [20, 20, 2])
        first = str(self.folder / "x-00001-of-00003.gguf")
        with minim.Checkpoint(first) as checkpoint:
            formats = {tensor.name: tensor.format for tensor in checkpoint.tensors}
            metadata = dict(checkpoint.metadata)
        self.assertEqual([formats[f"blk.0.attn_{x}.weight"] for x in "vqk"], ["Q5_1", "Q5_0", "Q4_0"])
        self.assertEqual(formats["output.weight"], "F16")
        self.assertEqual((metadata["general.name"], metadata["general.author"]), ("small", "me"))
        self.assertNotIn("general.size_label", metadata)
        self.assertEqual(str(metadata["minimax-m2.context_length"]), "2048")
        self.assertEqual(str(metadata["own.flag"]).lower(), "true")
        results = [progress.result for progress in seen if progress.result]
        self.assertEqual(len(results), 42)
        self.assertEqual(seen[-1].done_bytes, seen[-1].total_bytes)
        encoded = next(one for one in results if one["name"] == "blk.2.attn_v.weight")
        self.assertTrue(0 < encoded["rmse"] < 0.1)

    def test_a_conversion_that_was_cancelled_goes_on(self):
        class Enough(Exception):
            pass

        def stop(progress):
            if progress.n_done >= 12:
                raise Enough

        wanted, output = self.folder / "a.gguf", self.folder / "b.gguf"
        minim.convert(Q8_0, wanted, "Q8_0", pure=True)
        with self.assertRaises(Enough):
            minim.convert(Q8_0, output, "Q8_0", pure=True, progress=stop)
        self.assertFalse(output.exists())
        cancel = minim.Cancel()
        cancel.trigger()
        with self.assertRaises(abi.Error) as raised:
            minim.convert(Q8_0, output, "Q8_0", pure=True, cancel=cancel)
        self.assertEqual(raised.exception.status, "cancelled")
        report = minim.convert(Q8_0, output, "Q8_0", pure=True)
        self.assertGreaterEqual(report["resumed"], 12)
        self.assertEqual(output.read_bytes(), wanted.read_bytes())

    def logits(self, path):
        with minim.Model(path, backend="cpu", threads=2) as model, model.session(context=256, kv="f32") as session:
            return np.array(session.eval(prompt("chat_capital")["ids"], all_logits=True))

    def test_folders_have_logits_near_the_source(self):
        source = MADE_MODELS / "minim-tiny"
        wanted = self.logits(source)
        for layout in LAYOUTS:
            with self.subTest(layout):
                minim.convert(source, self.folder / layout, layout=layout)
                got = self.logits(self.folder / layout)
                error = float(np.sqrt(((got - wanted) ** 2).mean() / (wanted**2).mean()))
                self.assertLessEqual(error, {"bf16": 0, "int8": 0.02}.get(layout, 0.12))
                self.assertGreaterEqual((got.argmax(-1) == wanted.argmax(-1)).mean(), 0.9)

    def test_a_folder_of_a_gguf_file_has_its_logits(self):
        minim.convert(MADE_MODELS / "minim-tiny-bf16.gguf", self.folder / "f")
        np.testing.assert_array_equal(self.logits(self.folder / "f"), self.logits(MADE_MODELS / "minim-tiny"))
        minim.convert(Q8_0, self.folder / "g", layout="int8", keep_experts=self.kept())
        with minim.Model(self.folder / "g") as model:
            self.assertEqual(model.info.n_expert, 4)
            text = "]~b]user\nHello, wörld 123![e~["
            with minim.Model(Q8_0) as other:
                self.assertEqual(model.tokenize(text), other.tokenize(text))

    def kept(self):
        path = self.folder / "kept.json"
        path.write_text('{"layers": [[0, 1, 2, 3], [1, 2, 3, 4], [4, 5, 6, 7]]}')
        return path

    def test_tensors_of_an_earlier_output_are_reused(self):
        first, second = self.folder / "a.gguf", self.folder / "b.gguf"
        minim.convert(MADE_MODELS / "minim-tiny", first, "Q4_0", pure=True)
        self.assertGreater(minim.convert(MADE_MODELS / "minim-tiny", second, "Q4_0", pure=True, reuse=first)["reused"], 20)
        self.assertEqual(first.read_bytes(), second.read_bytes())

    def test_mistakes_are_refused(self):
        output = self.folder / "x.gguf"
        for arguments, word in (
            ({"recipe": "Q9_K"}, "Q9_K"),
            ({"type": "q4_0"}, "q4_0"),
            ({"recipe": "Q4_0", "type": "f16"}, "both a recipe"),
            ({"recipe": "Q4_0", "rules": ["nothing=q4_0"]}, "nothing=q4_0"),
            ({"output_type": "Q9"}, "output_type"),
            ({"metadata": {"minimax-m2.block_count": 5}}, "minimax-m2.block_count"),
            ({"part_tensors": -1}, "part_tensors"),
            ({"memory": 5}, "5 bytes"),
            ({"layout": "fp8"}, "has no layout"),
            ({"layout": "fp8", "recipe": "fp8", "container": "safetensors"}, "both a recipe"),
            ({"layout": "fp9", "container": "safetensors"}, "fp9"),
            ({"container": "zip"}, "zip"),
            ({"keep_experts": 5}, "importance data"),
            ({"reuse": "nowhere.gguf", "recipe": "Q4_0"}, "nowhere.gguf"),
            ({"imatrix": "nowhere.gguf", "recipe": "Q4_0"}, "nowhere.gguf"),
        ):
            with self.subTest(arguments), self.assertRaises(abi.Error) as raised:
                minim.convert(Q8_0, output, **arguments)
            self.assertIn(word, str(raised.exception))
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_null_arguments_and_other_flags_are_refused(self):
        runtime = minim._Runtime(threads=1)
        out, path = c.c_void_p(), str(Q8_0).encode()
        for arguments in ((None, b"x.gguf", None, None, c.byref(out)), (path, None, None, None, c.byref(out)), (path, b"x.gguf", None, None, None)):
            with self.assertRaises(abi.Error):
                runtime._check("convert", *arguments)
        for field in ("flags", "dry_run", "effort", "pure", "keep_parts"):
            params = abi.ConvertParams()
            setattr(params, field, 7)
            with self.subTest(field), self.assertRaises(abi.Error):
                runtime._check("convert", path, b"x.gguf", c.byref(params), None, c.byref(out))


if __name__ == "__main__":
    unittest.main()
