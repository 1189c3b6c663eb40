#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare the decode speed that a plan predicts for the CPU with what minim-bench measures, by format of the experts.

    plan_bench.py build/release [--formats Q8_0,IQ4_XS,IQ3_S] [--threads 2] [--rounds 5]

Both get models of the real width with a vocabulary of 32,000 tokens: the plan gets a file of headers only, minim-bench a synthetic model.
They take turns, and each plan measures the memory's bandwidth anew, as a virtual machine's changes from minute to minute.
Exit status 1 if the median of measured / predicted is further from 1 than --most for any format.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "placement"))
import make_headers  # noqa: E402

TOKENS = 64


def output(command, **environment):
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, env={**os.environ, **environment}).stdout


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build", type=pathlib.Path, help="a build folder")
    p.add_argument("--formats", default="Q8_0,IQ4_XS,IQ3_S")
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--experts", type=int, default=64, help="of a layer, 8 of them used: what a token reads is the same for any number")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--most", type=float, default=0.15)
    a = p.parse_args()
    model = make_headers.Model(layers=a.layers, experts=a.experts, vocab=32000)
    bench = [a.build / "tests" / "bench" / "minim-bench", "--synthetic", "--layers", str(a.layers), "--experts", str(a.experts), "--vocab", "32000",
             "-p", "0", "-n", str(TOKENS), "-r", "3", "-t", str(a.threads), "-o", "json"]
    worst = 0.0
    for kind in a.formats.split(","):
        ratios, plans, speeds = [], [], []
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "headers.gguf"
            make_headers.write_gguf(file, model, make_headers.gguf_tensors(model, f"_exps={kind},.=Q8_0"), kind)
            plan = [a.build / "apps" / "minim" / "minim", "plan", "-m", file, "-c", str(TOKENS), "-t", str(a.threads), "--json"]
            for number in range(a.rounds):
                cache = str(pathlib.Path(folder) / str(number))
                plans.append(json.loads(output(plan, XDG_CACHE_HOME=cache))["decode_tokens_per_second"])
                speeds.append(json.loads(output([*bench, "--experts-format", kind]))[0]["tokens_per_second"])
                ratios.append(speeds[-1] / plans[-1])
        ratio = statistics.median(ratios)
        worst = max(worst, abs(ratio - 1.0))
        print(f"{kind:8} predicted {statistics.median(plans):7.2f}, measured {statistics.median(speeds):7.2f} tokens/s; measured / predicted "
              f"{ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)
    return 0 if worst <= a.most else 1


if __name__ == "__main__":
    sys.exit(main())
