# SPDX-License-Identifier: Apache-2.0
import json
import unittest

from support import load_json, minim, model


def collected(deltas):
    """Returns the message that a client gets from a stream: the sum of its deltas."""
    result = {"content": None, "reasoning_content": None, "tool_calls": []}
    for delta in deltas:
        ((kind, piece),) = delta.items()
        if kind != "tool_call":
            result[kind] = (result[kind] or "") + piece
            continue
        if "name" in piece:
            assert piece["index"] == len(result["tool_calls"])
            result["tool_calls"].append({"name": piece["name"], "arguments": ""})
        assert piece["index"] == len(result["tool_calls"]) - 1
        result["tool_calls"][-1]["arguments"] += piece.get("arguments", "")
    return result


class Outputs(unittest.TestCase):
    def cases(self):
        for name in ("outputs", "more_outputs"):
            document = load_json(f"chat/{name}.json")
            for case in document["cases"]:
                text = case["text"] if "text" in case else bytes.fromhex(case["bytes"])
                options = {
                    "tools": document["tools"][case["tools"]] if case["tools"] else None,
                    "reasoning": case["reasoning"],
                    "starts_in_reasoning": case["starts_in_reasoning"],
                }
                yield case, text, options

    def test_every_golden_output_parses_whole(self):
        for case, text, options in self.cases():
            expect = {key: value for key, value in case["expect"].items() if key != "partial"}
            with self.subTest(case["name"]):
                self.assertEqual(model().parse_output(text, finish=case["finish"], **options), expect)

    def test_every_golden_output_parses_byte_by_byte(self):
        for case, text, options in self.cases():
            data = text if isinstance(text, bytes) else text.encode()
            with self.subTest(case["name"]):
                parser = model().output_parser(**options)
                deltas = [delta for i in range(len(data)) for delta in parser.feed(data[i : i + 1])]
                result = collected(deltas + parser.finish(case["finish"]))
                self.assertEqual(parser.finish_reason, case["expect"]["finish_reason"])
                if len(result["tool_calls"]) > len(case["expect"]["tool_calls"]):
                    partial = result["tool_calls"].pop()
                    self.assertEqual(partial["name"], case["expect"]["partial"]["name"])
                    most = case["expect"]["partial"]["arguments"]
                    self.assertTrue(most.startswith(partial["arguments"]))
                    with self.assertRaises(ValueError):
                        json.loads(partial["arguments"])
                for key in ("content", "reasoning_content", "tool_calls"):
                    self.assertEqual(result[key], case["expect"][key])

    def test_misuse_is_an_error(self):
        parser = model().output_parser()
        parser.finish()
        with self.assertRaises(minim.Error) as caught:
            parser.feed(b"more")
        self.assertEqual(caught.exception.status, "invalid")
        with self.assertRaises(minim.Error):
            parser.finish("length")
        with self.assertRaisesRegex(ValueError, "finish is 'tool_calls'"):
            model().parse_output("x", finish="tool_calls")
        with self.assertRaisesRegex(ValueError, "reasoning is 'qwen3'"):
            model().output_parser(reasoning="qwen3")
        with self.assertRaisesRegex(minim.Error, r"tools\[1\]"):
            model().parse_output("x", tools=[{"name": "f"}, {}])
        parser.close()
        with self.assertRaises(ValueError):
            parser.feed(b"more")


if __name__ == "__main__":
    unittest.main()
