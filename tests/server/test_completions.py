# SPDX-License-Identifier: Apache-2.0
"""/v1/completions"""

import unittest

from support import Server

PATH = "/v1/completions"
PROMPT = "]~!b[]~b]system\nYou are a helpful assistant.[e~[\n]~b]user\nCount from 1 to 9.[e~[\n]~b]ai\n<think>\n"


class Completions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server())

    def complete(self, prompt=PROMPT, **fields):
        return self.server.ok(PATH, {"prompt": prompt, "temperature": 0, "max_tokens": 60, **fields})

    def test_an_answer_is_the_raw_output(self):
        answer = self.complete()
        self.assertRegex(answer["id"], "^cmpl-[0-9a-f]{24}$")
        self.assertEqual(answer["object"], "text_completion")
        choice = answer["choices"][0]
        self.assertIn("</think>", choice["text"])
        self.assertEqual(choice["finish_reason"], "stop")
        self.assertEqual(self.complete(max_tokens=None)["usage"]["completion_tokens"], 16)

    def test_the_text_of_the_end_token(self):
        text = self.complete()["choices"][0]["text"]
        self.assertEqual(self.complete(skip_special_tokens=False)["choices"][0]["text"], text + "[e~[")
        self.assertEqual(self.complete(skip_special_tokens=True)["choices"][0]["text"], text)
        stopped = self.complete(skip_special_tokens=False, stop="</think>")["choices"][0]["text"]
        self.assertNotIn("[e~[", stopped)

    def test_ids_are_the_same_prompt(self):
        ids = self.server.ok("/tokenize", {"prompt": PROMPT})["tokens"]
        self.assertEqual(self.complete(ids)["choices"], self.complete()["choices"])
        self.assertEqual(self.complete([ids])["choices"], self.complete()["choices"])
        self.assertEqual(self.complete(ids)["usage"]["prompt_tokens"], len(ids))

    def test_a_stream_adds_up(self):
        whole = self.complete()["choices"][0]
        events = self.server.events(PATH, {"prompt": PROMPT, "temperature": 0, "max_tokens": 60,
                                           "stream_options": {"include_usage": True}})
        self.assertEqual(events[-1], (None, "[DONE]"))
        chunks = [data for _, data in events[:-1]]
        self.assertEqual("".join(c["text"] for chunk in chunks for c in chunk["choices"]), whole["text"])
        self.assertEqual(chunks[-2]["choices"][0]["finish_reason"], "stop")
        self.assertGreater(chunks[-1]["usage"]["completion_tokens"], 5)

    def test_several_prompts_and_choices(self):
        other = PROMPT.replace("9", "5")
        answer = self.complete([PROMPT, other], n=2)
        self.assertEqual([choice["index"] for choice in answer["choices"]], [0, 1, 2, 3])
        texts = [choice["text"] for choice in answer["choices"]]
        self.assertEqual(texts, [self.complete()["choices"][0]["text"]] * 2 + [self.complete(other)["choices"][0]["text"]] * 2)

    def test_echo_and_suffix(self):
        self.assertEqual(self.complete("abc", echo=True, max_tokens=0)["choices"][0]["text"], "abc")
        self.assertTrue(self.complete(echo=True)["choices"][0]["text"].startswith(PROMPT))
        self.complete(suffix="")
        self.assertEqual(self.server.post(PATH, {"prompt": "a", "suffix": "b"})[2]["error"]["param"], "suffix")

    def test_log_probabilities(self):
        answer = self.complete(logprobs=2)
        logprobs = answer["choices"][0]["logprobs"]
        count = answer["usage"]["completion_tokens"]
        self.assertEqual([len(logprobs[name]) for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")], [count] * 4)
        self.assertEqual("".join(logprobs["tokens"]), answer["choices"][0]["text"])
        text = answer["choices"][0]["text"]
        for token, offset, logprob, top in zip(*(logprobs[n] for n in ("tokens", "text_offset", "token_logprobs", "top_logprobs"))):
            self.assertTrue(text[offset:].startswith(token))
            self.assertEqual(len(top), 2)
            self.assertAlmostEqual(max(top.values()), logprob)
        self.assertEqual(len(self.complete(logprobs=0)["choices"][0]["logprobs"]["tokens"]), count)

    def test_a_stop_text_ends_the_answer(self):
        whole = self.complete()["choices"][0]["text"]
        stopped = self.complete(stop=["4", "7"])["choices"][0]
        self.assertEqual((stopped["text"], stopped["finish_reason"]), (whole[:min(whole.index("4"), whole.index("7"))], "stop"))

    def test_refused_prompts(self):
        for prompt in (None, [], "", [[]], [2048], [-1], [1.5], [True], ["a", 1], [1, "a"], {"a": 1}, 5, [[1], "a"], [""]):
            status, _, answer = self.server.post(PATH, {"prompt": prompt})
            self.assertEqual((status, answer["error"]["param"]), (400, "prompt"), prompt)
        status, _, answer = self.server.post(PATH, {"prompt": [5] * 5000})
        self.assertEqual((status, answer["error"]["code"]), (400, "context_length_exceeded"))
        self.assertTrue("5000" in answer["error"]["message"] and "4096" in answer["error"]["message"])

    def test_the_seeds_requests(self):
        answer = self.server.ok(PATH, {"model": "mconcat/MiniMax-M2.5-NVFP4", "prompt": "Hello", "max_tokens": 5})
        self.assertEqual(answer["model"], "mconcat/MiniMax-M2.5-NVFP4")


if __name__ == "__main__":
    unittest.main()
