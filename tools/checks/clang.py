#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that clang finds no error and no warning in the C and C++ files that a change touches (as tidy.py has it), compiled without
code. Exits with 77 where clang, git or a configured build folder is missing.

    clang.py [--build build/release] [--base REVISION] [--seconds 40] [--all] [FILE ...]

Files that there was no time for are named; they are no fault.
"""

import shlex
import subprocess

import project

# GCC's own: its precompiled headers, and warnings that clang does not have.
LEFT_OUT = ("-Winvalid-pch", "-Wno-error=", "-Werror")
LEFT_OUT_WITH_ARGUMENT = ("-include", "-o", "-c", "-MF", "-MT")
ADDED = ["-fsyntax-only", "-Werror"]


def options(command):
    """Returns what clang needs of a compile command of GCC."""
    words = iter(shlex.split(command))
    kept, is_option = [], False
    for word in words:
        is_option = is_option or word.startswith("-")
        if word in LEFT_OUT_WITH_ARGUMENT:
            next(words)
        elif is_option and not word.startswith(LEFT_OUT) and word != "-MD":
            kept.append(word)
    return kept


def run(root, build, path, command):
    compiler = "clang" if path.suffix == ".c" else "clang++"
    result = subprocess.run([compiler, *options(command), *ADDED, str(root / path)], cwd=build, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return []
    return [line for line in result.stderr.splitlines() if "error:" in line] or [f"{path}: {result.stderr.strip()}"]


if __name__ == "__main__":
    project.compiler_main(__doc__, "clang++", run, 40)
