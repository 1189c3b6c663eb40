# SPDX-License-Identifier: Apache-2.0
"""Helpers for the tests of minim-server. MINIM_SERVER names the program."""

import contextlib
import http.client
import json
import mmap
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "examples" / "models" / "minim-tiny-q8_0.gguf"
PROGRAM = os.environ["MINIM_SERVER"]
CHAT = "/v1/chat/completions"


def sanitizer_of(program):
    """Returns "address" or "thread", by which the program was built with a sanitizer, or None."""
    with open(program, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return next((name for name, entry in (("address", b"__asan_init"), ("thread", b"__tsan_init")) if data.find(entry) >= 0), None)


# A sanitized server is several times slower, takes more memory, and maps more than any limit of the address space allows.
SANITIZER = sanitizer_of(PROGRAM)
TIMES_SLOWER = 1 if SANITIZER is None else 10
HELLO = [{"role": "user", "content": "Hello!"}]
PARIS = [{"role": "user", "content": "What is the weather in Paris?"}]
COUNT = [{"role": "user", "content": "Count from 1 to 9."}]


def tool(name, description, **properties):
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


WEATHER = tool("get_weather", "Get the weather in a city.", city={"type": "string", "description": "Name of the city"})
CALCULATOR = tool("calculator", "Compute an expression.",
                  expression={"type": "string", "description": "The expression"})
TOOLS = [WEATHER, CALCULATOR]


class Server:
    """A server that runs until the block ends, and must then shut down in order."""

    def __init__(self, *arguments, model=MODEL, environment=None, usual=("-c", "4096", "--parallel", "8"), address_space=None):
        """address_space: the limit of the process's memory in bytes."""
        limits = [] if address_space is None else ["bash", "-c", f'ulimit -v {address_space >> 10}; exec "$0" "$@"']
        self.log = tempfile.NamedTemporaryFile("r", suffix=".log")
        self.process = subprocess.Popen(
            [*limits, PROGRAM, *(["-m", str(model)] if model else []), "--port", "0", "--log-file", self.log.name, *usual,
             *map(str, arguments)],  # the last of repeated options counts, but for -m
            env={**os.environ, **(environment or {})}, stderr=subprocess.PIPE, text=True)
        self.address = ("127.0.0.1", self._port())

    def _port(self):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found = re.search(r" at http://\S+:(\d+)", self.text())
            if found:
                return int(found.group(1))
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}: {self.text()}")
            time.sleep(0.02)
        raise RuntimeError("the server does not listen")

    def text(self):
        with open(self.log.name) as file:
            return file.read()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        code = self.stop() if kind is None else self.kill()
        with self.log, self.process.stderr:
            if kind is None and code != 0:
                raise AssertionError(f"the server ended with {code}:\n{self.text()[-3000:]}{self.process.stderr.read()}")

    def stop(self, timeout=240):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def kill(self):
        self.process.kill()
        return self.process.wait()

    # ---- requests

    def request(self, method, path, body=None, headers=None, timeout=240):
        """Returns (status, headers, body) of one request; a body that is JSON is decoded."""
        connection = http.client.HTTPConnection(*self.address, timeout=timeout)
        with contextlib.closing(connection):
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            raw = response.read()
            kind = response.headers.get("content-type", "")
            return response.status, response.headers, json.loads(raw) if kind.startswith("application/json") else raw

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, body, **options):
        return self.request("POST", path, body, **options)

    def ok(self, path, body, **options):
        """Returns the body of an answer, whose status must be 200."""
        status, _, answer = self.post(path, body, **options)
        assert status == 200, (status, answer)
        return answer

    def chat(self, messages, **fields):
        return self.ok(CHAT, {"messages": messages, "temperature": 0, **fields})

    def events(self, path, body, headers=None):
        """Returns the (event, data) pairs of a stream; data is decoded but for [DONE]. Comments are ("", text)."""
        connection = http.client.HTTPConnection(*self.address, timeout=240)
        with contextlib.closing(connection):
            connection.request("POST", path, json.dumps({**body, "stream": True}),
                               {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            assert response.status == 200, (response.status, response.read())
            assert response.headers["content-type"] == "text/event-stream"
            text = response.read().decode()
        return list(parse_events(text))

    def chunks(self, messages, **fields):
        """Returns the chunks of a chat stream, which must end with [DONE]."""
        events = self.events(CHAT, {"messages": messages, "temperature": 0, **fields})
        assert events[-1] == (None, "[DONE]"), events[-1]
        return [data for _, data in events[:-1] if isinstance(data, dict)]

    def wait_until_free(self, seconds=5):
        """Waits until no slot is in use; raises an error if one stays in use."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not any(slot["is_processing"] for slot in self.get("/slots")[2]):
                return
            time.sleep(0.02)
        raise AssertionError("a slot is still in use")


def run_to_end(*arguments, model=MODEL, environment=None):
    """Runs a server that ends without a signal. `model`: of -m; None: the arguments say which models there are."""
    model = () if model is None else ("-m", str(model))
    return subprocess.run([PROGRAM, *model, "--port", "0", *map(str, arguments)], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **(environment or {})})


def parse_events(text):
    for block in text.split("\n\n"):
        if not block:
            continue
        event = data = None
        for line in block.split("\n"):
            if line.startswith(":"):
                event, data = "", line[1:].strip()
            elif line.startswith("event: "):
                event = line[7:]
            elif line.startswith("data: "):
                data = line[6:]
        yield event, data if data == "[DONE]" or event == "" else json.loads(data)


def joined(chunks, index=0):
    """Returns the message and finish reason that the chunks of a chat stream add up to."""
    message, calls, reason = {"content": "", "reasoning_content": ""}, [], None
    for chunk in chunks:
        for choice in chunk["choices"]:
            if choice["index"] != index:
                continue
            reason = choice.get("finish_reason") or reason
            for field in message:
                message[field] += choice["delta"].get(field) or ""
            for part in choice["delta"].get("tool_calls", []):
                if part["index"] == len(calls):
                    assert re.fullmatch("call_[0-9a-f]{24}", part["id"]) and part["type"] == "function"
                    calls.append({"name": part["function"]["name"], "arguments": ""})
                calls[part["index"]]["arguments"] += part["function"]["arguments"]
    return message, calls, reason


def raw(address, data, timeout=20, half_close=False):
    """Sends these bytes and returns what the server sends until it closes the connection or its answer is complete."""
    with socket.create_connection(address, timeout=timeout) as sock:
        try:
            sock.sendall(data)
            if half_close:
                sock.shutdown(socket.SHUT_WR)
        except (ConnectionResetError, BrokenPipeError):
            pass
        received = b""
        try:
            while True:
                part = sock.recv(65536)
                received += part
                head, separator, body = received.partition(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: (\d+)", head)
                if not part or (separator and length and len(body) >= int(length.group(1))):
                    return received
        except ConnectionResetError:
            return received


def status_of(answer):
    """Returns the status of an answer, or None if the server closed the connection without one."""
    return int(answer.split()[1]) if answer.startswith(b"HTTP/1.1 ") else None


def post_bytes(path, body, **headers):
    if not isinstance(body, bytes):
        body = (body if isinstance(body, str) else json.dumps(body)).encode()
    fields = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": len(body),
              **{name.replace("_", "-"): value for name, value in headers.items()}}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value is not None)
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + body
