# SPDX-License-Identifier: Apache-2.0
import errno
import json
import os
import pathlib
import tempfile
import unittest

from support import DATA, MADE_MODELS, Q8_0, load_json, minim, model

MALFORMED = DATA / "malformed"


class Malformed(unittest.TestCase):
    def assert_refused(self, name, case):
        with self.assertRaises(minim.Error) as caught:
            minim.Checkpoint(MALFORMED / name)
        error = caught.exception
        self.assertIn(error.reason, [case["error"], *case["also"]])
        self.assertEqual(error.status, "io" if error.reason == "io" else "format")
        self.assertIsInstance(error.reason, minim.Reason)

    def test_every_malformed_file_is_refused_for_its_reason(self):
        for name, case in load_json("malformed/malformed.json")["files"].items():
            with self.subTest(name, why=case["why"]):
                self.assert_refused(name, case)

    def test_every_folder_with_a_bad_index_is_refused_for_its_reason(self):
        for name, case in load_json("malformed/malformed.json")["directories"].items():
            with self.subTest(name):
                self.assert_refused(name, case)

    def test_every_control_opens(self):
        for name in load_json("malformed/malformed.json")["controls"]:
            with self.subTest(name), minim.Checkpoint(MALFORMED / name) as checkpoint:
                self.assertEqual(checkpoint.file_count, 1)
                self.assertEqual(checkpoint.file_bytes, (MALFORMED / name).stat().st_size)

    def test_a_malformed_file_is_no_model_either(self):
        with self.assertRaises(minim.Error) as caught:
            minim.Model(MALFORMED / "g26_duplicate_tensor.gguf")
        self.assertEqual(caught.exception.reason, "duplicate")
        self.assertEqual(int(caught.exception.status), 4)


class Descriptors(unittest.TestCase):
    def test_an_open_file_is_a_checkpoint_and_a_model(self):
        with open(Q8_0, "rb") as file:
            file.seek(5)
            checkpoint, opened = minim.Checkpoint(file), minim.Model(file.fileno(), threads=1)
            plan = minim.plan(file, context=64, devices=[], host="1GiB,10GB/s")
            self.assertEqual(file.tell(), 5)
        with checkpoint, opened, minim.Checkpoint(Q8_0) as by_path:
            self.assertEqual(checkpoint.tensors, by_path.tensors)
            self.assertEqual(opened.tokenize("Hello"), model().tokenize("Hello"))
            self.assertTrue(plan["fits"])

    def test_an_open_folder_is_a_checkpoint(self):
        descriptor = os.open(MADE_MODELS / "minim-tiny", os.O_RDONLY)
        try:
            checkpoint = minim.Checkpoint(descriptor)
        finally:
            os.close(descriptor)
        with checkpoint, minim.Checkpoint(MADE_MODELS / "minim-tiny") as by_path:
            self.assertEqual(checkpoint.tensors, by_path.tensors)
            self.assertEqual(checkpoint.recommended_sampling, by_path.recommended_sampling)

    def test_what_is_not_open_is_refused(self):
        with self.assertRaises(ValueError):
            minim.Checkpoint(-1)
        ends = os.pipe()
        for descriptor in ends:
            with self.assertRaises(minim.Error) as raised:
                minim.Model(descriptor)
            self.assertEqual(raised.exception.status, minim.Status.IO)
            os.close(descriptor)
        with self.assertRaises(minim.Error) as raised:
            minim.Checkpoint(ends[0])
        self.assertEqual((raised.exception.status, raised.exception.errno), (minim.Status.IO, errno.EBADF))


