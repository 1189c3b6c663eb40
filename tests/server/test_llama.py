# SPDX-License-Identifier: Apache-2.0
"""llama.cpp's own routes, log-probabilities of prompts, and drafts."""

import math
import os
import re
import sys
import threading
import time
import unittest

from support import CHAT, COUNT, HELLO, ROOT, MODEL, Server

PROMPT = "]~!b[]~b]system\nYou are a helpful assistant.[e~[\n]~b]user\nCount from 1 to 9.[e~[\n]~b]ai\n<think>\n"
COMPLETIONS = "/v1/completions"
FIELDS = {"index", "content", "tokens", "id_slot", "stop", "model", "tokens_predicted", "tokens_evaluated", "generation_settings", "prompt",
          "has_new_line", "truncated", "stop_type", "stopping_word", "tokens_cached", "timings"}


class Served(unittest.TestCase):
    options = ()

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server(*cls.options))

    def complete(self, prompt=PROMPT, **fields):
        return self.server.ok("/completion", {"prompt": prompt, "temperature": 0, "n_predict": 60, **fields})

    def ids(self, text):
        return self.server.ok("/tokenize", {"content": text})["tokens"]

    def refused(self, path, body, name, status=400):
        found, _, answer = self.server.post(path, body)
        self.assertEqual(found, status, answer)
        self.assertIn(name, answer["error"]["message"])


