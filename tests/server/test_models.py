# SPDX-License-Identifier: Apache-2.0
"""Several models behind one port: names, loading on demand, limits, waiting requests, failures."""

import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import struct
import tempfile
import threading
import time
import unittest

from support import CHAT, COUNT, HELLO, MODEL, ROOT, SANITIZER, Server, parse_events, run_to_end

MIX = ROOT / "examples" / "models" / "minim-tiny-mix-ik.gguf"
IQ = ROOT / "tests" / "data" / "models"  # minim-tiny-mix-iq, in three parts
SIM = {"MINIM_PLUGIN_PATH": os.environ["MINIM_SIM_FOLDER"], "MINIM_SIM": "devices=1 memory=24"}
NVFP4 = pathlib.Path(os.environ["MINIM_TEST_MODELS"], "minim-tiny-nvfp4")
LONG = {"ignore_eos": True, "max_tokens": 1500, "stream": True}
N_RANDOM = int(os.environ.get("MINIM_RANDOM_REQUESTS", 150))


def several(*arguments, models=("one", "two", "three"), **options):
    """A server of models that are the same file under several names, or of (name, path)."""
    pairs = [(model, MODEL) if isinstance(model, str) else model for model in models]
    named = [argument for name, path in pairs for argument in ("-m", f"{name}={path}")]
    return Server(*named, *arguments, model=None, **options)


def states(server):
    return {model["id"]: model["status"]["value"] for model in server.get("/v1/models")[2]["data"]}


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("what the test waits for did not come")


def ask(server, model, messages=HELLO, **fields):
    return server.chat(messages, model=model, max_tokens=8, **fields)["choices"][0]["message"]


class Stream:
    """A stream whose events are read as they come."""

    def __init__(self, server, model, path=CHAT, **fields):
        self.connection = http.client.HTTPConnection(*server.address, timeout=240)
        body = {"messages": COUNT, "temperature": 0, "model": model, **LONG, **fields}
        self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        self.response = None

    def first_line(self):
        self.response = self.response or self.connection.getresponse()
        return self.response.readline().decode()

    def rest(self):
        self.response = self.response or self.connection.getresponse()
        text = self.response.read().decode()
        self.connection.close()
        return text

    def __del__(self):
        self.connection.close()


