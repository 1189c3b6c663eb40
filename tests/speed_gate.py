#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the speed of this build with the build of another revision: kernels of five formats, prompt and decode of two slices of the model's
real width, streams of a server. There are three rounds. In each the two builds take nine turns at one thing before the next, as a machine's
speed changes within a minute, and the turn with the middle ratio counts. A ratio below 0.95 in two of three rounds is a fault.

    speed_gate.py [--base REVISION] [--new build/release] [--old BUILD]

REVISION is the last tag if it is not given, and is built in build/speed with the options of the new build; --old names a folder in which it is
built already. Exits with 77 if there is neither. For a quarter of an hour, on a machine that does nothing else.
"""

import argparse
import contextlib
import functools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODEL = ROOT / "examples/models/minim-tiny-q8_0.gguf"
LEAST = 0.95
ROUNDS = 3
TURNS = 9  # short ones: on a shared machine the ratio of one turn was 0.75 to 1.41 for equal builds
KERNELS = ("Q8_0", "Q4_K", "IQ4_XS", "IQ5_K", "IQ3_S")
SLICES = ("Q4_K", "IQ4_XS")
TARGETS = ("minim", "minim_bench", "linear_bench", "minim_server")
# CMake variables that the other revision is configured with, too, as far as the new build sets them.
SAME = ("CMAKE_BUILD_TYPE", "CMAKE_C_COMPILER", "CMAKE_CXX_COMPILER", "CMAKE_C_COMPILER_LAUNCHER", "CMAKE_CXX_COMPILER_LAUNCHER", "MINIM_UNITY",
        "MINIM_CPU_LEVELS", "Python3_EXECUTABLE")


def output_of(command, **options):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ends with {done.returncode}:\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
    return done.stdout


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


# ------------------------------------------------------------------------------------------------- the other build


def revision_of(base):
    if base is None:
        done = subprocess.run(["git", "-C", ROOT, "describe", "--tags", "--abbrev=0"], capture_output=True, text=True)
        if done.returncode != 0:
            skip("there is no tag to compare with (--base names another revision)")
        base = done.stdout.strip()
    return output_of(["git", "-C", ROOT, "rev-parse", "--short", f"{base}^{{commit}}"]).strip()


def build_of(revision, new):
    """Returns the build folder of a revision; builds what is missing there."""
    folder = ROOT / "build" / "speed" / revision
    source, build = folder / "source", folder / "build"
    if not source.is_dir():
        source.mkdir(parents=True)
        archive = subprocess.Popen(["git", "-C", ROOT, "archive", revision], stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", source], stdin=archive.stdout, check=True)
        if archive.wait() != 0:
            sys.exit(f"git archive {revision} ends with {archive.returncode}")
    cache = dict(re.findall(r"^(\w+):\w+=(.+)$", (new / "CMakeCache.txt").read_text(encoding="utf-8"), re.MULTILINE))
    same = [f"-D{name}={cache[name]}" for name in SAME if name in cache]
    output_of(["cmake", "-S", source, "-B", build, "-G", "Ninja", "-DMINIM_CUDA=OFF", *same])
    subprocess.run(["cmake", "--build", build, "--target", *TARGETS], check=True)
    return build


# ---------------------------------------------------------------------------------------- speeds: {name: bigger is better}


@functools.cache
def level_of(build, threads):
    small = ("--synthetic", "--layers", "1", "--hidden", "256", "--expert-ff", "256", "--experts", "8", "--vocab", "256", "-p", "0", "-n", "1", "-r", "1")
    return json.loads(output_of([build / "tests/bench/minim-bench", *small, "-t", threads, "-o", "json"]))[0]["cpu"]


def kernel_speeds(format_name, build, threads):
    text = output_of([build / "tests/bench/linear_bench", f"--benchmark_filter=^{level_of(build, threads)}/{format_name}/3072x1536/tokens:1/real_time$",
                      "--benchmark_format=json", "--benchmark_min_time=0.3"], env={**os.environ, "MINIM_BENCH_THREADS": str(threads)})
    rows = json.loads(text[text.find("{"):])["benchmarks"]
    if len(rows) != 1:
        sys.exit(f"{build}: linear_bench measures {format_name} {len(rows)} times")
    return {f"kernel {format_name}, 1/ms": 1e3 / rows[0]["real_time"]}


def slice_speeds(experts, build, threads):
    results = json.loads(output_of([build / "tests/bench/minim-bench", "--synthetic", "--layers", "2", "--vocab", "32000", "--experts-format", experts,
                                    "-p", "512", "-n", "48", "-r", "1", "-t", threads, "-o", "json"]))
    return {f"slice {experts} {result['test']}, tokens/s": result["tokens_per_second"] for result in results}


def server_speeds(build, threads):
    with tempfile.NamedTemporaryFile("r", suffix=".log") as log:
        server = subprocess.Popen([build / "apps/server/minim-server", "-m", MODEL, "--port", "0", "-c", "1024", "--parallel", "16", "-t", str(threads),
                                   "--log-file", log.name], stderr=subprocess.DEVNULL)
        try:
            end, found = time.monotonic() + 60, None
            while found is None and time.monotonic() < end and server.poll() is None:
                time.sleep(0.05)
                found = re.search(r" at (http://\S+:\d+)", pathlib.Path(log.name).read_text(encoding="utf-8"))
            if found is None:
                sys.exit(f"the server of {build} does not listen")
            lines = output_of([sys.executable, ROOT / "tests/bench/serve_bench.py", found[1], "--concurrency", "16", "--input", "64", "--output", "96",
                               "--requests", "96"]).splitlines()
        finally:
            server.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(60)
            server.kill()
    fields = lines[-1].split()
    if fields[7] != "0":
        sys.exit(f"{fields[7]} streams of the server of {build} failed")
    return {"server, 16 streams, tokens/s": float(fields[1])}


def measures(threads):
    """Returns functions that measure a build: {name: speed}."""
    return [*(lambda build, name=name: kernel_speeds(name, build, threads) for name in KERNELS),
            *(lambda build, name=name: slice_speeds(name, build, threads) for name in SLICES),
            lambda build: server_speeds(build, threads)]


# --------------------------------------------------------------------------------------------------------- the verdict


def is_slow(ratios):
    """True if at least two of three rounds are below the least ratio."""
    return sum(ratio < LEAST for ratio in ratios) >= 2


def turn(measure, old, new, old_is_first):
    """Returns {name: (old, new)}."""
    builds = {"old": old, "new": new}
    speeds = {which: measure(builds[which]) for which in sorted(builds, reverse=old_is_first)}
    if set(speeds["old"]) != set(speeds["new"]):
        sys.exit(f"the builds measure different things: {', '.join(set(speeds['old']) ^ set(speeds['new']))}")
    return {name: (speeds["old"][name], speeds["new"][name]) for name in speeds["old"]}


def compare(measures, old, new, n_turns=TURNS):
    """Lets two builds take turns. Returns {name: [(old, new) of each round]}."""
    rounds = {}
    for i in range(ROUNDS):
        print(f"round {i + 1} of {ROUNDS}", file=sys.stderr, flush=True)
        for measure in measures:
            turns = [turn(measure, old, new, (i + j) % 2 == 0) for j in range(n_turns)]
            for name in turns[0]:
                by_ratio = sorted((one[name] for one in turns), key=lambda pair: pair[1] / pair[0])
                rounds.setdefault(name, []).append(by_ratio[n_turns // 2])
    return rounds


def report(rounds):
    """Prints a table, and returns the names of what is slow."""
    print("| what | old | new | ratio of each round | |\n|---|---|---|---|---|")
    slow = []
    for name, pairs in rounds.items():
        ratios = [new / old for old, new in pairs]
        slow += [name] if is_slow(ratios) else []
        old, new = (sorted(pair[which] for pair in pairs)[ROUNDS // 2] for which in (0, 1))
        print(f"| {name} | {old:.4g} | {new:.4g} | {', '.join(f'{ratio:.3f}' for ratio in ratios)} | {'SLOWER' if is_slow(ratios) else ''} |", flush=True)
    return slow


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="revision to compare with; the last tag")
    parser.add_argument("--new", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--old", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    new = args.new.resolve()
    for program in ("tests/bench/minim-bench", "tests/bench/linear_bench", "apps/server/minim-server"):
        if not (new / program).exists():
            skip(f"{new / program} is not built")
    old = args.old.resolve() if args.old else build_of(revision_of(args.base), new)
    slow = report(compare(measures(str(args.threads)), old, new))
    for name in slow:
        print(f"slower in at least two of three rounds: {name}")
    sys.exit(1 if slow else 0)


if __name__ == "__main__":
    main()
