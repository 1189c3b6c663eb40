#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every source file has its licence line. With --fix, adds it as the first line, or after a line that must come first."""

import argparse
import pathlib
import sys

import project

LINE = "SPDX-License-Identifier: Apache-2.0"
# The line must be among the first lines, where a reader of the file looks.
FIRST_LINES = 5
C_STYLE = {".c": "/* {} */", ".h": "// {}", ".hpp": "// {}", ".cpp": "// {}", ".inl": "// {}", ".cu": "// {}", ".cuh": "// {}", ".rs": "// {}",
           ".css": "/* {} */", ".js": "// {}"}
HASH_STYLE = {".py", ".cmake", ".sh", ".toml"}
# C headers that C compilers read: C99 has // comments too, but the header is used with -std=c90 -pedantic in places.
C_HEADERS = {pathlib.Path("include/minim/minim.h")}
NAMES = {"CMakeLists.txt", "run", ".clang-format", ".clang-tidy"}


def comment(path):
    if path in C_HEADERS:
        return f"/* {LINE} */"
    if path.suffix in C_STYLE:
        return C_STYLE[path.suffix].format(LINE)
    return f"# {LINE}"


def sources(root):
    """Returns the files that need the line: sources, build files and scripts, not data, nor minified code of others."""
    paths = project.files(root, set(C_STYLE) | HASH_STYLE, NAMES)
    return [path for path in paths if "data" not in path.parts and "corpus" not in path.parts and
            not path.name.endswith((".lock", ".min.js"))]


def has_line(text):
    return any(LINE in line for line in text.split("\n")[:FIRST_LINES])


def check(root):
    return [f"{path}: no line '{LINE}'" for path in sources(root) if not has_line(project.read(root, path))]


def fix(root):
    """Adds the line where it is missing. Returns how many files changed."""
    n_changed = 0
    for path in sources(root):
        text = project.read(root, path)
        if has_line(text):
            continue
        first, _, rest = text.partition("\n")
        stays_first = first.startswith("#!") or "coding:" in first
        new = f"{first}\n{comment(path)}\n{rest}" if stays_first else f"{comment(path)}\n{text}"
        (root / path).write_text(new, encoding="utf-8")
        n_changed += 1
    return n_changed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, default=project.ROOT, help="folder of the project")
    parser.add_argument("--fix", action="store_true", help="add missing lines")
    args = parser.parse_args()
    if args.fix:
        print(f"{fix(args.root.resolve())} files changed")
    missing = check(args.root.resolve())
    print("\n".join(missing[:20] + ([f"... {len(missing)} files in all"] if len(missing) > 20 else [])), end="\n" if missing else "")
    sys.exit(1 if missing else 0)
