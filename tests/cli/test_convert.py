# SPDX-License-Identifier: Apache-2.0
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from support import DATA, PROGRAM, Q8_0, MADE_MODELS, Gguf, errors_of, run

FOLDER = MADE_MODELS / "minim-tiny"


class Convert(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.output = self.folder / "x.gguf"

    def done(self, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def refused(self, code, words, *arguments):
        """Runs the program, which refuses the arguments with one line, and writes nothing."""
        before = sorted(self.folder.rglob("*"))
        done = run(*arguments)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        self.assertEqual(len(errors_of(done)), 1, done.stderr)
        for word in [words] if isinstance(words, str) else words:
            self.assertIn(word, errors_of(done)[0])
        self.assertEqual(sorted(self.folder.rglob("*")), before)

    def test_a_copy_has_the_bytes_of_the_file(self):
        done = self.done("convert", Q8_0, self.output)
        self.assertEqual(self.output.read_bytes(), Q8_0.read_bytes())
        self.assertIn("x.gguf: 7489824 bytes, 42 tensors", done.stdout)
        self.assertEqual(list(self.folder.iterdir()), [self.output])

    def test_parts_come_from_one_file_and_become_it_again(self):
        self.done("convert", Q8_0, self.output, "--split-max-tensors", 20)
        parts = [self.folder / f"x-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
        self.assertEqual(sorted(self.folder.iterdir()), parts)
        keys = list(Gguf(parts[0]).metadata)
        self.assertEqual(keys[-3:], ["split.no", "split.tensors.count", "split.count"])
        self.assertEqual(Gguf(parts[2]).metadata, {"split.no": (2, 2), "split.tensors.count": (5, 42), "split.count": (2, 3)})
        self.done("convert", parts[1], self.folder / "whole.gguf")
        self.assertEqual((self.folder / "whole.gguf").read_bytes(), Q8_0.read_bytes())
        report = json.loads(self.done("convert", Q8_0, self.folder / "y.gguf", "--split-max-size", "2M", "--json").stdout)
        sizes = [file["bytes"] for file in report["files"]]
        self.assertGreater(len(sizes), 3)
        self.assertEqual(sizes, [(self.folder / file["name"]).stat().st_size for file in report["files"]])
        self.done("convert", parts[0], self.folder / "z.gguf", "--keep-split")
        for part in parts:
            self.assertEqual(part.read_bytes(), (self.folder / part.name.replace("x-", "z-")).read_bytes())
        self.done("convert", Q8_0, self.folder / "e.gguf", "--split-max-tensors", 40, "--no-tensor-first-split")
        self.assertEqual(Gguf(self.folder / "e-00001-of-00003.gguf").tensors, {})

    def test_metadata_are_edited(self):
        (self.folder / "template").write_text("{{ 'template' }}")
        self.done(
            "convert", Q8_0, self.output, "--name", "other", "--set", "minimax-m2.context_length=2048", "--set", "own.a=5",
            "--set", "own.b=u16:5", "--set-file", f"tokenizer.chat_template={self.folder / 'template'}", "--unset", "general.size_label",
            "--override-kv", "own.c=float:1", "--override-kv", "own.d=str:1",
        )  # fmt: skip
        metadata = Gguf(self.output).metadata
        self.assertEqual(metadata["general.name"], (8, "other"))
        self.assertEqual(metadata["minimax-m2.context_length"], (4, 2048))
        self.assertEqual([metadata[f"own.{x}"] for x in "abcd"], [(4, 5), (2, 5), (6, 1.0), (8, "1")])
        self.assertEqual(metadata["tokenizer.chat_template"], (8, "{{ 'template' }}"))
        self.assertNotIn("general.size_label", metadata)
        self.assertEqual(Gguf(self.output).tensors, Gguf(Q8_0).tensors)
        for edit in ("minimax-m2.block_count=5", "tokenizer.ggml.tokens=x", "split.count=2"):
            self.refused(1, edit.split("=")[0], "convert", Q8_0, self.folder / "y.gguf", "--set", edit)
        self.refused(2, "KEY=VALUE", "convert", Q8_0, self.folder / "y.gguf", "--set", "key")
        for value in ("int:x", "int:1.5", "bool:yes", "float:x", "u32:1"):
            self.refused(2, f"own.a={value}", "convert", Q8_0, self.folder / "y.gguf", "--override-kv", f"own.a={value}")
        for value, name in (("string:a", "a"), ("u32:5", "u32:5"), ("string:string:a", "string:a")):
            self.done("convert", Q8_0, self.output, "--set", f"general.name={value}", "--overwrite")
            self.assertEqual(Gguf(self.output).metadata["general.name"], (8, name))

    def test_options_that_would_do_nothing_are_refused_or_noted(self):
        empty = self.folder / "empty"
        empty.write_text("# no rules\n")
        plan, importance = ("quantize", Q8_0, self.output, "Q4_0", "--dry-run"), DATA / "importance" / "tiny.gguf"
        for words, options in (
            ("--include-weights needs --imatrix", ("--include-weights", "attn")), ("--exclude-weights needs --imatrix", ("--exclude-weights", "attn")),
            (f"--tensor-type-file: the file '{empty}' has no rules", ("--tensor-type-file", empty)), ("--custom-q: '' has no rules", ("--custom-q", "")),
            ("--name: '' is no name", ("--name", "")), ("--no-tensor-first-split needs --split-max-size", ("--no-tensor-first-split",)),
        ):  # fmt: skip
            with self.subTest(options):
                self.refused(2, words, *plan, *options)
        for words, options in (
            ("nowhere", ("--reuse", self.folder / "nowhere")), ("--output-tensor-type): there is no type 'q9'", ("--output-tensor-type", "q9")),
            ("--token-embedding-type): there is no type 'q9'", ("--token-embedding-type", "q9")),
        ):  # fmt: skip
            with self.subTest(options):
                self.refused(1, words, *plan, *options)
        for option in ("--pure", "--leave-output-tensor", "--keep-split"):
            self.refused(1, [option, "for GGUF files, not for a folder"], "quantize", Q8_0, self.folder / "f", "nvfp4", option)
        done = self.done("convert", Q8_0, self.output, "--imatrix", importance)
        self.assertIn(f"the importance data of {importance} has no effect: no matrix is encoded\n", done.stderr)

    def test_a_folder_becomes_a_file_with_its_metadata(self):
        self.done("convert", FOLDER, self.output, "--name", "minim-tiny")
        made, stored = Gguf(self.output), Gguf(MADE_MODELS / "minim-tiny-bf16.gguf")
        self.assertEqual(list(made.tensors.items()), list(stored.tensors.items()))
        own = {key: value for key, value in made.metadata.items() if not key.startswith("minim.")}
        wanted = {key: value for key, value in stored.metadata.items() if key != "general.size_label"}
        self.assertEqual(own, wanted)
        self.assertEqual(list(made.metadata)[-3:], ["minim.version", "minim.tensor_xxh3", "minim.tensor_source_xxh3"])
        order = list(made.metadata)
        for before, after in (("general.type", "general.sampling.top_k"), ("general.sampling.temp", "general.name"),
                              ("minimax-m2.attention.value_length", "general.file_type"), ("general.file_type", "minimax-m2.expert_feed_forward_length"),
                              ("minimax-m2.rope.dimension_count", "general.quantization_version"), ("tokenizer.ggml.add_eos_token", "tokenizer.chat_template")):  # fmt: skip
            self.assertEqual(order.index(before) + 1, order.index(after), (before, after))
        text = ("-p", "The capital of France", "-n", 8, "--temp", 0)
        self.assertEqual(self.done("-m", self.output, *text).stdout, self.done("-m", FOLDER, *text).stdout)
        self.done("convert", FOLDER, self.folder / "q.gguf", "--type", "q8_0", "--name", "minim-tiny")
        self.assertEqual(set(Gguf(self.folder / "q.gguf").types().values()), {"Q8_0", "F32"})
        self.done("convert", FOLDER, self.folder / "n.gguf", "--no-hashes")
        self.assertFalse([key for key in Gguf(self.folder / "n.gguf").metadata if key.startswith("minim.")])

    def test_another_pre_tokenizer_is_refused_with_its_pattern(self):
        other = self.folder / "m"
        shutil.copytree(FOLDER, other)
        tokenizer = json.loads((other / "tokenizer.json").read_text())
        tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = r"\w+|own"
        (other / "tokenizer.json").write_text(json.dumps(tokenizer))
        self.refused(1, r"\w+|own", "convert", other, self.output)

    def test_the_plan_writes_nothing(self):
        plan = json.loads(self.done("quantize", Q8_0, self.output, "Q4_K_M", "--dry-run", "--json").stdout)
        self.assertEqual(list(self.folder.iterdir()), [])
        self.assertLessEqual({"files", "bytes", "tensor_bytes", "bits_per_weight", "free_bytes", "tensors", "needs_importance", "fallbacks"}, set(plan))
        self.assertEqual(plan["tensors"][0], {"name": "output.weight", "from": "Q8_0", "to": "Q6_K", "shape": [2048, 256], "bytes": 430080})
        self.assertEqual(sum(tensor["bytes"] for tensor in plan["tensors"]), plan["tensor_bytes"])
        text = self.done("quantize", Q8_0, self.output, "IQ2_XS", "--dry-run").stdout
        self.assertIn("importance data is missing: blk.0.attn_q.weight", text)
        self.assertRegex(text, r"(?m)^\d+ bytes, \d+\.\d+ bits per weight$")

    def test_types_are_chosen_by_recipe_and_rules(self):
        rules = self.folder / "rules"
        rules.write_text("# the experts\nffn_down_exps=Q5_1   # more\nblk\\.1\\.attn_q=q8_0\n")
        long = "|".join(f"never{i}" for i in range(1000)) + "|attn_k"
        (self.folder / "long").write_text(f"({long})=q5_0")
        self.done("quantize", FOLDER, self.output, "q4_0", "--effort", "fast", "--tensor-type-file", rules, "--tensor-type", "attn_q=q4_1",
                  "--tensor-type-file", self.folder / "long", "--custom-q", r"blk\.[0-9]{1,2}\.attn_v=f16,attn_output=iq4_nl", "--leave-output-tensor")  # fmt: skip
        types = Gguf(self.output).types()
        blk1 = {role: types[f"blk.1.{role}.weight"] for role in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_down_exps", "ffn_up_exps", "ffn_gate_inp")}
        self.assertEqual(list(blk1.values()), ["Q8_0", "Q5_0", "F16", "IQ4_NL", "Q5_1", "Q4_0", "F32"])
        self.assertEqual((types["blk.0.attn_q.weight"], types["output.weight"], types["token_embd.weight"]), ("Q4_1", "BF16", "Q4_0"))
        self.assertEqual(Gguf(self.output).value("general.file_type"), 2)
        self.done("-m", self.output, "-p", "x", "-n", 1)
        for rule in ("attn_q=q9", "attn_(=q4_0", "ATTN_Q=q4_0", "attn_norm=q4_0", "attn_q"):
            self.refused(1, rule, "quantize", FOLDER, self.folder / "y.gguf", "q4_0", "--tensor-type", rule)
        self.refused(1, "Q9_X", "quantize", FOLDER, self.folder / "y.gguf", "Q9_X")
        self.done("quantise", FOLDER, self.folder / "copy.gguf", "COPY", "--no-hashes")
        self.assertEqual(Gguf(self.folder / "copy.gguf").types()["output.weight"], "BF16")

    def test_the_report_and_the_progress_have_every_tensor(self):
        report = self.folder / "report.json"
        done = self.done("quantize", FOLDER, self.output, "q4_0", "--pure", "--effort", "fast", "--report", report)
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 42)
        self.assertRegex(lines[0], r"^\[1/42\] output\.weight  BF16 → Q4_0  1\.05 → 0\.29 MB  rmse ")
        self.assertRegex(lines[3], r"^\[4/42\] blk\.0\.ffn_gate_exps\.weight  BF16 → Q4_0  1\.05 → 0\.29 MB  rmse 0\.\d+ weighted 0\.\d+  \d+\.\d s$")
        written = json.loads(report.read_text())
        self.assertEqual(len(written["tensors"]), 42)
        done = self.done("quantize", FOLDER, self.folder / "y.gguf", "q4_0", "--pure", "--effort", "fast", "--progress", "json", "--json")
        results = [json.loads(line) for line in done.stderr.splitlines()]
        self.assertEqual([one["xxh3"] for one in results], [one["xxh3"] for one in written["tensors"]])
        self.assertEqual(json.loads(done.stdout)["bytes"], written["bytes"])
        self.assertEqual(self.done("convert", Q8_0, self.folder / "z.gguf", "--progress", "none").stderr, "")
        self.assertEqual(self.output.read_bytes(), (self.folder / "y.gguf").read_bytes())

    def test_bytes_do_not_depend_on_threads_and_memory(self):
        wanted = None
        for number, options in enumerate((("-t", 1), ("-t", 3, "--memory", "16MiB"), ("-t", 2, "--memory", "64M"))):
            output = self.folder / f"{number}.gguf"
            self.done("quantize", FOLDER, output, "Q8_0", "--pure", *options)
            wanted = wanted or output.read_bytes()
            self.assertEqual(output.read_bytes(), wanted)
        self.refused(1, "memory", "quantize", FOLDER, self.output, "Q8_0", "--pure", "--memory", "1M")

    def test_a_command_line_that_cannot_be_understood_exits_with_2(self):
        for arguments in (
            ("convert",), ("convert", Q8_0), ("convert", Q8_0, self.output, "third"), ("quantize", Q8_0, self.output),
            ("quantize", Q8_0, self.output, "Q4_0", "8"), ("convert", Q8_0, self.output, "--type", "q4_0"),
            ("convert", Q8_0, self.folder / "y", "--layout", "int3"), ("quantize", Q8_0, self.folder / "y", "fp8", "--layout", "fp8"), ("convert", Q8_0, self.output, "--split-max-size", "0"),
            ("convert", Q8_0, self.output, "--split-max-size", "5T"), ("convert", Q8_0, self.output, "--split-max-tensors", "0"),
            ("convert", Q8_0, self.output, "--progress", "loud"), ("convert", Q8_0, self.output, "--override-kv", "a=b"),
            ("convert", Q8_0, self.output, "--tensor-type-file", "nowhere"),
        ):  # fmt: skip
            with self.subTest(arguments):
                self.refused(2, "", *arguments)

    def test_existing_files_and_the_source_are_kept(self):
        self.output.write_text("mine")
        self.refused(1, ["x.gguf", "--overwrite"], "convert", Q8_0, self.output)
        self.done("convert", Q8_0, self.output, "--overwrite")
        self.refused(1, "is the source", "convert", self.output, self.output, "--overwrite")
        link = self.folder / "link.gguf"
        link.symlink_to(self.output)
        self.refused(1, "is the source", "convert", link, self.output, "--overwrite")
        self.refused(1, ["'Q4_0'", "nvfp4-ct"], "quantize", Q8_0, self.folder / "model", "Q4_0")
        self.refused(1, "has no layout", "convert", Q8_0, self.folder / "y.gguf", "--layout", "bf16")
        self.refused(1, "nowhere", "convert", Q8_0, self.folder / "nowhere" / "x.gguf")
        self.refused(1, "NOT_FOUND", "convert", self.folder / "a.gguf", self.folder / "y.gguf")

    def test_an_interrupted_conversion_goes_on(self):
        wanted = self.folder / "wanted.gguf"
        command = ("quantize", FOLDER, self.output, "Q8_0", "--pure", "--progress", "json", "-t", 1)
        self.done("quantize", FOLDER, wanted, "Q8_0", "--pure")
        child = subprocess.Popen([PROGRAM, *map(str, command)], stderr=subprocess.PIPE, text=True)
        for _ in range(8):
            child.stderr.readline()
        child.send_signal(signal.SIGINT)
        rest = child.stderr.read()
        code = child.wait()
        child.stderr.close()
        if code == 0:  # it was faster than the signal
            self.skipTest("the conversion ended before the interruption")
        self.assertEqual(code, 130)
        self.assertRegex(rest, r"\d+ of 42 tensors are done in .*x\.gguf\.partial: the same command goes on")
        self.assertTrue((self.folder / "x.gguf.partial" / "journal").exists())
        done = self.done(*command)
        self.assertRegex(done.stderr, r"resuming: \d+ of 42 tensors are done")
        self.assertEqual(self.output.read_bytes(), wanted.read_bytes())
        self.assertFalse((self.folder / "x.gguf.partial").exists())

    def test_a_killed_conversion_goes_on_to_the_same_bytes(self):
        wanted = self.folder / "wanted.gguf"
        self.done("quantize", FOLDER, wanted, "Q8_0", "--pure")
        n_times = 50 if os.environ.get("MINIM_FULL_TESTS") == "ON" else 4
        for number in range(n_times):
            output = self.folder / f"k{number}.gguf"
            child = subprocess.Popen([PROGRAM, "quantize", str(FOLDER), str(output), "Q8_0", "--pure"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            time.sleep(0.02 + (number * 0.618034 % 1) * 0.6)
            child.kill()
            child.wait()
            if output.exists():  # it has its name only once it is complete
                self.assertEqual(output.read_bytes(), wanted.read_bytes())
                continue
            for path in (self.folder / f"{output.name}.partial").glob("*.gguf"):
                if run("inspect", path).returncode == 0:  # it was complete, and had no name yet
                    self.assertEqual(path.read_bytes(), wanted.read_bytes())
            self.done("quantize", FOLDER, output, "Q8_0", "--pure")
            self.assertEqual(output.read_bytes(), wanted.read_bytes())

    def test_a_limit_of_file_sizes_is_an_error_with_its_reason(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))

        done = run("convert", Q8_0, self.output, preexec_fn=limit)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(errors_of(done)[0], r"x\.gguf: cannot make room for \d+ bytes: File too large \(MINIM_E_IO, io\)")
        self.assertFalse(self.output.exists())
        self.done("convert", Q8_0, self.output)

    def test_folders_are_written(self):
        folder = self.folder / "model"
        plan = json.loads(self.done("convert", FOLDER, folder, "--layout", "fp8", "--dry-run", "--json").stdout)
        self.assertEqual(list(self.folder.iterdir()), [])
        done = self.done("convert", FOLDER, folder, "--layout", "fp8", "--split-max-size", "2M")
        self.assertRegex(done.stdout, r"model-00001-of-0000\d\.safetensors: \d+ bytes, \d+ tensors")
        self.assertRegex(done.stderr, r"layers\.2\.block_sparse_moe\.experts\.7\.w3\.weight  BF16 → FP8  0\.13 → 0\.07 MB  rmse 0\.02")
        self.assertEqual(sum(file["tensors"] for file in plan["files"]), len(json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]))
        self.assertEqual(run("inspect", folder).returncode, 0)
        self.refused(1, "--overwrite", "convert", FOLDER, folder)
        self.done("convert", folder, self.folder / "again", "--layout", "fp8")
        self.assertEqual((folder / "config.json").read_bytes(), (self.folder / "again" / "config.json").read_bytes())
        # `quantize` has the layout as its type, and a slash at the end makes no difference.
        self.done("quantize", FOLDER, f"{self.folder}/q/", "FP8", "--split-max-size", "2M")
        for path in folder.iterdir():
            self.assertEqual(path.read_bytes(), (self.folder / "q" / path.name).read_bytes(), path.name)
        self.refused(1, "exceptions of recipes", "quantize", FOLDER, self.folder / "r", "fp8", "--pure")

    def test_the_container_may_be_said(self):
        self.done("convert", Q8_0, self.folder / "x.model", "--to", "gguf")
        self.assertEqual((self.folder / "x.model").read_bytes(), Q8_0.read_bytes())
        self.done("convert", Q8_0, self.folder / "y.model", "--to", "gguf", "--split-max-tensors", 40)
        self.assertTrue((self.folder / "y.model-00002-of-00002.gguf").exists())
        self.done("convert", FOLDER, self.folder / "f.gguf", "--to", "safetensors")
        self.assertEqual((self.folder / "f.gguf" / "tokenizer.json").read_bytes(), (FOLDER / "tokenizer.json").read_bytes())
        self.refused(1, "has no layout", "convert", FOLDER, self.folder / "g", "--to", "gguf", "--layout", "fp8")
        self.refused(1, "'Q4_0'", "quantize", FOLDER, self.folder / "g.gguf", "Q4_0", "--to", "safetensors")

    def test_a_killed_conversion_to_a_folder_goes_on_to_the_same_bytes(self):
        wanted = self.folder / "wanted"
        self.done("quantize", FOLDER, wanted, "int4-g32", "--split-max-size", "1M")
        for number in range(4):
            output = self.folder / f"k{number}"
            command = (PROGRAM, "quantize", str(FOLDER), str(output), "int4-g32", "--split-max-size", "1M")
            child = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            time.sleep(0.02 + (number * 0.618034 % 1) * 0.6)
            child.kill()
            child.wait()
            if not output.exists():  # it has its name only once it is complete
                unfinished = pathlib.Path(f"{output}.partial")
                if run("inspect", unfinished).returncode == 0:  # it was complete, and had no name yet
                    for path in wanted.iterdir():
                        self.assertEqual(path.read_bytes(), (unfinished / path.name).read_bytes(), path.name)
                self.done(*command[1:])
            for path in wanted.iterdir():
                self.assertEqual(path.read_bytes(), (output / path.name).read_bytes(), path.name)
            self.assertFalse((self.folder / f"k{number}.partial").exists())

    def test_experts_are_left_out_and_tensors_reused(self):
        kept = self.folder / "kept.json"
        kept.write_text(json.dumps({"layers": [[0, 1, 2, 3], [4, 5, 6, 7], [0, 2, 4, 6]]}))
        self.done("convert", Q8_0, self.output, "--keep-experts", kept)
        metadata = Gguf(self.output).metadata
        self.assertEqual(metadata["minim.experts_kept"], (8, "4 of 8"))
        self.assertEqual(metadata["minimax-m2.expert_count"], (4, 4))
        self.refused(1, "importance data", "convert", Q8_0, self.folder / "y.gguf", "--keep-experts", 4)
        self.done("quantize", FOLDER, self.folder / "a.gguf", "Q4_0", "--pure")
        first = self.folder / "a.gguf"
        report = json.loads(self.done("quantize", FOLDER, self.folder / "b.gguf", "Q4_0", "--pure", "--reuse", first, "--json").stdout)
        self.assertGreater(report["reused"], 20)
        self.assertEqual((self.folder / "b.gguf").read_bytes(), first.read_bytes())

    def test_a_source_below_8_bits_is_not_encoded_again_without_leave(self):
        self.done("quantize", FOLDER, self.output, "Q4_0", "--pure", "--effort", "fast")
        self.refused(1, ["is Q4_0, below 8 bits", "--allow-requantize"], "quantize", self.output, self.folder / "y.gguf", "Q5_0", "--pure", "--effort", "fast")
        self.done("quantize", self.output, self.folder / "y.gguf", "Q5_0", "--pure", "--effort", "fast", "--allow-requantize")
        self.done("convert", self.output, self.folder / "z.gguf", "--type", "f16")
        self.done("quantize", Q8_0, self.folder / "w.gguf", "Q5_0", "--pure", "--effort", "fast")

    def test_importance_data_is_used_and_named(self):
        importance = pathlib.Path(__file__).resolve().parents[1] / "data" / "importance" / "tiny.gguf"
        if not importance.exists():
            self.skipTest("no importance data of the small model")
        plain = json.loads(self.done("quantize", FOLDER, self.output, "Q4_0", "--pure", "--effort", "fast", "--json").stdout)
        done = self.done("quantize", FOLDER, self.folder / "y.gguf", "Q4_0", "--pure", "--effort", "fast", "--json", "--imatrix", importance, "--exclude-weights", "attn_v")
        report = json.loads(done.stdout)
        weighted = {tensor["name"]: tensor["weighted"] for tensor in report["tensors"] if "weighted" in tensor}
        same = {tensor["name"]: tensor["weighted"] for tensor in plain["tensors"] if "weighted" in tensor}
        self.assertEqual(weighted["blk.0.attn_v.weight"], same["blk.0.attn_v.weight"])
        self.assertIn("blk.0.attn_v.weight", report["without_importance"])
        self.assertNotEqual(weighted["blk.0.attn_q.weight"], same["blk.0.attn_q.weight"])
        metadata = Gguf(self.folder / "y.gguf").metadata
        self.assertEqual(metadata["quantize.imatrix.file"], (8, "tiny.gguf"))
        self.assertEqual({metadata[f"quantize.imatrix.{key}_count"][0] for key in ("entries", "chunks")}, {4})
        self.refused(1, "no tensor", "quantize", FOLDER, self.folder / "z.gguf", "Q4_0", "--pure", "--effort", "fast", "--imatrix", importance, "--include-weights", "nothing")


if __name__ == "__main__":
    unittest.main()
