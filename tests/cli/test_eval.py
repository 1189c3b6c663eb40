# SPDX-License-Identifier: Apache-2.0
"""minim eval: what its commands read, write and refuse. tests/ffi/test_evaluation.py compares the figures with those of NumPy."""

import json
import pathlib
import struct
import tempfile
import unittest

from support import DATA, MADE_MODELS, Q8_0, errors_of, run

TEXT = DATA / "golden" / "perplexity.txt"
QUESTIONS = DATA / "questions.jsonl"
BF16 = MADE_MODELS / "minim-tiny-bf16.gguf"
TINY_M3 = DATA / "models" / "minim-tiny-m3"
WEATHER = [{"type": "function", "function": {"name": "get_weather", "description": "weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]


def lines_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def binary_tasks(questions):
    """The questions as llama.cpp's file of tasks."""

    def text(value):
        return struct.pack("<I", len(value.encode())) + value.encode()

    def answers(options, right):
        labels = struct.pack(f"<{len(options)}i", *(int(i == right) for i in range(len(options))))
        return struct.pack("<I", len(options)) + b"".join(map(text, options)) + labels

    tasks = []
    for one in questions:
        right = one["answer_index"] if "answer_index" in one else ord(one["answer"]) - ord("A")
        tasks.append(text(one["question"]) + answers(one["options"], right) + answers([], 0))
    at, positions = 4 + 4 * len(tasks), []
    for task in tasks:
        positions.append(at)
        at += len(task)
    return struct.pack(f"<I{len(tasks)}I", len(tasks), *positions) + b"".join(tasks)


class Evaluation(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def ok(self, *arguments):
        done = run("eval", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def figures(self, *arguments):
        return json.loads(self.ok(*arguments, "--json"))


class Divergence(Evaluation):
    def test_a_model_does_not_diverge_from_itself(self):
        saved = self.folder / "self"
        text = self.figures("kl", "-m", Q8_0, "-f", TEXT, "--chunk", 64, "--save", saved)
        same = self.figures("kl", "-m", Q8_0, "--reference", saved)
        self.assertEqual(set(same), {"tokens", "ppl", "ppl_reference", "kl_mean", "kl_error", "kl_median", "kl_99", "kl_max",
                                     "same_top", "delta_p_rms"})
        self.assertEqual((same["tokens"], same["ppl"], same["same_top"]), (text["tokens"], text["ppl"], 1))
        self.assertLess(abs(same["kl_mean"]), 1e-5)
        done = run("eval", "kl", "-m", Q8_0, "--reference", saved, "--compact")
        self.assertIn("minim: note: --compact has no effect: the file of --reference is read, not written", done.stderr)
        other = self.figures("kl", "-m", BF16, "--reference", saved)
        self.assertGreater(other["kl_mean"], 1e-5)
        self.assertEqual(other["tokens"], text["tokens"])

    def test_minimax_m3_is_compared_with_itself_in_eight_bits(self):
        saved, quantised = self.folder / "self", self.folder / "q.gguf"
        self.figures("kl", "-m", TINY_M3, "-f", TEXT, "--chunk", 64, "--chunks", 4, "--save", saved)
        self.assertEqual(run("quantize", TINY_M3, quantised, "Q8_0", "--pure").returncode, 0)
        figures = self.figures("kl", "-m", quantised, "--reference", saved)
        self.assertTrue(1e-6 < figures["kl_mean"] < 0.5, figures)
        self.assertGreater(figures["same_top"], 0.8)

    def test_the_report_has_the_names_of_llama_perplexity(self):
        saved = self.folder / "saved"
        self.assertRegex(self.ok("kl", "-m", Q8_0, "-f", TEXT, "--chunk", 64, "--chunks", 2, "--save", saved), r"^perplexity: [\d.]+ over 62 tokens\n$")
        report = self.ok("kl", "-m", BF16, "--reference", saved)
        for label in ("Mean PPL(Q)                   :", "Mean PPL(base)                :", "Mean PPL(Q)/PPL(base)         :", "Mean    KLD:",
                      "Maximum KLD:", "99.9%   KLD:", "Median  KLD:", "10.0%   KLD:", " 1.0%   KLD:", "Mean    Δp:", "99.9%   Δp:", "RMS Δp    :", "Same top p:"):
            self.assertIn("\n" + label, "\n" + report)

    def test_compact_files_give_nearly_the_same_and_all_positions_more(self):
        size, found = {}, {}
        for options in ((), ("--compact",), ("--all",), ("--all", "--compact")):
            saved = self.folder / "_".join(options or ("plain",))
            self.ok("kl", "-m", Q8_0, "-f", TEXT, "--chunk", 64, "--save", saved, *options)
            size[options], found[options] = saved.stat().st_size, self.figures("kl", "-m", BF16, "--reference", saved)
        self.assertLess(size["--compact",], size[()])
        self.assertLess(abs(found["--compact",]["kl_mean"] - found[()]["kl_mean"]), 1e-4)
        self.assertLess(abs(found["--all", "--compact"]["kl_mean"] - found["--all",]["kl_mean"]), 1e-4)
        n_chunks = found[()]["tokens"] // 31
        self.assertEqual((found[()]["tokens"], found["--all",]["tokens"]), (31 * n_chunks, 63 * n_chunks))

    def test_files_that_are_damaged_or_of_another_model_are_refused(self):
        saved, bad = self.folder / "saved", self.folder / "bad"
        self.ok("kl", "-m", Q8_0, "-f", TEXT, "--chunk", 64, "--chunks", 1, "--save", saved)
        data = saved.read_bytes()
        for altered, what in ((data[:-2], "bytes behind its tokens"), (b"_logitz_" + data[8:], "begins with other bytes"), (data[:6], "ends too early"),
                              (data[:20] + struct.pack("<i", -1) + data[24:], "it has the token -1"), (data[:8] + struct.pack("<I", 2) + data[12:], "chunks of 2 tokens")):
            bad.write_bytes(altered)
            done = run("eval", "kl", "-m", Q8_0, "--reference", bad)
            self.assertEqual(done.returncode, 1)
            self.assertIn(what, errors_of(done)[0])
            self.assertIn("(MINIM_E_FORMAT)", errors_of(done)[0])
        ids = struct.pack("<4i", 1, 2, 3, 4)
        bad.write_bytes(b"_logits_" + struct.pack("<Iii", 4, 5, 1) + ids + struct.pack("<2f6H", 0.001, -10, *range(6)))
        done = run("eval", "kl", "-m", Q8_0, "--reference", bad)
        self.assertIn("is of a model with 5 tokens", errors_of(done)[0])
        done = run("eval", "kl", "-m", Q8_0, "-p", "short", "--save", bad)
        self.assertIn("fewer than a chunk of 512", errors_of(done)[0])

    def test_a_file_appears_when_it_is_complete(self):
        done = run("eval", "kl", "-m", Q8_0, "-f", TEXT, "--chunk", 64, "--save", self.folder / "none" / "x")
        self.assertEqual(done.returncode, 1)
        self.assertIn("(MINIM_E_NOT_FOUND)", errors_of(done)[0])
        self.ok("kl", "-m", Q8_0, "-f", TEXT, "--chunk", 64, "--chunks", 1, "--save", self.folder / "x")
        self.assertEqual([path.name for path in self.folder.iterdir()], ["x"])


class Choice(Evaluation):
    def test_results_are_kept_and_their_questions_left_out(self):
        results = self.folder / "r.jsonl"
        whole = self.figures("choice", "-m", Q8_0, QUESTIONS)
        self.assertEqual((whole["questions"], whole["unanswered"]), (40, 0))
        self.assertEqual(sum(one["questions"] for one in whole["categories"].values()), 40)
        self.assertTrue(whole["low"] < whole["accuracy"] < whole["high"])
        self.ok("choice", "-m", Q8_0, QUESTIONS, "-o", results, "--limit", 15)
        with results.open("a", encoding="utf-8") as file:
            file.write('{"question_id": 1015, "cat')  # the run was killed here
        done = run("eval", "choice", "-m", Q8_0, QUESTIONS, "-o", results, "--json")
        self.assertIn("15 of 40 questions are in", done.stderr)
        self.assertEqual(json.loads(done.stdout), whole)
        lines = lines_of(results)
        self.assertEqual([line["question_id"] for line in lines], [question["question_id"] for question in lines_of(QUESTIONS)])
        self.assertEqual(set(lines[0]), {"question_id", "category", "answer", "chosen", "correct", "score", "scores"})
        for line in lines:
            self.assertEqual(line["correct"], line["answer"] == line["chosen"])
            self.assertEqual(line["scores"].index(max(line["scores"])), ord(line["chosen"]) - ord("A"))
        self.assertEqual(self.figures("choice", "-m", "no such model", QUESTIONS, "-o", results), whole)

    def test_scores_do_not_depend_on_what_runs_beside_them(self):
        for score in ("letter", "continuation"):
            lines = {}
            for name, options in (("all", ()), ("few rows", ("-ub", 5)), ("first", ("--limit", 3))):
                results = self.folder / f"{score} {name}"
                self.ok("choice", "-m", Q8_0, QUESTIONS, "--score", score, "-o", results, *options)
                lines[name] = results.read_text(encoding="utf-8").splitlines()
            with self.subTest(score):
                self.assertEqual(len(lines["all"]), 40)
                self.assertEqual(lines["few rows"], lines["all"])
                self.assertEqual(lines["first"], lines["all"][:3])

    def test_a_category_and_worked_examples_are_chosen(self):
        math = self.figures("choice", "-m", Q8_0, QUESTIONS, "--category", "math")
        self.assertEqual((math["questions"], list(math["categories"])), (16, ["math"]))
        plain, shots = self.folder / "plain", self.folder / "shots"
        for path, options in ((plain, ()), (shots, ("--shots", QUESTIONS, "-k", 2))):
            for score in ("letter", "continuation"):
                self.figures("choice", "-m", Q8_0, QUESTIONS, "--limit", 6, "--score", score, "-o", f"{path}-{score}", *options)
        for score in ("letter", "continuation"):
            a, b = (lines_of(pathlib.Path(f"{path}-{score}")) for path in (plain, shots))
            self.assertNotEqual([line["scores"] for line in a], [line["scores"] for line in b])
        done = run("eval", "choice", "-m", Q8_0, QUESTIONS, "--score", "letter", "-o", f"{plain}-continuation")
        self.assertEqual(done.returncode, 1)
        self.assertIn("has results of --score continuation: name another file for --score letter", errors_of(done)[0])
        shots.write_text("\n")
        done = run("eval", "choice", "-m", Q8_0, QUESTIONS, "--shots", shots)
        self.assertIn(f"--shots: '{shots}' has no questions", errors_of(done)[0])
        done = run("eval", "choice", "-m", Q8_0, QUESTIONS, "--limit", 1, "-n", 5, "-k", 2)
        self.assertIn("minim: note: -k has no effect: there are no --shots", done.stderr)
        self.assertIn("minim: note: -n has no effect: --score letter generates no answers", done.stderr)
        done = run("eval", "choice", "-m", Q8_0, QUESTIONS, "--category", "none")
        self.assertIn("has no questions of the category 'none'", errors_of(done)[0])

    def test_binary_tasks_are_the_same_questions(self):
        tasks, a, b = self.folder / "tasks.bin", self.folder / "a", self.folder / "b"
        tasks.write_bytes(binary_tasks(lines_of(QUESTIONS)))
        for path, file in ((a, QUESTIONS), (b, tasks)):
            self.ok("choice", "-m", Q8_0, file, "--score", "continuation", "-o", path)
        self.assertEqual([(line["chosen"], line["scores"]) for line in lines_of(a)], [(line["chosen"], line["scores"]) for line in lines_of(b)])
        tasks.write_bytes(tasks.read_bytes()[:-3])
        done = run("eval", "choice", "-m", Q8_0, tasks)
        self.assertIn("task 39: the file ends too early (MINIM_E_FORMAT)", errors_of(done)[0])

    def test_answers_are_generated_and_read(self):
        results = self.folder / "g.jsonl"
        found = self.figures("choice", "-m", Q8_0, QUESTIONS, "--score", "generate", "-n", 40, "--limit", 6, "-o", results)
        lines = lines_of(results)
        self.assertEqual(found["unanswered"], sum(line["chosen"] is None for line in lines))
        self.assertTrue(any(line["text"] for line in lines))
        one = self.folder / "one.jsonl"
        self.figures("choice", "-m", Q8_0, QUESTIONS, "--score", "generate", "-n", 40, "--limit", 1, "-o", one)
        self.assertEqual(lines_of(one)[0], lines[0])  # whether one or six are worked on at once

    def test_bad_questions_are_refused_by_their_line(self):
        file = self.folder / "q.jsonl"
        good = '{"question": "Q", "options": ["a", "b"], "answer": "A"}\n'
        for bad, what in (('{"question": "Q", "options": ["a"], "answer": "A"}', "1 options, from 2 to 26"),
                          ('{"question": "Q", "options": ["a", "b"], "answer": "C"}', 'the answer "C" is none of the 2 options'),
                          ('{"question": "Q", "options": ["a", "b"], "answer_index": -1}', "the answer -1 is none of the 2 options"),
                          ('{"question": "Q", "answer": "A"}', "options"), ("[1]", "is no JSON object"), ("{", "line 2")):
            file.write_text(good + bad, encoding="utf-8")
            done = run("eval", "choice", "-m", Q8_0, file)
            self.assertEqual(done.returncode, 1)
            self.assertIn("line 2", errors_of(done)[0])
            self.assertIn(what, errors_of(done)[0])


class Compare(Evaluation):
    def test_the_table_and_the_exact_p(self):
        a, b = self.folder / "a", self.folder / "b"
        right = {"a": "11111111110000000000", "b": "11111000001000000000"}
        for path in (a, b):
            path.write_text("".join(json.dumps({"question_id": i, "correct": c == "1"}) + "\n" for i, c in enumerate(right[path.name])), encoding="utf-8")
        found = self.figures("compare", a, b)
        # One of 6 coins: 2 * (C(6,0) + C(6,1)) / 2^6.
        self.assertEqual({**found, "p": round(found["p"], 9)}, {"both": 5, "neither": 9, "only_a": 5, "only_b": 1, "p": 0.21875})
        self.assertAlmostEqual(self.figures("compare", a, a)["p"], 1)
        self.assertIn("A 50.00%, B 30.00% of 20 questions; p = 0.2188", self.ok("compare", a, b))
        b.write_text(json.dumps({"question_id": 19, "correct": True}), encoding="utf-8")
        done = run("eval", "compare", a, b, "--json")
        self.assertEqual(json.loads(done.stdout)["only_b"], 1)
        self.assertIn("19 questions are in one of the files alone", done.stderr)
        b.write_text(json.dumps({"question_id": 50, "correct": True}), encoding="utf-8")
        self.assertIn("no question in common", errors_of(run("eval", "compare", a, b))[0])


class Answers(Evaluation):
    def test_a_needle_is_looked_for_at_each_length_and_depth(self):
        found = self.figures("needle", "-m", Q8_0, "--lengths", "100,300", "--depths", "0,100", "-n", 30)
        self.assertEqual((found["questions"], [(run["length"], run["depth"]) for run in found["runs"]]), (4, [(100, 0), (100, 100), (300, 0), (300, 100)]))
        self.assertEqual(found["right"], sum(run["right"] for run in found["runs"]))
        self.assertRegex(self.ok("needle", "-m", Q8_0, "--lengths", "100", "--depths", "50", "-n", 10), r"\n[01] of 1 found\n$")
        done = run("eval", "needle", "-m", Q8_0, "--lengths", "10")
        self.assertIn("10 is less than 64 tokens", errors_of(done)[0])

    def test_calls_are_compared_with_those_expected(self):
        file = self.folder / "t.jsonl"
        paris = {"messages": [{"role": "user", "content": "What is the weather in Paris?"}], "tools": WEATHER}
        france = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "tools": WEATHER}
        call = {"name": "get_weather", "arguments": {"city": "Paris"}}
        requests = [{**paris, "expect": [call]}, {**paris, "expect": [{**call, "arguments": {"city": "Rome"}}]}, {**paris, "expect": [call, call]},
                    {**paris, "expect": []}, {**france, "expect": []}, {**france, "expect": [call]}]
        file.write_text("\n".join(map(json.dumps, requests)), encoding="utf-8")
        found = self.figures("tools", "-m", Q8_0, file, "-n", 120)
        self.assertEqual(found, {"requests": 6, "right": 2, "name_right": 2, "arguments_right": 1, "needless": 1, "missing": 2, "malformed": 0})
        self.assertEqual(self.figures("tools", "-m", Q8_0, file, "-n", 120, "--limit", 1)["right"], 1)
        self.assertEqual(self.figures("tools", "-m", Q8_0, file, "-n", 12, "--limit", 1)["right"], 0)  # the call is cut off
        self.assertIn("right:           2 of 6", self.ok("tools", "-m", Q8_0, file, "-n", 120))


class Usage(unittest.TestCase):
    def test_lines_that_cannot_be_meant_are_refused(self):
        for arguments, what in (
            ((), "kl, choice, compare, needle and tools are known"),
            (("perplexity", "-m", Q8_0), "minim eval 'perplexity': kl, choice"),
            (("kl", "-m", Q8_0, "-f", TEXT), "--save or --reference is required"),
            (("kl", "-m", Q8_0, "--save", "x"), "-p or -f is required"),
            (("kl", "-m", Q8_0, "--save", "x", "--reference", "y", "-f", TEXT), "--save or --reference is required"),
            (("choice", "-m", Q8_0), "a file is required: minim eval choice FILE"),
            (("choice", "-m", Q8_0, "a", "b"), "'b' is not expected"),
            (("choice", QUESTIONS), "-m is required"),
            (("compare", "a"), "two files are required"),
            (("needle", "-m", Q8_0, "--depths", "101"), "at most 100"),
        ):
            done = run("eval", *arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
            self.assertIn(what, done.stderr)


if __name__ == "__main__":
    unittest.main()
