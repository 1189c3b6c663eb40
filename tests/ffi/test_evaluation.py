# SPDX-License-Identifier: Apache-2.0
"""minim eval against the same figures computed in NumPy from the logits of a session. MINIM_CLI names the program."""

import json
import math
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest

from support import BF16, DATA, Q8_0, model, np

PROGRAM = os.environ.get("MINIM_CLI", "")
TEXT = DATA / "golden" / "perplexity.txt"
QUESTIONS = DATA / "questions.jsonl"
CHUNK = 64


def log_softmax(logits):
    x = logits.astype(np.float64)
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def chunks_of(m):
    ids = np.asarray(m.tokenize(TEXT.read_text(encoding="utf-8")))
    return ids[: len(ids) // CHUNK * CHUNK].reshape(-1, CHUNK)


def rows_of(m, chunks):
    """Returns the logits after each of the positions CHUNK/2 .. CHUNK-2 of the chunks, and the tokens that follow."""
    logits = []
    with m.session(context=CHUNK) as session:
        for chunk in chunks:
            session.truncate(0)
            logits.append(session.eval(chunk, all_logits=True)[CHUNK // 2 : CHUNK - 1])
    return np.concatenate(logits), chunks[:, CHUNK // 2 + 1 :].reshape(-1)


def coded(logits):
    """Returns step, lowest log-probability and codes of each row, as llama-perplexity stores them."""
    low = np.maximum(logits.min(axis=1), logits.max(axis=1) - np.float32(16))[:, None]
    step = (logits.max(axis=1)[:, None] - low) / np.float32(65535)
    codes = np.where(logits > low, np.rint((logits - low) / step), 0).astype(np.uint16)
    lowest = low + (log_softmax(logits)[:, :1] - logits[:, :1])
    return step.astype(np.float32), lowest.astype(np.float32), codes


def kl_file(chunks, logits):
    step, lowest, codes = coded(logits)
    rows = [struct.pack("<2f", *pair) + row.tobytes() for pair, row in zip(np.hstack([step, lowest]), codes)]
    head = b"_logits_" + struct.pack("<Iii", CHUNK, logits.shape[1], len(chunks))
    return head + chunks.astype("<i4").tobytes() + b"".join(rows)


@unittest.skipUnless(PROGRAM, "the program was not built")
class Evaluation(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def eval(self, *arguments):
        done = subprocess.run([PROGRAM, "eval", *map(str, arguments), "--json"], capture_output=True, encoding="utf-8", timeout=600)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_divergence_and_perplexity(self):
        chunks = chunks_of(model())
        reference, following = rows_of(model(BF16), chunks)
        logits, _ = rows_of(model(), chunks)
        saved = self.folder / "reference"
        saved.write_bytes(kl_file(chunks, reference))
        step, lowest, codes = coded(reference)
        log_p = step * codes.astype(np.float32) + lowest
        log_q = log_softmax(logits)
        kl = np.where(log_p > -16, np.exp(log_p.astype(np.float64)) * (log_p - log_q), 0).sum(axis=1)
        at = np.arange(len(following)), following
        delta_p = np.exp(log_q[at]) - np.exp(log_p[at].astype(np.float64))
        expected = {
            "tokens": len(kl),
            "ppl": math.exp(-log_q[at].mean()),
            "ppl_reference": math.exp(-log_p[at].astype(np.float64).mean()),
            "kl_mean": kl.mean(),
            "kl_error": kl.std() / math.sqrt(len(kl) - 1),
            "kl_median": np.median(kl),
            "kl_99": np.quantile(kl, 0.99),
            "kl_max": kl.max(),
            "same_top": (codes.argmax(axis=1) == logits.argmax(axis=1)).mean(),
            "delta_p_rms": math.sqrt((delta_p**2).mean()),
        }
        found = self.eval("kl", "-m", Q8_0, "--reference", saved)
        self.assertEqual(set(found), set(expected))
        for key, value in expected.items():
            self.assertAlmostEqual(found[key], value, delta=1e-6 * max(abs(value), 1), msg=key)

    def test_a_saved_file_has_the_codes_of_the_logits(self):
        chunks = chunks_of(model())[:2]
        saved = self.folder / "saved"
        self.eval("kl", "-m", Q8_0, "-f", TEXT, "--chunk", CHUNK, "--chunks", 2, "--save", saved)
        data, expected = saved.read_bytes(), kl_file(chunks, rows_of(model(), chunks)[0])
        self.assertEqual(len(data), len(expected))
        begin, n_vocab = 20 + chunks.size * 4, rows_of(model(), chunks[:1])[0].shape[1]
        self.assertEqual(data[:begin], expected[:begin])
        rows = np.dtype([("step", "<f4"), ("lowest", "<f4"), ("codes", "<u2", n_vocab)])
        a, b = np.frombuffer(data, rows, offset=begin), np.frombuffer(expected, rows, offset=begin)
        for key in ("step", "lowest"):
            self.assertTrue(np.allclose(a[key], b[key], rtol=1e-6))
        self.assertLessEqual(np.abs(a["codes"].astype(int) - b["codes"]).max(), 1)

    def test_scores_of_letters_and_of_options(self):
        questions = [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
        results = {score: self.folder / score for score in ("letter", "continuation")}
        figures = {score: self.eval("choice", "-m", Q8_0, QUESTIONS, "--score", score, "-o", path) for score, path in results.items()}
        lines = {score: [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] for score, path in results.items()}
        right = dict.fromkeys(results, 0)
        with model().session(context=512) as session:

            def log_p(ids):
                session.truncate(0)
                return log_softmax(session.eval(ids, all_logits=True))

            for question, letter, continuation in zip(questions, lines["letter"], lines["continuation"]):
                options = question["options"]
                text = question["question"] + "".join(f"\n{chr(65 + i)}. {option}" for i, option in enumerate(options)) + "\nAnswer:"
                row = log_p(model().tokenize(text))[-1]
                of_letters = [row[model().tokenize(f" {chr(65 + i)}")[0]] for i in range(len(options))]
                lists = [list(model().tokenize(f"{question['question']} {option}")) for option in options]
                first = len(os.path.commonprefix(lists))
                self.assertTrue(all(len(ids) > first for ids in lists))
                of_options = []
                for ids in lists:
                    rows = log_p(ids)
                    of_options.append(np.mean([rows[i - 1, ids[i]] for i in range(first, len(ids))]))
                answer = question["answer_index"] if "answer_index" in question else ord(question["answer"]) - 65
                for score, line, expected in (("letter", letter, of_letters), ("continuation", continuation, of_options)):
                    self.assertTrue(np.allclose(line["scores"], expected, rtol=0, atol=1e-6))
                    self.assertEqual(line["chosen"], chr(65 + int(np.argmax(expected))))
                    right[score] += int(np.argmax(expected)) == answer
        self.assertEqual({score: one["correct"] for score, one in figures.items()}, right)


if __name__ == "__main__":
    unittest.main()
