#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server with 200 clients at a time, half of them hostile: connections cut in requests and streams, slow readers and writers, garbage, huge
headers, bodies that are announced and not sent. The others must get the texts that they get alone, and the server must use no more
afterwards than before.

    server.py [SECONDS] [SEED]
"""

import contextlib
import json
import os
import random
import socket
import sys
import threading
import time

import soak

support = soak.support("server")
N_CLIENTS = 200
LARGEST_GROWTH = 64  # MiB: the prefix cache and buffers of connections fill
QUESTIONS = [[{"role": "user", "content": text}] for text in
             ("Hello!", "Count from 1 to 9.", "What is 47 + 25?", "What is the capital of France?", "What is the weather in Paris?")]


def body_of(messages, **fields):
    return {"messages": messages, "temperature": 0, "max_tokens": 24, **fields}


class Clients:
    def __init__(self, server, clock):
        self.server, self.clock = server, clock
        self.expected = [server.ok(support.CHAT, body_of(messages))["choices"][0]["message"] for messages in QUESTIONS]
        self.faults, self.counts, self.lock = [], {"answers": 0, "hostile": 0}, threading.Lock()

    def connect(self, dice, receive_buffer=None):
        sock = socket.socket()
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.settimeout(60)
        sock.connect(self.server.address)
        return sock

    def request_of(self, dice, **fields):
        return support.post_bytes(support.CHAT, body_of(dice.choice(QUESTIONS), **fields))

    # ---- clients that mean well

    def ask(self, dice):
        number = dice.randrange(len(QUESTIONS))
        right = self.expected[number]
        if dice.random() < 0.5:
            message = self.server.ok(support.CHAT, body_of(QUESTIONS[number]))["choices"][0]["message"]
        else:
            events = self.server.events(support.CHAT, body_of(QUESTIONS[number]))
            message, _, _ = support.joined([data for _, data in events[:-1] if isinstance(data, dict)])
        for field in ("content", "reasoning_content"):
            if (message.get(field) or "") != (right.get(field) or ""):
                raise AssertionError(f"question {number}: {message}, alone {right}")

    # ---- and others; what the server answers them does not matter

    def cut_request(self, dice):
        data = self.request_of(dice)
        with self.connect(dice) as sock:
            sock.sendall(data[: dice.randrange(len(data))])
            time.sleep(dice.random() * 0.05)

    def cut_stream(self, dice):
        with self.connect(dice) as sock:
            sock.sendall(self.request_of(dice, stream=True, max_tokens=400, ignore_eos=True))
            sock.recv(dice.randrange(1, 4000))
            if dice.random() < 0.5:  # reset instead of an orderly end
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")

    def read_slowly(self, dice):
        with self.connect(dice, receive_buffer=2048) as sock:
            sock.sendall(self.request_of(dice, stream=True, max_tokens=200, ignore_eos=True))
            end = time.monotonic() + min(3, max(0.1, self.clock.left()))
            while time.monotonic() < end and sock.recv(16):
                time.sleep(0.02)

    def write_slowly(self, dice):
        with self.connect(dice) as sock:
            end = time.monotonic() + min(2, max(0.1, self.clock.left()))
            for byte in self.request_of(dice):
                if time.monotonic() > end:
                    break
                sock.sendall(bytes([byte]))
                time.sleep(0.02)

    def garbage(self, dice):
        with self.connect(dice) as sock:
            sock.sendall(dice.randbytes(dice.randrange(1, 20000)))
            sock.shutdown(socket.SHUT_WR)
            sock.recv(1000)

    def huge_headers(self, dice):
        with self.connect(dice) as sock:
            sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\n" + b"".join(b"X-%d: %s\r\n" % (i, b"y" * 1000) for i in range(dice.randrange(1, 400))))
            sock.recv(1000)

    def announce(self, dice):
        with self.connect(dice) as sock:
            sock.sendall(support.post_bytes(support.CHAT, b"{" * dice.randrange(100), Content_Length=dice.choice((1000, 1 << 20, 1 << 34))))
            time.sleep(dice.random() * 0.3)

    def flip(self, dice):
        data = bytearray(self.request_of(dice))
        for _ in range(dice.randint(1, 6)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        with self.connect(dice) as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            sock.recv(1000)

    def run(self, number, seed):
        dice = random.Random(seed)
        hostile = (self.cut_request, self.cut_stream, self.read_slowly, self.write_slowly, self.garbage, self.huge_headers, self.announce, self.flip)
        while self.clock.left() > 0 and not self.faults:
            try:
                if number % 2 == 0:
                    self.ask(dice)
                else:
                    with contextlib.suppress(OSError):
                        dice.choice(hostile)(dice)
            except Exception as error:
                with self.lock:
                    self.faults.append(f"{type(error).__name__}: {error}")
                return
            with self.lock:
                self.counts["hostile" if number % 2 else "answers"] += 1

    def run_all(self, seed):
        threads = [threading.Thread(target=self.run, args=(i, seed + i)) for i in range(N_CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def main():
    clock = soak.Clock(20)
    with support.Server("-c", "2048", "--parallel", "8", "--timeout", "10", "-t", str(min(4, os.cpu_count()))) as server:
        pid = server.process.pid
        server.ok(support.CHAT, body_of(QUESTIONS[0]))
        idle = soak.Resources(pid)
        warm_up = Clients(server, clock.from_now(0.5))
        warm_up.run_all(clock.seed)
        server.wait_until_free(60)
        # Connections of clients that have gone end at the latest when their time is over.
        before = soak.require_no_more(idle, 10 * LARGEST_GROWTH, pid, 60)
        clients = Clients(server, clock.from_now(0.5))
        clients.run_all(clock.seed + N_CLIENTS)
        faults = warm_up.faults + clients.faults
        if server.process.poll() is not None:
            faults.append(f"the server ended: {server.text()[-1000:]}")
        if faults:
            sys.exit("\n".join(faults[:10]))
        server.wait_until_free(60)
        after = soak.require_no_more(before, LARGEST_GROWTH, pid, 60)
        counts = json.dumps(clients.counts).strip("{}").replace('"', "")
    print(f"{N_CLIENTS} clients, {counts}; before: {before}; after: {after}")


if __name__ == "__main__":
    main()
