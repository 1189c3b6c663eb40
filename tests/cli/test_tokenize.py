# SPDX-License-Identifier: Apache-2.0
import json
import pathlib
import tempfile
import unittest

from support import DATA, Q8_0, run


class Tokenize(unittest.TestCase):
    def test_ids_are_the_golden_ones(self):
        cases = json.loads((DATA / "tokenizer" / "golden.json").read_text())
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "text"
            for case in cases[::20]:
                path.write_bytes(case["text"].encode())
                with self.subTest(case["text"][:40]):
                    done = run("tokenize", "-m", Q8_0, "-f", path, "--ids")
                    self.assertEqual([int(id) for id in done.stdout.split()], case["ids"])
                    done = run("tokenize", "-m", Q8_0, "-f", path, "--ids", "--specials", "none")
                    self.assertEqual([int(id) for id in done.stdout.split()], case["ids_no_added_tokens"])

    def test_pieces_stand_beside_their_ids_with_control_characters_escaped(self):
        done = run("tokenize", "-m", Q8_0, "-p", "a\n[e~[\x1b")
        self.assertEqual(done.returncode, 0)
        pieces = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
        self.assertEqual([piece for _, piece in pieces], ['"a"', '"\\n"', '"[e~["', '"\\x1b"'])

    def test_an_empty_text_has_no_tokens(self):
        done = run("tokenize", "-m", Q8_0, "-p", "")
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_the_safe_mode_recognises_no_control_tokens(self):
        safe = run("tokenize", "-m", Q8_0, "-p", "[e~[<think>", "--ids", "--specials", "safe").stdout.split()
        self.assertNotIn("2004", safe)
        self.assertIn("2034", safe)


if __name__ == "__main__":
    unittest.main()
