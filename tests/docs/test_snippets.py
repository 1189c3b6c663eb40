# SPDX-License-Identifier: Apache-2.0
"""Runs the code blocks of the documents: C and C++ are compiled, linked and run with the bundled model, Python and shell run as a reader runs
them, from the root of the project. A server that a block starts runs at a free port until the block's end.

Blocks run in a folder of their own with links to the project's files, and with the headers of a 229B checkpoint under the name that README uses.
Of blocks that are not run, the commands that need the bundled model alone are run; options, tests, targets and scripts of the others must exist.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

import snippets

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/checks"))
import project  # noqa: E402

BUILD = pathlib.Path(os.environ["MINIM_BUILD"])
MODEL = "examples/models/minim-tiny-q8_0.gguf"
PAGES = [ROOT / path for path in project.files(ROOT, {".md"})]
PROGRAMS = {"minim": "apps/minim/minim", "minim-server": "apps/server/minim-server", "minim-bench": "tests/bench/minim-bench"}
NOT_EVERYWHERE = ("curl", "mpirun", "pkg-config")  # programs of others in shell blocks
SECONDS = 300
WAIT = """
import sys, time, urllib.request
for attempt in range(600):
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/ready")
        break
    except OSError:
        time.sleep(0.1)
else:
    sys.exit("the server is not ready")