class Completion(Served):
    def test_an_answer(self):
        answer = self.complete()
        self.assertEqual(set(answer), FIELDS)
        openai = self.server.ok(COMPLETIONS, {"prompt": PROMPT, "temperature": 0, "max_tokens": 60})
        self.assertEqual(answer["content"], openai["choices"][0]["text"])
        self.assertEqual((answer["stop"], answer["stop_type"], answer["stopping_word"], answer["truncated"]), (True, "eos", "", False))
        self.assertEqual((answer["prompt"], answer["model"], answer["has_new_line"]), (PROMPT, "minim-tiny", True))
        self.assertEqual((answer["tokens_evaluated"], answer["tokens_predicted"]), (len(self.ids(PROMPT)), openai["usage"]["completion_tokens"]))
        self.assertEqual(answer["tokens_cached"], answer["tokens_evaluated"] + answer["tokens_predicted"])
        self.assertEqual((answer["index"], answer["tokens"]), (0, []))
        self.assertIn(answer["id_slot"], range(8))
        timings = answer["timings"]
        self.assertEqual((timings["predicted_n"], timings["prompt_n"] + timings["cache_n"]), (answer["tokens_predicted"], answer["tokens_evaluated"]))
        self.assertAlmostEqual(timings["predicted_per_token_ms"], timings["predicted_ms"] / timings["predicted_n"])
        self.assertNotIn("draft_n", timings)
        for path in ("/completions", "//completion/"):
            self.assertEqual(self.server.ok(path, {"prompt": PROMPT, "temperature": 0, "n_predict": 60})["content"], answer["content"])

    def test_how_an_answer_ends(self):
        whole = self.complete()["content"]
        stopped = self.complete(stop=["7", "4"])
        self.assertEqual((stopped["stop_type"], stopped["stopping_word"]), ("word", "4"))
        self.assertEqual(stopped["content"], whole[:whole.index("4")])
        limited = self.complete(n_predict=3)
        self.assertEqual((limited["stop_type"], limited["tokens_predicted"]), ("limit", 3))
        self.assertEqual(self.complete(n_predict=None, max_tokens=2)["tokens_predicted"], 2)
        full = self.complete([5] * 4090, n_predict=-1, ignore_eos=True)
        self.assertEqual((full["truncated"], full["stop_type"], full["tokens_predicted"]), (True, "limit", 6))

    def test_no_token_fills_the_cache(self):
        prompt = [7 + i % 50 for i in range(200)]
        answer = self.complete(prompt, n_predict=0, return_tokens=True, n_probs=1)
        self.assertEqual((answer["content"], answer["tokens"], answer["tokens_predicted"], answer["stop_type"]), ("", [], 0, "limit"))
        self.assertEqual((answer["completion_probabilities"], answer["timings"]["prompt_n"]), ([], 200))
        self.assertEqual(self.complete(prompt, n_predict=1)["timings"]["cache_n"], 199)

    def test_forms_of_a_prompt(self):
        content = self.complete()["content"]
        ids = self.ids(PROMPT)
        head = self.ids(PROMPT[:PROMPT.index("]~b]user")])
        self.assertEqual(self.complete(ids)["content"], content)
        self.assertEqual(self.complete([*head, PROMPT[PROMPT.index("]~b]user"):]])["content"], content)
        several = self.complete([PROMPT, ids, [*ids[:5], "a"]], n_predict=5)
        self.assertEqual([answer["index"] for answer in several], [0, 1, 2])
        self.assertEqual(several[0]["content"], several[1]["content"])
        self.assertEqual([answer["tokens_evaluated"] for answer in several], [len(ids), len(ids), 6])
        self.assertEqual(len(self.complete(n_predict=1, n_cmpl=2)), 2)
        for prompt in (None, [], "", [[]], [2048], [-1], [1.5, "a"], {"a": 1}, 5, [{}], [None]):
            status, _, answer = self.server.post("/completion", {"prompt": prompt})
            self.assertEqual((status, answer["error"]["param"]), (400, "prompt"), prompt)
        status, _, answer = self.server.post("/completion", {"prompt": [5] * 5000})
        self.assertEqual((status, answer["error"]["code"]), (400, "context_length_exceeded"))

    def test_a_stream_adds_up(self):
        whole = self.complete(n_probs=2, return_tokens=True)
        body = {"prompt": PROMPT, "temperature": 0, "n_predict": 60, "n_probs": 2, "timings_per_token": True}
        events = [data for _, data in self.server.events("/completion", body)]
        parts, last = events[:-1], events[-1]
        self.assertEqual("".join(part["content"] for part in parts), whole["content"])
        self.assertEqual(sum((part["tokens"] for part in parts), []), whole["tokens"])
        self.assertEqual(sum((part["completion_probabilities"] for part in parts), []), whole["completion_probabilities"])
        self.assertEqual([part["tokens_predicted"] for part in parts], list(range(1, whole["tokens_predicted"] + 1)))
        self.assertEqual({(part["stop"], part["tokens_evaluated"], part["index"]) for part in parts}, {(False, whole["tokens_evaluated"], 0)})
        self.assertTrue(all(part["timings"]["prompt_n"] + part["timings"]["cache_n"] > 0 for part in parts[:-1]))
        self.assertEqual(set(last), FIELDS)
        self.assertEqual((last["content"], last["tokens"], last["stop"], last["stop_type"]), ("", [], True, "eos"))
        self.assertEqual({part["id_slot"] for part in events}, {last["id_slot"]})
        self.assertEqual((last["generation_settings"]["stream"], whole["generation_settings"]["stream"]), (True, False))
        plain = [data for _, data in self.server.events("/completion", {**body, "timings_per_token": False, "n_probs": 0, "response_fields": ["stop_type"]})]
        self.assertFalse([part for part in plain if "timings" in part or "completion_probabilities" in part])
        self.assertEqual(plain[-1], {"stop_type": "eos"})

    def test_probabilities(self):
        answer = self.complete(n_probs=3, return_tokens=True)
        entries = answer["completion_probabilities"]
        self.assertEqual([entry["id"] for entry in entries], answer["tokens"])
        for entry in entries:
            self.assertEqual(bytes(entry["bytes"]).decode(), entry["token"])
            self.assertEqual((len(entry["top_logprobs"]), entry["top_logprobs"][0]["id"]), (3, entry["id"]))
            self.assertAlmostEqual(entry["top_logprobs"][0]["logprob"], entry["logprob"])
        self.assertEqual("".join(entry["token"] for entry in entries), answer["content"])
        self.assertEqual(self.server.ok("/detokenize", {"tokens": answer["tokens"]})["content"], answer["content"])
        self.refused("/completion", {"prompt": "a", "n_probs": 21}, "n_probs is 21")
        self.refused("/completion", {"prompt": "a", "n_probs": 1, "post_sampling_probs": True}, "post_sampling_probs")

    def test_some_fields_of_an_answer(self):
        fields = ["content", "timings/predicted_n", "generation_settings/n_predict", "nothing", "content/a", ""]
        answer = self.complete(response_fields=fields)
        self.assertEqual(set(answer), {"content", "timings/predicted_n", "generation_settings/n_predict"})
        self.assertEqual(answer["generation_settings/n_predict"], 60)
        self.refused("/completion", {"prompt": "a", "response_fields": [1]}, "response_fields")

    def test_the_settings_are_those_that_were_used(self):
        answer = self.complete(seed=7, temperature=0.5, top_k=5, stop="zzz", n_predict=2, logit_bias=[[9, -1.5]], grammar='root ::= "abc"')
        settings = answer["generation_settings"]
        found = {name: settings[name] for name in ("seed", "temperature", "top_k", "stop", "n_predict", "max_tokens", "logit_bias", "grammar")}
        self.assertEqual(found, {"seed": 7, "temperature": 0.5, "top_k": 5, "stop": ["zzz"], "n_predict": 2, "max_tokens": 2,
                                 "logit_bias": [{"bias": -1.5, "token": 9}], "grammar": 'root ::= "abc"'})
        self.assertEqual(answer["content"], "abc"[:len(answer["content"])])
        chance = [self.complete(temperature=1.5, n_predict=20) for _ in range(2)]
        again = self.complete(temperature=1.5, n_predict=20, seed=chance[0]["generation_settings"]["seed"])
        self.assertNotEqual(chance[0]["generation_settings"]["seed"], chance[1]["generation_settings"]["seed"])
        self.assertEqual(again["content"], chance[0]["content"])

    def test_samplers_that_are_left_out_are_off(self):
        def drawn(**fields):
            return self.complete("Once", n_predict=40, seed=3, temperature=2.0, ignore_eos=True, **fields)

        def text(**fields):
            return drawn(**fields)["content"]

        hot = text(top_k=0, top_p=1)
        self.assertEqual(text(top_k=1, samplers=["temperature"]), hot)
        self.assertEqual(text(top_k=1, samplers="t"), hot)
        self.assertNotEqual(text(top_k=1, samplers="kt"), hot)
        self.assertEqual(text(top_k=0, top_p=1, samplers=["top_k", "temperature"]), hot)
        self.assertEqual(text(top_k=0, top_p=1, dry_multiplier=5, repeat_penalty=1.5, samplers="t"), hot)
        self.assertEqual(drawn(samplers="kp")["generation_settings"]["temperature"], 1)
        for value, last in (("kpmt", True), ("tkpm", False), (["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"], True)):
            names = drawn(top_p=0.5, samplers=value)["generation_settings"]["samplers"]
            self.assertEqual(names[-1] == "temperature", last, value)
        self.assertNotEqual(text(top_p=0.5, top_k=0, samplers="pt"), text(top_p=0.5, top_k=0, samplers="tp"))
        self.assertEqual(text(top_p=0.5, top_k=0), text(top_p=0.5, top_k=0, samplers="pt"))
        self.refused("/completion", {"prompt": "a", "samplers": "ktp"}, "samplers has temperature between")
        self.refused("/completion", {"prompt": "a", "samplers": ["top_q"]}, "samplers has 'top_q'")

    def test_biases_in_pairs(self):
        [five] = self.ids("5")
        self.assertEqual(self.complete("a", n_predict=3, logit_bias=[["5", 100]])["content"], "555")
        self.assertEqual(self.complete("a", n_predict=3, logit_bias=[[five, 100]])["content"], "555")
        self.assertNotIn("4", self.complete(logit_bias=[["4", False], [" 4", False]])["content"])
        self.assertNotEqual(self.complete("a", n_predict=3, logit_bias={str(five): False})["content"][0], "5")
        for pairs in ([5], [[5]], [[5, "x"]], [[5, 101]], [[2048, 1]], [[5, True]], [[1.5, 1]]):
            status, _, answer = self.server.post("/completion", {"prompt": "a", "logit_bias": pairs})
            self.assertEqual((status, answer["error"]["param"]), (400, "logit_bias"), pairs)

    def test_other_fields_of_llama_cpp(self):
        self.complete(n_predict=1, cache_prompt=True, id_slot=3, n_keep=5, n_indent=0, t_max_predict_ms=0, min_keep=0, typical_p=1.0,
                      mirostat=0, dynatemp_range=0, xtc_probability=0, image_data=[], return_progress=False)
        self.assertIn("/completion: the field 'id_slot' has no effect: requests take any free slot", self.server.text())
        self.refused("/completion", {"prompt": "a", "mirostat": 2}, "mirostat")
        self.assertEqual(self.complete("a", json_schema={"enum": [5]})["content"], "5")


