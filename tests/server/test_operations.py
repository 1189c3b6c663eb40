# SPDX-License-Identifier: Apache-2.0
"""Operation of the server: probes, its end, keys and log at SIGHUP, Unix sockets, the path prefix, log lines and metrics."""

import contextlib
import fcntl
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time
import unittest

from support import CHAT, COUNT, HELLO, MODEL, PROGRAM, ROOT, TIMES_SLOWER, Server, post_bytes

# A request whose answer takes longer than any test waits.
LONG = {"messages": HELLO, "ignore_eos": True, "max_tokens": 3900, "temperature": 0}


def wait_for(condition, seconds=20):
    """Returns the first true value of condition(); raises an error if none comes in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")


def start(*arguments, **more):
    """Starts the program with the tiny model, without waiting. What it writes is in its stderr."""
    return subprocess.Popen([PROGRAM, "-m", str(MODEL), "-c", "4096", *map(str, arguments)], stderr=subprocess.PIPE, text=True, **more)


def run(*arguments):
    """Returns the end of a server that must not start."""
    return subprocess.run([PROGRAM, "-m", str(MODEL), "-c", "1024", *map(str, arguments)], capture_output=True, text=True, timeout=60)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def ask(path, target, body=None, headers=None):
    """Returns (status, headers, body) of one request over a Unix socket."""
    with contextlib.closing(UnixConnection(str(path))) as connection:
        connection.request("GET" if body is None else "POST", target, body if body is None else json.dumps(body), headers or {})
        response = connection.getresponse()
        return response.status, response.headers, response.read().decode()


class UnixSocket(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.path = self.folder / "s.sock"

    @contextlib.contextmanager
    def server(self, *arguments, **more):
        """A server on the socket. Its stderr is read at its end."""
        process = start(*arguments, **more)
        try:
            wait_for(lambda: process.poll() is not None or (self.path.exists() and self.is_ready()))
            self.assertIsNone(process.poll())
            yield process
            process.terminate()
            self.assertEqual(process.wait(60), 0)
        finally:
            process.kill()
            process.wait()
            self.log = process.stderr.read()
            process.stderr.close()

    def is_ready(self):
        with contextlib.suppress(ConnectionRefusedError, FileNotFoundError):
            return ask(self.path, "/ready")[0] == 200

    def test_every_spelling(self):
        for arguments in (["--host", f"unix:{self.path}"], ["--host", self.path], ["--uds", self.path, "--port", 1]):
            with self.server(*arguments):
                # As a proxy passes on whatever name its site has.
                for host in ("localhost", "llm.example.com"):
                    status, _, text = ask(self.path, CHAT, {"messages": HELLO, "max_tokens": 2}, {"Host": host})
                    self.assertEqual(status, 200, text)
                self.assertTrue(stat.S_ISSOCK(self.path.stat().st_mode))
            self.assertFalse(self.path.exists())
            self.assertIn(f"at unix:{self.path}", self.log)
            self.assertRegex(self.log, rf"Z unix:uid={os.getuid()} req_\S+ POST {CHAT} status=200")
            self.assertEqual("--port has no effect" in self.log, "--port" in arguments)

    def test_the_umask_is_its_mode(self):
        for mask, mode in ((0o077, 0o700), (0o007, 0o770)):
            with self.server("--uds", self.path, umask=mask):
                self.assertEqual(stat.S_IMODE(self.path.stat().st_mode), mode)

    def test_what_is_there_already(self):
        with self.server("--uds", self.path):
            done = run("--uds", self.path)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"cannot listen at unix:{self.path}: another process listens there", done.stderr)
            self.assertEqual(ask(self.path, "/health")[0], 200)
        dead = socket.socket(socket.AF_UNIX)
        dead.bind(str(self.path))
        dead.close()
        with self.server("--uds", self.path):
            self.assertEqual(ask(self.path, "/health")[0], 200)
            # Another server's file is not removed.
            self.path.unlink()
            self.path.write_text("other")
        self.assertEqual(self.path.read_text(), "other")
        done = run("--uds", self.path)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"unix:{self.path}: the file exists and is not a socket", done.stderr)
        self.assertEqual(self.path.read_text(), "other")

    def test_paths_that_cannot_be(self):
        for path, code, fact in ((self.folder / "no" / "s.sock", 1, "No such file"), ("/" + "x" * 120 + ".sock", 1, "has 126 bytes, 107 at most"),
                                 ("unix:", 2, "--host: 'unix:' names no socket")):
            done = run("--host", path)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(fact, done.stderr)
        done = run("--host", "127.0.0.1", "--uds", self.path)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--host excludes --uds", done.stderr)


class Prefix(unittest.TestCase):
    def test_all_routes_are_below_it(self):
        for given in ("/llm/a", "llm/a/"):
            with Server("--prefix", given) as server:
                self.assertIn(f"http://127.0.0.1:{server.address[1]}/llm/a\n", server.text())
                for path in ("/v1/models", "/models", "/health", "/ready", "/live", "/metrics", "/slots", "/props", "/", "//v1/models/"):
                    self.assertEqual(server.get("/llm/a" + path)[0], 200, path)
                self.assertEqual(server.post("/llm/a" + CHAT, {"messages": HELLO, "max_tokens": 1})[0], 200)
                for path in ("/v1/models", "/health", "/", "/llm", "/llm/ab/v1/models", "/llm/abc", "/LLM/a/health"):
                    status, _, answer = server.get(path)
                    self.assertEqual(status, 404, path)
                    self.assertIn("below /llm/a/", answer["error"]["message"])

    def test_the_page_is_where_its_relative_addresses_work(self):
        with Server("--api-prefix", "/llm/a") as server:
            status, headers, _ = server.get("/llm/a?x")
            self.assertEqual((status, headers["Location"]), (308, "a/"))
            page = server.get("/llm/a/")[2].decode()
            self.assertNotRegex(page, r"""(fetch\(|src=|href=)["'`]/""")

    def test_prefixes_that_are_none(self):
        with Server("--prefix", "/") as server:
            self.assertEqual(server.get("/v1/models")[0], 200)
        for prefix in ("/a?b", "/a b", "/a//b", "/a%20b", "/ü"):
            done = run("--prefix", prefix)
            self.assertEqual(done.returncode, 2, prefix)
            self.assertIn(f"--prefix: '{prefix}' is not a path", done.stderr)


class Probes(unittest.TestCase):
    def test_a_server_that_is_ready(self):
        with Server("--api-key", "s3cret") as server:
            self.assertEqual(server.get("/live")[::2], (200, {"status": "ok"}))
            self.assertEqual(server.get("/ready")[::2], (200, {"state": "ready"}))
            self.assertEqual(server.get("/health")[::2], (200, {"status": "ok"}))

    def test_while_the_model_is_loaded(self):
        # The log is a pipe that is full: the server waits for its reader before it opens the model, for ten seconds at most.
        read, write = os.pipe()
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
        os.write(write, b"x" * 4096)
        with tempfile.TemporaryDirectory() as folder, contextlib.closing(UnixConnection(f"{folder}/s.sock")) as kept:
            path = pathlib.Path(kept.path)
            process = subprocess.Popen([PROGRAM, "-m", str(MODEL), "-c", "1024", "--uds", path, "--api-key", "s3cret"], stderr=write)
            os.close(write)
            try:
                wait_for(path.exists)
                self.assertEqual(ask(path, "/live")[::2], (200, '{"status":"ok"}'))
                self.assertEqual(ask(path, "/ready")[::2], (503, '{"state":"loading"}'))
                for target, body in (("/health", None), ("/v1/health", None), (CHAT, {"messages": HELLO})):
                    status, headers, text = ask(path, target, body)
                    self.assertEqual((status, headers["Retry-After"]), (503, "5"))
                    self.assertEqual(json.loads(text)["error"], {"message": "Loading model", "type": "unavailable_error", "param": None, "code": 503})
                status, headers, text = ask(path, "/")
                self.assertEqual((status, headers["Refresh"], headers.get_content_type()), (503, "2", "text/html"))
                self.assertIn("being loaded", text)
                self.assertEqual(ask(path, "/metrics")[0], 503)
                status, _, text = ask(path, "/metrics", headers={"x-api-key": "s3cret"})
                self.assertEqual(status, 200)
                self.assertIn("process_resident_memory_bytes", families(text))
                kept.request("GET", "/ready")
                self.assertEqual(kept.getresponse().read(), b'{"state":"loading"}')
                log = b""
                while b"at unix:" not in log:
                    log += os.read(read, 65536)
                self.assertIn(f"loading the model; unix:{path}/ready says when it is there".encode(), log)
                wait_for(lambda: ask(path, "/ready")[0] == 200)
                kept.request("GET", "/ready")  # on the connection from before
                self.assertEqual(kept.getresponse().read(), b'{"state":"ready"}')
                process.terminate()
                self.assertEqual(process.wait(60), 0)
                self.assertFalse(path.exists())
            finally:
                process.kill()
                process.wait()
                os.close(read)

    def test_a_model_that_cannot_be_loaded(self):
        with tempfile.TemporaryDirectory() as folder:
            path, model = pathlib.Path(folder, "s.sock"), pathlib.Path(folder, "broken.gguf")
            model.write_bytes(b"GGUF")
            done = subprocess.run([PROGRAM, "-m", model, "--uds", path], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 1)
            self.assertIn("broken.gguf", done.stderr.splitlines()[-1])
            self.assertFalse(path.exists())

    def test_the_port_is_taken_before_the_model_is_loaded(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            done = run("--port", port)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"cannot listen at 127.0.0.1:{port}", done.stderr)
            self.assertNotIn("memory:", done.stderr)

    def test_a_service_manager_is_told(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            for name, address in ((f"{folder}/notify", f"{folder}/notify"), (f"@minim-{os.getpid()}", f"\0minim-{os.getpid()}")):
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
                    manager.bind(address)
                    manager.settimeout(60)
                    with Server(environment={"NOTIFY_SOCKET": name}) as server:
                        self.assertEqual(manager.recv(100), b"READY=1")
                        self.assertEqual(server.get("/ready")[0], 200)
                    self.assertEqual(manager.recv(100), b"STOPPING=1")
            with Server(environment={"NOTIFY_SOCKET": f"{folder}/nobody"}) as server:
                self.assertIn(f"NOTIFY_SOCKET '{folder}/nobody' does not take READY=1", server.text())


class End(unittest.TestCase):
    """What happens between SIGTERM and the end."""

    @contextlib.contextmanager
    def asked(self, server, bodies):
        """Asks for answers in threads, and gives (status, text) of each."""
        answers = [None] * len(bodies)

        def send(i):
            connection = http.client.HTTPConnection(*server.address, timeout=240)
            with contextlib.closing(connection):
                connection.request("POST", CHAT, json.dumps(bodies[i]), {"Content-Type": "application/json"})
                response = connection.getresponse()
                answers[i] = response.status, response.read().decode()

        threads = [threading.Thread(target=send, args=(i,)) for i in range(len(bodies))]
        for thread in threads:
            thread.start()

        def n_taken():
            text = server.get("/metrics")[2].decode()
            return sum(int(count) for count in re.findall(r"^minim_num_requests_(?:running|waiting){.*} (\d+)$", text, re.MULTILINE))

        wait_for(lambda: n_taken() == sum(body.get("n", 1) for body in bodies))
        yield answers
        for thread in threads:
            thread.join()

    def test_probes_say_that_it_drains(self):
        server = Server()
        with self.asked(server, [{"messages": COUNT, "ignore_eos": True, "max_tokens": 800}] * 8) as answers:
            server.process.send_signal(signal.SIGTERM)
            wait_for(lambda: "shutting down: running requests finish" in server.text())
            self.assertEqual(server.get("/live")[0], 200)
            self.assertEqual(server.get("/ready")[::2], (503, {"state": "draining"}))
            self.assertEqual(server.get("/health")[::2], (503, {"status": "shutting down"}))
            status, headers, answer = server.post(CHAT, {"messages": HELLO})
            self.assertEqual((status, headers["Connection"]), (503, "close"))
            self.assertIn("the server is shutting down", answer["error"]["message"])
            self.assertIn(b"num_requests_running", server.get("/metrics")[2])
        self.assertEqual(server.process.wait(60), 0)
        self.assertEqual([status for status, _ in answers], [200] * 8)
        with self.assertRaises(ConnectionRefusedError):
            server.get("/live")
        server.__exit__(None)

    def test_the_time_for_it_is_limited(self):
        for option, seconds in (("--drain-timeout", 1), ("--shutdown-timeout", 0)):
            server = Server(option, seconds)
            with self.asked(server, [LONG, {**LONG, "stream": True}, {**LONG, "n": 8}, *[LONG] * 4]) as answers:
                began = time.monotonic()
                server.process.send_signal(signal.SIGTERM)
                self.assertEqual(server.process.wait(60), 0)
                self.assertLess(time.monotonic() - began, seconds + 5 * TIMES_SLOWER)
            message = f"the server is shutting down, and the {seconds} s of --drain-timeout are over"
            for _, text in answers:
                self.assertIn(message, text)
            self.assertEqual(sorted(status for status, _ in answers), [200, *[503] * 6])
            self.assertIn(f"{message}: 7 requests end with an error", server.text())
            server.__exit__(None)

    def test_requests_that_wait_for_a_model_end_too(self):
        server = Server("-m", f"b={MODEL}", "--models-max", 1, "--drain-timeout", 1, model=f"a={MODEL}")
        with self.asked(server, [{**LONG, "model": "a"}, {**LONG, "model": "b"}, {**LONG, "model": "b", "stream": True}]) as answers:
            self.assertEqual(server.stop(60), 0)
        for _, text in answers:
            self.assertIn("the 1 s of --drain-timeout are over", text)
        self.assertEqual([status for status, _ in answers[:2]], [503, 503])
        server.__exit__(None)

    def test_a_second_signal_ends_it_at_once(self):
        server = Server()
        socks = [socket.create_connection(server.address, timeout=30) for _ in range(8)]
        for i, sock in enumerate(socks):
            sock.sendall(post_bytes(CHAT, {**LONG, "stream": i % 2 == 0}))
        wait_for(lambda: all(slot["is_processing"] for slot in server.get("/slots")[2]))
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: "shutting down: running requests finish" in server.text())
        self.assertEqual(server.stop(60), 0)
        self.assertLess(time.monotonic() - began, 5 * TIMES_SLOWER)
        for sock in socks:
            sock.close()
        server.__exit__(None)

    def test_a_client_that_does_not_read_does_not_prolong_it(self):
        server = Server("--drain-timeout", 1)
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            sock.connect(server.address)
            sock.sendall(post_bytes(CHAT, {**LONG, "n": 8, "stream": True, "logprobs": True, "top_logprobs": 20}))
            wait_for(lambda: any(slot["is_processing"] for slot in server.get("/slots")[2]))
            began = time.monotonic()
            self.assertEqual(server.stop(60), 0)
            self.assertLess(time.monotonic() - began, 8 * TIMES_SLOWER)
        server.__exit__(None)


class Hangup(unittest.TestCase):
    """SIGHUP: keys and log are read and opened again."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.keys = self.folder / "keys"

    def hang_up(self, server):
        n_before = server.text().count("SIGHUP: ")
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: server.text().count("SIGHUP: ") > n_before)
        return server.text().rpartition("SIGHUP: ")[2]

    def status_with(self, server, key):
        return server.get("/props", headers={"x-api-key": key})[0]

    def test_keys(self):
        self.keys.write_text("one\ntwo\n")
        with Server("--api-key", "fixed", "--api-key-file", self.keys) as server:
            self.assertEqual([self.status_with(server, key) for key in ("fixed", "one", "two", "three")], [200, 200, 200, 401])
            self.keys.write_text("two\n# a comment\nthree\r\n")
            self.assertIn("opened again", self.hang_up(server))
            self.assertEqual([self.status_with(server, key) for key in ("fixed", "one", "two", "three")], [200, 401, 200, 200])
            for damage, why in ((b"", "has no key"), (b"# none\n", "has no key"), (b"four\n\x00\x01\n", "control character in line 2"), (None, "cannot be read")):
                self.keys.unlink()
                if damage is not None:
                    self.keys.write_bytes(damage)
                note = self.hang_up(server)
                self.assertIn(why, note)
                self.assertIn("the keys stay as they were", note)
                self.assertEqual([self.status_with(server, key) for key in ("fixed", "two", "three", "four", "")], [200, 200, 200, 401, 401])
                self.keys.touch()

    def test_a_file_without_keys_at_the_start(self):
        self.keys.write_text("# none\n")
        done = run("--api-key-file", self.keys)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"--api-key-file: the file '{self.keys}' has no key", done.stderr)

    def test_the_log(self):
        moved = self.folder / "log.1"
        with Server() as server:
            log = pathlib.Path(server.log.name)
            log.rename(moved)
            server.get("/v1/models")
            wait_for(lambda: "/v1/models" in moved.read_text())
            server.process.send_signal(signal.SIGHUP)
            wait_for(log.exists)
            server.get("/props")
            wait_for(lambda: "/props" in log.read_text())
            self.assertNotIn("/props", moved.read_text())
            # A file that cannot be opened: the log goes on in the one before.
            log.unlink()
            log.mkdir()
            server.process.send_signal(signal.SIGHUP)
            time.sleep(0.3)
            self.assertEqual(server.get("/props")[0], 200)
            log.rmdir()
            server.process.send_signal(signal.SIGHUP)
            wait_for(log.exists)
            self.assertEqual(server.get("/props")[0], 200)
            wait_for(lambda: "/props" in log.read_text())

    def test_a_terminal_that_goes_away(self):
        """Without a file to read again, SIGHUP ends the server as it ends other programs; nohup holds."""
        import pty
        for arguments, hold, code in (([], False, -signal.SIGHUP), (["--log-file", str(self.folder / "log")], False, 0), (["--log-file", str(self.folder / "log")], True, None)):
            self.folder.joinpath("log").unlink(missing_ok=True)
            path = self.folder / "s.sock"
            pid, terminal = pty.fork()
            if pid == 0:
                if hold:
                    signal.signal(signal.SIGHUP, signal.SIG_IGN)
                os.execv(PROGRAM, [PROGRAM, "-m", str(MODEL), "-c", "1024", "--uds", str(path), *arguments])
            try:
                wait_for(lambda: path.exists() and ask(path, "/ready")[0] == 200)
                os.close(terminal)
                if code is None:
                    time.sleep(0.5)
                    self.assertEqual(ask(path, "/ready")[0], 200)
                    os.kill(pid, signal.SIGTERM)
                    code = 0
                self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), code, arguments)
                pid = None
            finally:
                if pid:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                path.unlink(missing_ok=True)


class Log(unittest.TestCase):
    def test_lines_of_json(self):
        with Server("--log-format", "json", "--alias", 'a "b"', "--jinja") as server:
            server.chat(COUNT, max_tokens=5)
            server.get("/nothing")
            server.post(CHAT, {"messages": HELLO, "temperature": "Xylophone"})
            wait_for(lambda: server.text().count('"request"') == 3)
            lines = [json.loads(line) for line in server.text().splitlines()]
        self.assertNotIn("Xylophone", json.dumps(lines))
        for line in lines:
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertEqual(line["level"], "info")
        self.assertEqual({line["event"] for line in lines}, {"note", "request"})
        self.assertTrue(any("--jinja has no effect" in line.get("message", "") for line in lines))
        chat, lost, refused = [line for line in lines if line["event"] == "request"]
        self.assertEqual((chat["method"], chat["path"], chat["status"], chat["model"], chat["generated_tokens"]), ("POST", CHAT, 200, 'a "b"', 5))
        self.assertRegex(chat["client"], r"^127\.0\.0\.1:\d+$")
        self.assertRegex(chat["id"], "^req_[0-9a-f]{24}$")
        self.assertGreater(chat["prompt_tokens"], 5)
        self.assertGreaterEqual(chat["ms"], chat["first_token_ms"])
        self.assertIs(chat["client_gone"], False)
        self.assertEqual((lost["status"], refused["status"], "model" in lost), (404, 400, False))

    def test_errors_and_lost_lines_are_objects_too(self):
        done = run("--log-format", "json", "-c", "1", "--kv-tokens", "0", "--port", "1", "--host", "256.0.0.1")
        lines = [json.loads(line) for line in done.stderr.splitlines()]
        self.assertEqual((lines[-1]["level"], lines[-1]["event"]), ("error", "note"))
        self.assertIn("cannot listen at 256.0.0.1:1", lines[-1]["message"])

    def test_the_text_names_the_model(self):
        with Server("--alias", "two words") as server:
            server.chat(COUNT, max_tokens=3)
            wait_for(lambda: re.search(r'ms=\d+ model="two words" prompt=\d+ cached=\d+ generated=3 queue_ms=\d+ first_token_ms=\d+\n', server.text()))

    def test_the_client_that_a_proxy_names(self):
        with Server() as server:
            for forwarded, client in (("203.0.113.7", "203.0.113.7"), ("198.51.100.1, 203.0.113.8 ", "203.0.113.8"), ("2001:db8::1", "2001:db8::1"),
                                      ("fe80::1%evil status=200", "fe80::1"), ("no address", r"127.0.0.1:\d+"), ("203.0.113.9, evil status=200", r"127.0.0.1:\d+")):
                answer = server.get("/v1/models", headers={"X-Forwarded-For": forwarded})[1]
                wait_for(lambda: re.search(rf"Z {client} {answer['x-request-id']} GET", server.text()))


NAME = "[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')


def families(text):
    """Returns {name: (type, {(sample, labels): value})} of a text of metrics. Raises an error for what `promtool check metrics` finds."""
    found, current, described = {}, None, None
    assert text.endswith("\n")
    for line in text.splitlines():
        if match := re.fullmatch(rf"# HELP ({NAME}) (\S.*)", line):
            described = match[1]
            assert described not in found, f"{described} appears twice"
        elif match := re.fullmatch(rf"# TYPE ({NAME}) (counter|gauge|histogram)", line):
            current = match[1]
            assert current == described and current not in found, f"{current} has no help, or appears twice"
            found[current] = match[2], {}
        else:
            name, labels, value = SAMPLE.fullmatch(line).groups()
            pairs = LABEL.findall(labels or "")
            assert LABEL.sub("", labels or "") == "", line
            kind, samples = found[current]
            suffixes = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
            assert name in [current + suffix for suffix in suffixes], f"{name} is not of {current}"
            key = name, tuple(sorted(pairs))
            assert len(dict(pairs)) == len(pairs) and key not in samples, f"{line} appears twice"
            samples[key] = float(value)
    for name, (kind, samples) in found.items():
        assert (kind == "counter") == name.endswith("_total"), f"{name} is a {kind}"
        assert not name.endswith(("_bucket", "_sum", "_count")), name
        if kind == "histogram":
            counts = {labels: value for (sample, labels), value in samples.items() if sample.endswith("_count")}
            for labels, count in counts.items():
                assert samples[name + "_bucket", tuple(sorted((*labels, ("le", "+Inf"))))] == count, name
    return found


class Metrics(unittest.TestCase):
    def test_the_text_is_what_prometheus_reads(self):
        with Server("--alias", 'a "b" \\c') as server:
            server.chat(COUNT, max_tokens=60, ignore_eos=True)
            began = time.time()
            found = families(server.get("/metrics")[2].decode())
            values = {name: next(iter(samples.values())) for name, (_, samples) in found.items() if len(samples) == 1}
            pid = server.process.pid
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks = os.sysconf("SC_CLK_TCK")
            self.assertAlmostEqual(values["process_cpu_seconds_total"], (int(fields[11]) + int(fields[12])) / ticks, delta=2)
            self.assertGreater(values["process_cpu_seconds_total"], 0)
            resident = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
            self.assertAlmostEqual(values["process_resident_memory_bytes"] / resident, 1, delta=0.2)
            self.assertGreater(values["process_virtual_memory_bytes"], values["process_resident_memory_bytes"])
            self.assertAlmostEqual(values["process_open_fds"], len(os.listdir(f"/proc/{pid}/fd")), delta=3)
            self.assertGreater(values["process_max_fds"], values["process_open_fds"])
            self.assertLess(abs(began - values["process_start_time_seconds"]), 120)
            self.assertLess(values["process_start_time_seconds"], began)
            model = server.get("/v1/models")[2]["data"][0]
            self.assertEqual(values["minim_model_weight_bytes"], model["meta"]["size"])
            self.assertEqual(values["minim_model_context_tokens"], 4096)
            self.assertEqual(values["minim_model_slots"], 8)
            (info, labels), = found["minim_model_info"][1]
            self.assertEqual(dict(labels)["model_name"], 'a \\"b\\" \\\\c')
            self.assertIn("cpu", dict(labels)["placement"])
            (_, labels), = found["minim_build_info"][1]
            version = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout.split()[1].rstrip(",")
            self.assertEqual(dict(labels)["version"], version)
            # What is open is counted.
            with contextlib.ExitStack() as stack:
                for _ in range(50):
                    stack.enter_context(socket.create_connection(server.address))
                wait_for(lambda: families(server.get("/metrics")[2].decode())["process_open_fds"][1]["process_open_fds", ()] >= values["process_open_fds"] + 45)

    def test_faults_are_found(self):
        for fault in ("a 1\n", "# HELP a x\n# TYPE a gauge\na 1\na 1\n", "# HELP a x\n# TYPE a gauge\nb 1\n", "# HELP a x\n# TYPE a counter\na 1\n",
                      "# TYPE a gauge\na 1\n", '# HELP a x\n# TYPE a gauge\na{b="} 1\n', "# HELP a x\n# TYPE a gauge\na 1"):
            with self.assertRaises((AssertionError, AttributeError, KeyError)):
                families(fault)

    def test_the_board_shows_what_there_is(self):
        board = json.loads((ROOT / "packaging/minim-server.grafana.json").read_text())
        with Server() as server:
            server.chat(COUNT, max_tokens=5)
            text = server.get("/metrics")[2].decode()
        samples = {SAMPLE.fullmatch(line)[1] for line in text.splitlines() if not line.startswith("#")}
        labels = {label for line in text.splitlines() if "{" in line for label, _ in LABEL.findall(SAMPLE.fullmatch(line)[2])}
        expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
        expressions += [variable["query"]["query"] for variable in board["templating"]["list"]]
        self.assertGreater(len(expressions), 20)
        for expression in expressions:
            named = set(re.findall(r"\b(?:minim|process)_\w+", expression))
            self.assertTrue(named and named <= samples, (expression, named - samples))
            used = set(re.findall(r"(\w+)=~", expression)) | {name for group in re.findall(r"by \(([^)]*)\)", expression) for name in group.split(", ")}
            self.assertLessEqual(used - {"instance"}, labels | {"le"}, expression)
        ids = [panel["id"] for panel in board["panels"]]
        self.assertEqual(len(ids), len(set(ids)))
        cells = [(x, y) for panel in board["panels"] for grid in [panel["gridPos"]]
                 for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])]
        self.assertEqual(len(cells), len(set(cells)))
        self.assertLess(max(x for x, _ in cells), 24)


if __name__ == "__main__":
    unittest.main()
