#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the speed of several ranks on this machine with that of one process with as many threads.

    several_ranks.py LIBRARY MODEL [--ranks 2] [--requests 16] [--prompt 128] [--tokens 32] [--rounds 5] [--tensor]

LIBRARY: libminim.so of a build with MPI. An engine answers all requests at once, on one process with a thread for each rank, and on
as many processes with one thread each (experts divided, or with --tensor heads too), in turn. Prints the seconds of each, their
medians, and the quotient; needs mpirun.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

BINDINGS = pathlib.Path(__file__).resolve().parents[2] / "bindings" / "python"


def work(job):
    """Opens the model, answers the requests once to warm up and once for the time; prints the seconds."""
    sys.path.insert(0, str(BINDINGS))
    import minim

    with minim.Model(job["model"], threads=job["threads"], **job["options"]) as model:
        if model.rank:
            return model.follow()
        prompts = [[(i * 7919 + k * 104729) % (model.n_vocab - 100) for k in range(job["prompt"])] for i in range(job["requests"])]
        n_rows = job["prompt"] + job["tokens"] + 64
        with minim.Engine(model, kv_tokens=n_rows * job["requests"], max_requests=job["requests"], context=n_rows) as engine:
            for _ in range(2):
                start = time.monotonic()
                requests = [engine.submit(prompt, max_tokens=job["tokens"], ignore_end=True) for prompt in prompts]
                for request in requests:
                    request.result()
                seconds = time.monotonic() - start
            print(json.dumps({"seconds": seconds}), flush=True)


def run(library, n_processes, job):
    command = [sys.executable, __file__, "--job", json.dumps(job)]
    environment = {**os.environ, "MINIM_LIBRARY": str(library)}
    if n_processes > 1:
        root = {name: "1" for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")}
        environment.update(root)
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(n_processes), *command]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return next(json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))["seconds"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("library", type=pathlib.Path)
    p.add_argument("model", type=pathlib.Path)
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--requests", type=int, default=16)
    p.add_argument("--prompt", type=int, default=128, help="tokens of each prompt")
    p.add_argument("--tokens", type=int, default=32, help="tokens of each answer")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--tensor", action="store_true", help="divide heads too")
    a = p.parse_args()
    job = {"model": str(a.model.resolve()), "requests": a.requests, "prompt": a.prompt, "tokens": a.tokens}
    times = {"one process": [], "ranks": []}
    for _ in range(a.rounds):
        times["one process"].append(run(a.library.resolve(), 1, {**job, "threads": a.ranks, "options": {}}))
        options = {"tensor_parallel" if a.tensor else "expert_parallel": a.ranks}
        times["ranks"].append(run(a.library.resolve(), a.ranks, {**job, "threads": 1, "options": options}))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, values in times.items():
        print(f"{name:12} {medians[name]:8.3f} s   ({', '.join(f'{v:.3f}' for v in values)})")
    print(f"{'quotient':12} {medians['ranks'] / medians['one process']:8.3f}")


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--job":
        work(json.loads(sys.argv[2]))
    else:
        main()
