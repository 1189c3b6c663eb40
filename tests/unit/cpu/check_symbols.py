# SPDX-License-Identifier: Apache-2.0
"""Checks that no function compiled for an instruction set can be taken for another one's by a linker.

    check_symbols.py NM OBJECT...

If a header defines a function and the compiler does not inline it, every object that uses the function has a copy, and the linker
keeps any one of them. A copy compiled for AVX-512 would end the program on a processor without AVX-512. So all such functions in
the objects of lib/cpu/<instruction set>/ must have that set in their names.
"""

import pathlib
import re
import subprocess
import sys


def shared_functions(nm, objects):
    """Returns (object, function) for each function that several objects may define and whose name lacks its object's instruction set."""
    listing = subprocess.run([nm, "--demangle", "--defined-only", "--print-file-name", *objects],
                             capture_output=True, text=True, check=True).stdout
    found = []
    for line in listing.splitlines():
        path, kind, name = re.match(r"(.*?\.o):\w* (\w) (.*)", line).groups()
        instruction_set = pathlib.Path(path).parent.name
        if kind in "Ww" and not re.search(rf"\bcpu::{instruction_set}::", name):
            found.append((path, name))
    return found


def main():
    nm, *objects = sys.argv[1:]
    objects = [path for path in objects if pathlib.Path(path).parent.name != "scalar"]  # scalar code runs on all processors
    if not objects:
        sys.exit("no objects to check")
    found = shared_functions(nm, objects)
    for path, name in found:
        print(f"{path}: {name} could be taken for another instruction set's")
    print(f"{len(objects)} objects checked")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
