#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy on the C++ files that a change touches: those that differ from the main branch, or from the last commit's parent on
that branch itself. Exits with 77 where clang-tidy, git or a configured build folder is missing.

    tidy.py [--build build/release] [--base REVISION] [--seconds 120] [FILE ...]

Files that there was no time for are named; they are no fault.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import project


def git(root, *args):
    result = subprocess.run(["git", "-C", str(root), *args], capture_output=True, text=True, check=False)
    return result.stdout.split() if result.returncode == 0 else []


def base_of(root):
    """Returns the revision that the change starts from."""
    head = git(root, "rev-parse", "HEAD")
    for branch in ("origin/main", "main"):
        base = git(root, "merge-base", "HEAD", branch)
        if base and base != head:
            return base[0]
    return "HEAD~1"


def changed(root, base):
    """Returns the changed files that a compiler reads by themselves; a header stands for the source of its name."""
    names = set(git(root, "diff", "--name-only", "--diff-filter=d", base, "--"))
    names |= set(git(root, "ls-files", "--others", "--exclude-standard"))
    paths = {pathlib.Path(name) for name in names}
    paths |= {path.with_suffix(".cpp") for path in paths if path.suffix == ".h"}
    return sorted(path for path in paths if path.suffix == ".cpp" and (root / path).is_file())


def check(root, build, paths, seconds):
    """Returns the faults of files, and the files that there was no time for."""
    compiled = {entry["file"] for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))}
    paths = [path for path in paths if str(root / path) in compiled]
    end = time.monotonic() + seconds

    def run(path):
        if time.monotonic() > end:
            return None
        return subprocess.run(["clang-tidy", "--quiet", "-p", str(build), str(root / path)], capture_output=True, text=True, check=False)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(zip(paths, pool.map(run, paths)))
    faults = [line for _, result in results if result is not None and result.returncode
              for line in result.stdout.splitlines() if ": error:" in line or ": warning:" in line]
    return faults, [str(path) for path, result in results if result is None], len(paths)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=project.ROOT)
    parser.add_argument("--build", type=pathlib.Path, help="folder with compile_commands.json (default: build/release)")
    parser.add_argument("--base", help="revision that the change starts from")
    parser.add_argument("--seconds", type=float, default=120, help="start no file after so long")
    parser.add_argument("files", nargs="*", type=pathlib.Path, help="check these files instead")
    args = parser.parse_args()
    root = args.root.resolve()
    build = (args.build or root / "build/release").resolve()
    if shutil.which("clang-tidy") is None or not (build / "compile_commands.json").is_file() or (
            not args.files and not git(root, "rev-parse", "HEAD")):
        print("skipped: clang-tidy, git or a configured build folder is missing")
        sys.exit(77)
    paths = args.files or changed(root, args.base or base_of(root))
    faults, left_out, n_files = check(root, build, paths, args.seconds)
    print("\n".join(faults), end="\n" if faults else "")
    if left_out:
        print(f"no time for {len(left_out)} of {n_files} files: {' '.join(left_out)}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
