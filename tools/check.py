#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks style and documents: runs all checks of tools/checks/, or those that are named.

    tools/check.py                 all checks; exits with 1 if one finds a fault
    tools/check.py links words     these

A check that lacks a program says that it was skipped.
"""

import pathlib
import subprocess
import sys
import time

CHECKS = pathlib.Path(__file__).resolve().parent / "checks"
SKIPPED = 77


def main():
    known = sorted(path.stem for path in CHECKS.glob("*.py") if path.stem != "project")
    names = sys.argv[1:] or known
    if set(names) - set(known):
        sys.exit(f"no check named {', '.join(sorted(set(names) - set(known)))} (there are: {', '.join(known)})")
    failed = []
    for name in names:
        start = time.monotonic()
        result = subprocess.run([sys.executable, CHECKS / f"{name}.py"], check=False, capture_output=True, text=True)
        state = {0: "ok", SKIPPED: "skipped"}.get(result.returncode, "FAILED")
        print(f"check {name}: {state} ({time.monotonic() - start:.1f} s)", flush=True)
        output = (result.stdout + result.stderr).strip()
        if output:
            print("    " + output.replace("\n", "\n    "), flush=True)
        if state == "FAILED":
            failed.append(name)
    if failed:
        sys.exit(f"checks failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
