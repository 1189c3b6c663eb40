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
N_LONG = 1900  # tokens
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
        # A limit of the time of an answer still ends it: eight long answers at once would take several seconds.
        with support.Server("-t", "2", "-c", "16384", "--parallel", "8", "--answer-timeout", "1", environment=faults.environment) as server:
            start = time.monotonic()
            timer = threading.Timer(0.2, faults.step_clock, (-86400,))
            timer.start()
            answer = server.ok(support.CHAT, {**body, "max_tokens": N_LONG, "ignore_eos": True, "n": 8})
            seconds = time.monotonic() - start
            timer.join()
            n_tokens = answer["usage"]["completion_tokens"]
            if seconds > 15 or n_tokens == 8 * N_LONG:
                sys.exit(f"answers that may take a second took {seconds:.1f}, and have {n_tokens} tokens")
    if longest > 10:
        sys.exit(f"two answers took {longest:.1f} seconds")
    print(f"{n_answers} answers beside {n_steps} steps of the clock, two in {longest:.2f} seconds at most")


if __name__ == "__main__":
    main()
