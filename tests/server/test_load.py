# SPDX-License-Identifier: Apache-2.0
"""Many streams at once on few threads: none fails, and memory stays small."""

import pathlib
import re
import selectors
import socket
import unittest

from support import CHAT, SANITIZER, Server, post_bytes


def stream_all(address, bodies):
    """Sends all requests at once from one thread; returns what each connection received."""
    selector, received = selectors.DefaultSelector(), [b""] * len(bodies)
    for number, body in enumerate(bodies):
        sock = socket.create_connection(address, timeout=60)
        sock.sendall(post_bytes(CHAT, body, Connection="close"))
        sock.setblocking(False)
        selector.register(sock, selectors.EVENT_READ, number)
    while selector.get_map():
        ready = selector.select(120)
        if not ready:
            raise AssertionError("no stream goes on")
        for key, _ in ready:
            part = key.fileobj.recv(65536)
            received[key.data] += part
            if not part:
                selector.unregister(key.fileobj)
                key.fileobj.close()
    return received


class Load(unittest.TestCase):
    def test_1024_streams(self):
        with Server("--parallel", "64") as server:
            bodies = [{"messages": [{"role": "user", "content": f"What is {10 + i % 80} + {i // 16}?"}], "temperature": 0,
                       "max_tokens": 40, "stream": True} for i in range(1024)]
            received = stream_all(server.address, bodies)
            self.assertEqual([answer[:200] for answer in received if b"data: [DONE]" not in answer], [])
            status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
            peak_mb = int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) / 1024
            n_threads = int(re.search(r"Threads:\s+(\d+)", status).group(1))
            self.assertLess(peak_mb, 600 if SANITIZER is None else 6000)
            self.assertLess(n_threads, 40)
            metrics = server.get("/metrics")[2].decode()
            self.assertIn(f'minim_http_requests_total{{model_name="minim-tiny",route="{CHAT}",status="200"}} 1024', metrics)


if __name__ == "__main__":
    unittest.main()