class Infill(Served):
    def test_a_gap_is_filled(self):
        body = {"input_prefix": "def f(x):\n", "input_suffix": "\nprint(f(1))", "n_predict": 8, "temperature": 0}
        answer = self.server.ok("/infill", body)
        self.assertEqual(answer["prompt"], "<fim_prefix>def f(x):\n<fim_suffix>\nprint(f(1))<fim_middle>")
        self.assertEqual(set(answer), FIELDS)
        begun = self.server.ok("/infill", {**body, "prompt": "    return"})
        self.assertEqual(begun["prompt"], "<fim_prefix>def f(x):\n    return<fim_suffix>\nprint(f(1))<fim_middle>")
        extra = [{"filename": "a.py", "text": "x = 1\n"}, {"text": "<fim_middle>"}]
        answer = self.server.ok("/infill", {**body, "input_extra": extra})
        self.assertEqual(answer["prompt"], "<file_sep>a.py\nx = 1\n<file_sep>tmp\n<fim_middle><file_sep>" + begun["prompt"].replace("    return", ""))
        [middle] = self.ids("<fim_middle>")
        self.assertGreater(answer["tokens_evaluated"], len(self.ids(answer["prompt"])))  # in a text it is no markup
        first = self.server.ok("/completion", {"prompt": [*self.ids("<fim_prefix>def f(x):\n<fim_suffix>\nprint(f(1))"), middle], "n_predict": 8, "temperature": 0})
        self.assertEqual(self.server.ok("/infill", body)["content"], first["content"])

    def test_the_end_of_a_gap(self):
        body = {"input_prefix": "a", "input_suffix": "b", "n_predict": 8}
        for token in ("<fim_pad>", "<reponame>", "<file_sep>"):
            answer = self.server.ok("/infill", {**body, "logit_bias": [[self.ids(token)[0], 100]]})
            self.assertEqual((answer["stop_type"], answer["tokens_predicted"]), ("eos", 0), token)
            other = self.server.ok("/completion", {"prompt": "a", "n_predict": 2, "logit_bias": [[self.ids(token)[0], 100]]})
            self.assertEqual(other["tokens_predicted"], 2, token)

    def test_files_that_do_not_fit_are_left_out(self):
        extra = [{"filename": f"{i}.py", "text": "x = 1\n" * 400} for i in range(4)]
        answer = self.server.ok("/infill", {"input_prefix": "a", "input_suffix": "b", "n_predict": 10, "input_extra": extra})
        self.assertEqual((answer["tokens_evaluated"], answer["tokens_predicted"] <= 10), (4096 - 10, True))
        self.assertTrue(answer["prompt"].endswith("x = 1\n<file_sep><fim_prefix>a<fim_suffix>b<fim_middle>"))
        long = self.server.ok("/infill", {"input_prefix": "a", "input_suffix": "b", "n_predict": 1, "input_extra": [{"text": "x = 1\n" * 9000}]})
        self.assertEqual(long["tokens_evaluated"], 4096 - 1)
        status, _, refused = self.server.post("/infill", {"input_prefix": "x = 1\n" * 4000, "input_suffix": ""})
        self.assertEqual((status, refused["error"]["code"]), (400, "context_length_exceeded"))

    def test_what_an_editor_sends(self):
        body = {"id_slot": 0, "input_prefix": "a", "input_suffix": "b", "input_extra": [], "prompt": "", "n_predict": 4, "stop": [], "n_indent": 2,
                "top_k": 40, "top_p": 0.9, "stream": False, "samplers": ["top_k", "top_p", "infill"], "cache_prompt": True, "t_max_prompt_ms": 500,
                "t_max_predict_ms": 1000, "response_fields": ["content", "timings/prompt_n", "truncated", "tokens_cached"]}
        self.assertEqual(set(self.server.ok("/infill", body)), set(body["response_fields"]))
        self.assertEqual(self.server.ok("/infill", {**body, "n_predict": 0, "response_fields": [""]}), {})
        for name in ("input_prefix", "input_suffix"):
            self.refused("/infill", {**body, name: None}, f"{name} is required")
        self.refused("/infill", {**body, "input_extra": [{"filename": "a"}]}, "input_extra[0].text is required")


