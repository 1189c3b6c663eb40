#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy on the C++ files that a change touches: those that differ from the main branch, or from the last commit's parent on
that branch itself. Exits with 77 where clang-tidy, git or a configured build folder is missing.

    tidy.py [--build build/release] [--base REVISION] [--seconds 60] [--all] [FILE ...]

It names files that it had no time for; they are no fault.
"""

import subprocess

import project


def run(root, build, path, command):
    if path.suffix == ".c" or path.as_posix().startswith("tests/gpu/"):  # clang.py says why
        return []
    result = subprocess.run(["clang-tidy", "--quiet", str(root / path), "--", *project.clang_options(command)], cwd=build, capture_output=True,
                            text=True, check=False)
    if result.returncode == 0:
        return []
    return [line for line in result.stdout.splitlines() if ": error:" in line or ": warning:" in line] or [f"{path}: {result.stderr.strip()}"]


if __name__ == "__main__":
    project.compiler_main(__doc__, "clang-tidy", run, 60)
