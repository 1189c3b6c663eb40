# SPDX-License-Identifier: Apache-2.0
import unittest

from support import DATA, load_json, minim, np

FORMATS = load_json("format/golden.json")["types"]


def rows_of(golden):
    """Returns the packed rows of a golden, and the numbers that they decode to."""
    data = (DATA / "format" / golden["file"]).read_bytes()
    start, size = golden["sections"]["raw"]["offset"], golden["row_bytes"]
    packed = [data[start + i * size : start + (i + 1) * size] for i in range(golden["rows"])]
    expected = np.frombuffer(
        data, np.float32, golden["rows"] * golden["cols"], golden["sections"]["expect"]["offset"]
    )
    return packed, expected.reshape(golden["rows"], golden["cols"])


class Formats(unittest.TestCase):
    def test_the_formats_are_listed(self):
        formats = minim.formats()
        q8 = formats["Q8_0"]
        self.assertEqual((q8.block_elems, q8.block_bytes, q8.gguf_type, q8.is_weight), (32, 34, 8, 1))
        self.assertLessEqual(set(FORMATS), set(formats))

    def test_every_format_decodes_its_golden_rows(self):
        for name, golden in FORMATS.items():
            packed, expected = rows_of(golden)
            with self.subTest(name):
                decoded = np.stack([minim.decode_format(name, row, golden["cols"]) for row in packed])
                blocks = np.abs(expected).reshape(-1, golden["block_elems"])
                errors = np.abs(decoded - expected).reshape(-1, golden["block_elems"])
                tolerance = golden["tol_block_rel"] * blocks.max(axis=1, keepdims=True)
                self.assertTrue((errors <= tolerance).all())

    def test_sizes_that_do_not_match_are_invalid(self):
        row, count = rows_of(FORMATS["Q4_K"])[0][0], FORMATS["Q4_K"]["cols"]
        for bad_row, bad_count in (
            (row, count - 1),
            (row[:-1], count),
            (row + b"\0", count),
            (row, 2 * count),
        ):
            with self.subTest(bad_count), self.assertRaises(minim.Error) as caught:
                minim.decode_format("Q4_K", bad_row, bad_count)
            self.assertEqual(caught.exception.status, "invalid")

    def test_a_format_that_does_not_exist_is_an_error(self):
        with self.assertRaises(minim.Error):
            minim.decode_format("Q9_Z", b"", 0)
        with self.assertRaises(ValueError):
            minim.decode_format("Q4_K", b"", -1)

    def test_formats_encode_what_they_decode(self):
        steps = np.arange(3 * 512, dtype=np.uint32).reshape(3, 512)
        pieces = (steps * np.uint32(2654435761) >> np.uint32(16)) % np.uint32(401)
        weights = (0.01 * (pieces.astype(np.float64) - 200)).astype(np.float32)
        importance = 1 + (np.arange(512) % 7).astype(np.float32)
        for name, bound in (("Q8_0", 0.006), ("Q4_0", 0.1), ("Q6_K", 0.03), ("IQ4_KS", 0.1), ("IQ1_S", 0.6)):
            with self.subTest(name):
                rows = minim.encode_format(name, weights, importance)
                decoded = np.stack([minim.decode_format(name, row, 512) for row in rows])
                self.assertLess(np.sqrt(np.square(decoded - weights).mean() / np.square(weights).mean()), bound)
                self.assertTrue((minim.encode_format(name, weights[1], importance) == rows[1]).all())
        self.assertTrue((minim.encode_format("F32", weights).view(np.float32) == weights).all())
        self.assertEqual(minim.encode_format("Q4_K", np.empty((0, 256))).shape, (0, 144))

    def test_what_cannot_be_encoded_is_an_error_that_says_why(self):
        weights = np.ones((2, 256), np.float32)
        for arguments, status, text in (
            (("Q9_Z", weights), "unsupported", "no format 'Q9_Z'"),
            (("IQ3_KT", weights), "unsupported", "no encoder of IQ3_KT"),
            (("Q4_K", weights[:, :128]), "invalid", "whole blocks of Q4_K"),
            (("Q4_K", np.where(np.arange(256) == 9, np.inf, weights)), "invalid", "row 0, column 9"),
            (("Q4_0", 1e9 * weights), "invalid", "too large for the scales of Q4_0"),
            (("Q4_K", weights, -weights[0]), "invalid", "importance of column 0"),
        ):
            with self.subTest(text), self.assertRaisesRegex(minim.Error, text) as caught:
                minim.encode_format(*arguments)
            self.assertEqual(caught.exception.status, status)
        for arguments in (("Q4_K", weights, weights), ("Q4_K", np.float32(1)), ("Q4_K", weights[None])):
            with self.assertRaises(ValueError):
                minim.encode_format(*arguments)


if __name__ == "__main__":
    unittest.main()
