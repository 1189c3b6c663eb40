# SPDX-License-Identifier: Apache-2.0
"""Runs the code blocks of README, CONTRIBUTING and docs/: C and C++ are compiled, linked and run with the bundled model, Python and shell run as a
reader runs them, from the root of the project.

Blocks run in a folder of their own with links to the project's files, and with the headers of a 229B checkpoint under the name that README uses.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import snippets

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["MINIM_BUILD"])
MODEL = "examples/models/minim-tiny-q8_0.gguf"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "examples/README.md", ROOT / "apps/README.md"])
PROGRAMS = {"minim": "apps/minim/minim", "minim-server": "apps/server/minim-server", "minim-bench": "tests/bench/minim-bench"}
SECONDS = 300


def all_blocks():
    return [block for page in PAGES for block in snippets.blocks(page.relative_to(ROOT), page.read_text(encoding="utf-8"))]


class Snippets(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        for path in ROOT.iterdir():
            if path.name not in ("build", ".git"):
                (cls.folder / path.name).symlink_to(path)
        (cls.folder / "build").mkdir()
        (cls.folder / "build" / "release").symlink_to(BUILD)
        make_headers = ROOT / "tests/placement/make_headers.py"
        subprocess.run([sys.executable, make_headers, "MiniMax-M2.5-IQ4_XS.gguf", "--types", "_exps=IQ4_XS,.=Q8_0", "--parts", "3"],
                       cwd=cls.folder, check=True, capture_output=True)
        cls.environment = {**os.environ, "MINIM_LIBRARY": str(BUILD / "libminim.so"), "LD_LIBRARY_PATH": str(BUILD), "LC_ALL": "C.UTF-8",
                           "PYTHONPATH": str(ROOT / "bindings/python")}  # as if the package were installed
        cls.blocks = all_blocks()

    def run_command(self, command, block, **more):
        result = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=SECONDS, check=False,
                                **more)
        self.assertEqual(result.returncode, 0, f"{block}\n{block.code}\n{result.stdout[-2000:]}\n{result.stderr[-4000:]}")
        return result

    def of(self, *languages):
        found = [block for block in self.blocks if block.language in languages and block.mark not in ("not run", "part of")]
        self.assertTrue(found, f"no page has a block of {languages}")
        return found

    def test_every_block_is_of_a_language_that_is_run(self):
        self.assertEqual([fault for page in PAGES for fault in snippets.faults(page.relative_to(ROOT), page.read_text(encoding="utf-8"))], [])

    def test_c_and_cpp_compile_link_and_answer(self):
        compilers = {"c": ["cc", "-std=c99"], "cpp": ["c++", "-std=c++17"]}
        for block in self.of("c", "cpp"):
            with self.subTest(str(block)):
                self.assertTrue(block.mark == "calls" or " main(" in block.code, "it has no main(): say what it <!-- calls: -->")
                main = "" if block.mark != "calls" else f"\nint main(int argc, char** argv) {{ (void)argc; return {block.text}; }}\n"
                source = self.folder / f"snippet.{block.language}"
                source.write_text(block.code + main, encoding="utf-8")
                self.run_command([*compilers[block.language], "-Wall", "-Wextra", "-Werror", "-I", ROOT / "include", source, "-L", BUILD, "-lminim",
                                  "-o", self.folder / "snippet"], block)
                result = self.run_command([self.folder / "snippet", MODEL], block)
                self.assertEqual(result.stderr, "", str(block))

    def test_parts_of_files_are_lines_of_these(self):
        parts = [block for block in self.blocks if block.mark == "part of"]
        self.assertTrue(parts)
        for block in parts:
            with self.subTest(str(block)):
                self.assertTrue(snippets.is_part(block.code, (ROOT / block.text).read_text(encoding="utf-8")), f"{block} is no part of {block.text}")

    def test_python_runs(self):
        for block in self.of("python"):
            with self.subTest(str(block)):
                self.run_command([sys.executable, "-W", "error", "-"], block, input=block.code)

    def test_shell_runs(self):
        for block in self.of("sh"):
            with self.subTest(str(block)):
                self.run_command(["sh", "-eu", "-c", block.code], block)

    def test_json_is_valid(self):
        for block in self.blocks:
            if block.language == "json":
                with self.subTest(str(block)):
                    json.loads(block.code)

    def test_the_getting_started_page_of_rust_shows_the_example(self):
        shown = [block.code for block in self.blocks if block.page.as_posix() == "docs/start/rust.md" and block.language == "rust"]
        licence, _, example = (ROOT / "bindings/rust/minim/examples/answer.rs").read_text(encoding="utf-8").partition("\n")
        self.assertIn("SPDX-License-Identifier", licence)
        self.assertEqual(shown, [example])

    def help_of(self, words):
        """Returns what the program of a command says with --help, if it is one of the project's, else None."""
        name = pathlib.Path(words[0]).name
        if name not in PROGRAMS and name != "compare_peers.py":
            return None
        program = [sys.executable, ROOT / "tests/bench/compare_peers.py"] if name.endswith(".py") else [BUILD / PROGRAMS[name]]
        if not pathlib.Path(program[-1]).exists():
            return None
        n_words = 2 if words[1:2] == ["eval"] else 1 if words[1:2] and re.fullmatch("[a-z]+", words[1]) else 0
        command = [*program, *words[1 : 1 + n_words]]
        result = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=SECONDS, check=False)
        return result.stdout if result.returncode == 0 else ""

    def test_blocks_that_do_not_run_name_options_and_files_that_exist(self):
        n_checked = 0
        for block in self.blocks:
            if block.language != "sh" or block.mark != "not run":
                continue
            for words in snippets.commands(block.code):
                with self.subTest(str(block), command=" ".join(words)):
                    help_text = self.help_of(words)
                    if help_text is not None:
                        self.assertEqual(snippets.unknown_options(words[1:], help_text), [])
                        n_checked += 1
                    elif re.match(r"(tools|tests|apps|examples|\.ci)/", words[0]):
                        self.assertTrue(os.access(ROOT / words[0], os.X_OK), f"{words[0]} is no program")
                    elif "/" not in words[0] and words[0] in ("cmake", "ctest") and "--preset" in words:
                        presets = json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))["configurePresets"]
                        self.assertIn(words[words.index("--preset") + 1], [preset["name"] for preset in presets])
        self.assertGreater(n_checked, 5)


