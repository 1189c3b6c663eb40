#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""32 requests through minim.aio from one event loop, beside the same requests read in C (batch_bench), in turns.

    aio_bench.py BATCH_BENCH MODEL [--requests 32] [--tokens 200] [--threads 1] [--rounds 5]

Prints the throughput of both, their CPU time, and how long the loop was kept from other tasks: by the clock, which other programs
lengthen too, and in CPU time of the loop's thread. One compute thread leaves a core for the loop; with as many threads as cores
they compete.
"""

import argparse
import asyncio
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bindings" / "python"))
import minim


async def watch(wall, cpu):
    """Measures each pass of the loop."""
    while True:
        before, before_cpu = time.perf_counter(), time.thread_time()
        await asyncio.sleep(0)
        wall.append(time.perf_counter() - before)
        cpu.append(time.thread_time() - before_cpu)
        await asyncio.sleep(0.001)


async def count(request):
    return sum([1 async for _ in request])


async def answer_all(model, options):
    wall, cpu = [], []
    async with minim.aio.Engine(model, kv_tokens=options.requests * (options.tokens + 128)) as engine:
        watcher = asyncio.ensure_future(watch(wall, cpu))
        await asyncio.sleep(0.01)
        start, start_cpu = time.perf_counter(), time.process_time()
        prompts = [[1 + (17 * i + 5 * j) % 1000 for j in range(16)] for i in range(options.requests)]
        requests = [engine.submit(ids, max_tokens=options.tokens, ignore_end=1) for ids in prompts]
        counts = await asyncio.gather(*map(count, requests))
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - start_cpu
        watcher.cancel()
    return seconds, cpu_seconds, sum(counts), wall, cpu


def part(values, share):
    return 1e3 * sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("batch_bench")
    parser.add_argument("model")
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    command = [options.batch_bench, options.model, *map(str, (options.requests, options.tokens, options.threads))]
    in_c, in_python, wall, cpu = [], [], [], []
    with minim.Model(options.model, threads=options.threads) as model:
        for _ in range(options.rounds):
            in_c.append([float(word) for word in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()])
            *round_of, round_wall, round_cpu = asyncio.run(answer_all(model, options))
            in_python.append(round_of)
            wall += round_wall
            cpu += round_cpu
    for name, rounds in (("C", in_c), ("minim.aio", in_python)):
        rate = statistics.median(tokens / seconds for seconds, _, tokens in rounds)
        each = statistics.median(1e6 * used / tokens for _, used, tokens in rounds)
        print(f"{name}: {rate:.1f} tokens/s, {each:.1f} us of CPU time a token")
    ratios = [(p[2] / p[0]) / (q[2] / q[0]) for p, q in zip(in_python, in_c)]
    print(f"throughput: {statistics.median(ratios):.3f} of C ({min(ratios):.3f} to {max(ratios):.3f})")
    for name, values in (("by the clock", wall), ("in CPU time", cpu)):
        print(f"a pass of the loop {name}: {part(values, 0.5):.3f} ms, 99 %: {part(values, 0.99):.3f}, longest {part(values, 1):.3f}")


if __name__ == "__main__":
    main()
