# SPDX-License-Identifier: Apache-2.0
"""tools/checks: each finds a fault that is planted in a small project, and nothing in one without."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECKS = ROOT / "tools" / "checks"
SKIPPED = 77


class Planted(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def run_check(self, name, *args):
        result = subprocess.run([sys.executable, CHECKS / f"{name}.py", "--root", self.root, *args], capture_output=True, text=True,
                                check=False)
        if result.returncode == SKIPPED:
            self.skipTest(result.stdout.strip())
        self.assertEqual(result.stderr, "")
        return result

    def passes(self, name, *args):
        result = self.run_check(name, *args)
        self.assertEqual((result.returncode, result.stdout), (0, ""))

    def finds(self, name, *expected, args=()):
        result = self.run_check(name, *args)
        self.assertEqual(result.returncode, 1, result.stdout)
        for text in expected:
            self.assertIn(text, result.stdout)
        return result.stdout.strip().split("\n")


class Links(Planted):
    def test_a_dead_link_and_a_dead_anchor(self):
        self.write("docs/page.md", "# A page\n\n## What it says: `code`, twice\n")
        self.write("README.md", "[page](docs/page.md) [part](docs/page.md#what-it-says-code-twice) [web](https://example.org/x)\n")
        self.passes("links")
        self.write("README.md", "text\n[page](docs/pages.md)\n[part](docs/page.md#what-it-said)\n[own](#here)\n")
        lines = self.finds("links", "README.md:2: link to docs/pages.md", "README.md:3: link to docs/page.md#what-it-said",
                           "README.md:4: link to #here")
        self.assertEqual(len(lines), 3)

    def test_links_in_code_are_none(self):
        self.write("README.md", "`[a](b.md)`\n\n```\n[c](d.md)\n```\n")
        self.passes("links")


class Tables(Planted):
    def test_a_long_cell(self):
        self.write("README.md", f"| a | b |\n|---|---|\n| {'x' * 120} | [{'y' * 20}]({'z' * 200}) |\n\n{'w' * 500}\n")
        self.passes("tables")
        self.write("README.md", f"| a | b |\n|---|---|\n| {'x' * 121} | y |\n")
        self.finds("tables", "README.md:3: a cell of 121 characters")


class Words(Planted):
    def test_old_words_of_every_kind_of_file(self):
        self.write("README.md", "Loads the keys\nand values.\n")
        self.write("lib/kv/a.h", "// What is a\n// memory node? The yard is no stick.\nint processor;\n")
        self.write("lib/kv/b.cpp", 'void f() { fail("the processor has no room"); }\n')
        self.write("examples/a.py", 'def f():\n    """Returns the yardstick."""\n    return "x"  # by guess\n')
        self.write("CMakeLists.txt", 'option(A "Several memory nodes" ON) # set aside\n')
        lines = self.finds("words", "README.md:1: 'keys and values'", "lib/kv/a.h:2: 'memory node'",
                           "lib/kv/b.cpp:1: 'the processor'", "examples/a.py:2: 'yardstick'", "examples/a.py:3: 'guess'",
                           "CMakeLists.txt:1: 'memory nodes'", "CMakeLists.txt:1: 'set aside'")
        self.assertEqual(len(lines), 7)

    def test_code_is_not_prose(self):
        self.write("lib/kv/a.cpp", "int yardstick = guess(held);  // the CPU, `held`; with no lock held; queries, keys and values\n")
        self.write("README.md", "The KV cache, `keys and values`.\n\n```\nkeys and values\n```\n")
        self.passes("words")

    def test_a_word_over_two_lines_of_a_comment(self):
        self.write("lib/kv/a.h", "// Bytes of the keys\n// and values.\n")
        self.finds("words", "lib/kv/a.h:1: 'keys and values'")


class Spdx(Planted):
    def test_a_missing_line_is_found_and_added(self):
        names = {"a.cpp": "int a;\n", "b.py": '#!/usr/bin/env python3\n"""Doc."""\n', "c.c": "int c;\n", "CMakeLists.txt": "project(x)\n",
                 "run.sh": "#!/bin/sh\ntrue\n"}
        for name, text in names.items():
            self.write(name, text)
        self.write("data/x.py", "data\n")
        self.assertEqual(len(self.finds("spdx", *names)), len(names))
        result = self.run_check("spdx", "--fix")
        self.assertEqual((result.returncode, result.stdout), (0, f"{len(names)} files changed\n"))
        self.assertEqual((self.root / "b.py").read_text().split("\n")[:2], ["#!/usr/bin/env python3", "# SPDX-License-Identifier: Apache-2.0"])
        self.assertTrue((self.root / "c.c").read_text().startswith("/* SPDX-License-Identifier: Apache-2.0 */\n"))
        self.passes("spdx")


class Format(Planted):
    def test_a_format_error(self):
        shutil.copy(ROOT / ".clang-format", self.root)
        self.write("a.cpp", "int main() {\n    return 0;\n}\n")
        self.passes("format")
        self.write("b.cpp", "int  main( ) { return 0; }\n")
        self.finds("format", "b.cpp:1:")


class LintPython(Planted):
    def test_an_unused_import(self):
        shutil.copy(ROOT / "ruff.toml", self.root)
        self.write("a.py", "import json\n\nprint(json.dumps(1))\n")
        self.passes("lint_python")
        self.write("b.py", "import json\n")
        self.finds("lint_python", "b.py:1:", "F401")


class Tidy(Planted):
    def git(self, *args):
        subprocess.run(["git", "-C", self.root, "-c", "user.name=t", "-c", "user.email=t@t", *args], check=True, capture_output=True)

    def test_only_the_changed_file_is_checked(self):
        if shutil.which("git") is None or shutil.which("clang-tidy") is None:
            self.skipTest("git or clang-tidy is missing")
        shutil.copy(ROOT / ".clang-tidy", self.root)
        bad = "int* find() {\n    return 0;\n}\n"
        files = [self.write("old.cpp", bad), self.write("new.cpp", "int* find() {\n    return nullptr;\n}\n")]
        commands = [{"directory": str(self.root), "file": str(file), "command": f"c++ -std=c++20 -c {file}"} for file in files]
        self.write("build/compile_commands.json", json.dumps(commands))
        self.git("init", "-q", "-b", "main")
        self.git("add", "old.cpp", "new.cpp")
        self.git("commit", "-q", "-m", "first")
        self.git("commit", "-q", "-m", "second", "--allow-empty")
        self.passes("tidy", "--build", str(self.root / "build"))
        self.write("new.cpp", bad)
        lines = self.finds("tidy", "new.cpp:2:", "modernize-use-nullptr", args=("--build", str(self.root / "build")))
        self.assertEqual(len(lines), 1)


if __name__ == "__main__":
    unittest.main()
