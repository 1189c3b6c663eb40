#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fuzzes every target of tests/fuzz/ under the address and undefined-behaviour sanitizers, all in this time. Inputs that reach new code are
kept in build/fuzz/inputs, so that a later run goes on; inputs that fail are in build/fuzz/failures.

    fuzz.py [SECONDS]
"""

import math
import os
import re
import subprocess
import sys

import soak


def main():
    clock = soak.Clock(60)
    script = soak.ROOT / "tools/checks/fuzz.py"
    n_targets = len(subprocess.run([sys.executable, script, "--all", "--list"], capture_output=True, text=True, check=True).stdout.split())
    share = max(1, clock.seconds / math.ceil(n_targets / os.cpu_count()))
    done = subprocess.run([sys.executable, script, "--all", "--seconds", f"{share:.0f}", "--shortest", "1"], capture_output=True, text=True)
    print(done.stdout, done.stderr, sep="", end="")
    if done.returncode != 0:
        sys.exit(done.returncode)
    found = re.findall(r"(?m)^fuzz_\w+: (\d+) cases$", done.stdout)
    if len(found) != n_targets:
        sys.exit(f"{len(found)} of {n_targets} targets say what they did")
    print(f"{n_targets} targets, {sum(map(int, found))} cases, {min(map(int, found))} of the slowest")


if __name__ == "__main__":
    main()
