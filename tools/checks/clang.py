#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that clang finds no error and no warning in the C and C++ files that a change touches (as tidy.py has it), compiled without
code. Exits with 77 where clang, git or a configured build folder is missing.

    clang.py [--build build/release] [--base REVISION] [--seconds 40] [--all] [FILE ...]

It names files that it had no time for; they are no fault.
"""

import subprocess

import project

# GCC's -Wconversion does not include sign conversion for C++ (cmake/compiler.cmake).
ADDED = ["-fsyntax-only", "-Wno-sign-conversion", "-Werror"]
# The files of this folder need std::source_location, which clang has from version 16 on.
LEFT_OUT = "tests/gpu/"


def run(root, build, path, command):
    if path.as_posix().startswith(LEFT_OUT):
        return []
    compiler = "clang" if path.suffix == ".c" else "clang++"
    result = subprocess.run([compiler, *project.clang_options(command), *ADDED, str(root / path)], cwd=build, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return []
    return [line for line in result.stderr.splitlines() if "error:" in line] or [f"{path}: {result.stderr.strip()}"]


if __name__ == "__main__":
    project.compiler_main(__doc__, "clang++", run, 40)
