# SPDX-License-Identifier: Apache-2.0
"""The server behind nginx with the settings of docs/operations.md: TLS, streams that arrive piece by piece, prefix, addresses."""

import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest

from support import CHAT, HELLO, ROOT, Server

SITE = "llm.example.com"
SKIPPED = 77


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def documented():
    """Returns the block of nginx settings of the page."""
    return re.search(r"^```nginx\n(.*?)^```$", (ROOT / "docs/operations.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[1]


class Proxy:
    """nginx with the documented settings, on a free port, before a server at `upstream`."""

    def __init__(self, folder, upstream, changes=()):
        self.port = free_port()
        self.certificate = folder / "site.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={SITE}", "-addext", f"subjectAltName=DNS:{SITE}",
                        "-keyout", folder / "site.key", "-out", self.certificate], check=True, capture_output=True)
        settings = documented()
        for old, new in (("127.0.0.1:8080", upstream), ("listen 443", f"listen 127.0.0.1:{self.port}"),
                         ("/etc/ssl/llm.example.com.pem", self.certificate), ("/etc/ssl/llm.example.com.key", folder / "site.key"), *changes):
            assert old in settings, old
            settings = settings.replace(old, str(new))
        temporary = "".join(f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        user = "user root;\n" if os.getuid() == 0 else ""
        (folder / "nginx.conf").write_text(f"{user}daemon off;\nworker_processes 1;\npid {folder}/pid;\nerror_log stderr;\nevents {{}}\n"
                                           f"http {{\naccess_log off;\n{temporary}{settings}}}\n")
        self.process = subprocess.Popen(["nginx", "-e", "stderr", "-p", folder, "-c", folder / "nginx.conf"], stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", self.port)):
                return self
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"nginx does not start: {self.process.stderr.read()}")
            time.sleep(0.02)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)
        self.process.stderr.close()

    def connect(self):
        context = ssl.create_default_context(cafile=self.certificate)
        connection = http.client.HTTPSConnection(SITE, self.port, timeout=120, context=context)
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=120)
        connection.sock = context.wrap_socket(raw, server_hostname=SITE)
        return connection

    def request(self, method, path, body=None, **headers):
        with contextlib.closing(self.connect()) as connection:
            connection.request(method, path, body and json.dumps(body), {"Host": SITE, **headers})
            response = connection.getresponse()
            return response.status, response.headers, response.read()


class BehindNginx(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def test_streams_arrive_piece_by_piece(self):
        with Server("--prefix", "/llm", "--api-key", "s3cret") as server, Proxy(self.folder, f"127.0.0.1:{server.address[1]}") as proxy:
            body = {"messages": HELLO, "max_tokens": 1500, "ignore_eos": True, "stream": True}
            with contextlib.closing(proxy.connect()) as connection:
                began = time.monotonic()
                connection.request("POST", "/llm" + CHAT, json.dumps(body), {"Authorization": "Bearer s3cret"})
                response = connection.getresponse()
                self.assertEqual((response.status, response.headers["Content-Type"]), (200, "text/event-stream"))
                times = []
                while part := response.read1(65536):
                    times.append(time.monotonic() - began)
                    last = part
                self.assertTrue(last.endswith(b"data: [DONE]\n\n"))
                self.assertGreater(len(times), 100)
                self.assertLess(times[0], times[-1] / 2)
            status, _, answer = proxy.request("POST", "/llm" + CHAT, {"messages": HELLO, "max_tokens": 2})
            self.assertEqual(status, 401, answer)
            self.assertIn(b"<title>", proxy.request("GET", "/llm/")[2])
            self.assertEqual(proxy.request("GET", "/llm")[0], 301)
            self.assertEqual(proxy.request("GET", "/v1/models")[0], 404)
            self.assertEqual(proxy.request("GET", "/llm/v1/models", Authorization="Bearer s3cret")[0], 200)
            self.assertRegex(server.text(), r"Z 127\.0\.0\.1 req_\S+ GET /v1/models status=200")  # what nginx says of its client

    def test_a_socket_and_a_path_that_the_proxy_takes_away(self):
        path = self.folder / "s.sock"
        with Server("--cors-origin", f"https://{SITE}") as server, Proxy(self.folder, f"127.0.0.1:{server.address[1]}", [("http://minim;", "http://minim/;")]) as proxy:
            self.assertEqual(proxy.request("GET", "/llm/v1/models")[0], 200)
        with Server() as server, Proxy(self.folder, f"127.0.0.1:{server.address[1]}", [("http://minim;", "http://minim/;")]) as proxy:
            status, _, answer = proxy.request("GET", "/llm/v1/models")
            self.assertEqual(status, 403)
            self.assertIn(b"--cors-origin", answer)
        from test_operations import start, wait_for
        process = start("--uds", path, "--prefix", "/llm", umask=0o077)
        try:
            wait_for(path.exists)
            with Proxy(self.folder, f"unix:{path}") as proxy:
                wait_for(lambda: proxy.request("GET", "/llm/ready")[0] == 200)
                status, _, answer = proxy.request("POST", "/llm" + CHAT, {"messages": HELLO, "max_tokens": 2}, **{"X-Forwarded-For": "203.0.113.7"})
                self.assertEqual(status, 200, answer)
            process.terminate()
            self.assertEqual(process.wait(60), 0)
            self.assertRegex(process.stderr.read(), rf"Z 127\.0\.0\.1 req_\S+ POST {CHAT} status=200")
        finally:
            process.kill()
            process.wait()
            process.stderr.close()


if __name__ == "__main__":
    unittest.main()


def load_tests(loader, tests, pattern):
    missing = [name for name in ("nginx", "openssl") if shutil.which(name) is None]
    if not missing:
        return tests
    print(f"skipped: {' and '.join(missing)} missing")
    sys.exit(SKIPPED)