class Headers(unittest.TestCase):
    def test_metadata_is_a_mapping_of_texts(self):
        with minim.Checkpoint(Q8_0) as checkpoint:
            self.assertEqual(checkpoint.metadata["general.architecture"], "minimax-m2")
            self.assertEqual(checkpoint.metadata["minimax-m2.block_count"], "3")
            self.assertIn("tokenizer.ggml.tokens", checkpoint.metadata)
            self.assertEqual(len(list(checkpoint.metadata)), len(checkpoint.metadata))
            with self.assertRaises(KeyError):
                checkpoint.metadata["no.such.key"]

    def test_tensors_have_their_shapes_outermost_first(self):
        with minim.Checkpoint(Q8_0) as checkpoint:
            tensors = {tensor.name: tensor for tensor in checkpoint.tensors}
            self.assertEqual(tensors["token_embd.weight"].shape, (2048, 256))
            self.assertEqual(tensors["blk.0.ffn_up_exps.weight"].shape, (8, 256, 256))
            self.assertEqual(tensors["blk.0.ffn_up_exps.weight"].format, "Q8_0")
            self.assertEqual(tensors["blk.0.ffn_up_exps.weight"].bytes, 8 * 256 * 256 // 32 * 34)

    def test_split_files_and_folders_are_one_checkpoint(self):
        split = DATA / "models" / "minim-tiny-mix-iq-00002-of-00003.gguf"
        with minim.Checkpoint(split) as checkpoint:
            self.assertEqual(checkpoint.file_count, 3)
            self.assertEqual(len(checkpoint.tensors), 42)
        with minim.Checkpoint(MADE_MODELS / "minim-tiny") as checkpoint:
            self.assertEqual(checkpoint.file_count, 2)
            self.assertEqual({tensor.format for tensor in checkpoint.tensors}, {"BF16", "F32"})

    def test_a_model_gives_the_headers_it_was_loaded_from(self):
        with model().checkpoint() as checkpoint, minim.Checkpoint(Q8_0) as same:
            self.assertEqual(checkpoint.tensors, same.tensors)
            self.assertEqual(dict(checkpoint.metadata), dict(same.metadata))


class RecommendedSampling(unittest.TestCase):
    USUAL = dict(temperature=1.0, top_p=0.95, top_k=40, min_p=0.0, repetition_penalty=1.0, penalty_last_n=-1)

    def recommended(self, config):
        """Returns the recommended sampling of a folder with this generation_config.json (None: without one)."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for file in (MADE_MODELS / "minim-tiny").iterdir():
                if file.name != "generation_config.json":
                    (folder / file.name).symlink_to(file)
            if config is not None:
                (folder / "generation_config.json").write_text(config if isinstance(config, str) else json.dumps(config))
            with minim.Checkpoint(folder) as checkpoint:
                return checkpoint.recommended_sampling._asdict()

    def test_a_folder_says_it_in_generation_config(self):
        for config, expected in (
            ({"temperature": 0.6, "top_p": 0.9, "top_k": 20, "min_p": 0.05, "repetition_penalty": 1.1, "do_sample": True},
             dict(temperature=0.6, top_p=0.9, top_k=20, min_p=0.05, repetition_penalty=1.1)),
            ({"do_sample": False, "temperature": 0.7}, dict(temperature=0.0)),
            ({"top_k": 0}, dict(top_k=0)),
            ({"temperature": "hot", "top_p": 7, "top_k": None, "min_p": 0.1}, dict(min_p=0.1)),
        ):
            with self.subTest(config):
                self.assertEqual(self.recommended(config), {**self.USUAL, **expected, "source": "generation_config.json"})
        for config in (None, {}, {"eos_token_id": 5}, {"temperature": -1}):
            with self.subTest(config):
                self.assertEqual(self.recommended(config), {**self.USUAL, "source": ""})
        for text in ("[]", "{"):
            with self.subTest(text), self.assertRaises(minim.Error) as caught:
                self.recommended(text)
            self.assertEqual(caught.exception.status, "format")

    def test_a_gguf_file_says_it_in_its_metadata(self):
        with minim.Checkpoint(Q8_0) as checkpoint:
            recommended = checkpoint.recommended_sampling
        self.assertEqual(recommended, (40, 1.0, 0.95, 0.0, 1.0, -1, "general.sampling"))

    def test_it_is_what_a_temperature_of_none_means(self):
        options = dict(max_tokens=24, seed=5, ignore_end=1)
        answers = []
        for how in (dict(temperature=None), dict(temperature=1.0, top_p=0.95, top_k=40),
                    dict(temperature=None, top_k=1), dict(temperature=0.0)):
            with model().session(context=128) as session:
                answers.append([token.id for token in session.generate([20, 21, 22], **options, **how)])
        self.assertEqual(answers[0], answers[1])
        self.assertEqual(answers[2], answers[3])
        self.assertNotEqual(answers[0], answers[3])


class Parameters(unittest.TestCase):
    def test_weights_are_counted_however_they_are_stored(self):
        folders = [path for path in MADE_MODELS.iterdir() if path.is_dir()]
        self.assertGreaterEqual(len(folders), 4)
        for path in (Q8_0, *folders):
            with self.subTest(path.name), minim.Model(path, threads=1) as opened:
                self.assertEqual(opened.info.n_parameters, 6957080)


if __name__ == "__main__":
    unittest.main()
