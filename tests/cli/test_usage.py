# SPDX-License-Identifier: Apache-2.0
import pathlib
import shutil
import tempfile
import unittest

from support import Q8_0, errors_of, run


class Usage(unittest.TestCase):
    def test_a_command_line_that_cannot_be_understood_exits_with_2(self):
        for arguments in (
            (),
            ("--no-such-option",),
            ("-p", "x"),
            ("-m", Q8_0),
            ("-m", Q8_0, "-p"),
            ("-m", Q8_0, "-p", "x", "-f", "y"),
            ("-m", Q8_0, "-p", "x", "-n", "many"),
            ("-m", Q8_0, "-p", "x", "-n", "-2"),
            ("-m", Q8_0, "-p", "x", "--temp", "-1"),
            ("-m", Q8_0, "-p", "x", "--top-p", "2"),
            ("-m", Q8_0, "-p", "x", "-t", "-2"),
            ("-m", Q8_0, "-p", "x", "-ub", "0"),
            ("-m", Q8_0, "-p", "x", "--numa", "everywhere"),
            ("-m", Q8_0, "-p", "x", "--expand", "maybe"),
            ("-m", Q8_0, "-p", "x", "-tb", "-2"),
            ("-m", Q8_0, "-p", "x", "--backend", "abacus"),
            ("-m", Q8_0, "-p", "x", "-ngl", "-2"),
            ("-m", Q8_0, "-p", "x", "-ts", "1,-1"),
            ("-m", Q8_0, "-p", "x", "--device-memory", "much"),
            ("-m", Q8_0, "-p", "x", "stray"),
            ("-m", Q8_0, "-p", "x", "-ctk", "q9_9"),
            ("-m", Q8_0, "-p", "x", "--cache-type-v", "iq4_nl"),
            ("-m", Q8_0, "-p", "x", "-fa", "maybe"),
            ("-m", Q8_0, "-p", "x", "--flash-attn=maybe"),
            ("devices", "stray"),
            ("inspect",),
            ("inspect", "a", "b"),
            ("tokenize", "-p", "x"),
            ("tokenize", "-m", Q8_0, "-p", "x", "--specials", "some"),
            ("perplexity", "-m", Q8_0),
            ("perplexity", "-m", Q8_0, "-p", "x", "--chunk", "1"),
        ):
            with self.subTest(arguments):
                done = run(*arguments)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertEqual(len(errors_of(done)), 1)
                self.assertEqual(done.stderr.count("\n"), 1)

    def test_a_short_option_that_is_not_known_is_never_read_as_another_with_a_value(self):
        base = ("-m", Q8_0, "-p", "x")
        for arguments, word in (
            (("-nkvo",), "-nkvo: the KV cache of a layer is on its device"),
            (("-np", 4), "minim has no option -np; minim plan, minim-server has"),
            (("-pps",), "-pps"),
            (("-bf", "file"), "-bf: minim has no such option"),
            (("-jk", "schema.json"), "the option -jk is not known"),
            (("-help",), "-help"),
            (("-n=5",), "-n=5"),
            (("-mu", "https://example.org"), "downloads nothing"),
            (("--hf-file=name",), "downloads nothing"),
            (("-no-cnv",), "--raw"),
            (("-md", "draft.gguf"), "draft"),
        ):
            with self.subTest(arguments):
                done = run(*base, *arguments)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertEqual(len(errors_of(done)), 1)
                self.assertIn(word, done.stderr)
        done = run("-pps", "-m", Q8_0)
        self.assertEqual((done.returncode, done.stdout), (2, ""))

    def test_help_names_every_option(self):
        done = run("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for option in (
            "-m",
            "-p",
            "-f",
            "-n",
            "-c",
            "-t",
            "-b",
            "-ub",
            "-tb",
            "--pin-threads",
            "--numa",
            "--mlock",
            "--prefault",
            "--expand",
            "--temp",
            "--top-p",
            "--top-k",
            "--min-p",
            "--repeat-penalty",
            "--seed",
            "--system",
            "--raw",
            "--mmap",
            "--no-mmap",
            "--packed-file",
            "--verbose",
            "--backend",
            "-ctk",
            "-ctv",
            "--device",
            "-ngl",
            "-ts",
            "--allow-cpu",
            "--deterministic",
            "devices",
            "inspect",
            "tokenize",
            "perplexity",
            "imatrix",
            "eval kl",
            "plan",
        ):
            self.assertIn(option, done.stdout)
        evaluations = ("eval kl", "eval choice", "eval compare", "eval needle", "eval tools")
        for command in ("devices", "inspect", "tokenize", "perplexity", "imatrix", "plan", "options", *evaluations):
            done = run(*command.split(), "--help")
            self.assertEqual(done.returncode, 0)
            self.assertIn(f"minim {command}", done.stdout)

    def test_an_error_about_a_long_path_keeps_its_end(self):
        path = "/".join(["x" * 200] * 15)
        done = run("-m", Q8_0, "-f", path)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot read 'xxx", done.stderr)
        self.assertIn("No such file or directory (MINIM_E_NOT_FOUND)", done.stderr)
        done = run("-m", path, "-p", "x")
        self.assertEqual(done.returncode, 1)
        self.assertIn("(MINIM_E_NOT_FOUND)", done.stderr)

    def test_a_file_that_is_read_is_not_written_over(self):
        """The mistake would cost a model: `-o` in place of `-m`."""
        with tempfile.TemporaryDirectory() as folder:
            model, text, link = (pathlib.Path(folder, name) for name in ("model.gguf", "text", "link"))
            shutil.copy(Q8_0, model)
            text.write_text("one two three " * 200)
            link.symlink_to(model)
            questions = pathlib.Path(folder, "q.jsonl")
            questions.write_text('{"question": "a", "options": ["b", "c"], "answer": "A"}\n')
            before = {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}
            for arguments, output in (
                (("imatrix", "-m", model, "-f", text, "-o", model), model),
                (("imatrix", "-m", model, "-f", text, "-o", link), link),
                (("imatrix", "-m", model, "-f", text, "-o", text), text),
                (("eval", "kl", "-m", model, "-f", text, "--save", model), model),
                (("eval", "choice", "-m", model, questions, "-o", questions), questions),
                (("check", model, "--write-sums", model), model),
                (("check", model, "--record", model), model),
                (("convert", model, pathlib.Path(folder, "x.gguf"), "--report", model), model),
            ):
                with self.subTest(arguments[:2], output=output.name):
                    done = run(*arguments)
                    self.assertEqual((done.returncode, done.stdout), (1, ""))
                    self.assertIn(f"minim: error: cannot write '{output}': it is read as '", done.stderr)
            for output, reason in ((pathlib.Path(folder), "it is a folder"), (pathlib.Path(folder, "none", "x"), "there is no folder")):
                done = run("imatrix", "-m", model, "-f", text, "-o", output)
                self.assertEqual(done.returncode, 1)
                self.assertIn(f"cannot write '{output}': {reason}", done.stderr)
            self.assertEqual({path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}, before)

    def test_the_version_is_one_line(self):
        done = run("--version")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"^minim \d+\.\d+\.\d+[^\n]*\n$")


if __name__ == "__main__":
    unittest.main()