class Plain(Served):
    def test_pieces_of_a_text(self):
        text = "Hi 𓀀[e~["
        ids = self.ids(text)
        pieces = self.server.ok("/tokenize", {"content": text, "with_pieces": True, "add_special": False})["tokens"]
        self.assertEqual([piece["id"] for piece in pieces], ids)
        self.assertTrue(any(isinstance(piece["piece"], list) for piece in pieces))
        whole = b"".join(bytes(piece["piece"]) if isinstance(piece["piece"], list) else piece["piece"].encode() for piece in pieces)
        self.assertEqual(whole.decode(), text)
        self.assertEqual(self.server.ok("/tokenize", {"content": [5, "Hi", 6]})["tokens"], [5, *self.ids("Hi"), 6])

    def test_props(self):
        props = self.server.get("/props")[2]
        self.assertEqual((props["model_path"], props["bos_token"], props["eos_token"]), (str(MODEL), "]~!b[", "[e~["))
        self.assertEqual(props["default_generation_settings"]["n_ctx"], 4096)
        params = props["default_generation_settings"]["params"]
        self.assertEqual(set(self.complete(n_predict=1)["generation_settings"]) - set(params), {"stop", "logit_bias", "grammar", "stream"})
        self.assertEqual({name: params[name] for name in ("temperature", "top_k", "n_predict", "speculative.n_max")},
                         {"temperature": 1, "top_k": 40, "n_predict": -1, "speculative.n_max": 0})
        with Server("--temp", 0.25, "--draft-tokens", 4) as server:
            params = server.get("/props")[2]["default_generation_settings"]["params"]
            self.assertEqual((params["temperature"], params["speculative.n_max"]), (0.25, 4))

    def test_the_tokenizer(self):
        info = self.server.get("/tokenizer_info")[2]
        self.assertEqual((info["bos_token"], info["eos_token"]), ("]~!b[", "[e~["))
        self.assertIn("minimax:tool_call", info["chat_template"])

    def test_slots_show_their_fill_and_no_text(self):
        thread = threading.Thread(target=lambda: self.complete("Once upon a time", n_predict=1500, ignore_eos=True, seed=5, stop=["zzz"]))
        thread.start()
        busy = []
        deadline = time.monotonic() + 60
        while not (busy and busy[0]["n_decoded"] > 2) and time.monotonic() < deadline:
            busy = [slot for slot in self.server.get("/slots")[2] if slot["is_processing"]]
        thread.join()
        [slot] = busy
        n_prompt = len(self.ids("Once upon a time"))
        self.assertEqual((slot["n_prompt"], slot["n_prompt_done"], slot["n_ctx"]), (n_prompt, n_prompt, 4096))
        self.assertGreaterEqual(slot["n_past"], n_prompt + slot["n_decoded"])
        self.assertAlmostEqual(slot["fill"], slot["n_past"] / 4096)
        self.assertEqual((slot["params"]["seed"], slot["params"]["n_predict"], slot["speculative"]), (5, 1500, False))
        self.assertEqual(slot["next_token"], [{"has_next_token": True, "n_remain": 1500 - slot["n_decoded"], "n_decoded": slot["n_decoded"]}])
        self.assertNotIn("Once", str(slot))
        self.assertNotIn("zzz", str(slot))
        self.server.wait_until_free()
        self.assertTrue(all(slot.keys() == {"id", "n_ctx", "is_processing"} for slot in self.server.get("/slots")[2]))

    def test_what_the_model_cannot_do_is_refused_by_its_reason(self):
        for path in ("/v1/embeddings", "/embeddings", "/embedding", "/rerank", "/reranking", "/v1/rerank", "/v1/reranking"):
            status, _, answer = self.server.post(path, {"input": "a"})
            self.assertEqual((status, answer["error"]["type"]), (501, "not_supported_error"), path)
            self.assertIn("embeddings", answer["error"]["message"])


