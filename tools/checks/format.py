#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that clang-format 14 would change no C, C++ or CUDA file. Exits with 77 where it is missing: other versions format otherwise."""

import concurrent.futures
import os
import shutil
import subprocess
import sys

import project

FILES_PER_RUN = 40
VERSION = "version 14."


def clang_format():
    """Returns the program of the right version, or None."""
    for name in ("clang-format-14", "clang-format"):
        program = shutil.which(name)
        if program and VERSION in subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout:
            return program
    return None


def check(root):
    paths = [str(path) for path in project.files(root, project.C_SUFFIXES) if "data" not in path.parts]
    groups = [paths[at:at + FILES_PER_RUN] for at in range(0, len(paths), FILES_PER_RUN)]

    program = clang_format()

    def run(group):
        return subprocess.run([program, "--dry-run", "-Werror", *group], cwd=root, capture_output=True, text=True, check=False)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(run, groups))
    return [line for result in results if result.returncode for line in result.stderr.splitlines() if "error" in line]


if __name__ == "__main__":
    if clang_format() is None:
        print("skipped: clang-format 14 is missing")
        sys.exit(77)
    project.main(check, __doc__)
