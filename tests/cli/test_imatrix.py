# SPDX-License-Identifier: Apache-2.0
"""minim imatrix: collecting, going on, merging, showing. tests/unit and tests/ffi compare the figures with those of NumPy."""

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

from support import DATA, MADE_MODELS, PROGRAM, Q8_0, errors_of, run

STORED = DATA / "importance"
TEXT = STORED / "calibration.txt"
BF16 = MADE_MODELS / "minim-tiny-bf16.gguf"


def shown(path):
    done = run("imatrix", "--show", path, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Imatrix(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def ok(self, *arguments):
        done = run("imatrix", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def assert_close(self, a, b, tolerance):
        self.assertEqual([tensor["name"] for tensor in a["tensors"]], [tensor["name"] for tensor in b["tensors"]])
        for one, other in zip(a["tensors"], b["tensors"]):
            self.assertEqual({key: one[key] for key in ("columns", "matrices", "without_data")},
                             {key: other[key] for key in ("columns", "matrices", "without_data")})
            for key in ("mean", "max"):
                self.assertLessEqual(abs(one[key] - other[key]), tolerance * abs(other[key]), (one["name"], key))

    def test_a_text_gives_the_stored_data_in_both_forms(self):
        for name in ("tiny.gguf", "tiny.dat"):
            out = self.folder / name
            done = self.ok("-m", BF16, "-f", TEXT, "--chunk", 256, "--process-output", "--backend", "reference", "-o", out)
            self.assertEqual((done.stdout, done.stderr), ("", ""))
            got, stored = shown(out), shown(STORED / name)
            self.assertEqual({key: got[key] for key in ("format", "datasets", "chunks", "chunk_size")},
                             {key: stored[key] for key in ("format", "datasets", "chunks", "chunk_size")})
            self.assert_close(got, stored, 2e-3)

    def test_devices_give_the_data_of_the_cpu(self):
        simulated = {**os.environ, "MINIM_PLUGIN_PATH": os.environ["MINIM_SIM_FOLDER"], "MINIM_SIM": "devices=2 memory=512"}
        for number, model in enumerate((Q8_0, DATA / "models" / "minim-tiny-m3")):
            given = ("-m", model, "-f", TEXT, "--chunk", 64, "--chunks", 2)
            expected, out = self.folder / f"cpu{number}.gguf", self.folder / f"sim{number}.gguf"
            self.ok(*given, "-o", expected)
            for where in (("--device", "sim:0"), ("--device", "sim:0,sim:1", "-ub", 7), ("--device", "sim:0", "--cpu-moe")):
                done = run("imatrix", *given, *where, "-o", out, env=simulated)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(out.read_bytes(), expected.read_bytes())
        done = run("imatrix", *given, "--device", "sim:0", "--expert-cache", "1MiB", "-o", out, env=simulated)
        self.assertEqual(done.returncode, 1)
        self.assertIn("not collected with a cache of experts yet: use --expert-cache 0", errors_of(done)[0])

    def test_show_prints_one_object_or_a_table(self):
        data = shown(STORED / "small.gguf")
        self.assertEqual(set(data), {"format", "datasets", "chunks", "chunk_size", "tensors"})
        self.assertEqual((data["format"], data["chunks"], data["chunk_size"]), ("gguf", 2, 4))
        self.assertEqual(set(data["tensors"][0]), {"name", "columns", "matrices", "without_data", "mean", "max"})
        down = data["tensors"][1]
        self.assertEqual((down["name"], down["without_data"], down["max"]), ("blk.0.ffn_down_exps.weight", 1, 13))
        self.assertIsNone(shown(STORED / "small.dat")["chunk_size"])
        for file in ("small.gguf", "small.dat"):
            done = run("imatrix", "--show", STORED / file)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("blk.0.ffn_down_exps.weight", done.stdout)

    def test_files_are_merged_and_converted(self):
        both, older = self.folder / "both.gguf", self.folder / "older.dat"
        self.ok("--in-file", STORED / "small.gguf", "--in-file", STORED / "small.gguf", "-o", both)
        self.assertEqual(shown(both)["chunks"], 4)
        self.assert_close(shown(both), shown(STORED / "small.gguf"), 1e-6)
        self.ok("--in-file", both, "-o", older)
        self.assertEqual(shown(older)["format"], "dat")
        done = run("imatrix", "--in-file", older, "-o", self.folder / "x.gguf")
        self.assertEqual(done.returncode, 1)
        self.assertIn("chunk size", errors_of(done)[0])
        self.ok("--in-file", older, "--chunk", 4, "-o", self.folder / "x.gguf")
        self.ok("--in-file", older, "-o", self.folder / "y", "--output-format", "dat")
        self.assertEqual((self.folder / "y").read_bytes(), older.read_bytes())

    def test_a_run_goes_on_behind_the_chunks_of_its_file(self):
        whole, part = self.folder / "whole.gguf", self.folder / "part.gguf"
        common = ("-m", Q8_0, "-f", TEXT, "--chunk", 128)
        self.ok(*common, "-o", whole)
        self.ok(*common, "-o", part, "--chunks", 5)
        self.assertEqual(shown(part)["chunks"], 5)
        done = self.ok(*common, "-o", part, "--resume")
        self.assertIn(f"resuming: 5 of {shown(whole)['chunks']} chunks are done", done.stderr)
        self.assertEqual(shown(part)["chunks"], shown(whole)["chunks"])
        self.assert_close(shown(part), shown(whole), 1e-5)
        for changed, what in ((("--chunk", 64), "size of chunks"), (("--chunk", 128, "-m", BF16), "model"),
                              (("--chunk", 128, "-f", DATA / "golden" / "perplexity.txt"), "text")):
            done = run("imatrix", *common, *changed, "-o", part, "--resume")
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"is from another {what} (MINIM_E_INVALID)", errors_of(done)[0])
        done = run("imatrix", *common, "-o", part, "--resume", "--process-output")
        self.assertIn("--process-output must be as it was (MINIM_E_INVALID)", errors_of(done)[0])
        done = self.ok(*common, "-o", self.folder / "new.gguf", "--resume", "--chunks", 1)
        self.assertIn("starting with the first chunk", done.stderr)

    def test_ctrl_c_leaves_a_file_to_go_on_with(self):
        text, out = self.folder / "long.txt", self.folder / "long.gguf"
        text.write_text(TEXT.read_text(encoding="utf-8") * 40, encoding="utf-8")
        command = [PROGRAM, *map(str, ("imatrix", "-m", Q8_0, "-f", text, "--chunk", 64, "--save-frequency", 1, "-o", out))]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, encoding="utf-8")
        deadline = time.monotonic() + 60
        while not out.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 130, errors)
        self.assertIn("the same command with --resume goes on", errors)
        n_done = shown(out)["chunks"]
        done = self.ok(*command[2:], "--resume", "--chunks", n_done + 2)
        self.assertIn(f"resuming: {n_done} of ", done.stderr)
        self.assertEqual(shown(out)["chunks"], n_done + 2)
        self.assertEqual(os.listdir(self.folder).count("long.gguf"), 1)

    def test_samples_are_texts_and_conversations(self):
        samples, out = self.folder / "samples.jsonl", self.folder / "s.gguf"
        lines = [{"text": "Paris is the capital of France. " * 40},
                 {"messages": [{"role": "user", "content": "What is the capital of France?"}]},
                 {"messages": [{"role": "user", "content": "Weather?"}], "tools": [
                     {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]}]
        samples.write_text("\n".join(map(json.dumps, lines)) + "\n\n", encoding="utf-8")
        self.ok("-m", Q8_0, "--samples", samples, "--chunk", 100, "-o", out)
        self.assertEqual(shown(out)["datasets"], ["samples.jsonl"])
        samples.write_text('{"text": "x"}\n{"messages": 3', encoding="utf-8")
        done = run("imatrix", "-m", Q8_0, "--samples", samples, "-o", out)
        self.assertEqual(done.returncode, 1)
        self.assertIn("line 2", errors_of(done)[0])

    def test_experts_with_few_rows_are_named(self):
        done = self.ok("-m", Q8_0, "-f", TEXT, "--chunk", 16, "--chunks", 1, "-o", self.folder / "few.gguf")
        self.assertRegex(done.stderr, r"blk\.0: \d of 8 experts have fewer than 16 rows, the least \d+: (about|more than) \d+ more chunks")

    def test_lines_that_cannot_be_meant_are_refused(self):
        for arguments, what in (
            ((), "-o is required"),
            (("-o", "x"), "-m is required"),
            (("-m", Q8_0, "-o", "x"), "-f or --samples is required"),
            (("-m", Q8_0, "-f", TEXT), "-o is required"),
            (("-m", Q8_0, "-f", TEXT, "--samples", "s", "-o", "x"), "--samples excludes"),
            (("-m", Q8_0, "-f", TEXT, "-o", "x.dat", "--resume"), "--resume needs a GGUF file"),
            (("-m", Q8_0, "-f", TEXT, "-o", "x", "--resume", "--in-file", "y"), "--resume excludes --in-file"),
            (("--show", "x", "-m", Q8_0), "--show excludes"),
            (("-m", Q8_0, "-f", TEXT, "-o", "x", "--json"), "--json needs --show"),
        ):
            done = run("imatrix", *arguments)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(what, done.stderr)
        small = STORED / "small.gguf"
        merged = self.ok("--in-file", small, "-o", self.folder / "y.gguf", "--process-output", "--resume", "--chunks", 1)
        shown_data = self.ok("--show", small, "--chunk", 4)
        for done, options in ((merged, ("--process-output", "--resume", "--chunks")), (shown_data, ("--chunk",))):
            for option in options:
                self.assertIn(f"minim: note: {option} has no effect", done.stderr)
        done = run("imatrix", "-m", Q8_0, "-p", "short", "-o", self.folder / "x.gguf")
        self.assertEqual(done.returncode, 1)
        self.assertIn("fewer than a chunk of 512 (MINIM_E_INVALID)", errors_of(done)[0])
        done = run("imatrix", "--show", TEXT)
        self.assertEqual(done.returncode, 1)
        self.assertIn("MINIM_E_FORMAT", errors_of(done)[0])


if __name__ == "__main__":
    unittest.main()