class Scores(Served):
    """Log-probabilities of prompts."""

    def evaluate(self, prompt, **fields):
        """The request of lm-eval's local-completions for the log-likelihood of prompts."""
        return self.server.ok(COMPLETIONS, {"model": "minim-tiny", "prompt": prompt, "temperature": 0, "max_tokens": 1, "logprobs": 1,
                                            "seed": 1234, "echo": True, **fields})["choices"]

    def forced(self, ids):
        """The log-probability of each token after the first, and the likeliest one's, from answers that must begin with the token."""
        found = []
        for i in range(1, len(ids)):
            answer = self.server.ok(COMPLETIONS, {"prompt": ids[:i], "temperature": 0, "max_tokens": 1, "logprobs": 1, "ignore_eos": True,
                                                  "logit_bias": {str(ids[i]): 100}})
            logprobs = answer["choices"][0]["logprobs"]
            found.append((logprobs["token_logprobs"][0], max(logprobs["top_logprobs"][0].values())))
        return found

    def test_the_log_likelihood_of_continuations(self):
        contexts = ["What is 2 + 2?\n", "The capital of France is", "Count: 1, 2, 3,"]
        whole = [self.ids(context + rest) for context in contexts for rest in (" 4", " Paris", " 4, 5")]
        choices = self.evaluate(whole)
        self.assertEqual([choice["index"] for choice in choices], list(range(9)))
        for ids, choice in zip(whole, choices):
            logprobs = choice["logprobs"]
            self.assertEqual([len(values) for values in logprobs.values()], [len(ids) + 1] * 4)
            self.assertEqual((logprobs["token_logprobs"][0], logprobs["top_logprobs"][0], logprobs["text_offset"][0]), (None, None, 0))
            expected = self.forced(ids)
            for (own, best), found, top in zip(expected, logprobs["token_logprobs"][1:], logprobs["top_logprobs"][1:]):
                self.assertAlmostEqual(own, found, places=5)
                self.assertAlmostEqual(best, max(top.values()), places=5)
                self.assertIn(found, top.values())
        self.assertEqual(self.evaluate([self.server.ok("/detokenize", {"tokens": ids})["content"] for ids in whole]), choices)

    @unittest.skipUnless(os.environ.get("MINIM_LIBRARY"), "the library of this build cannot be loaded")
    def test_they_are_those_of_a_session(self):
        sys.path.insert(0, str(ROOT / "bindings" / "python"))
        import minim
        ids = self.ids(PROMPT + "I count.\n</think>\n\n1, 2, 3, 4, 5, 6, 7, 8, 9" * 6)
        self.assertGreater(len(ids), 200)
        [choice] = self.evaluate(ids)
        with minim.Model(str(MODEL)) as model, model.session(context=4096) as session:
            rows = session.eval(ids, all_logits=True)
        for id, row, found in zip(ids[1:], rows, choice["logprobs"]["token_logprobs"][1:]):
            highest = max(row)
            self.assertAlmostEqual(found, row[id] - highest - math.log(sum(math.exp(logit - highest) for logit in row)), places=4)

    def test_the_end_token_counts_as_the_token_after_the_prompt(self):
        ids = self.ids(PROMPT) + self.complete(return_tokens=True)["tokens"]
        [choice] = self.evaluate(ids)
        logprobs = choice["logprobs"]
        self.assertEqual(len(logprobs["tokens"]), len(ids) + 1)
        self.assertEqual((logprobs["tokens"][-1], choice["finish_reason"]), ("[e~[", "stop"))
        self.assertGreater(logprobs["token_logprobs"][-1], -1)
        self.assertEqual(logprobs["top_logprobs"][-1], {"[e~[": logprobs["token_logprobs"][-1]})

    def test_texts_offsets_and_streams(self):
        text = "Grüße 🐝, 世界"
        body = {"prompt": text, "temperature": 0, "max_tokens": 4, "logprobs": 2, "echo": True, "ignore_eos": True}
        choice = self.server.ok(COMPLETIONS, body)["choices"][0]
        logprobs = choice["logprobs"]
        self.assertTrue(choice["text"].startswith(text))
        self.assertEqual(len(logprobs["tokens"]), len(self.ids(text)) + 4)
        self.assertEqual(logprobs["text_offset"], sorted(logprobs["text_offset"]))
        self.assertTrue(all(choice["text"][offset:].startswith(token) for token, offset in zip(logprobs["tokens"], logprobs["text_offset"])
                            if not token.startswith("bytes:")))
        self.assertTrue(any(re.fullmatch(r"bytes:(\\x[0-9a-f]{2})+", token) for token in logprobs["tokens"]))
        self.assertTrue(all(2 <= len(top) <= 3 for top in logprobs["top_logprobs"][1:]))
        for fields, n in (({}, 1), ({"n": 2}, 2)):
            chunks = [data for _, data in self.server.events(COMPLETIONS, {**body, **fields})[:-1]]
            for index in range(n):
                parts = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
                self.assertEqual("".join(part["text"] for part in parts), choice["text"])
                for name, values in logprobs.items():
                    self.assertEqual(sum((part["logprobs"][name] for part in parts if part["logprobs"]), []), values)

    def test_prompts_alone(self):
        ids = self.ids("The capital of France is Paris.")
        [choice] = self.evaluate(ids, max_tokens=0, logprobs=0)
        self.assertEqual((choice["text"], choice["finish_reason"]), ("The capital of France is Paris.", "length"))
        logprobs = choice["logprobs"]
        self.assertEqual([len(values) for values in logprobs.values()], [len(ids)] * 4)
        self.assertEqual([list(top.values()) for top in logprobs["top_logprobs"][1:]], [[value] for value in logprobs["token_logprobs"][1:]])
        [single] = self.evaluate([7], max_tokens=0)
        self.assertEqual(single["logprobs"]["token_logprobs"], [None])
        parts = [data["choices"] for _, data in self.server.events(COMPLETIONS, {"prompt": [7], "max_tokens": 0, "echo": True, "logprobs": 0})[:-1]]
        self.assertEqual([part["logprobs"] and part["logprobs"]["token_logprobs"] for [part] in parts], [[None], None])

    def test_prompt_logprobs(self):
        ids = self.ids("The capital of France is Paris.")
        answer = self.server.ok(COMPLETIONS, {"prompt": [ids, ids[:3]], "prompt_logprobs": 3, "max_tokens": 2, "temperature": 0})
        plain = self.server.ok(COMPLETIONS, {"prompt": [ids, ids[:3]], "max_tokens": 2, "temperature": 0})
        scores = answer["choices"][0]["prompt_logprobs"]
        self.assertEqual(answer["choices"][1]["prompt_logprobs"], scores[:3])
        self.assertEqual([choice["text"] for choice in answer["choices"]], [choice["text"] for choice in plain["choices"]])
        self.assertEqual((len(scores), scores[0]), (len(ids), None))
        [echoed] = self.evaluate(ids, logprobs=1, prompt_logprobs=3)
        self.assertEqual(echoed["prompt_logprobs"], scores)
        for id, entries, found, top in zip(ids[1:], scores[1:], echoed["logprobs"]["token_logprobs"][1:], echoed["logprobs"]["top_logprobs"][1:]):
            own = entries[str(id)]
            self.assertEqual((own["logprob"], own["decoded_token"]), (found, self.server.ok("/detokenize", {"tokens": [id]})["content"]))
            ranks = sorted(entry["rank"] for entry in entries.values())
            self.assertEqual(ranks, [1, 2, 3] if own["rank"] <= 3 else [1, 2, 3, own["rank"]])
            self.assertEqual(sorted(entries.values(), key=lambda entry: entry["rank"]), sorted(entries.values(), key=lambda entry: -entry["logprob"]))
            self.assertLessEqual(len(top), 2)
        none = self.server.ok(COMPLETIONS, {"prompt": ids, "prompt_logprobs": 0, "max_tokens": 0})["choices"][0]
        self.assertEqual([list(entries) for entries in none["prompt_logprobs"][1:]], [[str(id)] for id in ids[1:]])
        self.assertNotIn("prompt_logprobs", plain["choices"][0])
        self.refused(COMPLETIONS, {"prompt": "a", "prompt_logprobs": 21}, "prompt_logprobs is 21")
        self.refused(COMPLETIONS, {"prompt": "a", "prompt_logprobs": 1, "stream": True}, "prompt_logprobs is not possible in a stream")
        self.refused(CHAT, {"messages": HELLO, "prompt_logprobs": 1}, "prompt_logprobs")

    def test_many_at_once_beside_answers(self):
        prompts = [self.ids("x = 1\n" * (20 + i)) for i in range(12)]
        alone = [self.evaluate(prompt)[0]["logprobs"] for prompt in prompts]
        text = self.server.chat(COUNT)["choices"][0]["message"]
        found = []
        threads = [threading.Thread(target=lambda: found.append(self.server.chat(COUNT)["choices"][0]["message"])) for _ in range(3)]
        for thread in threads:
            thread.start()
        self.assertEqual([choice["logprobs"] for choice in self.evaluate(prompts)], alone)
        for thread in threads:
            thread.join()
        self.assertEqual(found, [text] * 3)


