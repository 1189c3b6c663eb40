# SPDX-License-Identifier: Apache-2.0
"""The routes that generate nothing."""

import re
import time
import unittest

from support import COUNT, HELLO, TOOLS, Server


class Routes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server())

    def test_health(self):
        self.assertEqual(self.server.get("/health")[::2], (200, {"status": "ok"}))

    def test_models(self):
        model = self.server.get("/v1/models")[2]["data"][0]
        self.assertEqual(model["id"], "minim-tiny")
        self.assertEqual(model["max_model_len"], 4096)
        self.assertEqual(model["owned_by"], "minim")
        self.assertGreater(model["created"], 1_600_000_000)
        self.assertEqual(model["meta"]["n_vocab"], 2048)
        self.assertEqual(self.server.get("/v1/models/minim-tiny")[2]["id"], "minim-tiny")
        self.assertEqual(self.server.get("/v1/models/other")[0], 404)

    def test_props_and_slots(self):
        props = self.server.get("/props")[2]
        self.assertEqual(props["total_slots"], 8)
        self.assertIn("minimax:tool_call", props["chat_template"])
        slots = self.server.get("/slots")[2]
        self.assertEqual([slot["id"] for slot in slots], list(range(8)))
        self.assertFalse(any(slot["is_processing"] for slot in slots))

    def test_tokens_go_back_and_forth(self):
        for text in ("", "Hello!", "Grüße, 世界 🐝", "a\n\n b\u0000c", "]~b]user\nhi[e~["):
            for field in ("content", "prompt"):
                answer = self.server.ok("/tokenize", {field: text})
                self.assertEqual(answer["count"], len(answer["tokens"]))
                back = self.server.ok("/detokenize", {"tokens": answer["tokens"]})
                self.assertEqual(back, {"content": text, "prompt": text})

    def test_special_tokens_in_text_are_recognised(self):
        self.assertEqual(self.server.ok("/tokenize", {"content": "[e~["})["tokens"], [2004])
        self.assertEqual(self.server.ok("/tokenize", {"content": "<think>"})["tokens"], [2034])
        plain = self.server.ok("/tokenize", {"content": "[e~[", "parse_special": False})
        self.assertGreater(plain["count"], 1)

    def test_token_routes_refuse_what_they_cannot_read(self):
        for path, body, field in (("/tokenize", {}, "prompt"), ("/tokenize", {"content": 5}, "content"),
                                  ("/detokenize", {"tokens": [2048]}, "tokens"), ("/detokenize", {"tokens": [-1]}, "tokens"),
                                  ("/detokenize", {"tokens": [1.5]}, "tokens"), ("/detokenize", {}, "tokens"),
                                  ("/detokenize", {"tokens": [2**80]}, "tokens"), ("/detokenize", {"tokens": "1"}, "tokens")):
            status, _, answer = self.server.post(path, body)
            self.assertEqual((status, answer["error"]["param"]), (400, field), body)

    def test_the_template(self):
        prompt = self.server.ok("/apply-template", {"messages": HELLO})["prompt"]
        self.assertTrue(prompt.endswith("]~b]user\nHello![e~[\n]~b]ai\n<think>\n"), prompt)
        prompt = self.server.ok("/apply-template", {"messages": HELLO, "add_generation_prompt": False})["prompt"]
        self.assertTrue(prompt.endswith("Hello![e~[\n"))
        prompt = self.server.ok("/apply-template", {"messages": HELLO, "tools": TOOLS,
                                                    "chat_template_kwargs": {"model_identity": "You are a test."}})["prompt"]
        self.assertIn("You are a test.", prompt)
        self.assertIn('<tool>{"name": "get_weather"', prompt)

    def test_all_that_happens_to_messages(self):
        call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 12345678901234567890123}'}}
        other = {"id": "b", "function": {"name": "g", "arguments": {"y": [1.0, None]}}}
        messages = [
            {"role": "developer", "content": [{"type": "text", "text": "One."}, {"type": "text", "text": " Two."}]},
            {"role": "user", "content": None},
            {"role": "system", "content": "x-anthropic-billing-header: cch=1234;\n\nThree."},
            {"role": "assistant", "content": None, "reasoning": "hm", "tool_calls": [call, other]},
            {"role": "tool", "tool_call_id": "b", "content": "second"},
            {"role": "tool", "tool_call_id": "a", "content": "first"},
        ]
        prompt = self.server.ok("/apply-template", {"messages": messages})["prompt"]
        self.assertIn("]~b]system\nOne. Two.\n\nThree.[e~[", prompt)
        self.assertIn("]~b]user\n[e~[", prompt)
        self.assertIn("<think>\nhm\n</think>\n\n\n<minimax:tool_call>", prompt)
        self.assertIn('<parameter name="x">12345678901234567890123</parameter>', prompt)
        self.assertIn('<parameter name="y">[1.0, null]</parameter>', prompt)
        self.assertIn("<response>first</response>\n<response>second</response>", prompt)
        self.assertNotIn("billing", prompt)
        self.assertNotIn("None", prompt)

    def test_reasoning_by_other_names(self):
        for field in ({"reasoning_content": "hm"}, {"reasoning": "hm"},
                      {"reasoning_details": [{"type": "reasoning.text", "text": "h"}, {"text": "m"}]}):
            messages = [*HELLO, {"role": "assistant", "content": "Hi.", **field}]
            prompt = self.server.ok("/apply-template", {"messages": messages, "add_generation_prompt": False})["prompt"]
            self.assertTrue(prompt.endswith("]~b]ai\n<think>\nhm\n</think>\n\nHi.[e~[\n"), prompt)

    def test_names_with_a_slash(self):
        with Server("--alias", "acme/tiny 1", "--served-model-name", "acme/tiny 1") as server:
            for path in ("acme/tiny%201", "acme%2Ftiny%201", "acme%2ftiny%201"):
                self.assertEqual(server.get("/v1/models/" + path)[2]["id"], "acme/tiny 1", path)
            for path in ("acme%2", "%zz", "acme%00tiny"):
                self.assertEqual(server.get("/v1/models/" + path)[0], 404, path)
            for path, body in (("/v1/messages/count_tokens", {"messages": HELLO}), ("/tokenize", {"messages": HELLO}), ("/tokenize", {"content": "x"}),
                               ("/apply-template", {"messages": HELLO}), ("/v1/chat/completions", {"messages": HELLO, "max_tokens": 1})):
                self.assertEqual(server.post(path, {**body, "model": "acme/tiny 1"})[0], 200, path)
                status, _, answer = server.post(path, {**body, "model": "other"})
                self.assertEqual(status, 404, path)
                self.assertIn("acme/tiny 1", answer["error"]["message"])

    def test_every_sample_names_the_model(self):
        with Server("--alias", 'a "b" \\c') as server:
            server.chat(HELLO, max_tokens=2)
            samples = [line for line in server.get("/metrics")[2].decode().splitlines() if line and line[0] != "#"]
            others = [line for line in samples if 'model_name="a \\"b\\" \\\\c"' not in line]
            self.assertEqual([line for line in others if not line.startswith(("process_", "minim_build_info{"))], [])

    def test_metrics(self):
        # Enough tokens to arrive in several pieces even on a fast machine: tokens that arrive together have no time between them.
        self.server.chat(COUNT, max_tokens=400, ignore_eos=True)
        # A request is counted only when it has ended, a moment after the client has received the answer.
        deadline = time.monotonic() + 5
        while 'minim_e2e_request_latency_seconds_count{model_name="minim-tiny"} 0' in (text := self.server.get("/metrics")[2].decode()):
            if time.monotonic() > deadline:
                break
        names = {line.split("{")[0].split()[0] for line in text.splitlines() if line and line[0] != "#"}
        self.assertTrue(all(name.startswith(("minim_", "process_")) for name in names), names)
        for name in ("request_queue_time_seconds", "time_to_first_token_seconds", "inter_token_latency_seconds",
                     "e2e_request_latency_seconds"):
            buckets = re.findall(rf"minim_{name}_bucket{{model_name=\"minim-tiny\",le=\"(.*)\"}} (\d+)", text)
            counts = [int(count) for _, count in buckets]
            self.assertEqual(counts, sorted(counts))
            self.assertGreater(counts[-1], 0)
            self.assertIn(f'minim_{name}_count{{model_name="minim-tiny"}} {counts[-1]}', text)
        generated = int(re.search(r"^minim_generation_tokens_total{.*} (\d+)", text, re.M).group(1))
        self.assertGreater(generated, 5)

    def test_unknown_routes_and_methods(self):
        for method, path in (("GET", "/nothing"), ("POST", "/v1/chat"), ("GET", "/v1"), ("GET", "/v1/embeddings"),
                             ("DELETE", "/v1/chat/completions"), ("GET", "/v1/completions"), ("POST", "/health"),
                             ("PUT", "/props")):
            status, headers, answer = self.server.request(method, path)
            self.assertIn(status, (404, 405), path)
            self.assertEqual(set(answer["error"]), {"message", "type", "param", "code"})
            self.assertTrue(headers["x-request-id"])

    def test_paths_as_clients_join_them(self):
        for path in ("//v1/models", "/v1/models/", "/v1//models", "/v1/v1/models", "/models", "/v1/models?a=/b/", "/v1/models#top",
                     "http://127.0.0.1:8080/v1/models", "/v1/health", "/health/", "http://localhost/health?x"):
            self.assertEqual(self.server.get(path)[0], 200, path)
        for path in ("//v1/chat/completions", "/chat/completions", "/v1/v1/chat/completions/"):
            self.assertEqual(self.server.post(path, {"messages": HELLO, "max_tokens": 1})[0], 200, path)
        for path in ("/v1/v1/messages?beta=true", "/messages"):
            self.assertEqual(self.server.post(path, {"messages": HELLO, "max_tokens": 1})[2]["type"], "message", path)
        for path in ("/v2/models", "/v1/v1", "/v1/completion", "/v1/models/models/"):
            self.assertEqual(self.server.get(path)[0], 404, path)

    def test_request_ids_differ_and_no_page_may_read_answers(self):
        for path in ("/v1/messages", "/v1/chat/completions"):
            headers = self.server.post(path, {})[1]
            self.assertEqual(headers["request-id"], headers["x-request-id"])
        answers = [self.server.get("/health")[1] for _ in range(5)] + [self.server.post("/tokenize", {})[1]]
        self.assertEqual(len({headers["x-request-id"] for headers in answers}), 6)
        self.assertFalse([name for headers in answers for name in headers if name.lower().startswith("access-control")])


if __name__ == "__main__":
    unittest.main()
