#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Opens and closes models in one process, 1,000 times or until the time is over: as a file, a folder, mapped, packed, on a simulated
device and on ranks, some with a session and an engine. Memory, descriptors and threads must not grow.

    open_close.py [SECONDS] [SEED]
"""

import os
import pathlib
import random
import sys

import soak

os.environ.update(MINIM_PLUGIN_PATH=str(soak.BUILD / "tests" / "sim"), MINIM_SIM="devices=2 memory=256")
import minim  # noqa: E402

LARGEST_GROWTH = 24  # MiB; the C library's arenas move by a few


def open_once(dice, forms):
    path, options = dice.choice(forms)
    with minim.Model(path, threads=dice.choice((1, 2, 3)), **options) as model:
        what = dice.randrange(4)
        if what == 1:
            with model.session(context=64) as session:
                session.eval([5, 6, 7])
                with session.fork() as fork:
                    fork.eval([8])
        elif what == 2:
            with minim.Engine(model, kv_tokens=256, max_requests=2) as engine:
                engine.submit([5, 6, 7], max_tokens=2).result()
        elif what == 3:
            with minim.Engine(model, kv_tokens=256, max_requests=2) as engine:
                engine.submit([5, 6, 7], max_tokens=100)  # closed while it runs


def refuse_once():
    try:
        minim.Model(soak.ROOT / "tests/data/malformed/g03_wrong_magic.gguf")
    except minim.Error:
        return
    raise AssertionError("a malformed file was opened")


def main():
    clock = soak.Clock(30)
    dice = random.Random(clock.seed)
    with soak.temporary_folder() as name:
        packed = pathlib.Path(name) / "packed"
        forms = [(soak.MODEL, {}), (soak.MODEL, {"mmap": True}), (soak.MODEL, {"mmap": False}), (soak.MODEL, {"packed_file": packed}),
                 (soak.MADE_MODELS / "minim-tiny", {}), (soak.MODEL, {"devices": "sim:0"}), (soak.MODEL, {"devices": "sim:0,sim:1"}),
                 (soak.MODEL, {"devices": "sim:0,sim:1", "tensor_parallel": 2})]
        for _ in range(60):
            open_once(dice, forms)
        refuse_once()
        before = soak.Resources()
        n = 0
        while n < 1000 and clock.left() > 0:
            open_once(dice, forms)
            refuse_once()
            n += 1
        after = soak.require_no_more(before, LARGEST_GROWTH)
        if n < 10:
            sys.exit(f"only {n} models were opened")
        print(f"{n} models opened and closed; before: {before}; after: {after}")


if __name__ == "__main__":
    main()
