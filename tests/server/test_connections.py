# SPDX-License-Identifier: Apache-2.0
"""Connections: slow, idle and rude clients, keys, keep-alives, and the end of the server."""

import contextlib
import gzip
import json
import re
import signal
import socket
import threading
import time
import unittest

from support import CHAT, COUNT, HELLO, TIMES_SLOWER, Server, post_bytes, raw, status_of

# A request whose answer takes longer than any test waits.
LONG = {"messages": HELLO, "ignore_eos": True, "max_tokens": 3900, "temperature": 0}


def open_and_send(server, data):
    sock = socket.create_connection(server.address, timeout=30)
    sock.sendall(data)
    return sock


class Connections(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server())

    def wait_until_busy(self):
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            if any(slot["is_processing"] for slot in self.server.get("/slots")[2]):
                return
        raise AssertionError("no slot is in use")

    def test_many_requests_on_a_connection(self):
        one = post_bytes("/tokenize", {"content": "x"})
        last = b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n"
        with open_and_send(self.server, one * 20 + last) as sock:
            received = b""
            while part := sock.recv(65536):
                received += part
        self.assertEqual(received.count(b"HTTP/1.1 200 OK"), 21)
        self.assertEqual(len(set(re.findall(rb"x-request-id: (\S+)", received))), 21)

    def test_an_answer_for_a_client_that_ends_its_side(self):
        data = post_bytes(CHAT, {"messages": HELLO, "max_tokens": 3})
        self.assertEqual(status_of(raw(self.server.address, data, half_close=True)), 200)

    def test_http_1_0(self):
        body = json.dumps({"messages": HELLO, "max_tokens": 3, "stream": True}).encode()
        answer = raw(self.server.address, b"POST %b HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b" % (CHAT.encode(), len(body), body))
        self.assertNotIn(b"chunked", answer)
        self.assertTrue(answer.endswith(b"data: [DONE]\n\n"), answer[-100:])

    def test_expect(self):
        body = json.dumps({"content": "x" * 10}).encode()
        for words in (b"100-continue", b"100-Continue"):
            with open_and_send(self.server, b"POST /tokenize HTTP/1.1\r\nExpect: %s\r\nContent-Length: %d\r\n\r\n" % (words, len(body))) as sock:
                self.assertTrue(sock.recv(1000).startswith(b"HTTP/1.1 100"))
                sock.sendall(body)
                self.assertIn(b"200 OK", sock.recv(1000))

    def test_head(self):
        answer = raw(self.server.address, b"HEAD /health HTTP/1.1\r\nConnection: close\r\n\r\n")
        self.assertTrue(answer.startswith(b"HTTP/1.1 200") or answer.startswith(b"HTTP/1.1 404"))

    def test_a_client_that_goes_ends_its_request(self):
        for stream in (True, False):
            sock = open_and_send(self.server, post_bytes(CHAT, {**LONG, "stream": stream}))
            self.wait_until_busy()
            sock.close()
            self.server.wait_until_free(10)

    def test_slow_clients_keep_nobody_waiting(self):
        with contextlib.ExitStack() as stack:
            for _ in range(100):
                stack.enter_context(open_and_send(self.server, post_bytes(CHAT, "{}", Content_Length=1000)[:-1]))
            for _ in range(200):
                stack.enter_context(socket.create_connection(self.server.address))
            started = time.monotonic()
            self.server.chat(HELLO, max_tokens=5)
            self.assertLess(time.monotonic() - started, 5 * TIMES_SLOWER)

    def test_nothing_is_prepared_for_clients_that_are_gone(self):
        words = " ".join(f"w{i * 7919 % 100003}x" for i in range(300000))
        data = post_bytes("/tokenize", {"content": words})
        started = time.monotonic()
        self.server.post("/tokenize", {"content": words})
        alone = time.monotonic() - started
        for _ in range(40):
            open_and_send(self.server, data).close()
        started = time.monotonic()
        self.server.chat(HELLO, max_tokens=2)
        self.assertLess(time.monotonic() - started, 4 + 4 * alone)

    def test_requests_without_progress_are_closed(self):
        for data in (b"", b"GET /hea", post_bytes(CHAT, "{}", Content_Length=1000)):
            with open_and_send(self.server, data) as sock:
                started = time.monotonic()
                while sock.recv(1000):
                    pass
                self.assertLess(time.monotonic() - started, 15)

    def test_a_client_that_does_not_read_is_closed(self):
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            sock.settimeout(30)
            sock.connect(self.server.address)
            # 8 answers of 3,900 tokens with some 3 kB of log-probabilities each: about 90 MB, which no buffers of the system
            # and the server hold.
            sock.sendall(post_bytes(CHAT, {**LONG, "n": 8, "stream": True, "logprobs": True, "top_logprobs": 20}))
            self.wait_until_busy()
            self.server.wait_until_free(240)
            aborted = re.search(r"minim_requests_aborted_total{.*} (\d+)", self.server.get("/metrics")[2].decode())
            self.assertGreater(int(aborted.group(1)), 0)