class Names(unittest.TestCase):
    def test_the_model_of_a_request_is_loaded_when_it_is_needed(self):
        with several() as server:
            self.assertEqual(states(server), dict.fromkeys(("one", "two", "three"), "unloaded"))
            answer = server.chat(HELLO, model="two", max_tokens=4)
            self.assertEqual(answer["model"], "two")
            self.assertEqual(states(server), {"one": "unloaded", "two": "loaded", "three": "unloaded"})
            answer = server.chat(HELLO, max_tokens=4)  # no name: the first one
            self.assertEqual(answer["model"], "one")
            nested = {"metadata": {"model": "two"}, "messages": HELLO, "max_tokens": 4, "model": "three"}
            self.assertEqual(server.ok(CHAT, nested)["model"], "three")
            listed = {model["id"]: model for model in server.get("/models")[2]["data"]}
            self.assertEqual(listed["two"]["max_model_len"], 4096)
            self.assertEqual(server.get("/v1/models/three")[2]["status"], {"value": "loaded"})
            self.assertEqual(server.get("/v1/models/four")[0], 404)

    def test_an_unknown_name_is_an_error_in_the_form_of_the_family(self):
        with several() as server:
            status, _, answer = server.post(CHAT, {"messages": HELLO, "model": "four"})
            self.assertEqual((status, answer["error"]["code"]), (404, "model_not_found"))
            self.assertIn("'four'", answer["error"]["message"])
            for path in ("/v1/messages", "/v1/messages/count_tokens"):
                status, _, answer = server.post(path, {"messages": HELLO, "model": "four", "max_tokens": 4})
                self.assertEqual((status, answer["type"], answer["error"]["type"]), (404, "error", "not_found_error"))
            for body, field in (({"messages": HELLO, "model": 4}, "model"), ({"messages": HELLO, "stream": "yes"}, "stream"), (b"{", None)):
                status, _, answer = server.post(CHAT, body)
                self.assertEqual((status, answer["error"]["param"]), (400, field))
            self.assertEqual(set(states(server).values()), {"unloaded"})  # nothing was loaded for these

    def test_any_name_reaches_the_only_model(self):
        with Server() as server:
            self.assertEqual(server.chat(HELLO, model="any", max_tokens=4)["model"], "any")
            self.assertEqual(states(server), {"minim-tiny": "loaded"})
        with Server("-m", f"mine={MODEL}", model=None) as server:
            self.assertEqual(states(server), {"mine": "loaded"})
            self.assertEqual(server.chat(HELLO, max_tokens=4)["model"], "mine")

    def test_a_folder_of_models(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            shutil.copy(MODEL, folder / "plain.gguf")
            (folder / "notes.txt").write_text("no model")
            (folder / ".hidden.gguf").write_text("no model")
            (folder / "mmproj-F16.gguf").write_text("no model")
            for part in sorted(IQ.glob("minim-tiny-mix-iq-*.gguf")):
                os.symlink(part, folder / part.name)
            shutil.copy(MODEL, folder / "best-of-breed.gguf")
            (folder / "alone").mkdir()
            os.symlink(MIX, folder / "alone" / "some-file.gguf")
            (folder / "pair").mkdir()
            os.symlink(MIX, folder / "pair" / "first-of-two.gguf")
            os.symlink(MODEL, folder / "pair" / "second.gguf")
            (folder / "deep" / "deeper").mkdir(parents=True)
            os.symlink(MODEL, folder / "deep" / "deeper" / "too-deep.gguf")
            os.symlink(NVFP4, folder / "checkpoint")
            with Server("--models-dir", name, model=None) as server:
                names = ["alone", "best-of-breed", "checkpoint", "first-of-two", "minim-tiny-mix-iq", "plain", "second"]
                self.assertEqual(list(states(server)), names)
                for one in names:
                    self.assertTrue(ask(server, one))
            with Server("-m", f"first={folder / 'plain.gguf'}", "--models-dir", name, model=None) as server:
                self.assertEqual(list(states(server)), ["first", *names[:5], *names[6:]])  # one file, one model
            done = run_to_end("--models-dir", name, "-m", f"plain={MODEL}", model=None)
            self.assertEqual(done.returncode, 1)
            self.assertIn("two models have the name 'plain'", done.stderr)

    def test_what_cannot_be_served_is_an_error_at_the_start(self):
        with tempfile.TemporaryDirectory() as empty:
            for arguments, code, text in (
                    (["--models-dir", empty], 1, f"--models-dir: the folder '{empty}' has no GGUF file"),
                    (["--models-dir", "/nowhere"], 1, "--models-dir: the folder '/nowhere' cannot be read: No such file"),
                    (["-m", f"a={MODEL}", "-m", "b=/nowhere.gguf"], 1, "model '/nowhere.gguf': no such file or folder"),
                    (["-m", f"a={MODEL}", "-m", f"a={MIX}"], 1, "two models have the name 'a'"),
                    (["-m", f"={MODEL}"], 2, "is not NAME=PATH"),
                    (["-m", str(MODEL), "-m", str(MIX), "--alias", "x"], 2, "--alias is for one model, and there are several; -m NAME=PATH"),
                    (["-m", str(MODEL), "-m", str(MIX), "--packed-file", "x"], 2, "--packed-file is for one model"),
                    (["-m", str(MODEL), "-m", str(MIX), "-sm", "tensor"], 2, "-sm is for one model"),
                    (["-m", str(MODEL), "-m", str(MIX), "-tp", "2"], 2, "-tp is for one model")):
                with self.subTest(arguments=arguments):
                    done = run_to_end(*arguments, model=None)
                    self.assertEqual(done.returncode, code, done.stderr)
                    self.assertIn(text, done.stderr)
        with Server("--models-max", 2, "--no-models-autoload") as server:
            self.assertIn("--models-max has no effect: there is one model", server.text())
            self.assertIn("--no-models-autoload has no effect: there is one model", server.text())

    def test_routes_take_the_model_from_the_query_or_the_body(self):
        with several(models=(("tiny", MODEL), ("mix", MIX))) as server:
            props = server.get("/props")[2]
            self.assertEqual((props["role"], props["max_instances"], props["models_autoload"]), ("router", 4, True))
            self.assertEqual(set(states(server).values()), {"unloaded"})
            self.assertEqual(server.get("/props?x=1&model=mi%78")[2]["model_alias"], "mix")
            self.assertEqual(states(server), {"tiny": "unloaded", "mix": "loaded"})
            for path, body in (("/tokenize", {"content": "a"}), ("/detokenize", {"tokens": [70]}), ("/apply-template", {"messages": HELLO})):
                self.assertEqual(server.post(path, {**body, "model": "four"})[0], 404)
                self.assertEqual(server.post(f"{path}?model=four", body)[0], 404)
                server.ok(f"{path}?model=mix", body)
            self.assertEqual(states(server)["tiny"], "unloaded")
            server.ok("/tokenize", {"content": "a", "model": "tiny"})
            self.assertEqual([slot["model"] for slot in server.get("/slots")[2]], ["tiny"] * 8 + ["mix"] * 8)
            self.assertEqual({slot["model"] for slot in server.get("/slots?model=mix")[2]}, {"mix"})
            for path in ("/slots", "/metrics", "/props"):
                self.assertEqual(server.get(f"{path}?model=four")[0], 404)
            ask(server, "mix")
            server.get("/nowhere")
            text = server.get("/metrics")[2].decode()
            self.assertIn('minim_http_requests_total{model_name="",route="refused",status="404"} ', text)
            self.assertIn(f'minim_http_requests_total{{model_name="mix",route="{CHAT}",status="200"}} 1', text)
            for metric in ("num_requests_running", "generation_tokens_total", "e2e_request_latency_seconds_count"):
                for model in ("tiny", "mix"):
                    self.assertRegex(text, rf'minim_{metric}{{model_name="{model}"}} \d')
            heads = re.findall(r"^# TYPE (\S+)", text, re.M)
            self.assertEqual(len(heads), len(set(heads)))
            groups = [line.split("{")[0].rsplit("_bucket", 1)[0] for line in text.splitlines() if not line.startswith("#")]
            self.assertEqual(len(re.findall("^# HELP ", text, re.M)), len(heads))
            self.assertGreater(len(groups), 2 * len(heads) - 4)
            self.assertNotIn("tiny", server.get("/metrics?model=mix")[2].decode())


class Limits(unittest.TestCase):
    def test_the_least_recently_used_model_goes_first(self):
        with several("--models-max", 2) as server:
            for name in ("one", "two", "one", "three"):
                ask(server, name)
            self.assertEqual(states(server), {"one": "loaded", "two": "unloaded", "three": "loaded"})
            ask(server, "two")
            self.assertEqual(states(server), {"one": "unloaded", "two": "loaded", "three": "loaded"})
            self.assertIn("the model 'one' is unloaded: another one needs its room", server.text())
        with several("--models-max", 0, models=[f"m{i}" for i in range(6)]) as server:
            for i in range(6):
                ask(server, f"m{i}")
            self.assertEqual(set(states(server).values()), {"loaded"})

    def test_running_requests_finish_first_and_others_wait_in_line(self):
        with several("--models-max", 1, "--sse-ping-interval", 0.1) as server:
            ask(server, "one")
            running = Stream(server, "one")
            self.assertTrue(running.first_line().startswith("data: "))
            waiting = Stream(server, "two", max_tokens=4)
            wait_for(lambda: 'num_requests_waiting{model_name="two"} 1' in server.get("/metrics")[2].decode())
            late = Stream(server, "one", max_tokens=4)  # does not overtake the one for another model
            self.assertEqual(waiting.first_line(), ": the model is being loaded\n")
            self.assertEqual(states(server), {"one": "loaded", "two": "unloaded", "three": "unloaded"})
            self.assertEqual(server.get("/health")[0], 200)
            self.assertTrue(running.rest().endswith("data: [DONE]\n\n"))
            text = waiting.rest()
            self.assertTrue(text.endswith("data: [DONE]\n\n"), text[-300:])
            self.assertTrue(late.rest().endswith("data: [DONE]\n\n"))
            order = re.findall(r"the model '(\w+)' is (loaded|unloaded)", server.text())
            self.assertEqual(order, [("one", "loaded"), ("one", "unloaded"), ("two", "loaded"), ("two", "unloaded"), ("one", "loaded")])

    def test_a_model_stays_if_another_one_becomes_idle_first(self):
        with several("--models-max", 2) as server:
            ask(server, "two")
            first, second = Stream(server, "one", max_tokens=3500), Stream(server, "two", max_tokens=1000)
            for stream in (first, second):
                stream.first_line()
            third = Stream(server, "three", max_tokens=4)
            again = Stream(server, "one", max_tokens=4)
            for stream in (second, third, again, first):
                self.assertTrue(stream.rest().endswith("data: [DONE]\n\n"))
            self.assertNotIn("'one' is unloaded", server.text())
            self.assertIn("'two' is unloaded", server.text())

    def test_waiting_requests_are_bounded_and_those_whose_client_went_away_are_dropped(self):
        with several("--models-max", 1, "--queue", 1, "--parallel", 1) as server:
            running = Stream(server, "one")
            running.first_line()
            waiting = [Stream(server, "two", max_tokens=4) for _ in range(2)]
            wait_for(lambda: 'num_requests_waiting{model_name="two"} 2' in server.get("/metrics")[2].decode())
            status, headers, answer = server.post(CHAT, {"messages": HELLO, "model": "two"})
            self.assertEqual((status, headers["Retry-After"], answer["error"]["code"]), (429, "1", "queue_full"))
            gone = waiting.pop()
            # A reset is seen at once, the end of a client's side is only asked about later: the running answer may end before.
            gone.connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            gone.connection.close()
            wait_for(lambda: 'num_requests_waiting{model_name="two"} 1' in server.get("/metrics")[2].decode())
            self.assertIn("client_gone", server.text())
            waiting.append(Stream(server, "two", max_tokens=4))
            for stream in (running, *waiting):
                self.assertTrue(stream.rest().endswith("data: [DONE]\n\n"))

    def test_memory_is_a_limit(self):
        with several() as server:
            ask(server, "one")
            parts = re.search(r"weights ([\d.]+) MiB.*KV ([\d.]+) MiB, work ([\d.]+) MiB", server.text()).groups()
            size = sum(map(float, parts))
        with several("--models-memory", f"{int(size * 2.5)}MiB") as server:
            for name in ("one", "two", "three"):
                ask(server, name)
            self.assertEqual(states(server), {"one": "unloaded", "two": "loaded", "three": "loaded"})
        with several("--models-memory", f"{int(size * 1.1)}MiB") as server:
            for name in ("one", "two", "one"):
                ask(server, name)
            self.assertEqual(list(states(server).values()), ["loaded", "unloaded", "unloaded"])
        for limit in ("1MiB", f"{int(size * 0.9)}MiB"):  # less than the file, or than the file and the KV cache
            with several("--models-memory", limit) as server:
                status, _, answer = server.post(CHAT, {"messages": HELLO, "model": "one"})
                self.assertEqual((status, answer["error"]["code"]), (503, "model_failed"))
                self.assertRegex(answer["error"]["message"], r"it needs [\d.]+ MiB, and --models-memory is [\d.]+ MiB")

    @unittest.skipIf(SANITIZER, "a sanitizer maps more than the limit of the address space")
    def test_without_memory_beside_others_a_model_takes_their_place(self):
        options = {"environment": {"MALLOC_ARENA_MAX": "1"}}
        arguments = ("--kv-tokens", 150000, "--no-warmup")  # about 440 MiB for each model
        with several(*arguments, **options) as server:
            ask(server, "one")
            status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
            peak = int(re.search(r"VmPeak:\s+(\d+)", status).group(1)) << 10
        with several(*arguments, **options, address_space=peak + (220 << 20)) as server:
            answers = [ask(server, name) for name in ("one", "two", "one", "three")]
            self.assertEqual(answers, answers[:1] * 4)
            self.assertIn("the model 'two' waits for memory: ", server.text())
            self.assertEqual(states(server), {"one": "unloaded", "two": "unloaded", "three": "loaded"})

    def test_idle_models_are_unloaded_and_come_back(self):
        with Server("--models-idle", 1) as server:
            first = ask(server, None)
            wait_for(lambda: states(server) == {"minim-tiny": "unloaded"})
            self.assertEqual(server.get("/health")[0], 200)
            self.assertEqual(server.get("/slots")[2], [])
            before = re.search(r"generation_tokens_total{.*} (\d+)", server.get("/metrics")[2].decode()).group(1)
            self.assertGreater(int(before), 0)
            self.assertEqual(states(server), {"minim-tiny": "unloaded"})
            running = Stream(server, "any", max_tokens=3500)
            self.assertTrue(running.rest().endswith("data: [DONE]\n\n"))
            self.assertEqual(ask(server, None), first)
            after = re.search(r"generation_tokens_total{.*} (\d+)", server.get("/metrics")[2].decode()).group(1)
            self.assertGreater(int(after), int(before) + 3500)
            self.assertIn("is unloaded: it was idle", server.text())
        with tempfile.TemporaryDirectory() as folder:
            profile = pathlib.Path(folder, "profile")
            arguments = ("-c", 2048, "--device", "sim:0", "--cpu-moe", "--expert-cache", "2MiB", "--expert-profile", profile)
            with Server("--models-idle", 1, *arguments, environment=SIM) as server:
                ask(server, None)
                wait_for(profile.exists)
                wait_for(lambda: states(server) == {"minim-tiny": "unloaded"})
        ranks = {**SIM, "MINIM_SIM": "devices=2 memory=64"}
        with Server("--models-idle", 1, "-tp", 2, "--device", "sim:0,sim:1", environment=ranks) as server:
            self.assertIn("--models-idle has no effect: a model that ranks share stays loaded", server.text())
            ask(server, None)
            time.sleep(1.5)
            self.assertEqual(server.post("/models/unload", {})[0], 400)
            self.assertEqual(states(server), {"minim-tiny": "loaded"})
        with several("--sleep-idle-seconds", 1) as server:
            ask(server, "one")
            wait_for(lambda: states(server)["one"] == "unloaded")


class Loading(unittest.TestCase):
    def test_models_are_loaded_and_unloaded_by_request(self):
        with several() as server:
            for path in ("/models/load", "/models/unload"):
                self.assertEqual(server.post(path, {"model": "four"})[0], 404)
                self.assertEqual(server.get(path)[0], 405)
                self.assertEqual(server.post(path, b"{" + b" " * 70000)[0], 400)
            self.assertEqual(server.post("/models/unload", {"model": "one"})[0], 400)
            self.assertEqual(server.ok("/models/load", {"model": "one"}), {"success": True})
            status, _, answer = server.post("/models/load", {"model": "one"})
            self.assertEqual(status, 400)
            self.assertRegex(answer["error"]["message"], "the model 'one' is (being loaded|loaded) already")
            wait_for(lambda: states(server)["one"] == "loaded")
            for _ in range(20):  # until one is seen while it is being loaded
                server.ok("/models/load", {"model": "two"})
                status = server.get("/v1/models/two")[2]["status"]
                wait_for(lambda: states(server)["two"] == "loaded")
                server.ok("/models/unload", {"model": "two"})
                wait_for(lambda: states(server)["two"] == "unloaded")
                if status["value"] == "loading":
                    break
            self.assertEqual(status["value"], "loading")
            self.assertTrue(0 <= status["progress"] <= 1, status)
            server.ok("/models/load", {"model": "three"})
            wait_for(lambda: states(server)["three"] != "unloaded")
            server.ok("/models/unload", {"model": "three"})  # usually while it is being loaded
            wait_for(lambda: "the model 'three' is unloaded" in server.text())
            running = Stream(server, "one")
            running.first_line()
            self.assertEqual(server.ok("/models/unload", {"model": "one"}), {"success": True})
            late = Stream(server, "one", max_tokens=4)  # has to wait until it is loaded again
            self.assertTrue(running.rest().endswith("data: [DONE]\n\n"))
            self.assertTrue(late.rest().endswith("data: [DONE]\n\n"))
            order = re.findall(r"the model 'one' is (loaded|unloaded)", server.text())
            self.assertEqual(order, ["loaded", "unloaded", "loaded"])
            server.ok("/models/unload", {"model": "one"})
            wait_for(lambda: states(server)["one"] == "unloaded")
        with several("--models-max", 1) as server:
            ask(server, "one")
            running = Stream(server, "one", max_tokens=3500)
            running.first_line()
            for path in ("/models/load", "/models/unload"):  # before there is room
                server.ok(path, {"model": "two"})
            ask(server, "one")
            running.rest()
            self.assertNotIn("'two' is loaded", server.text())
        with Server() as server:  # the same with one model
            server.ok("/models/unload", {"model": "any"})
            wait_for(lambda: states(server) == {"minim-tiny": "unloaded"})
            server.ok("/models/load", {})
            wait_for(lambda: states(server) == {"minim-tiny": "loaded"})

    def test_without_autoload_only_the_route_loads(self):
        with several("--no-models-autoload") as server:
            status, _, answer = server.post(CHAT, {"messages": HELLO, "model": "one"})
            self.assertEqual((status, answer["error"]["code"]), (400, "model_not_loaded"))
            self.assertEqual(states(server)["one"], "unloaded")
            server.ok("/models/load", {"model": "one"})
            wait_for(lambda: states(server)["one"] == "loaded")
            ask(server, "one")
            self.assertEqual(server.get("/props?model=two&autoload=true")[2]["model_alias"], "two")
        with several() as server:
            self.assertEqual(server.get("/props?model=two&autoload=false")[0], 400)
            self.assertEqual(states(server)["two"], "unloaded")

    def test_the_failure_of_one_model_is_told_and_hurts_no_other(self):
        with tempfile.TemporaryDirectory() as folder:
            damaged = pathlib.Path(folder, "damaged.gguf")
            damaged.write_bytes(MODEL.read_bytes()[:100000])
            with several("--models-max", 1, "--sse-ping-interval", 0.1, models=("good", ("bad", damaged))) as server:
                running = Stream(server, "good")
                running.first_line()
                streams = {path: Stream(server, "bad", path=path, max_tokens=4) for path in (CHAT, "/v1/messages")}
                whole = Stream(server, "bad", stream=False)
                for stream in streams.values():
                    self.assertEqual(stream.first_line(), ": the model is being loaded\n")
                self.assertTrue(running.rest().endswith("data: [DONE]\n\n"))
                reason = "the model 'bad' cannot be loaded: "
                events = list(parse_events(streams[CHAT].rest()))
                self.assertIn(reason, events[-1][1]["error"]["message"])
                events = list(parse_events(streams["/v1/messages"].rest()))
                self.assertEqual((events[-1][0], events[-1][1]["type"]), ("error", "error"))
                self.assertIn(reason, events[-1][1]["error"]["message"])
                answer = json.loads(whole.rest())
                self.assertEqual((whole.response.status, answer["error"]["code"]), (503, "model_failed"))
                self.assertIn(reason, answer["error"]["message"])
                status = server.get("/v1/models/bad")[2]["status"]
                self.assertEqual((status["value"], status["failed"]), ("failed", True))
                self.assertIn(status["error"], answer["error"]["message"])
                self.assertTrue(ask(server, "good"))
                damaged.write_bytes(MODEL.read_bytes())  # a later request tries again
                self.assertEqual(ask(server, "bad"), ask(server, "good"))

    def test_a_server_that_ends_answers_what_waits(self):
        with several("--models-max", 1) as server:
            running, waiting = Stream(server, "one"), Stream(server, "two", max_tokens=4)
            running.first_line()
            wait_for(lambda: 'num_requests_waiting{model_name="two"} 1' in server.get("/metrics")[2].decode())
            server.process.send_signal(signal.SIGTERM)
            for stream in (running, waiting):
                self.assertTrue(stream.rest().endswith("data: [DONE]\n\n"))
            self.assertEqual(server.process.wait(60), 0)
        with several("--models-max", 1) as server:
            running, waiting = Stream(server, "one"), Stream(server, "two", max_tokens=4)
            running.first_line()
            for _ in range(2):  # the second one ends it at once
                server.process.send_signal(signal.SIGTERM)
                time.sleep(0.2)
            self.assertEqual(server.process.wait(60), 0)


class Random(unittest.TestCase):
    def test_random_requests_at_three_models_with_room_for_two(self):
        """Each answer is that of the model that was asked for; never more than two are loaded; no other stream stalls."""
        models = (("tiny", MODEL), ("iq", IQ / "minim-tiny-mix-iq-00001-of-00003.gguf"), ("nvfp4", NVFP4))
        words = ["blue", "seven", "river", "and", "why", "( ", "tool", "x =", "lamp", "not", "Paris", "?"]
        prompts = [" ".join(random.Random(i).choices(words, k=12)) for i in range(24)]
        with several("--models-max", 2, "-c", 1024, "--parallel", 20, models=models) as server:
            def resident_kb():
                status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
                return int(re.search(r"VmRSS:\s+(\d+)", status).group(1))

            def complete(name, prompt):
                answer = server.ok("/v1/completions", {"model": name, "prompt": prompt, "temperature": 0, "max_tokens": 32,
                                                       "ignore_eos": True})
                return answer["model"], answer["choices"][0]["text"]

            known = {name: [complete(name, prompt) for prompt in prompts] for name, _ in models}
            differing = [i for i in range(len(prompts)) if len({known[name][i][1] for name, _ in models}) == len(models)]
            self.assertGreater(len(differing), 8)
            two_kb = resident_kb()  # of two models
            most_loaded, most_kb, ends = 0, 0, threading.Event()

            def watch():
                nonlocal most_loaded, most_kb
                while not ends.wait(0.05):
                    most_loaded = max(most_loaded, sum(value in ("loaded", "loading") for value in states(server).values()))
                    most_kb = max(most_kb, resident_kb())

            def one(number):
                chance = random.Random(number)
                name, i = chance.choice(models)[0], chance.choice(differing)
                begin = time.monotonic()
                answer = complete(name, prompts[i])
                return answer == known[name][i], time.monotonic() - begin

            watcher = threading.Thread(target=watch)
            watcher.start()
            begin = time.monotonic()
            with concurrent.futures.ThreadPoolExecutor(20) as clients:
                results = list(clients.map(one, range(N_RANDOM)))
            seconds = time.monotonic() - begin
            ends.set()
            watcher.join()
            n_loads = len(re.findall("is loaded", server.text()))
            print(f"{N_RANDOM} requests in {seconds:.1f} s, slowest {max(time for _, time in results):.2f} s, {n_loads} loads, "
                  f"{most_loaded} loaded at most, {most_kb >> 10} MiB at most, {two_kb >> 10} MiB before")
            self.assertEqual([number for number, (is_right, _) in enumerate(results) if not is_right], [])
            self.assertLessEqual(most_loaded, 2)
            if SANITIZER is None:  # which keeps freed memory for a time
                self.assertLess(most_kb, 1.3 * two_kb)

    def test_a_stream_does_not_stall_while_other_models_come_and_go(self):
        with several("--models-max", 2) as server:
            ask(server, "one")
            stream, pauses, last = Stream(server, "one", max_tokens=2500), [], time.monotonic()
            stopped, loads = threading.Event(), []

            def swap():
                names = ["two", "three"] * 200
                while not stopped.is_set():
                    begin = time.monotonic()
                    ask(server, names.pop())
                    loads.append(time.monotonic() - begin)

            swapper = threading.Thread(target=swap)
            swapper.start()
            for line in iter(stream.first_line, ""):
                if line.startswith("data: "):
                    now = time.monotonic()
                    pauses.append(now - last)
                    last = now
            stopped.set()
            swapper.join()
            self.assertGreater(len(re.findall("is loaded", server.text())), 3)
            print(f"longest pause {max(pauses):.3f} s, {len(loads)} loads, the longest {max(loads):.3f} s")
            self.assertLess(max(pauses), max(2 * max(loads), 1))


if __name__ == "__main__":
    unittest.main()
