#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random work on an engine and on sessions: submissions with priorities, timeouts and seeds, cancellations, several answers, forks, states
saved and restored, prefixes saved, loaded and erased. Every text is compared with that of a session which computed it alone: a whole
answer is equal, a cancelled or timed-out one is its beginning.

    engine.py [SECONDS] [SEED]
"""

import pathlib
import random
import sys

import soak

import minim  # noqa: E402  isort: skip

N_TOKENS = 24


class Alone:
    """Texts of single sessions, computed when they are first asked for."""

    def __init__(self, model):
        self.model, self.known = model, {}

    def ids(self, prompt, seed):
        key = (tuple(prompt), seed)
        if key not in self.known:
            with self.model.session(context=2048) as session:
                self.known[key] = [token.id for token in session.generate(list(prompt), max_tokens=N_TOKENS, **options_of(seed))]
        return self.known[key]


def options_of(seed):
    return {} if seed is None else {"temperature": 1.1, "top_p": 0.9, "seed": seed}


class Work:
    def __init__(self, model, dice, folder):
        self.model, self.dice, self.folder, self.alone = model, dice, folder, Alone(model)
        base = [5 + 7 * i % 1900 for i in range(700)]
        # Prompts that begin alike, of lengths around pages and chunks.
        self.prompts = [base[:n] for n in (1, 3, 17, 63, 64, 65, 130, 300, 511, 700)] + [[11 + 13 * i % 1900 for i in range(n)] for n in (5, 90, 400)]
        self.engine = minim.Engine(model, kv_tokens=2048, max_requests=6, host_cache=1 << 22)
        self.running = []  # (request, prompt, seed)
        self.counts = dict.fromkeys(("whole", "cut", "sessions", "saves"), 0)

    def submit(self):
        prompt, seed = self.dice.choice(self.prompts), self.dice.choice((None, None, 3, 8))
        timeout = self.dice.choice((None, None, None, 0.001, 0.02, 0.1))
        options = dict(max_tokens=N_TOKENS, priority=self.dice.randint(-2, 2), timeout=timeout, **options_of(seed))
        n = self.dice.choice((None, None, None, 3))
        made = self.engine.submit(prompt, n=n, **options)
        for i, request in enumerate([made] if n is None else made):
            self.running.append((request, prompt, None if seed is None else seed + i))

    def end(self, request, prompt, seed):
        answer = request.result(timeout=120)
        right = self.alone.ids(prompt, seed)
        is_whole = answer.finish_reason not in (minim.FinishReason.STOPPED, minim.FinishReason.TIMEOUT)
        if answer.ids != (right if is_whole else right[: len(answer.ids)]):
            sys.exit(f"a prompt of {len(prompt)} tokens, seed {seed}, end {answer.finish_reason}: {answer.ids}, alone {right}")
        self.counts["whole" if is_whole else "cut"] += 1
        request.close()

    def end_one(self):
        if self.running:
            self.end(*self.running.pop(self.dice.randrange(len(self.running))))

    def cancel_one(self):
        if self.running:
            request, prompt, seed = self.running.pop(self.dice.randrange(len(self.running)))
            for _ in range(self.dice.randrange(4)):
                request.poll()
            if self.dice.random() < 0.3:
                request.close()  # without reading it
                return
            request.cancel()
            # What poll() returned is not part of the result.
            request.result(timeout=120)
            request.close()
            self.counts["cut"] += 1

    def prefixes(self):
        path, prompt = self.folder / "prefixes", self.dice.choice(self.prompts)
        what = self.dice.randrange(5)
        try:
            if what == 0:
                self.engine.save_prefixes(path)
            elif what == 1 and path.exists():
                self.engine.load_prefixes(path)
            elif what == 2:
                self.engine.save_prefix(prompt, self.folder / "prefix")
            elif what == 3 and (self.folder / "prefix").exists():
                self.engine.load_prefix(self.folder / "prefix")
            elif what == 4:
                self.engine.erase_prefix(prompt)
        except minim.Error as error:
            # There may be nothing cached, or no room beside what runs.
            if error.status not in (minim.Status.NOT_FOUND, minim.Status.OUT_OF_MEMORY, minim.Status.BUSY, minim.Status.CONTEXT_FULL):
                raise
        self.counts["saves"] += 1

    def session(self):
        """A prompt in pieces, a fork, a state that is saved and restored: each goes on as the text alone."""
        prompt = self.dice.choice(self.prompts)
        right = self.alone.ids(prompt, None)
        with self.model.session(context=1024) as session:
            at = self.dice.randrange(len(prompt))
            if at:
                session.eval(prompt[:at])
            with session.fork() as fork, self.model.restore_bytes(session.save_bytes()) as restored:
                for each in self.dice.sample((session, fork, restored), 3):
                    ids = [token.id for token in each.generate(prompt[at:], max_tokens=N_TOKENS)]
                    if ids != right:
                        sys.exit(f"a session with {at} of {len(prompt)} tokens read before: {ids}, alone {right}")
        self.counts["sessions"] += 1

    def step(self):
        room = len(self.running) < 24
        self.dice.choices((self.submit if room else self.end_one, self.end_one, self.cancel_one, self.prefixes, self.session), (8, 5, 2, 1, 1))[0]()

    def close(self):
        while self.running:
            self.end_one()
        state = self.engine.state
        if state.n_running + state.n_waiting:
            sys.exit(f"the engine still has {state.n_running} running and {state.n_waiting} waiting requests")
        self.engine.close()


def main():
    clock = soak.Clock(20)
    dice = random.Random(clock.seed)
    with soak.temporary_folder() as name, minim.Model(soak.MODEL, threads=2) as model:
        before = None
        n_engines = 0
        totals = {}
        while clock.left() > 0:
            work = Work(model, dice, pathlib.Path(name))
            end = min(clock.left(), max(clock.seconds / 8, 2))
            start = clock.left()
            while start - clock.left() < end:
                work.step()
            work.close()
            n_engines += 1
            totals = {key: totals.get(key, 0) + n for key, n in work.counts.items()}
            if n_engines == 2:
                before = soak.Resources()
        if before is not None:
            soak.require_no_more(before, 64)
        print(f"{n_engines} engines; answers: {totals['whole']} whole, {totals['cut']} cut; {totals['sessions']} sessions, {totals['saves']} prefixes")


if __name__ == "__main__":
    main()