class Keys(unittest.TestCase):
    def test_keys(self):
        with Server("--api-key", "s3cret") as server:
            for headers in ({"Authorization": "Bearer s3cret"}, {"x-api-key": "s3cret"}, {"authorization": "bearer s3cret"}):
                self.assertEqual(server.get("/props", headers=headers)[0], 200)
            self.assertEqual(server.get("/health")[0], 200)
            bodies = set()
            for headers in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "Bearer s3crets3cret"}, {"Authorization": "Bearer "},
                            {"Authorization": "Basic s3cret"}, {"Authorization": "s3cret"}, {"x-api-key": "S3cret"}, {"x-api-key": ""}):
                for method, path in (("GET", "/props"), ("GET", "/slots"), ("GET", "/metrics"), ("POST", CHAT), ("GET", "/nothing")):
                    status, _, answer = server.request(method, path, headers=headers)
                    self.assertEqual(status, 401, (headers, path))
                    bodies.add(json.dumps(answer))
            self.assertEqual(len(bodies), 1)
            status, _, answer = server.post("/v1/messages", {"messages": HELLO, "max_tokens": 3})
            self.assertEqual((status, answer["type"], answer["error"]["type"]), (401, "error", "authentication_error"))


class Pages(unittest.TestCase):
    """Pages of foreign sites, which a browser lets send requests to this machine."""

    def ask(self, server, **fields):
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return status_of(raw(server.address, f"GET /v1/models HTTP/1.1\r\n{lines}Connection: close\r\n\r\n".encode()))

    def test_hosts_and_origins(self):
        own = socket.gethostname()
        with Server() as server:
            port = server.address[1]
            for host in (f"127.0.0.1:{port}", "localhost", f"LOCALHOST:{port}", "app.localhost", f"[::1]:{port}", "::1", "192.168.7.9:80", own, "minim:8080",
                         "host.docker.internal:1", "localhost.", "host.minikube.internal", "localhost.localdomain:80"):
                self.assertEqual(self.ask(server, Host=host), 200, host)
            for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "localhost.evil.example", "evil.example.", "a.b:1:2.c", "internal.evil.example", "evilinternal.example"):
                self.assertEqual(self.ask(server, Host=host), 403, host)
            self.assertEqual(self.ask(server), 200)  # HTTP/1.0 and simple programs have none
            for origin in (f"http://localhost:{port}", "http://127.0.0.1:3000", "https://app.localhost", "vscode-webview://1x2", "app://obsidian.md",
                           "tauri://localhost", "chrome-extension://abc", "http://0.0.0.0:3000", "http://[::]:3000", "http://host.docker.internal:3000"):
                self.assertEqual(self.ask(server, Host="localhost", Origin=origin), 200, origin)
            for origin in ("http://evil.example", "https://localhost.evil.example", "null", "HTTP://evil.example:8080", "evil", "http://192.168.7.9:3000"):
                self.assertEqual(self.ask(server, Host="localhost", Origin=origin), 403, origin)
            for path in ("/", "/health", CHAT):
                status, _, answer = server.request("GET", path, headers={"Host": "evil.example"})
                self.assertEqual(status, 403)
                self.assertIn("evil.example", answer["error"]["message"])
        with Server("--cors-origin", "https://chat.example") as server:
            self.assertEqual(self.ask(server, Host="chat.example"), 200)
            self.assertEqual(self.ask(server, Host="localhost", Origin="https://chat.example"), 200)
            self.assertEqual(self.ask(server, Host="localhost", Origin="https://other.example"), 403)
        for options in (("--cors-origin", "*"), ("--host", "0.0.0.0")):
            with Server(*options) as server:
                self.assertEqual(self.ask(server, Host="gpu.example:80", Origin="https://other.example"), 200)
        with Server("--api-key", "s3cret") as server:  # a foreign page does not know it
            self.assertEqual(self.ask(server, Host="gpu.example", Authorization="Bearer s3cret"), 200)

    def test_preflights(self):
        with Server("--cors-origin", "*", "--api-key", "s3cret") as server:
            for asked in ("authorization,content-type", "X-Stainless-OS, x-api-key"):
                headers = {"Origin": "http://a.example", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": asked,
                           "Access-Control-Request-Private-Network": "true"}
                status, found, _ = server.request("OPTIONS", "/v1/messages", headers=headers)
                self.assertEqual((status, found["Access-Control-Allow-Headers"], found["Access-Control-Allow-Origin"]), (204, asked, "*"))
                self.assertEqual(found["Access-Control-Allow-Private-Network"], "true")
            self.assertIn("request-id", server.get("/health")[1]["Access-Control-Expose-Headers"])
        with Server() as server:
            status, found, _ = server.request("OPTIONS", CHAT)
            self.assertEqual((status, found["Access-Control-Allow-Headers"]), (204, None))
            self.assertIn("POST", found["Allow"])

    def test_bodies_in_an_encoding(self):
        with Server() as server:
            body = gzip.compress(json.dumps({"messages": HELLO, "max_tokens": 2}).encode())
            for encoding in ("gzip", "deflate", "zstd", "br"):
                status, _, answer = server.post(CHAT, body, headers={"Content-Encoding": encoding})
                self.assertEqual(status, 415)
                self.assertIn(encoding, answer["error"]["message"])
            self.assertEqual(server.post(CHAT, {"messages": HELLO, "max_tokens": 2}, headers={"Content-Encoding": "identity"})[0], 200)


