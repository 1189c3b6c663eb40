#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure whether a device and the CPU compute the experts of a layer at the same time.

    overlap_bench.py build/release/tests/bench/minim-bench
    overlap_bench.py build/release/tests/bench/minim-bench --rounds 5 --most 0.7 -- --experts-format IQ2_S --layers 4

Without a GPU: the device is a simulated one, which computes with one thread of its own, and the CPU has one thread, so that both
have the same speed. A token is timed with all experts on the device, with all on the CPU, and with half of them on each, in turns;
each time is the median of a run. The time cannot fall to a half: attention, router and head are computed by the device alone, and of
the 8 experts of a token chance gives the slower side about 5. The ratio that the bytes allow is printed. The gain is smaller if one
thread already uses all of the memory bandwidth: the bandwidth of one thread and of two is measured too.

Exit status 1 if the median over the rounds of (half on each) / (the faster of the others) is above --most. What follows -- are
options of minim-bench with a value each, in place of those of a model of 4 layers whose experts take nearly all of the time.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys

MODEL = {"--layers": "4", "--experts": "32", "--vocab": "2048", "--experts-format": "BF16", "--dense-format": "Q4_K", "--expand": "off",
         "--routing": "uniform"}
USED = 8


def least_ratio(bytes_per_token, n_layer, n_places, place_bytes):
    """Returns the part of a token's time that is left with half of the experts on each side: dense weights and the slower side's experts."""
    experts = n_layer * USED * place_bytes
    n_expert = n_places // n_layer
    here = n_expert // 2
    ways = math.comb(n_expert, USED)
    slower = sum(math.comb(here, k) * math.comb(n_expert - here, USED - k) / ways * max(k, USED - k) for k in range(USED + 1))
    return (bytes_per_token - experts + experts * slower / USED) / bytes_per_token


def run(bench, arguments):
    folder = pathlib.Path(bench).resolve().parents[1] / "sim"
    environment = {"MINIM_SIM": "devices=1 memory=32768", "MINIM_PLUGIN_PATH": str(folder), **os.environ}
    done = subprocess.run([bench, "-o", "json", "-p", "0", *arguments], stdout=subprocess.PIPE, check=True, env=environment)
    return json.loads(done.stdout)[0]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("bench", help="minim-bench, in a build folder with the tests")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--tokens", type=int, default=32, help="of a run")
    p.add_argument("--most", type=float, default=0.7)
    own, options = sys.argv[1:], []
    if "--" in own:
        end = own.index("--")
        own, options = own[:end], own[end + 1:]
    a = p.parse_args(own)
    shape = {**MODEL, **dict(zip(options[::2], options[1::2]))}
    shape = ["--synthetic", *(word for option in shape.items() for word in option)]
    model = [*shape, "-t", "1", "-n", str(a.tokens), "--device", "sim:0"]
    first = run(a.bench, [*model, "--expert-cache", str(1 << 60), "--expert-moves", "fixed", "-r", "1"])
    whole = first["expert_cache"]
    n_layer = int(shape[shape.index("--layers") + 1])
    least = least_ratio(first["bytes_per_token"], n_layer, whole["places"], whole["bytes"] / whole["places"])
    half = ["--expert-cache", str(whole["bytes"] // 2), "--expert-moves", "fixed"]
    places = {"device": [], "CPU": ["--cpu-moe"], "half each": half}
    ms = {name: [] for name in places}
    ratios = []
    for number in range(a.rounds):
        for name, options in places.items():
            ms[name].append(1e3 / run(a.bench, [*model, *options, "-r", "5"])["tokens_per_second"])
        last = {name: values[-1] for name, values in ms.items()}
        ratios.append(last["half each"] / min(last["device"], last["CPU"]))
        print(f"round {number + 1}: " + ", ".join(f"{name} {value:.2f} ms" for name, value in last.items()) + f"; ratio {ratios[-1]:.2f}",
              flush=True)
    one, two = (run(a.bench, [*shape, "-n", "8", "-r", "5", "-t", t])["read_bandwidth_gbps"] for t in ("1", "2"))
    ratio = statistics.median(ratios)
    print("a token: " + ", ".join(f"{name} {statistics.median(values):.2f} ms" for name, values in ms.items()))
    print(f"memory: one thread {one:.1f} GB/s, two {two:.1f} GB/s")
    print(f"half each takes {ratio:.2f} of the faster of the others; the bytes allow {least:.2f}, at most {a.most} is wanted")
    return 0 if ratio <= a.most else 1


if __name__ == "__main__":
    sys.exit(main())
