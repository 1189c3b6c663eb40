# SPDX-License-Identifier: Apache-2.0
"""minim.LLM and minim.Llama: the interfaces of vLLM and llama-cpp-python."""

import json
import unittest

from support import Q8_0, minim, model

FRANCE = [{"role": "user", "content": "What is the capital of France?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city", "days"],
        },
    },
}


class OfflineInference(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.llm = minim.LLM(model=str(Q8_0), max_model_len=512, threads=2)

    @classmethod
    def tearDownClass(cls):
        cls.llm.close()

    def test_prompts_are_answered_in_their_order(self):
        greedy = minim.SamplingParams(temperature=0.0, max_tokens=12)
        prompts = ["The capital of France is", {"prompt": "Two and two"}, model().tokenize("Water boils", "safe")]
        outputs = self.llm.generate(prompts, greedy)
        self.assertEqual([output.prompt for output in outputs], [prompts[0], "Two and two", None])
        with model().session(context=512) as session:
            for prompt, output in zip((prompts[0], "Two and two", prompts[2]), outputs):
                session.truncate(0)
                expected = list(session.generate(prompt, max_tokens=12))
                [only] = output.outputs
                self.assertEqual(only.text, "".join(token.text for token in expected))
                self.assertEqual(only.token_ids, [token.id for token in expected])
                self.assertEqual(only.finish_reason, "length" if len(expected) == 12 else "stop")
                self.assertEqual(output.prompt_token_ids, list(model().tokenize(prompt, "safe")) if isinstance(prompt, str) else list(prompt))

    def test_the_default_is_what_the_checkpoint_recommends(self):
        default = self.llm.get_default_sampling_params()
        self.assertEqual((default.temperature, default.top_p, default.top_k, default.min_p), (1.0, 0.95, 40, 0.0))
        self.assertEqual(default.repetition_penalty, 1.0)
        [output] = self.llm.generate("Once upon a time")
        self.assertLessEqual(len(output.outputs[0].token_ids), default.max_tokens)

    def test_one_prompt_may_have_several_answers_and_parameters_of_its_own(self):
        several = minim.SamplingParams(n=3, temperature=1.0, seed=7, max_tokens=8, ignore_eos=True, logprobs=2)
        [output] = self.llm.generate("Once upon a time", several)
        self.assertEqual([one.index for one in output.outputs], [0, 1, 2])
        self.assertGreater(len({one.text for one in output.outputs}), 1)
        for one in output.outputs:
            self.assertEqual(len(one.logprobs), 8)
            self.assertLessEqual(one.cumulative_logprob, 0.0)
        [again] = self.llm.generate("Once upon a time", several)
        self.assertEqual([one.text for one in again.outputs], [one.text for one in output.outputs])
        short, long = minim.SamplingParams(max_tokens=1, ignore_eos=True), minim.SamplingParams(max_tokens=5, ignore_eos=True)
        outputs = self.llm.generate(["a", "b"], [short, long])
        self.assertEqual([len(output.outputs[0].token_ids) for output in outputs], [1, 5])
        with self.assertRaisesRegex(ValueError, "1 sampling_params for 2 prompts"):
            self.llm.generate(["a", "b"], [short])

    def test_conversations(self):
        greedy = minim.SamplingParams(temperature=0.0, max_tokens=None)
        [output] = self.llm.chat(FRANCE, greedy)
        self.assertIn("Paris", output.outputs[0].text)
        self.assertEqual(len(self.llm.chat([FRANCE, FRANCE], greedy)), 2)


class ChatCompletions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.llm = minim.Llama(model_path=str(Q8_0), n_ctx=2048, n_threads=2)

    @classmethod
    def tearDownClass(cls):
        cls.llm.close()

    def test_an_answer_and_its_chunks_are_the_same(self):
        answer = self.llm.create_chat_completion(FRANCE, temperature=0.0)
        self.assertEqual(answer["object"], "chat.completion")
        [choice] = answer["choices"]
        self.assertEqual(choice["finish_reason"], "stop")
        self.assertIn("Paris", choice["message"]["content"])
        usage = answer["usage"]
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
        chunks = list(self.llm.create_chat_completion(FRANCE, temperature=0.0, stream=True))
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
        self.assertEqual("".join(delta.get("content", "") for delta in deltas), choice["message"]["content"])
        self.assertEqual({chunk["object"] for chunk in chunks}, {"chat.completion.chunk"})
        self.assertEqual(chunks[-1]["choices"][0]["finish_reason"], "stop")

    def test_a_conversation_goes_on_where_it_is_known(self):
        first = self.llm.create_chat_completion(FRANCE, temperature=0.0, max_tokens=40)["choices"][0]["message"]
        turn = {"role": "assistant", "content": first["content"] or ""}
        more = [*FRANCE, turn, {"role": "user", "content": "And of Italy?"}]
        again = minim.Llama(model_path=str(Q8_0), n_ctx=2048, n_threads=2)
        with again:
            expected = again.create_chat_completion(more, temperature=0.0)["choices"]
        self.assertEqual(self.llm.create_chat_completion(more, temperature=0.0)["choices"], expected)

    def test_a_response_format_is_kept_to(self):
        schema = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
        format = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        answer = self.llm.create_chat_completion(FRANCE, response_format=format, max_tokens=400, seed=1)
        self.assertIn(json.loads(answer["choices"][0]["message"]["content"])["city"], ["Paris", "Rome"])
        with self.assertRaisesRegex(ValueError, "response_format has the type 'xml'"):
            self.llm.create_chat_completion(FRANCE, response_format={"type": "xml"})

    def test_a_required_tool_is_called(self):
        for stream in (False, True):
            answer = self.llm.create_chat_completion(
                FRANCE, tools=[WEATHER], tool_choice="required", max_tokens=400, seed=3, stream=stream
            )
            if stream:
                answer = self.llm._joined(answer)
            message = answer["choices"][0]["message"]
            self.assertEqual(answer["choices"][0]["finish_reason"], "tool_calls")
            call = message["tool_calls"][0]
            self.assertEqual((call["type"], call["function"]["name"]), ("function", "get_weather"))
            self.assertEqual(set(json.loads(call["function"]["arguments"])), {"city", "days"})
        with self.assertRaisesRegex(ValueError, "tool_choice is 'maybe'"):
            self.llm.create_chat_completion(FRANCE, tools=[WEATHER], tool_choice="maybe")


if __name__ == "__main__":
    unittest.main()
