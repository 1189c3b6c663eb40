# SPDX-License-Identifier: Apache-2.0
import re
import unittest

from support import DATA, Q8_0, errors_of, run

TEXT = DATA / "golden" / "perplexity.txt"
GOLDEN = 4.55788  # exact arithmetic on the Q8_0 weights


class Perplexity(unittest.TestCase):
    def test_the_figure_is_the_golden_one(self):
        done = run("perplexity", "-m", Q8_0, "-f", TEXT)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        figure = re.fullmatch(r"perplexity: (\d+\.\d{4}) over (\d+) tokens\n", done.stdout)
        self.assertLess(abs(float(figure[1]) / GOLDEN - 1), 0.005)
        self.assertEqual(int(figure[2]) % 255, 0)

    def test_a_chunk_s_size_is_an_option(self):
        done = run("perplexity", "-m", Q8_0, "-f", TEXT, "--chunk", 64, "-b", 32, "-ub", 16)
        figure = re.fullmatch(r"perplexity: ([\d.]+) over (\d+) tokens\n", done.stdout)
        self.assertGreater(float(figure[1]), GOLDEN)  # the model sees less text before each token
        self.assertEqual(int(figure[2]) % 63, 0)

    def test_a_text_shorter_than_a_chunk_is_an_error(self):
        done = run("perplexity", "-m", Q8_0, "-p", "short")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("fewer than a chunk of 256 (MINIM_E_INVALID)", errors_of(done)[0])


if __name__ == "__main__":
    unittest.main()