class Drafts(Served):
    def test_drafts_change_no_text_and_are_counted(self):
        prompt = "x = 1\n" * 30
        body = {"prompt": prompt, "temperature": 0, "n_predict": 200, "ignore_eos": True, "logit_bias": [["5", 100]]}
        plain = self.server.ok("/completion", body)
        drafted = self.server.ok("/completion", {**body, "speculative.n_max": 8})
        self.assertEqual(drafted["content"], plain["content"])
        self.assertEqual(drafted["generation_settings"]["speculative.n_max"], 8)
        timings = drafted["timings"]
        self.assertGreaterEqual(timings["draft_n"], timings["draft_n_accepted"])
        self.assertGreater(timings["draft_n_accepted"], 0)
        self.assertEqual(self.server.ok("/completion", {**body, "n_predict": 1, "speculative.n_max": 10**6})["generation_settings"]["speculative.n_max"], 64)
        for path, fields in ((COMPLETIONS, {"prompt": prompt, "max_tokens": 200}), (CHAT, {"messages": COUNT, "max_tokens": 200})):
            details = []
            for n_max in (0, 8):
                answer = self.server.ok(path, {**fields, "temperature": 0, "ignore_eos": True, "speculative.n_max": n_max,
                                               "logit_bias": {str(self.ids("5")[0]): 100}})
                details.append(answer["usage"]["completion_tokens_details"])
            self.assertEqual((details[0]["accepted_prediction_tokens"], details[0]["rejected_prediction_tokens"]), (0, 0))
            self.assertGreater(details[1]["accepted_prediction_tokens"], 0)
        text = self.server.get("/metrics")[2].decode()
        counts = [int(re.search(rf"^minim_spec_decode_num_{name}_tokens_total{{.*}} (\d+)", text, re.M).group(1)) for name in ("draft", "accepted")]
        self.assertGreaterEqual(counts[0], counts[1])
        self.assertGreaterEqual(counts[1], timings["draft_n_accepted"])
        self.refused("/completion", {"prompt": "a", "speculative.n_max": -1}, "speculative.n_max is -1")

    def test_drafts_of_all_requests(self):
        body = {"prompt": "x = 1\n" * 30, "temperature": 0, "n_predict": 200, "ignore_eos": True, "logit_bias": [["5", 100]]}
        with Server("--spec-type", "ngram") as server:
            self.assertGreater(server.ok("/completion", body)["timings"]["draft_n_accepted"], 0)
            self.assertNotIn("draft_n", server.ok("/completion", {**body, "speculative.n_max": 0})["timings"])


if __name__ == "__main__":
    unittest.main()
