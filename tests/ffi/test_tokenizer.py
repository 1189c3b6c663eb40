# SPDX-License-Identifier: Apache-2.0
import unittest

from support import END, load_json, minim, model


class Tokenizer(unittest.TestCase):
    def test_every_golden_text_gives_the_golden_ids(self):
        for case in load_json("tokenizer/golden.json"):
            with self.subTest(text=case["text"][:40]):
                self.assertEqual(model().tokenize(case["text"]), case["ids"])
                self.assertEqual(model().tokenize(case["text"], special=False), case["ids_no_added_tokens"])

    def test_detokenizing_gives_the_text_back(self):
        for case in load_json("tokenizer/golden.json"):
            with self.subTest(text=case["text"][:40]):
                self.assertEqual(model().detokenize(case["ids"]), case["text"])
                self.assertEqual(model().detokenize(case["ids_no_added_tokens"]), case["text"])

    def test_a_decoder_gives_the_text_token_by_token(self):
        for case in load_json("tokenizer/golden.json"):
            with self.subTest(text=case["text"][:40]), model().decoder() as decoder:
                parts = [decoder.push(id) for id in case["ids"]]
                self.assertEqual("".join(parts) + decoder.finish(), case["text"])
        with model().decoder() as decoder:
            euro = model().tokenize("€", special=False)
            first = model().token_text(euro[0])
            if len(first) < 3:  # the start of a sequence
                self.assertEqual((decoder.push(euro[0]), decoder.finish()), ("", "\ufffd"))
            with self.assertRaises(minim.Error):
                decoder.push(-1)

    def test_the_modes_differ_in_the_added_tokens_they_recognise(self):
        exact = model().tokenize("a[e~[<think>", special="exact")
        safe = model().tokenize("a[e~[<think>", special="safe")
        none = model().tokenize("a[e~[<think>", special="none")
        think = model().tokenize("<think>")[0]
        self.assertEqual(exact, model().tokenize("a[e~[<think>", special=True))
        self.assertIn(END, exact)
        self.assertNotIn(END, safe)
        self.assertIn(think, safe)
        self.assertNotIn(think, none)
        with self.assertRaises(ValueError):
            model().tokenize("a", special="perhaps")

    def test_control_tokens_can_be_left_out_of_the_text(self):
        ids = model().tokenize("a[e~[b")
        self.assertEqual(model().detokenize(ids), "a[e~[b")
        self.assertEqual(model().detokenize(ids, skip_special=True), "ab")

    def test_bytes_that_are_no_utf_8_survive_as_tokens_and_become_u_fffd_as_text(self):
        ids = model().tokenize(b"a\xff\x00b")
        self.assertEqual(b"".join(model().token_text(id) for id in ids), b"a\xff\x00b")
        self.assertEqual(model().detokenize(ids), "a\ufffd\x00b")

    def test_ids_may_be_any_sequence_of_integers(self):
        import numpy as np

        ids = model().tokenize("What is the capital of France?")
        for same in (tuple(ids), np.array(ids, np.int64), np.array(ids, np.uint16)):
            self.assertEqual(model().detokenize(same), "What is the capital of France?")
        for wrong in ([1.5], [[1, 2]], ["a"], [2**70]):
            with self.assertRaises(TypeError):
                model().detokenize(wrong)

    def test_an_id_that_is_no_token_is_invalid(self):
        for id in (-1, model().n_vocab, 2**31, 2**40):
            with self.subTest(id=id), self.assertRaises(minim.Error) as caught:
                model().detokenize([id])
            self.assertEqual(caught.exception.status, "invalid")
            self.assertEqual(model().token_attributes(id), -1)


if __name__ == "__main__":
    unittest.main()