"""


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
                           "PYTHONPATH": str(ROOT / "bindings/python"),  # as if the package were installed
                           # Ranks also start as root, and on machines of one core.
                           "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
        cls.blocks = all_blocks()

    def run_command(self, command, block, **more):
        result = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=SECONDS, check=False,
                                **more)
        self.assertEqual(result.returncode, 0, f"{block}\n{block.code}\n{result.stdout[-2000:]}\n{result.stderr[-4000:]}")
        return result

    def run_shell(self, code, block):
        """Runs a shell block, or skips it if a program of others is missing. Its server, if it starts one, has a free port."""
        missing = [program for program in NOT_EVERYWHERE if re.search(rf"(^|\(){program} ", code, re.MULTILINE) and shutil.which(program) is None]
        if missing:
            self.skipTest(f"{missing[0]} is missing")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        wait = shlex.join([sys.executable, "-c", WAIT, str(port)])
        home = 'mkdir -p home\nexport HOME="$PWD/home"\n'
        return self.run_command(["sh", "-eu", "-c", home + snippets.with_server(code, port, wait)], block)

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
                launcher = block.text.split() if block.mark == "launched by" else []
                if launcher and shutil.which(launcher[0]) is None:
                    self.skipTest(f"{launcher[0]} is missing")
                source = self.folder / "snippet.py"
                source.write_text(block.code, encoding="utf-8")
                self.run_command([*launcher, sys.executable, "-W", "error", source], block)

    def test_shell_runs(self):
        for block in self.of("sh"):
            with self.subTest(str(block)):
                self.run_shell(block.code, block)

    def test_commands_with_the_bundled_model_run_in_blocks_that_are_not_run(self):
        n_run = 0
        for block in self.blocks:
            if block.language != "sh" or block.mark != "not run":
                continue
            for line in block.code.split("\n"):
                if re.match(r"minim(-server)? .*-m examples/models/\S+\.gguf", line):
                    with self.subTest(str(block), line=line):
                        self.run_shell(re.sub("^minim(?:-server)?", lambda match: f"build/release/{PROGRAMS[match[0]]}", line), block)
                    n_run += 1
        self.assertGreater(n_run, 1)

    def test_toml_is_valid(self):
        try:
            import tomllib  # from Python 3.11 on
        except ImportError:
            self.skipTest("this Python has no tomllib")
        for block in self.blocks:
            if block.language == "toml":
                with self.subTest(str(block)):
                    tomllib.loads(block.code)

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
        """Returns what the program of a command says with --help, if it is one of the project's that has such a text, else None."""
        name = pathlib.Path(words[0]).name
        script = ROOT / words[0]
        if name in PROGRAMS:
            program = [BUILD / PROGRAMS[name]]
        elif name.endswith(".py") and script.exists() and "argparse" in script.read_text(encoding="utf-8"):
            program = [sys.executable, script]
        else:
            return None
        if not pathlib.Path(program[-1]).exists():
            return None
        n_words = 2 if words[1:2] == ["eval"] else 1 if name in PROGRAMS and words[1:2] and re.fullmatch("[a-z]+", words[1]) else 0
        command = [*program, *words[1 : 1 + n_words]]
        result = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=SECONDS, check=False)
        return result.stdout if result.returncode == 0 else ""

    def faults_of(self, words):
        """Returns what a command names that does not exist: options, scripts and their arguments, presets, tests, targets; None if it was not
        checked."""
        help_text = self.help_of(words)
        if help_text is not None:
            return snippets.unknown_options(words[1:], help_text)
        if re.match(r"(tools|tests|apps|examples|\.ci)/", words[0]) and words[0].endswith((".sh", ".py", "/run")):
            path = ROOT / words[0]
            if not os.access(path, os.X_OK):
                return [f"{words[0]} is no program"]
            if path.name == "install_packages.sh":
                return []
            # Words of the text, as `asan`, names of tests beside a script that runs them, or names of checks. "work" is a folder to be made.
            text = path.read_text(encoding="utf-8")
            return [word for word in words[1:] if re.fullmatch("[a-z]+", word) and word != "work"
                    and word not in text and not (path.parent / f"{word}.py").exists() and not (ROOT / f"tools/checks/{word}.py").exists()]
        if words[0] in ("cmake", "ctest") and "--preset" in words:
            presets = json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))["configurePresets"]
            preset = words[words.index("--preset") + 1]
            return [] if preset in [known["name"] for known in presets] else [preset]
        if words[0] == "ctest":
            options = [word for word in words[1:] if word not in ("--test-dir", "build/release")]
            listed = subprocess.run(["ctest", "--test-dir", BUILD, "-N", *options], capture_output=True, text=True, timeout=SECONDS, check=False)
            return [] if re.search(r"^Total Tests: [1-9]", listed.stdout, re.MULTILINE) else words[1:]
        if words[0] == "ninja" and (BUILD / "build.ninja").exists():
            # Sanitized copies are there with MINIM_FULL_TESTS alone.
            targets = [word for word in words[1:] if word not in ("-C", "build/release") and not word.endswith(("_asan", "_tsan"))]
            known = subprocess.run(["ninja", "-C", BUILD, "-t", "query", *targets], capture_output=True, text=True, timeout=SECONDS, check=False)
            return targets if known.returncode else []
        return None

    def test_blocks_that_do_not_run_name_what_exists(self):
        n_checked = 0
        for block in self.blocks:
            if block.language != "sh" or block.mark != "not run":
                continue
            for words in snippets.commands(block.code):
                with self.subTest(str(block), command=" ".join(words)):
                    faults = self.faults_of(words)
                    if faults is not None:
                        self.assertEqual(faults, [])
                        n_checked += 1
        self.assertGreater(n_checked, 50)


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

    def test_a_server_that_a_block_starts_is_asked_and_ends(self):
        code = "minim-server -m x.gguf  # a comment\ncurl http://127.0.0.1:8080/v1/models\n"
        lines = snippets.with_server(code, 1234, "wait").split("\n")
        self.assertEqual(lines[0], "minim-server -m x.gguf  --port 1234 2> server.log &")
        self.assertIn("curl http://127.0.0.1:1234/v1/models", lines)
        self.assertEqual(lines[-1], 'wait "$server"')
        self.assertEqual(snippets.with_server("minim-server --help\n", 1234, "wait"), "minim-server --help\n")

    def test_names_that_do_not_exist_are_found(self):
        suite = Snippets("test_shell_runs")
        self.assertEqual(suite.faults_of(["tests/run.sh", "unheardof"]), ["unheardof"])
        self.assertEqual(suite.faults_of(["tests/run.sh", "asan"]), [])
        self.assertEqual(suite.faults_of(["tests/nothing.sh"]), ["tests/nothing.sh is no program"])
        self.assertEqual(suite.faults_of(["tests/speed_gate.py", "--nothing"]), ["--nothing"])
        self.assertEqual(suite.faults_of(["cmake", "--preset", "nothing"]), ["nothing"])
        self.assertTrue(suite.faults_of(["ctest", "-R", "^nothing$"]))
        if (BUILD / "build.ninja").exists():
            self.assertEqual(suite.faults_of(["ninja", "no_such_target"]), ["no_such_target"])

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
