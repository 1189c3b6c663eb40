# SPDX-License-Identifier: Apache-2.0
"""Requests that no client library sends. After each of them, the server must answer the next request."""

import json
import random
import unittest

from support import CHAT, HELLO, TOOLS, Server, post_bytes, raw, status_of

# (field, values that are refused)
WRONG = {
    "messages": [None, "hello", 5, {}, [], [5], ["x"], [None], [[]], [{}], [{"role": 5}], [{"role": "robot", "content": "x"}],
                 [{"role": "user", "content": 5}], [{"role": "user", "content": {"a": 1}}], [{"role": "user", "content": [5]}],
                 [{"role": "user", "content": [{"type": "text"}]}], [{"role": "user", "content": [{"text": "x"}]}],
                 [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}],
                 [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}],
                 [*HELLO, {"role": "assistant", "content": "x", "reasoning_content": 5}],
                 [*HELLO, {"role": "assistant", "tool_calls": "x"}], [*HELLO, {"role": "assistant", "tool_calls": [5]}],
                 [*HELLO, {"role": "assistant", "tool_calls": [{}]}],
                 [*HELLO, {"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}],
                 [*HELLO, {"role": "assistant", "tool_calls": [{"function": {"name": 5}}]}]],
    "temperature": ["hot", "0.5", -0.1, True, [], {}, 1e9], "top_p": [-0.1, 1.1, "1", True], "min_p": [-1, 2, "0"],
    "top_k": ["40", 1.5, True, -2], "n": [0, -1, "2", 1.5, 33, 10**30, True], "seed": ["1", 1.5, True, 2**70],
    "max_tokens": [-2, "5", 1.5, True, []], "max_completion_tokens": [-2, "5", 2.5], "min_tokens": [-1, "1"],
    "stop": [5, [5], ["a"] * 17, "", [""], {}, True], "stream": ["true", 1, 0, []], "stream_options": [5, "x", {"include_usage": 1}],
    "logprobs": [1, "true", 5], "top_logprobs": [-1, 21, "3", 2.5], "presence_penalty": ["1", 3, -3, True],
    "frequency_penalty": ["1", 3, []], "repetition_penalty": [0, -1, "1.1"], "repeat_penalty": ["1", -1], "repeat_last_n": ["64", -2],
    "logit_bias": [5, [5], {"x": 1}, {"99999999": 1}, {"-1": 1}, {"5": "1"}, {"5": 101}, {"5": None}, {"5x": 1}],
    "tools": [5, "x", {}, [5], [{}], [{"type": "function"}], [{"type": "function", "function": {}}], [{"type": "retrieval"}],
              [{"type": "function", "function": {"name": 5}}], [{"type": "function", "function": {"name": ""}}],
              [{"type": "function", "function": {"name": 'a"b'}}],
              [{"type": "function", "function": {"name": "f", "parameters": 5}}]],
    "tool_choice": ["some", 5, {}, {"type": "function"}, {"type": "function", "function": {"name": "nobody"}}, "required"],
    "parallel_tool_calls": ["yes", 1], "response_format": [5, "json", {}, {"type": "xml"}, {"type": "json_schema"},
                                                         {"type": "json_schema", "json_schema": {"schema": 5}},
                                                         {"type": "json_schema", "json_schema": {"schema": {"type": "nothing"}}}],
    "chat_template_kwargs": [5, "x", {"enable_thinking": "no"}], "add_generation_prompt": ["x", 1], "continue_final_message": [5, True],
    "reasoning_effort": [5, True], "include_reasoning": ["no", 0], "ignore_eos": ["x"], "skip_special_tokens": [1, "no"], "return_token_ids": [1], "model": [5, []],
    "user": [5], "metadata": ["x"], "store": ["x"], "typical_p": ["x", 2], "dry_multiplier": ["x", -1], "timings_per_token": [1],
    "cache_prompt": [1], "id_slot": ["1"],
}

BODIES = [b"", b"{", b"[]", b"null", b"5", b'"x"', b"{}", b"{]", b'{"messages": [', b'{"messages": [}', b"\xff\xfe", b"\x00" * 100,
          b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}',
          b'{"messages": [{"role": "user", "content": "\xc0\x80"}]}', b'{"messages": [{"role": "user", "content": "\xed\xa0\x80"}]}',
          b"[" * 100000, b'{"a":' * 100000, b"[{" * 5000, b'{"messages": ' + b"[" * 200 + b"]" * 200 + b"}", b'{"a": 1e999}', b'{"a": NaN}',
          b"{'messages': []}", b'{"messages": [] /* x */}', b'{"messages": []} x', b'{"a": 0x10}', b'{"a": 01}', b'{"a": "\n"}',
          b'{"x": {' + b",".join(b'"%d": 1' % i for i in range(100000)) + b"}}", b"[" + b"0," * 3000000 + b"0]"]