class Queue(unittest.TestCase):
    def test_streams_that_wait_get_headers_and_pings(self):
        # Three pings come in far less time than the answer before them takes, even on a fast machine.
        with Server("--parallel", "1", "--sse-ping-interval", "0.05") as server:
            for path, body, ping in ((CHAT, {"messages": HELLO}, b": ping\n\n"),
                                     ("/v1/responses", {"input": HELLO}, b"event: response.in_progress\n"),
                                     ("/v1/messages", {"messages": HELLO, "max_tokens": 3}, b"event: ping\n")):
                with open_and_send(server, post_bytes(CHAT, {**LONG, "stream": True})):
                    with open_and_send(server, post_bytes(path, {**body, "stream": True})) as sock:
                        received = b""
                        started = time.monotonic()
                        while received.count(ping) < 3 and time.monotonic() - started < 10:
                            received += sock.recv(65536)
                        self.assertTrue(received.startswith(b"HTTP/1.1 200"))
                        self.assertGreaterEqual(received.count(ping), 3)

    def test_a_full_queue(self):
        with Server("--parallel", "1", "--queue", "2") as server, contextlib.ExitStack() as stack:
            for _ in range(3):
                stack.enter_context(open_and_send(server, post_bytes(CHAT, {**LONG, "stream": True})))
                time.sleep(0.3)
            for path in (CHAT, "/v1/messages"):
                status, headers, answer = server.post(path, {"messages": HELLO, "max_tokens": 3})
                self.assertEqual((status, answer["error"]["type"]), (429, "rate_limit_error"))
                self.assertGreater(int(headers["Retry-After"]), 0)
            stack.close()
            server.wait_until_free()
            server.chat(HELLO, max_tokens=3)

    def test_timeouts_end_answers(self):
        with Server("--answer-timeout", "1") as server:
            started = time.monotonic()
            choice = server.ok(CHAT, {**LONG, "n": 8})["choices"][0]
            self.assertEqual(choice["finish_reason"], "length")
            self.assertLess(time.monotonic() - started, 10 * TIMES_SLOWER)


