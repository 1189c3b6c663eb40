#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run one model file through minim-bench and a peer's llama-bench in turns, and print the ratios.

    compare_peers.py MODEL --minim build/release/tests/bench/minim-bench --peer /path/to/llama-bench
                     [--peer-args "-rtr 1 -fmoe 1"] [-p 512] [-n 64] [-t 2] [--rounds 5]

The two take turns, so that a machine that slows down or speeds up does so for both; a figure is the median of
the rounds. Any bench program can be the peer if it takes -m -p -n -t -r -o json and prints one object for each test with n_prompt,
n_gen and avg_ts, as those of llama.cpp and ik_llama.cpp do.
"""
import argparse
import json
import shlex
import statistics
import subprocess
import sys


def run(command):
    """Returns the JSON that a command prints, without what a peer logs before or after it."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)} failed with {done.returncode}:\n{done.stderr[-2000:]}")
    start = done.stdout.find("[")
    if start < 0:
        sys.exit(f"{shlex.join(command)} printed no JSON:\n{done.stdout[-2000:]}")
    return json.JSONDecoder().raw_decode(done.stdout[start:])[0]


def minim_speeds(options):
    command = [options.minim, "-m", options.model, "-p", str(options.n_prompt), "-n", str(options.n_gen), "-t",
               str(options.threads), "-r", "1", "-o", "json", *shlex.split(options.minim_args)]
    results = run(command)
    speeds = {r["test"][:2]: r["tokens_per_second"] for r in results}
    shares = {r["test"][:2]: r["bandwidth_share"] for r in results}
    return speeds, shares, results[0]["cpu"]


def peer_speeds(options):
    command = [options.peer, "-m", options.model, "-p", str(options.n_prompt), "-n", str(options.n_gen), "-t",
               str(options.threads), "-r", "1", "-o", "json", *shlex.split(options.peer_args)]
    return {"tg" if r["n_gen"] else "pp": r["avg_ts"] for r in run(command)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--minim", required=True, help="the minim-bench program")
    parser.add_argument("--peer", required=True, help="the peer's bench program")
    parser.add_argument("--minim-args", default="")
    parser.add_argument("--peer-args", default="")
    parser.add_argument("-p", "--n-prompt", type=int, default=512)
    parser.add_argument("-n", "--n-gen", type=int, default=64)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()

    ours, theirs, shares, cpu = [], [], [], ""
    for _ in range(options.rounds):
        speeds, share, cpu = minim_speeds(options)
        ours.append(speeds)
        shares.append(share)
        theirs.append(peer_speeds(options))

    print(f"{options.model}; {cpu}; {options.threads} threads; medians of {options.rounds} rounds in turns")
    print(f"{'test':<8} {'minim':>10} {'peer':>10} {'ratio':>7} {'share of the bandwidth':>24}")
    for test, length in (("pp", options.n_prompt), ("tg", options.n_gen)):
        if length == 0:
            continue
        a = statistics.median(s[test] for s in ours)
        b = statistics.median(s[test] for s in theirs)
        share = f"{statistics.median(s[test] for s in shares):.2f}" if test == "tg" else ""
        print(f"{test + str(length):<8} {a:>10.2f} {b:>10.2f} {a / b:>7.2f} {share:>24}")


if __name__ == "__main__":
    main()
