#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure whether a device and the CPU compute the experts of a layer at the same time.

    overlap_bench.py build/release/tests/bench/minim-bench
    overlap_bench.py build/release/tests/bench/minim-bench --rounds 5 --most 0.7 -- --experts-format IQ2_S --layers 4

Without a GPU: the device is a simulated one, which computes with one thread of its own, and the CPU has one thread, so that both
have the same speed. A token is timed with all experts on the device, with all on the CPU, and with half of them on each, in turns;
each time is the median of a run. With half of the experts on each, the slower side has about 5.1 of 8 experts of a token on
average, and attention, router and head are computed by the device alone, so the time cannot fall to a half. Nor can it where one
thread already reads all that the memory gives: the bandwidth of one thread and of two is measured too.

Exit status 1 if the median over the rounds of (half on each) / (the faster of the others) is above --most. What follows -- goes to
minim-bench, behind the options of a model of 4 layers whose experts take nearly all of the time.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

MODEL = ["--synthetic", "--layers", "4", "--experts", "64", "--vocab", "2048", "--experts-format", "IQ3_S", "--dense-format", "Q4_K",
         "--expand", "off", "--routing", "uniform"]


def run(bench, arguments):
    folder = pathlib.Path(bench).resolve().parents[1] / "sim"
    environment = {"MINIM_SIM": "devices=1 memory=32768", "MINIM_PLUGIN_PATH": str(folder), **os.environ}
    done = subprocess.run([bench, "-o", "json", "-p", "0", "-r", "5", *arguments], stdout=subprocess.PIPE, check=True, env=environment)
    return json.loads(done.stdout)[0]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("bench", help="minim-bench, in a build folder with the tests")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--tokens", type=int, default=32, help="of a run")
    p.add_argument("--most", type=float, default=0.7)
    p.add_argument("options", nargs="*")
    a = p.parse_args()
    model = [*MODEL, *a.options, "-t", "1", "-n", str(a.tokens), "--device", "sim:0"]
    whole = run(a.bench, [*model, "--expert-cache", str(1 << 60), "--expert-moves", "fixed", "-n", "1"])["expert_cache"]
    half = ["--expert-cache", str(whole["bytes"] // 2), "--expert-moves", "fixed"]
    places = {"device": [], "CPU": ["--cpu-moe"], "half each": half}
    ms = {name: [] for name in places}
    ratios = []
    for number in range(a.rounds):
        for name, options in places.items():
            ms[name].append(1e3 / run(a.bench, [*model, *options])["tokens_per_second"])
        last = {name: values[-1] for name, values in ms.items()}
        ratios.append(last["half each"] / min(last["device"], last["CPU"]))
        print(f"round {number + 1}: " + ", ".join(f"{name} {value:.2f} ms" for name, value in last.items()) + f"; ratio {ratios[-1]:.2f}",
              flush=True)
    one, two = (run(a.bench, [*MODEL, *a.options, "-n", "8", "-t", t])["read_bandwidth_gbps"] for t in ("1", "2"))
    ratio = statistics.median(ratios)
    print(f"a token: " + ", ".join(f"{name} {statistics.median(values):.2f} ms" for name, values in ms.items()))
    print(f"memory: one thread {one:.1f} GB/s, two {two:.1f} GB/s")
    print(f"half each takes {ratio:.2f} of the faster of the others; at most {a.most} wanted")
    return 0 if ratio <= a.most else 1


if __name__ == "__main__":
    sys.exit(main())
