#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Removes, replaces and cuts the files of an open model, in a process of its own each time. A file that is removed or replaced by another
one goes on to be read. A file that is cut has no effect if its weights were read into memory; if it is mapped, the process may end by
SIGBUS, as include/minim/minim.h says, but never gives another text. A file that is cut while it is being opened is an error, or SIGBUS.

    lost_file.py [SECONDS] [SEED]
"""

import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import soak

# Opens the model, says so, waits for a line, and prints the greedy text.
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import minim
mmap = {"mapped": True, "owned": False, "usual": None}.get(sys.argv[3])
packed = {"packed_file": sys.argv[2] + ".packed"} if sys.argv[3] == "packed" else {"mmap": mmap}
try:
    model = minim.Model(sys.argv[2], threads=2, **packed)
except minim.Error as error:
    print("refused:", error, flush=True)
    sys.exit(3)
print("open", flush=True)
sys.stdin.readline()
with model, model.session(context=256) as session:
    print("".join(token.text for token in session.generate(messages=[{"role": "user", "content": "What is the capital of France?"}])))
"""


def start(path, how):
    return subprocess.Popen([sys.executable, "-c", PROGRAM, soak.ROOT / "bindings/python", path, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def lose(path, what, dice):
    if what == "removed":
        path.unlink()
    elif what == "replaced":
        other = path.with_suffix(".new")
        other.write_bytes(bytes(path.stat().st_size))
        other.rename(path)
    else:
        with open(path, "r+b") as file:
            file.truncate(dice.randrange(path.stat().st_size))


def main():
    clock = soak.Clock(15)
    dice = random.Random(clock.seed)
    counts = dict.fromkeys(("answers", "refusals", "ends by SIGBUS"), 0)
    with soak.temporary_folder() as name:
        path = pathlib.Path(name) / "model.gguf"
        shutil.copy(soak.MODEL, path)
        right = start(path, "owned").communicate("\n")[0]
        n = 0
        while clock.left() > 0 or n < 12:
            how, what = ("mapped", "owned", "usual", "packed")[n % 4], ("removed", "replaced", "cut")[n % 3]
            opening = dice.random() < 0.3
            for left in pathlib.Path(name).iterdir():
                left.unlink()
            shutil.copy(soak.MODEL, path)
            with start(path, how) as process:
                if opening:
                    time.sleep(dice.random() * 0.25)
                    lose(path, what, dice)
                    output, errors = process.communicate("\n", timeout=120)
                else:
                    first = process.stdout.readline()
                    lose(path, what, dice)
                    output, errors = process.communicate("\n", timeout=120)
                    output = first + output
            n += 1
            case = f"{what} while it is {'opened' if opening else 'open'}, {how}"
            may_end = what == "cut" and (opening or how in ("mapped", "packed"))
            if process.returncode == 0:
                # Opened after it was replaced or cut it may be refused, but never another model.
                if output != right:
                    sys.exit(f"{case}: another text: {output}")
                counts["answers"] += 1
            elif process.returncode == 3 and opening:
                counts["refusals"] += 1
            elif process.returncode == -signal.SIGBUS and may_end:
                counts["ends by SIGBUS"] += 1
            else:
                sys.exit(f"{case}: ends with {process.returncode}: {output[-200:]} {errors[-500:]}")
    print(f"{n} files lost: {', '.join(f'{count} {what}' for what, count in counts.items())}")


if __name__ == "__main__":
    main()
