"""The documents that tools/make_documents.py writes are what it would write, and a changed figure is noticed."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MINIM = pathlib.Path(os.environ["MINIM_BUILD"]) / "examples/minim/minim"


def check(root, *args):
    return subprocess.run([sys.executable, root / "tools/make_documents.py", "--check", "--minim", MINIM, *args], capture_output=True, text=True,
                          check=False)


class Documents(unittest.TestCase):
    def test_they_are_what_the_script_writes(self):
        result = check(ROOT)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))

    def test_a_changed_figure_and_an_incomplete_one_are_noticed(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name in ("tools", "docs", "tests/bench/results"):
                shutil.copytree(ROOT / name, root / name)
            path = root / "tests/bench/results/peers-zen4-2-threads.json"
            result = json.loads(path.read_text(encoding="utf-8"))
            result["rows"][0][1] = "9999"
            path.write_text(json.dumps(result), encoding="utf-8")
            changed = check(root, "--page")
            self.assertEqual(changed.returncode, 1)
            self.assertIn("9999", changed.stdout)
            path.write_text(json.dumps(result | {"command": ""}), encoding="utf-8")
            self.assertIn("every figure needs", check(root, "--page").stderr)


if __name__ == "__main__":
    unittest.main()
