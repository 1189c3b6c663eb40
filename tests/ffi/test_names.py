# SPDX-License-Identifier: Apache-2.0
"""The public names of the package: what `__all__` lists is there, is all of it, and has what the documents name."""

import inspect
import os
import re
import subprocess
import sys
import types
import unittest

from support import PACKAGES, ROOT, minim


def documented():
    """Returns the names that follow "minim." in the Python code of the documents, and those in the table of the package's README."""
    readme = ROOT / "bindings/python/README.md"
    names = set()
    for path in [readme, ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for code in re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            names.update(re.findall(r"\bminim\.([A-Za-z]\w*)", code))
    table = readme.read_text(encoding="utf-8").partition("| name | what it is |\n|---|---|\n")[2].partition("\n\n")[0]
    for row in table.splitlines():
        names.update(name.partition(".")[2] or name for name in re.findall(r"`((?:minim\.)?\w+)", row.split("|")[1]))
    return names


class Names(unittest.TestCase):
    def test_public_names_are_sorted_and_there(self):
        for module in (minim, minim.aio):
            self.assertEqual(module.__all__, sorted(set(module.__all__)))
            for name in module.__all__:
                self.assertFalse(name.startswith("_"), name)
                self.assertTrue(hasattr(module, name), name)
        modules = [name for name in minim.__all__ if isinstance(getattr(minim, name), types.ModuleType)]
        self.assertEqual(modules, ["aio"])

    def test_no_class_or_function_is_forgotten(self):
        for module in (minim, minim.aio):
            made = {name for name, value in vars(module).items() if not name.startswith("_")
                    and (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.partition(".")[0] == "minim"}
            self.assertEqual(made - {"no_copy"} - set(module.__all__), set(), module.__name__)

    def test_what_the_documents_name_is_public(self):
        names = documented()
        self.assertGreater(len(names), 15)
        self.assertEqual(names - set(minim.__all__), set())

    def test_all_names_are_imported_at_once_without_modules(self):
        code = "from minim import *\nimport types\nprint(*sorted(n for n, v in dict(globals()).items() if n[0] != '_' and isinstance(v, types.ModuleType)))"
        done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(PACKAGES)}, capture_output=True, text=True,
                              check=True)
        self.assertEqual(done.stdout.split(), ["aio", "types"])


if __name__ == "__main__":
    unittest.main()