class End(unittest.TestCase):
    def test_running_requests_finish(self):
        server = Server()
        answers = []

        def ask(stream):
            body = {"messages": COUNT, "temperature": 0, "max_tokens": 400, "ignore_eos": True}
            if stream:
                answers.append(server.events(CHAT, body)[-1][1] == "[DONE]")
            else:
                answers.append(server.ok(CHAT, body)["usage"]["completion_tokens"] == 400)

        threads = [threading.Thread(target=ask, args=(i % 2,)) for i in range(12)]
        for thread in threads:
            thread.start()
        idle = socket.create_connection(server.address)
        deadline = time.monotonic() + 10
        while sum(slot["is_processing"] for slot in server.get("/slots")[2]) < 8 and time.monotonic() < deadline:
            pass
        time.sleep(0.3)
        self.assertEqual(server.stop(240), 0)
        for thread in threads:
            thread.join()
        self.assertEqual(answers, [True] * 12)
        self.assertEqual(idle.recv(100), b"")
        idle.close()
        with self.assertRaises(ConnectionRefusedError):
            server.get("/health")

    def test_new_requests_are_refused_while_streams_end(self):
        server = Server()
        keep = socket.create_connection(server.address, timeout=60)
        ends = []

        def ask(path, body):
            events = server.events(path, body)
            ends.append(events[-1])

        body = {"messages": COUNT, "temperature": 0, "max_tokens": 900, "ignore_eos": True}
        threads = [threading.Thread(target=ask, args=(CHAT, body)) for _ in range(8)]
        threads += [threading.Thread(target=ask, args=("/v1/messages", {"messages": COUNT, "max_tokens": 60}))
                    for _ in range(8)]  # they wait
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 20
        while sum(slot["is_processing"] for slot in server.get("/slots")[2]) < 8 and time.monotonic() < deadline:
            pass
        time.sleep(0.2)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        for _ in range(3):
            status, _, answer = server.post(CHAT, {"messages": HELLO, "max_tokens": 1})
            self.assertEqual((status, answer["error"]["message"]), (503, "the server is shutting down"))
        self.assertEqual(server.process.wait(240), 0)
        for thread in threads:
            thread.join()
        self.assertEqual(sum(end == (None, "[DONE]") for end in ends), 8)
        self.assertEqual(sum(end[0] == "message_stop" for end in ends), 8)
        self.assertEqual(keep.recv(100), b"")
        keep.close()

    def test_the_log_has_no_prompts(self):
        with Server() as server:
            server.chat([{"role": "user", "content": "Xylophone?"}], max_tokens=3)
            server.post(CHAT, {"messages": [{"role": "Xylophone", "content": "x"}], "temperature": "Xylophone"})
            log = server.text()
        self.assertRegex(log, rf"minim-server: \d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{{3}}Z 127\.0\.0\.1:\d+ req_\S+ POST {CHAT} status=200")
        self.assertIn("generated=3", log)
        self.assertNotIn("Xylophone", log)


if __name__ == "__main__":
    unittest.main()
