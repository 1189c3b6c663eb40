#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fuzzes the parsers whose sources a change touches (as tidy.py has it), a minute each. Exits with 77 where clang or git is missing.

    fuzz.py [--base REVISION] [--seconds 60] [--limit 150]     the targets of tests/fuzz/ that the change touches
    fuzz.py --all                                              every target, without a limit
    fuzz.py --all --cases 1000000 --seconds 900                each until it has had so many cases, or the time
    fuzz.py fuzz_gguf ...                                      these, without a limit

The fuzzers are built in build/fuzz. The limit holds for building and fuzzing together: if several parsers share it, each has less than
a minute, and parsers that there was no time for are named; they are no fault. Inputs that fail stay in build/fuzz/failures.
"""

import argparse
import concurrent.futures
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import project

TARGETS = "tests/fuzz"
SHORTEST = 10  # seconds that are worth starting a fuzzer for
OPTIONS = ["-DMINIM_FUZZ=ON", "-DMINIM_SANITIZE=address,undefined", "-DMINIM_CPU_LEVELS=scalar", "-DMINIM_BUILD_PROGRAMS=ON", "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
           "-DCMAKE_C_COMPILER=clang", "-DCMAKE_CXX_COMPILER=clang++", "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1"]


def sources_of(root, target):
    """Returns the target's file and the sources of the layers that it includes: each header, the source of the same name, and the files
    of the same layer that these include."""
    first = root / TARGETS / f"{target}.cpp"
    found, waiting = {first}, [first]
    while waiting:
        path = waiting.pop()
        for name in re.findall(r'^#include "([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE):
            header = next((file for file in (path.parent / name, root / "lib" / name) if file.is_file()), None)
            if header is None or header.parent.name == "base" or (path != first and header.parent != path.parent):
                continue
            for file in (header, header.with_suffix(".cpp")):
                if file.is_file() and file not in found:
                    found.add(file)
                    waiting.append(file)
    return {file.relative_to(root) for file in found}


def build(root, folder, targets, seconds):
    """Builds fuzzers. Returns the lines with errors, an empty list if all were built, or None if there was no time."""
    # A folder of an older version may lack targets of the programs.
    steps = [["cmake", "-S", str(root), "-B", str(folder), "-G", "Ninja", *OPTIONS], ["cmake", "--build", str(folder), "--target", *targets]]
    end = time.monotonic() + seconds
    for step in steps:
        try:
            result = subprocess.run(step, capture_output=True, text=True, check=False, timeout=None if math.isinf(end) else end - time.monotonic())
        except subprocess.TimeoutExpired:
            return None
        if result.returncode:
            return [line for line in (result.stdout + result.stderr).splitlines() if "rror" in line][:20]
    return []


def fuzz(root, folder, target, seconds, cases):
    """Returns the number of cases, and the last lines of a fuzzer that failed. cases: the most; -1: no limit but the time."""
    inputs = folder / "inputs" / target
    failures = folder / "failures"
    for path in (inputs, failures):
        path.mkdir(parents=True, exist_ok=True)
    corpus = root / TARGETS / "corpus" / target
    result = subprocess.run([folder / TARGETS / target, f"-max_total_time={int(seconds)}", f"-runs={cases}", f"-artifact_prefix={failures}/{target}-", "-timeout=20",
                             inputs, *([corpus] if corpus.is_dir() else [])], capture_output=True, text=True, errors="replace", check=False)
    found = re.search(r"Done (\d+) runs in", result.stderr)
    n_cases = int(found[1]) if found else 0
    if result.returncode == 0:
        return n_cases, []
    lines = [line for line in result.stderr.splitlines() if re.search("ERROR|SUMMARY|runtime error|Test unit written|failed", line)]
    return n_cases, [f"{target}: {line}" for line in lines] or [f"{target}: exit code {result.returncode}"]


def chosen(root, args):
    """Returns the targets to run."""
    known = sorted(path.stem for path in (root / TARGETS).glob("fuzz_*.cpp"))
    if set(args.targets) - set(known):
        sys.exit(f"no fuzz target named {', '.join(sorted(set(args.targets) - set(known)))} (there are: {', '.join(known)})")
    if args.targets or args.all:
        return args.targets or known
    touched = set(project.changed(root, args.base))
    return [target for target in known if touched & sources_of(root, target)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=project.ROOT)
    parser.add_argument("--base", help="revision that the change starts from")
    parser.add_argument("--seconds", type=float, default=60, help="for a target (default: %(default)s)")
    parser.add_argument("--cases", type=int, default=-1, help="at most, for a target (default: as many as the time allows)")
    parser.add_argument("--limit", type=float, default=150, help="seconds for all that the change touches (default: %(default)s)")
    parser.add_argument("--shortest", type=float, default=SHORTEST, help="seconds that are worth starting a fuzzer for (default: %(default)s)")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--list", action="store_true", help="print the targets alone")
    parser.add_argument("targets", nargs="*")
    args = parser.parse_args()
    root = args.root.resolve()
    if shutil.which("clang++") is None and not args.list:
        project.skip("clang is missing")
    targets = chosen(root, args)
    if args.list or not targets:
        print("".join(f"{target}\n" for target in targets), end="")
        return
    folder = root / "build" / "fuzz"
    end = time.monotonic() + (math.inf if args.all or args.targets else args.limit)
    faults = build(root, folder, targets, end - time.monotonic())
    if faults is None:
        project.skip(f"no time to build {' '.join(targets)} in {args.limit:.0f} seconds")
    n_at_once = os.cpu_count()
    share = min(args.seconds, (end - time.monotonic()) / math.ceil(len(targets) / n_at_once))
    run = [] if faults else targets[:n_at_once] if share < args.shortest else targets
    share = max(share, args.shortest)
    with concurrent.futures.ThreadPoolExecutor(n_at_once) as pool:
        for target, (n_cases, lines) in zip(run, pool.map(lambda target: fuzz(root, folder, target, share, args.cases), run), strict=True):
            print(f"{target}: {n_cases} cases")
            faults += lines
    if run:
        print(f"{share:.0f} seconds each: {' '.join(run)}")
    if not faults and len(run) < len(targets):
        print(f"no time for {' '.join(targets[len(run):])}")
    print("\n".join(faults), end="\n" if faults else "")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