class PlantedFaults(unittest.TestCase):
    """The test finds what it is for."""

    def test_broken_snippets_fail(self):
        broken = {"c": "int main(void) { return minim_nothing(); }\n", "python": "import minim_nothing\n", "sh": "minim-nothing --help\n"}
        suite = Snippets("test_shell_runs")
        for language, code in broken.items():
            with self.subTest(language), tempfile.TemporaryDirectory() as folder:
                suite.folder, suite.environment = pathlib.Path(folder), dict(os.environ)
                suite.blocks = [snippets.Block(pathlib.Path("page.md"), 1, language, code)]
                test = {"c": suite.test_c_and_cpp_compile_link_and_answer, "python": suite.test_python_runs, "sh": suite.test_shell_runs}[language]
                with self.assertRaises(AssertionError):
                    self.without_subtests(suite, test)

    @staticmethod
    def without_subtests(suite, test):
        class NoSubTest:
            def __enter__(self):
                return self

            def __exit__(self, *exception):
                return False

        suite.subTest = lambda *args, **kwargs: NoSubTest()
        test()

    def test_indented_blocks_and_lost_marks_are_found(self):
        page = pathlib.Path("page.md")
        self.assertEqual(snippets.faults(page, "text\n\n```c\nint a;\n```\n"), [])
        self.assertEqual(len(snippets.faults(page, "text\n\n    minim --help\n\nmore\n")), 1)
        self.assertEqual(len(snippets.faults(page, "<!-- not run: because -->\n\ntext\n")), 1)
        self.assertEqual(len(snippets.faults(page, "```java\nint a;\n```\n")), 1)

    def test_lines_that_a_file_does_not_have_are_found(self):
        text = "int f() {\n    if (a ||\n        b)\n        return 1;\n}\n"
        self.assertTrue(snippets.is_part("if (a ||\n    b)\n", text))
        self.assertFalse(snippets.is_part("if (a ||\n    c)\n", text))
        self.assertFalse(snippets.is_part("if (a ||\n    return 1;\n", text))

    def test_options_that_do_not_exist_are_found(self):
        words = snippets.commands("minim -m x --device 'cuda:0' --no-such -n -1 # --comment\n")[0]
        self.assertEqual(snippets.unknown_options(words[1:], "  -m,--model  also -n\n --device"), ["--no-such"])


if __name__ == "__main__":
    if shutil.which("cc") is None:
        sys.exit(77)
    unittest.main()
