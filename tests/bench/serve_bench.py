#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Speed of a server with OpenAI's API: random prompts of a given length, streamed, at given concurrencies.

    serve_bench.py URL [--concurrency 1,8,64] [--input 256] [--output 128] [--requests 0] [--key KEY] [--pid PID]

Needs only Python's standard library, and works with other servers too. One thread reads all streams, so that the client takes
little of a shared machine; each line has output tokens/s, then times in milliseconds: to the first token (TTFT), for each further
one (TPOT, mean of a request), between events (ITL). Tokens are counted by `usage`. With the process of a server on this machine,
the last column is its CPU time for each token, which depends less than speeds on what else the machine does.
"""

import argparse
import json
import os
import random
import selectors
import socket
import ssl
import statistics
import time
import urllib.parse

WORDS = "time year people way day man thing woman life child world school state family student group country problem hand part".split()


class Stream:
    """One request, from its first byte to the last."""

    def __init__(self, address, request):
        self.sock = socket.create_connection(address[:2], timeout=60)
        if address[2]:
            self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=address[0])
        self.started = time.perf_counter()
        self.sock.sendall(request)
        self.sock.setblocking(False)
        self.buffer, self.times, self.n_tokens, self.is_done, self.is_good = b"", [], 0, False, False

    def read(self):
        """Reads what has arrived. Returns False at the end of the stream."""
        try:
            part = self.sock.recv(1 << 20)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            part = b""
        now = time.perf_counter()
        self.buffer += part
        *lines, self.buffer = self.buffer.split(b"\n")
        for line in lines:
            if line.startswith(b"data: [DONE]"):
                self.is_done = True
            elif line.startswith(b"data: "):
                self.take(json.loads(line[6:]), now)
        if part and not self.is_done:
            return True
        self.is_good = self.is_done and self.n_tokens > 0 and bool(self.times)
        self.sock.close()
        return False

    def take(self, chunk, now):
        usage = chunk.get("usage")
        if usage:
            self.n_tokens = usage["completion_tokens"]
        if any(choice.get("text") for choice in chunk.get("choices", [])):
            self.times.append(now)


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def run(address, make_request, concurrency, count):
    """Keeps `concurrency` streams open until `count` requests are done."""
    selector, streams, n_started, n_failed = selectors.DefaultSelector(), [], 0, 0
    started = time.perf_counter()
    while n_started < count or selector.get_map():
        while n_started < count and len(selector.get_map()) < concurrency:
            n_started += 1
            try:
                stream = Stream(address, make_request())
            except OSError:
                n_failed += 1
                continue
            selector.register(stream.sock, selectors.EVENT_READ, stream)
        for key, _ in selector.select(600):
            if not key.data.read():
                selector.unregister(key.fileobj)
                streams.append(key.data)
    seconds = time.perf_counter() - started
    good = [stream for stream in streams if stream.is_good]
    return good, n_failed + len(streams) - len(good), seconds


def cpu_seconds(pid):
    """Returns the CPU time of a process, user and system."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def report(concurrency, good, n_failed, seconds, cpu):
    tokens = sum(stream.n_tokens for stream in good)
    first = [(stream.times[0] - stream.started) * 1e3 for stream in good]
    each = [(stream.times[-1] - stream.times[0]) * 1e3 / max(stream.n_tokens - 1, 1) for stream in good]
    gaps = [(b - a) * 1e3 for stream in good for a, b in zip(stream.times, stream.times[1:])]

    def mean(values):
        return statistics.mean(values) if values else float("nan")

    print(f"{concurrency:5d} {tokens / seconds:10.1f} {mean(first):9.1f} {percentile(first, 0.99):9.1f} {mean(each):9.2f} "
          f"{percentile(gaps, 0.99):9.2f} {len(good):8d} {n_failed:7d}" + (f" {cpu * 1e6 / max(tokens, 1):12.1f}" if cpu else ""),
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("url", help="http://127.0.0.1:8080")
    parser.add_argument("--concurrency", default="1,2,4,8,16,32,64,128,256,512,1024")
    parser.add_argument("--input", type=int, default=256, help="words of a prompt, about as many tokens")
    parser.add_argument("--output", type=int, default=128, help="tokens of an answer; its end is ignored")
    parser.add_argument("--requests", type=int, default=0, help="of each concurrency; 0: twice as many, at least 8")
    parser.add_argument("--model", default="minim")
    parser.add_argument("--key", default="none")
    parser.add_argument("--pid", type=int, help="process of the server, for its CPU time")
    options = parser.parse_args()
    url = urllib.parse.urlsplit(options.url)
    address = (url.hostname, url.port or (443 if url.scheme == "https" else 80), url.scheme == "https")
    dice = random.Random(1)

    def make_request():
        body = json.dumps({"model": options.model, "prompt": " ".join(dice.choices(WORDS, k=options.input)), "stream": True,
                           "max_tokens": options.output, "ignore_eos": True, "temperature": 1.0,
                           "stream_options": {"include_usage": True}}).encode()
        head = (f"POST {url.path.rstrip('/')}/v1/completions HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Type: application/json\r\n"
                f"Authorization: Bearer {options.key}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n")
        return head.encode() + body

    print(" conc.  tokens/s   TTFT ms   p99 TTFT   TPOT ms   p99 ITL  answers failures" + ("  CPU us/token" if options.pid else ""))
    for concurrency in map(int, options.concurrency.split(",")):
        before = cpu_seconds(options.pid) if options.pid else 0
        results = run(address, make_request, concurrency, options.requests or max(8, 2 * concurrency))
        report(concurrency, *results, cpu_seconds(options.pid) - before if options.pid else 0)


if __name__ == "__main__":
    main()
