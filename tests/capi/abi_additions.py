#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the C interface with that of 0.1 (abi-0.1.xml): with abidiff, additions only. Exits with 77 where libabigail is missing, and
on other architectures than x86-64.

    tests/capi/abi_additions.py LIBRARY          compares the header's types, and the symbols of the built library
    tests/capi/abi_additions.py LIBRARY --write  stores the current interface; run once, when a version is released

The types come from a library made of minim.h alone, with an empty body for each function: the real one has no debug information.
exports_test.cmake and tests/ffi hold the two together.
"""

import argparse
import json
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHANGED = 4  # abidiff: there are changes, not necessarily incompatible ones
STORED = pathlib.Path(__file__).with_name("abi-0.1.xml")
ABI = json.loads((ROOT / "bindings/abi.json").read_text(encoding="utf-8"))
# Structs carry their size, so fields may be added at the end, also where a callback gets one. For such a change abidiff writes only lines
# that match this expression.
GROWTH = re.compile(r"""(Functions|Variables)\ changes\ summary: .* | \d+\ functions?\ with\ some\ indirect\ sub-type\ change:
    | \[C\]\ 'function\ .* has\ some\ indirect\ sub-type\ changes: | parameter\ \d+\ of\ type\ .* has\ sub-type\ changes:
    | in\ pointed\ to\ type\ .* | in\ unqualified\ underlying\ type\ .* | underlying\ type\ 'struct\ minim_\w+'\ changed:
    | underlying\ type\ 'typedef\ \w+\ \(void\*,\ const\ minim_\w+\*\)\*'\ changed:
    | type\ size\ changed\ from\ (?P<size>\d+)\ to\ \d+\ \(in\ bits\) | \d+\ data\ member\ insertions?:
    | '[^']*',\ at\ offset\ (?P<offset>\d+)\ \(in\ bits\)\ at\ .*""", re.VERBOSE)


def run(*command):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    return result.returncode, result.stdout + result.stderr


def must_run(*command):
    code, output = run(*command)
    if code:
        sys.exit(f"{command[0]} exits with {code}: {output}")


def stubs():
    lines = ["#include <minim/minim.h>"]
    for name, function in ABI["functions"].items():
        parameters = ", ".join(f"{item['type']} {item['name']}" for item in function["parameters"])
        body = "" if function["returns"] == "void" else "return 0;"
        lines.append(f"{function['returns']} {name}({parameters or 'void'}) {{ {body} }}")
    return "\n".join(lines) + "\n"


def library_of_header(folder, header_folder=ROOT / "include", source=None):
    path = folder / "libminim.so.0"
    (folder / "stubs.c").write_text(source or stubs(), encoding="utf-8")
    must_run("cc", "-std=c99", "-g", f"-ffile-prefix-map={folder}=.", "-w", "-shared", "-fPIC", "-I", header_folder, folder / "stubs.c",
             "-Wl,-soname,libminim.so.0", "-o", path)
    return path


def only_grown(report):
    size = None
    for line in filter(None, map(str.strip, report.splitlines())):
        match = GROWTH.fullmatch(line)
        if match is None:
            return False
        if match["size"]:
            size = int(match["size"])
        if match["offset"] and (size is None or int(match["offset"]) < size):
            return False
    return True


def differences(library):
    """Returns abidiff's report if a change breaks callers, else an empty text."""
    code, output = run("abidiff", "--no-added-syms", STORED, library)
    return "" if code == 0 or (code == CHANGED and only_grown(output)) else output


def lost_symbols(library):
    stored = set(re.findall(r"elf-symbol name='(minim_\w+)'", STORED.read_text(encoding="utf-8")))
    _, output = run("nm", "-D", "--defined-only", "--format=posix", library)
    return sorted(stored - {line.split()[0].split("@")[0] for line in output.splitlines()}), len(stored)


def planted(folder):
    """Checks that changes that break callers are found (a parameter of another type, a field in the middle, a function that is gone),
    and that a field at the end is no fault."""
    header = (ROOT / "include/minim/minim.h").read_text(encoding="utf-8")
    faults = {
        "a parameter's type": (lambda text: text, lambda code: re.sub(r"(minim_session_token_count\([^)]*)\bminim_session\b", r"\1minim_model", code)),
        "a field in the middle": (lambda text: re.sub(r"(typedef struct minim_error \{\s+uint32_t size;)", r"\1 uint64_t planted;", text), lambda code: code),
        "a function": (lambda text: text, lambda code: re.sub(r"^.* minim_version_number\(.*\n", "", code, flags=re.MULTILINE)),
    }
    for name, (change_header, change_code) in faults.items():
        changed = folder / "planted"
        shutil.rmtree(changed, ignore_errors=True)
        (changed / "minim").mkdir(parents=True)
        text, code = change_header(header), change_code(stubs())
        if text == header and code == stubs():
            sys.exit(f"nothing was planted for {name}")
        if text == header:  # the declaration would contradict the stub
            text = re.sub(r"MINIM_API [^;{]*\bminim_(session_token_count|version_number)\([^;]*;", "", text)
        (changed / "minim/minim.h").write_text(text, encoding="utf-8")
        if not differences(library_of_header(changed, changed, code)):
            sys.exit(f"abidiff does not find a planted change of {name}")
    for struct in ("minim_error", "minim_token"):  # the second is given to callbacks
        longer = header.replace(f"\n}} {struct};", f"\n    uint64_t planted;\n}} {struct};")
        (changed / "minim/minim.h").write_text(longer, encoding="utf-8")
        found = differences(library_of_header(changed, changed))
        if longer == header or found:
            sys.exit(f"a field added at the end of {struct} is taken for a fault: {found}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("--write", action="store_true", help="store the interface of today")
    args = parser.parse_args()
    if platform.machine() not in ("x86_64", "AMD64"):
        print(f"skipped: the stored description is that of x86-64, not of {platform.machine()}")
        sys.exit(77)
    for tool in ("abidw", "abidiff", "nm", "cc"):
        if shutil.which(tool) is None:
            print(f"skipped: {tool} is missing")
            sys.exit(77)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        library = library_of_header(folder)
        if args.write:
            must_run("abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--out-file", STORED, library)
            return
        found = differences(library)
        lost, n_symbols = lost_symbols(args.library)
        if found or lost:
            sys.exit(f"{found}\nnot exported any more: {lost or 'nothing'}")
        planted(folder)
        print(f"{n_symbols} functions of 0.1, as they were")


if __name__ == "__main__":
    main()
