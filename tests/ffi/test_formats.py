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


if __name__ == "__main__":
    unittest.main()