HEADS = {
    "not HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64) + b"\r\n\r\n", (400, None)),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400, 505, None)),
    "no version": (b"GET /health\r\n\r\n", (400, None)), "version 9": (b"GET /health HTTP/9.9\r\n\r\n", (400, 505, None)),
    "space in path": (b"GET /hea lth HTTP/1.1\r\n\r\n", (400, None)),
    "empty name": (b"GET /health HTTP/1.1\r\n: x\r\n\r\n", (400, None)),
    "space in name": (b"GET /health HTTP/1.1\r\nA B: x\r\n\r\n", (400, None)),
    "zero in value": (b"GET /health HTTP/1.1\r\nA: x\x00y\r\n\r\n", (400, None)),
    "long header": (b"GET /health HTTP/1.1\r\nA: " + b"x" * 100000 + b"\r\n\r\n", (400, 431, None)),
    "many headers": (b"GET /health HTTP/1.1\r\n" + b"A: x\r\n" * 20000 + b"\r\n", (400, 431, None)),
    "long path": (b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n", (400, 404, 414, 431, None)),
    "unknown method": (b"BREW /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", (400, 404, 405, 501)),
    "negative length": (post_bytes(CHAT, "{}", Content_Length=-1), (400, 411, 413, None)),
    "length that is no number": (post_bytes(CHAT, "{}", Content_Length="two"), (400, None)),
    "length beyond 64 bits": (post_bytes(CHAT, "{}", Content_Length=10**30), (400, 413, None)),
    "two lengths": (post_bytes(CHAT, "{}", content_length=1), (400, None)),
    "length and chunks": (post_bytes(CHAT, "{}", Transfer_Encoding="chunked"), (400, None)),
    "announces 10 GB": (post_bytes(CHAT, "", Content_Length=10**10), (413,)),
    "announces 33 MB": (post_bytes(CHAT, "", Content_Length=33 << 20), (413,)),
    "bad chunk size": (b"POST " + CHAT.encode() + b" HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", (400, None)),
    "huge chunk": (b"POST " + CHAT.encode() + b" HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}", (400, 413, None)),
    "33 MB in chunks": (b"POST " + CHAT.encode() + b" HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2100000\r\n" + b" " * 0x2100000, (413, None)),
    "other encoding": (post_bytes(CHAT, "{}", Transfer_Encoding="gzip", Content_Length=None), (400, 501, None)),
    "half a body": (post_bytes(CHAT, "{", Content_Length=100), (400, None)),
}


class Hostile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server())

    def is_alive(self):
        self.assertEqual(self.server.get("/health")[0], 200)

    def test_values_that_are_refused(self):
        count = 0
        for field, values in WRONG.items():
            for value in values:
                body = {"messages": HELLO, "max_tokens": 3, field: value}
                status, _, answer = self.server.post(CHAT, body)
                with self.subTest(field=field, value=str(value)[:80]):
                    self.assertEqual(status, 400, answer)
                    self.assertEqual(set(answer["error"]), {"message", "type", "param", "code"})
                    self.assertEqual(answer["error"]["type"], "invalid_request_error")
                    if len(json.dumps(value)) < 60 and field != "messages":
                        self.assertIn(field, answer["error"]["message"])
                count += 1
        self.assertGreater(count, 150)
        self.is_alive()

    def test_null_is_an_absent_field(self):
        body = {"messages": HELLO, **{field: None for field in WRONG if field != "messages"}, "max_tokens": 3}
        self.assertEqual(self.server.post(CHAT, body)[0], 200)

    def test_bodies_that_are_no_json(self):
        for path in (CHAT, "/v1/completions", "/v1/messages", "/v1/responses", "/tokenize"):
            for body in BODIES:
                status, _, answer = self.server.post(path, body)
                self.assertEqual(status, 400, (path, body[:50]))
                self.assertTrue(answer["error"]["message"])
            self.is_alive()

    def test_prompts_beyond_the_context(self):
        for words in (5000, 400000):
            status, _, answer = self.server.post(CHAT, {"messages": [{"role": "user", "content": "many words " * words}]})
            self.assertEqual((status, answer["error"]["code"]), (400, "context_length_exceeded"))
            self.assertIn("4096", answer["error"]["message"])

    def test_heads(self):
        for name, (data, right) in HEADS.items():
            with self.subTest(name):
                self.assertIn(status_of(raw(self.server.address, data, half_close=name == "half a body")), right)
                self.is_alive()

    def test_a_request_cut_anywhere(self):
        request = post_bytes(CHAT, {"messages": HELLO, "max_tokens": 2})
        for end in range(0, len(request), 7):
            self.assertIn(status_of(raw(self.server.address, request[:end], half_close=True)), (400, None), end)
        self.is_alive()

    def test_flipped_bytes(self):
        dice = random.Random(1)
        request = post_bytes(CHAT, {"messages": HELLO, "max_tokens": 2, "tools": TOOLS, "stop": ["x"]}, Connection="close")
        for _ in range(150):
            data = bytearray(request)
            for _ in range(dice.randint(1, 4)):
                data[dice.randrange(len(data))] = dice.randrange(256)
            status = status_of(raw(self.server.address, bytes(data), half_close=True))
            self.assertTrue(status is None or status == 200 or 400 <= status < 500, (status, bytes(data)))
        self.is_alive()


if __name__ == "__main__":
    unittest.main()
