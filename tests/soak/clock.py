#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps the wall clock of a server by seconds to years, back and forth, while it answers: no answer is late, cut or refused for it, a
timeout holds, and the log goes on. The clock is that of faults.c.

    clock.py [SECONDS] [SEED]
"""

import random
import sys
import threading
import time

import soak

support = soak.support("server")
STEPS = (-315360000, -86400, -3600, -11, -1, 1, 11, 3600, 86400, 315360000)  # seconds


def main():
    clock = soak.Clock(10)
    dice = random.Random(clock.seed)
    n_answers = n_steps = 0
    longest = 0.0
    with soak.temporary_folder() as name:
        faults = soak.Faults(name)
        body = {"messages": support.COUNT, "temperature": 0, "max_tokens": 40}
        with support.Server("-t", "2", "--timeout", "10", "--answer-timeout", "20", "--models-idle", "600", environment=faults.environment) as server:
            right = server.ok(support.CHAT, body)["choices"]
            over = threading.Event()

            def step():
                nonlocal n_steps
                while not over.wait(0.003):
                    faults.step_clock(dice.choice(STEPS))
                    n_steps += 1

            stepper = threading.Thread(target=step)
            stepper.start()
            try:
                while clock.left() > 0:
                    start = time.monotonic()
                    if server.ok(support.CHAT, body)["choices"] != right:
                        sys.exit("another answer beside a clock that steps")
                    message, _, _ = support.joined(server.chunks(support.COUNT, max_tokens=40))
                    if message["content"] != (right[0]["message"]["content"] or ""):
                        sys.exit(f"another stream beside a clock that steps: {message}")
                    longest = max(longest, time.monotonic() - start)
                    n_answers += 2
            finally:
                over.set()
                stepper.join()
            # A short limit of an answer still ends it.
            start = time.monotonic()
            faults.step_clock(-86400)
            status, _, answer = server.post(support.CHAT, {**body, "max_tokens": 2000, "ignore_eos": True, "timeout": 0.3})
            seconds = time.monotonic() - start
            if status == 200 and seconds > 15:
                sys.exit(f"an answer took {seconds:.1f} seconds: {answer}")
    if longest > 10:
        sys.exit(f"two answers took {longest:.1f} seconds")
    print(f"{n_answers} answers beside {n_steps} steps of the clock, two in {longest:.2f} seconds at most")


if __name__ == "__main__":
    main()
