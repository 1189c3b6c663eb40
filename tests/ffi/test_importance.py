# SPDX-License-Identifier: Apache-2.0
"""Importance data: collected from sessions, saved in both forms, loaded and merged."""

import pathlib
import tempfile
import unittest

from support import BF16, DATA, minim, model, np

STORED = DATA / "importance"


def ids_of_text(model):
    return model.tokenize((STORED / "calibration.txt").read_text(encoding="utf-8"))


class Importance(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name) / "importance.gguf"

    def test_it_is_collected_while_it_is_attached_and_changes_no_logit(self):
        ids = list(range(5, 45))
        with model().session(context=64) as session:
            expected = session.eval(ids)
        with model().importance("a.txt", chunk_size=20, text_hash=5) as importance, model().session(context=64) as session:
            importance.attach(session)
            self.assertTrue(np.array_equal(session.eval(ids), expected))
            importance.detach(session)
            session.truncate(0)
            session.eval(ids)
            data = importance.describe()
            self.assertEqual((data["format"], data["chunks"], data["chunk_size"], data["datasets"]), ("gguf", 2, 20, ["a.txt"]))
            self.assertEqual(data["text_hash"], f"{5:016x}")
            by_name = {tensor["name"]: tensor for tensor in data["tensors"]}
            self.assertEqual(len(by_name), 3 * 7)
            self.assertEqual(by_name["blk.1.attn_q.weight"]["rows"]["most"], 40)
            importance.save(self.path)
        with minim.Importance.load(self.path) as loaded:
            again = loaded.describe()
        self.assertEqual(again, data)

    def test_files_are_merged_and_change_their_form(self):
        with minim.Importance.load(STORED / "small.gguf") as a, minim.Importance.load(STORED / "small.gguf") as b:
            a.merge(b)
            self.assertEqual((a.describe()["chunks"], b.describe()["chunks"]), (4, 2))
            a.save(self.path.with_suffix(".dat"))
            a.save(self.path.with_suffix(".x"), format="dat")
        self.assertEqual(self.path.with_suffix(".dat").read_bytes(), self.path.with_suffix(".x").read_bytes())
        with minim.Importance.load(self.path.with_suffix(".dat")) as older:
            self.assertEqual(older.describe()["format"], "dat")
            with self.assertRaisesRegex(minim.Error, "has no counts"):
                older.save(self.path)
        with minim.Importance.load(self.path.with_suffix(".dat"), chunk_size=4) as older:
            older.save(self.path)

    def test_bad_arguments_are_refused(self):
        with self.assertRaises(minim.MissingFileError):
            minim.Importance.load(self.path)
        with self.assertRaisesRegex(minim.Error, "no importance data"):
            minim.Importance.load(BF16)
        with minim.Importance.load(STORED / "small.gguf") as loaded, model().session(context=64) as session:
            with self.assertRaisesRegex(minim.Error, "collects nothing"):
                loaded.attach(session)
            with self.assertRaises(ValueError):
                loaded.save(self.path, format="json")
            with model(BF16).importance() as other, self.assertRaisesRegex(minim.Error, "another model"):
                other.attach(session)
        with self.assertRaisesRegex(minim.Error, "chunk_size is -1"):
            model().importance(chunk_size=-1)

    def test_it_is_what_numpy_computed(self):
        reference = model(BF16, "reference")
        ids = ids_of_text(reference)
        with reference.importance(chunk_size=256, process_output=True) as importance:
            with reference.session(context=256, kv="f32") as session:
                importance.attach(session)
                for at in range(0, len(ids) - 255, 256):
                    session.truncate(0)
                    session.eval(ids[at : at + 256])
            data = importance.describe()
        with minim.Importance.load(STORED / "tiny.gguf") as stored:
            expected = stored.describe()
        self.assertEqual(data["chunks"], expected["chunks"])
        for a, b in zip(data["tensors"], expected["tensors"]):
            self.assertEqual((a["name"], a["rows"], a["without_data"]), (b["name"], b["rows"], b["without_data"]))
            self.assertAlmostEqual(a["mean"] / b["mean"], 1, delta=1e-3)
            self.assertAlmostEqual(a["max"] / b["max"], 1, delta=1e-3)


if __name__ == "__main__":
    unittest.main()
