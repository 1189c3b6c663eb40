#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the program in control groups of little memory, with contexts that fit, that nearly fit and that cannot: each run answers, or says in
an error that memory is short. A run that the kernel ends is a fault, unless its group is too small for the program without a context.

    memory_limit.py [SECONDS] [SEED]
"""

import os
import pathlib
import random
import re
import subprocess
import sys

import soak

SMALLEST_MIB = 24  # of a group in which no run may be ended by the kernel


class Group:
    """A control group of version 1 or 2 with a limit of memory."""

    def __init__(self):
        first, second = pathlib.Path("/sys/fs/cgroup/memory"), pathlib.Path("/sys/fs/cgroup")
        self.is_first = (first / "memory.limit_in_bytes").exists()
        parent = first if self.is_first else second
        self.path = parent / f"minim-soak-{os.getpid()}"
        self.path.mkdir()
        self.limit_file = self.path / ("memory.limit_in_bytes" if self.is_first else "memory.max")
        if not self.limit_file.exists():
            self.path.rmdir()
            raise OSError(f"{parent} has no memory controller for groups below it")

    def limit(self, mib):
        self.limit_file.write_text(str(mib << 20))

    def enter(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        self.path.rmdir()


def main():
    clock = soak.Clock(20)
    dice = random.Random(clock.seed)
    try:
        group = Group()
    except OSError as error:
        print(f"skipped: no control group can be made: {error}")
        sys.exit(77)
    counts = {"answers": 0, "errors": 0, "ended by the kernel": 0}
    try:
        while clock.left() > 0:
            mib, context = dice.choice((12, 24, 32, 48, 64, 96, 128, 256)), dice.choice((64, 1024, 16384, 65536, 196608, 0))
            group.limit(mib)
            command = [str(soak.CLI), "-m", str(soak.MODEL), "-c", str(context), "-p", "What is the capital of France?", "-n", "16", "--temp", "0", "-t", "2",
                       *dice.choice(((), ("--mmap",), ("--no-mmap",)))]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, preexec_fn=group.enter)
            if done.returncode == 0 and "capital" in done.stdout:
                counts["answers"] += 1
            elif done.returncode in (1, 2) and re.search(r"minim: error: .*(memory|context|MiB|bytes)", done.stderr):
                counts["errors"] += 1
            elif done.returncode == -9 and mib < SMALLEST_MIB:
                counts["ended by the kernel"] += 1
            else:
                sys.exit(f"{mib} MiB, context {context}: ends with {done.returncode}: {done.stdout[-200:]} {done.stderr[-400:]}")
    finally:
        group.remove()
    print(", ".join(f"{n} {what}" for what, n in counts.items()))


if __name__ == "__main__":
    main()
