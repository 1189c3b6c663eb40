# SPDX-License-Identifier: Apache-2.0
"""minim.LLM and minim.Llama: the interfaces of vLLM and llama-cpp-python."""

import concurrent.futures
import json
import math
import pathlib
import tempfile
import threading
import unittest
import warnings

from support import Q8_0, minim, model, np
from minim import _peers as peers

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


class LookupDrafts:
    """As llama-cpp-python's LlamaPromptLookupDecoding."""

    num_pred_tokens = 4


def warnings_of(call):
    """Returns the texts of warnings, which must name this file as their place."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(warning.message) for warning in caught if pathlib.Path(warning.filename).name == "test_familiar.py"]


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


    def test_parameters_of_vllm_are_used_or_named(self):
        def opened(**options):
            minim.LLM(str(Q8_0), max_model_len=64, threads=1, **options).close()

        for name, value in (
            ("tensor_parallel_size", 0),
            ("data_parallel_size", 2),
            ("tokenizer", "other"),
            ("enable_lora", True),
            ("hf_overrides", {"a": 1}),
            ("logits_processors", [print]),
            ("kv_cache_dtype", "fp8"),
            ("speculative_config", {"method": "eagle"}),
            ("gpu_memory_utilization", 1.5),
            ("runner", "pooling"),
            ("max_logprobs", 21),
        ):
            with self.subTest(name), self.assertRaisesRegex(ValueError, f"{name}=.* is refused: .") as raised:
                opened(**{name: value})
            self.assertIsInstance(raised.exception, minim.Error)
        for name, value in (
            ("trust_remote_code", True),
            ("enforce_eager", True),
            ("dtype", "bfloat16"),
            ("swap_space", 4),
            ("revision", "main"),
            ("limit_mm_per_prompt", {"image": 1}),
            ("disable_log_stats", False),
            ("gpu_memory_utilization", 0.9),
            ("cpu_offload_gb", 10),
            ("enable_expert_parallel", True),
        ):
            with self.subTest(name):
                [text] = warnings_of(lambda: opened(**{name: value}))
                self.assertRegex(text, f"^LLM: {name}=.* has no effect: .")
        nothing = {"tensor_parallel_size": 1, "dtype": "auto", "trust_remote_code": False, "enforce_eager": False, "hf_overrides": {}}
        self.assertEqual(warnings_of(lambda: opened(**nothing, quantization=None, tokenizer=str(Q8_0), disable_log_stats=True)), [])
        with self.assertRaisesRegex(TypeError, "LLM has no parameter 'max_model_length'; the nearest one is 'max_model_len'"):
            opened(max_model_length=64)

    def test_a_chat_template_is_a_text_or_a_file(self):
        own = "{% for turn in messages %}<{{ turn.role }}>{{ turn.content }}{% endfor %}"
        greedy = minim.SamplingParams(temperature=0.0, max_tokens=4)
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "own.jinja")
            file.write_text(own, encoding="utf-8")
            for given in (own, file, str(file)):
                llm = minim.LLM(str(Q8_0), max_model_len=64, threads=1, chat_template=given)
                asked = llm.chat([{"role": "user", "content": "Hi"}], greedy)[0].prompt_token_ids
                self.assertEqual(list(asked), list(llm.model.tokenize("<user>Hi")))
                llm.close()
        with self.assertRaises(FileNotFoundError):
            minim.LLM(str(Q8_0), max_model_len=64, threads=1, chat_template=file)

    def test_each_parameter_has_one_use(self):
        for call, warned, refused in (
            (minim.LLM, peers.LLM_WARNED, peers.LLM_REFUSED),
            (minim.Llama, peers.LLAMA_WARNED, peers.LLAMA_REFUSED),
            (minim.Llama.create_chat_completion, peers.ASKING_WARNED, peers.ASKING_REFUSED),
            (minim.LLM.generate, peers.GENERATE_WARNED, peers.GENERATE_REFUSED),
        ):
            used = set(peers.parameters_of(call)) | (set(peers.parameters_of(minim.Model)) if isinstance(call, type) else set())
            used.discard("main_gpu")  # only with split_mode=0
            self.assertEqual((used & set(warned)) | (used & set(refused)) | (set(warned) & set(refused)), set())

    def test_the_quantization_is_that_of_the_file(self):
        minim.LLM(str(Q8_0), max_model_len=64, quantization="gguf").close()
        with self.assertRaisesRegex(ValueError, f"quantization='fp8', but {Q8_0} is quantized as 'gguf'"):
            minim.LLM(str(Q8_0), quantization="fp8")
        from minim import _checkpoints as checkpoints

        for config, right, wrong in (
            ({"quantization_config": {"quant_method": "fp8"}}, ("fp8", "FP8"), "awq"),
            ({"quantization_config": {"quant_method": "awq"}}, ("awq", "awq_marlin", "moe_wna16"), "gptq"),
            ({"text_config": {"quantization_config": {"quant_method": "gptq"}}}, ("gptq", "gptq_marlin"), "fp8"),
            ({"quantization_config": {"quant_method": "compressed-tensors"}}, ("compressed-tensors",), "modelopt"),
            ({"quantization_config": {"quant_algo": "NVFP4"}}, ("modelopt", "modelopt_fp4", "nvfp4"), "gguf"),
            ({}, (None,), "fp8"),
        ):
            with tempfile.TemporaryDirectory() as folder, self.subTest(config):
                (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
                for name in right:
                    checkpoints.check_quantization(folder, name)
                    checkpoints.check_quantization(folder + "/model.safetensors.index.json", None)
                with self.assertRaisesRegex(ValueError, f"quantization='{wrong}', but {folder} is "):
                    checkpoints.check_quantization(folder, wrong)

    def test_prompts_of_any_type(self):
        one = minim.SamplingParams(max_tokens=1, temperature=0.0)
        hello = [int(id) for id in model().tokenize("hello", "safe")]
        for prompts, expected in (
            (b"hello", [hello]),
            (["hello", bytearray(b"hello")], [hello, hello]),
            (np.array([5, 6]), [[5, 6]]),
            (np.array([[5, 6], [7, 8]]), [[5, 6], [7, 8]]),
            ([np.int64(5), np.int32(6)], [[5, 6]]),
            ([[5], (6,), np.array([7])], [[5], [6], [7]]),
            (iter(["hello"]), [hello]),
            ({"prompt": "hello", "multi_modal_data": None}, [hello]),
            ([], []),
        ):
            with self.subTest(prompts):
                self.assertEqual([output.prompt_token_ids for output in self.llm.generate(prompts, one)], expected)
        self.assertEqual([output.prompt_token_ids for output in self.llm.generate(prompt_token_ids=[[5], [6]], sampling_params=one)], [[5], [6]])
        for prompts, error in ((5, TypeError), ([1.5], TypeError), ({"prompt_embeds": [1]}, ValueError), (None, TypeError)):
            with self.subTest(prompts), self.assertRaises(error):
                self.llm.generate(prompts, one)
        with self.assertRaisesRegex(ValueError, "lora_request=.* is refused"):
            self.llm.generate("a", one, lora_request=object())
        self.assertEqual(len(self.llm.generate(["a", "b"], one, use_tqdm=lambda requests, desc: requests, priority=[2, 1])), 2)

    def test_sampling_params_of_vllm_are_used_or_named(self):
        def answer(**options):
            [output] = self.llm.generate("Once upon", minim.SamplingParams(**{"max_tokens": 6, "temperature": 0.0, **options}))
            return output.outputs[0]

        plain = answer()
        ids = [token for token in plain.token_ids]
        self.assertEqual(answer(logit_bias={"5": 100}).token_ids, [5] * 6)
        self.assertEqual(answer(top_k=-1, seed=-1, thinking_token_budget=-1, prompt_logprobs=None, best_of=1, bad_words=[]).token_ids, ids)
        stopped = answer(stop=[plain.text[3:5]], include_stop_str_in_output=True)
        self.assertEqual((stopped.text, stopped.stop_reason, stopped.finish_reason), (plain.text[:5], plain.text[3:5], "stop"))
        self.assertEqual(answer(detokenize=False).text, "")
        self.assertEqual(answer(structured_outputs=minim.StructuredOutputsParams(choice=["red"])).text, "red")
        self.assertEqual(len(answer(structured_outputs={"regex": "[ab]{3}"}).text), 3)
        self.assertEqual(answer(structured_outputs={"grammar": 'root ::= "x" "y"'}).text, "xy")
        self.assertIsInstance(json.loads(answer(guided_decoding={"json": '{"enum": [1, 2]}'}).text), int)
        logprobs = answer(logprobs=2).logprobs
        self.assertEqual((logprobs[0][ids[0]].rank, logprobs[0][ids[0]].decoded_token), (1, model().token_text(ids[0]).decode()))
        [output] = self.llm.generate("Once upon", minim.SamplingParams(max_tokens=1, prompt_logprobs=1))
        ids = output.prompt_token_ids
        scores = output.prompt_logprobs
        self.assertEqual((len(scores), scores[0], len(output.outputs[0].token_ids)), (len(ids), None, 1))
        with model().session(context=64) as session:
            rows = session.eval(ids, all_logits=True)
            for score, row, id in zip(scores[1:], rows, ids[1:]):
                total = math.log(sum(math.exp(logit) for logit in row))
                self.assertAlmostEqual(score[id].logprob, row[id] - total, places=4)
                self.assertEqual(score[id].rank, 1 + sum(logit > row[id] for logit in row))
                self.assertEqual(max(score.values(), key=lambda one: one.logprob).rank, 1)
        for name, value in (
            ("max_tokens", 0),
            ("n", 0),
            ("top_k", -2),
            ("logprobs", -1),
            ("logprobs", 21),
            ("thinking_token_budget", 0),
            ("prompt_logprobs", -1),
            ("prompt_logprobs", 21),
            ("prompt_logprob_start", 1),
            ("bad_words", ["x"]),
            ("allowed_token_ids", [1]),
            ("best_of", 3),
            ("logits_processors", [print]),
            ("logit_bias", {"x": 1}),
            ("structured_outputs", {"structural_tag": "x"}),
            ("structured_outputs", {"regex": "a", "choice": ["b"]}),
        ):
            with self.subTest(name, value=value), self.assertRaisesRegex(ValueError, name):
                answer(**{name: value})
        [text] = warnings_of(lambda: minim.SamplingParams(extra_args={"a": 1}))
        self.assertEqual(text, "SamplingParams: extra_args={'a': 1} has no effect: no sampler reads it")
        self.assertGreater(len({answer(temperature=8.0, seed=-1).text for _ in range(4)}), 1)

    def test_a_seed_of_the_object_repeats_its_answers(self):
        def answers(seed):
            with minim.LLM(str(Q8_0), max_model_len=64, threads=1, seed=seed) as llm:
                outputs = llm.generate(["Once", "Once"], minim.SamplingParams(temperature=5.0, max_tokens=6))
                return [output.outputs[0].text for output in outputs]

        first = answers(3)
        self.assertNotEqual(first[0], first[1])
        self.assertEqual(answers(3), first)
        self.assertNotEqual(answers(4), first)


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


    def test_parameters_of_its_model_are_used_or_named(self):
        def opened(**options):
            minim.Llama(str(Q8_0), n_ctx=64, **options).close()

        for name, value in (
            ("split_mode", 2),
            ("rope_freq_base", 1e6),
            ("lora_path", "x"),
            ("embedding", True),
            ("vocab_only", True),
            ("kv_overrides", {"a": 1}),
            ("type_k", 99),
            ("numa", 7),
            ("draft_model", object()),
        ):
            with self.subTest(name), self.assertRaisesRegex(ValueError, f"{name}.* is refused: ."):
                opened(**{name: value})
        for name, value in (("chat_format", "chatml"), ("offload_kqv", False), ("main_gpu", 1), ("spm_infill", True)):
            with self.subTest(name):
                [text] = warnings_of(lambda: opened(**{name: value}))
                self.assertRegex(text, f"^Llama: {name}=.* has no effect: .")
        quiet = {"n_gpu_layers": 0, "seed": -1, "n_batch": 512, "n_ubatch": 64, "use_mmap": True, "flash_attn": True, "yarn_ext_factor": -1.0}
        self.assertEqual(warnings_of(lambda: opened(**quiet, logits_all=True, verbose=False, n_threads=None, draft_model=LookupDrafts())), [])
        with self.assertRaisesRegex(TypeError, "Llama has no parameter 'n_gpu_layer'; the nearest one is 'n_gpu_layers'"):
            opened(n_gpu_layer=1)
        with minim.Llama(str(Q8_0), n_ctx=64, type_k=8, type_v="f16") as llama, minim.Llama(str(Q8_0), n_ctx=64) as usual:
            self.assertLess(llama.session.kv_bytes, usual.session.kv_bytes)

    def test_options_of_an_answer_are_used_or_named(self):
        def ask(**options):
            return self.llm.create_chat_completion(FRANCE, **{"max_tokens": 3, "temperature": 0.0, **options})

        plain = ask()["choices"][0]
        self.assertEqual(ask(top_k=-1, typical_p=1.0, mirostat_mode=0, logits_processor=None, grammar=None, seed=-1)["choices"][0], plain)
        self.assertEqual(ask(logit_bias={"5": 0.0}, repeat_penalty=1.0, stop=None, functions=None)["choices"][0], plain)
        self.assertEqual(ask(model="name")["model"], "name")
        for unlimited in (None, 0, -1):
            self.assertIn("Paris", ask(max_tokens=unlimited)["choices"][0]["message"]["content"])
        for name, value in (
            ("typical_p", 0.5),
            ("mirostat_mode", 2),
            ("logits_processor", [print]),
            ("functions", [{}]),
            ("top_logprobs", 2),
            ("schema", {}),
        ):
            with self.subTest(name), self.assertRaisesRegex(ValueError, name):
                ask(**{name: value})
        for name in ("n", "temp"):
            with self.subTest(name), self.assertRaisesRegex(TypeError, f"no parameter '{name}'"):
                ask(**{name: 1})
        for options in ({"tool_choice": "required"}, {"tools": [WEATHER], "tool_choice": "required", "response_format": {"type": "json_object"}}):
            with self.subTest(options), self.assertRaisesRegex(ValueError, "tool_choice"):
                ask(**options)
        with self.assertRaisesRegex(ValueError, "no json_schema with a schema"):
            ask(response_format={"type": "json_schema"})
        texts = {str(ask(seed=-1, temperature=8.0, max_tokens=12)["choices"]) for _ in range(4)}
        self.assertGreater(len(texts), 1)

    def test_a_grammar_is_kept_to(self):
        class Grammar:  # as LlamaGrammar
            _grammar = 'root ::= "blue" | "green"'

        for grammar in (Grammar(), Grammar._grammar):
            answer = self.llm.create_chat_completion(FRANCE, grammar=grammar, temperature=0.0)
            self.assertIn(answer["choices"][0]["message"]["content"].strip(), ("blue", "green"))
            self.assertIn(self.llm("The sky is ", grammar=grammar, temperature=0.0)["choices"][0]["text"], ("blue", "green"))
        with self.assertRaisesRegex(TypeError, "grammar is a text in GBNF"):
            self.llm("a", grammar=5)
        with self.assertRaisesRegex(ValueError, "grammar is refused beside response_format"):
            self.llm.create_chat_completion(FRANCE, grammar="root ::= x", response_format={"type": "json_object"})

    def test_log_probabilities_are_in_answers_and_chunks(self):
        options = {"temperature": 0.0, "max_tokens": 12, "logprobs": True, "top_logprobs": 2}
        [choice] = self.llm.create_chat_completion(FRANCE, **options)["choices"]
        scores = choice["logprobs"]["content"]
        self.assertEqual(len(scores), 12)
        whole = b"".join(bytes(score["bytes"]) for score in scores).decode()
        self.assertTrue(whole.startswith(choice["message"]["reasoning_content"] + "\n</think>"), whole)
        for score in scores:
            self.assertEqual((len(score["top_logprobs"]), score["top_logprobs"][0]["token"]), (2, score["token"]))
        streamed = self.llm._joined(self.llm.create_chat_completion(FRANCE, stream=True, **options))
        self.assertEqual(streamed["choices"][0]["logprobs"], choice["logprobs"])

    def test_texts_are_completed(self):
        answer = self.llm("Once upon", max_tokens=4, temperature=0.0, logprobs=2, seed=1)
        self.assertEqual((answer["object"], answer["usage"]["completion_tokens"]), ("text_completion", 4))
        [choice] = answer["choices"]
        scores = choice["logprobs"]
        self.assertEqual("".join(scores["tokens"]), choice["text"])
        self.assertEqual(scores["text_offset"][2], len(scores["tokens"][0] + scores["tokens"][1]))
        ids = self.llm.tokenize(b"Once upon")
        self.assertEqual(self.llm.detokenize(ids), b"Once upon")
        chunks = list(self.llm.create_completion(np.array(ids), max_tokens=4, temperature=0.0, stream=True))
        self.assertEqual("".join(chunk["choices"][0]["text"] for chunk in chunks), choice["text"])
        self.assertEqual(chunks[-1]["choices"][0]["finish_reason"], "length")
        echoed = self.llm("Once upon", max_tokens=4, temperature=0.0, echo=True)["choices"][0]["text"]
        self.assertEqual(echoed, "Once upon" + choice["text"])
        for name, value in (("suffix", "x"), ("stopping_criteria", [print])):
            with self.subTest(name), self.assertRaisesRegex(ValueError, name):
                self.llm("a", **{name: value})


class Streams(unittest.TestCase):
    def setUp(self):
        self.llm = minim.Llama(str(Q8_0), n_ctx=512, n_threads=2)
        self.addCleanup(self.llm.close)

    def ask(self, **options):
        return self.llm.create_chat_completion(FRANCE, temperature=0.0, **options)

    def test_a_stream_that_is_not_read_to_its_end_gives_way(self):
        whole = self.ask(max_tokens=5)["choices"]
        for n_read in (1, 3):
            stream = self.ask(stream=True)
            for _ in range(n_read):
                next(stream)
            self.assertEqual(self.ask(max_tokens=5)["choices"], whole)
            with self.assertRaisesRegex(minim.Error, "another call on this Llama ended this stream"):
                next(stream)
            stream.close()
        first, second = self.ask(stream=True), self.ask(stream=True)
        next(first)
        self.assertGreater(len(list(second)), 3)
        stream = self.ask(stream=True)
        next(stream)
        stream.close()
        self.assertEqual(list(stream), [])
        never_read = self.ask(stream=True)
        self.assertEqual(self.ask(max_tokens=5)["choices"], whole)
        del never_read

    def test_other_threads_wait_for_a_stream_that_is_read_and_are_told_of_one_that_is_not(self):
        outcomes = []

        def call():
            try:
                outcomes.append(self.ask(max_tokens=5)["choices"])
            except minim.Error as error:
                outcomes.append(error.status)

        stream = self.ask(stream=True)
        next(stream)
        thread = threading.Thread(target=call)
        thread.start()
        chunks = list(stream)
        thread.join(30)
        self.assertEqual(outcomes, [self.ask(max_tokens=5)["choices"]])
        self.assertEqual(chunks[-1]["choices"][0]["finish_reason"], "stop")
        stream = self.ask(stream=True)
        next(stream)
        thread = threading.Thread(target=call)
        thread.start()
        thread.join(30)
        self.assertEqual(outcomes[1], minim.Status.BUSY)
        self.assertGreater(len(list(stream)), 3)  # it goes on

    def test_threads_of_a_pool_read_streams_in_turn(self):
        with concurrent.futures.ThreadPoolExecutor(6) as pool:

            def read():
                stream, chunks = self.ask(stream=True), []
                while (chunk := pool.submit(next, stream, None).result()) is not None:
                    chunks.append(chunk)
                return self.llm._joined(chunks)["choices"]

            answers = [answer.result(60) for answer in [pool.submit(read) for _ in range(3)]]
        self.assertEqual(answers, [self.ask()["choices"]] * 3)


if __name__ == "__main__":
    unittest.main()
