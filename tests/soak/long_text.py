#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates 50,000 tokens in one session and in an engine, or fewer when the time is over: texts that fill the context, one after another.
After the first of them memory, descriptors and threads do not grow, and the tokens of both are the same.

    long_text.py [SECONDS] [SEED]
"""

import sys
import time

import soak

import minim  # noqa: E402  isort: skip

N_TOKENS = 50_000
LARGEST_GROWTH = 32  # MiB, of what Python keeps of the tokens, too


def read(make_tokens, context, clock, part):
    """Returns the ids of texts that fill the context one after another, until there are enough or this part of the time is over, and what is
    in use after the first of them."""
    ids, before, seed = [], None, clock.seed
    while len(ids) < N_TOKENS and (clock.left(part) > 0 or before is None):
        options = dict(max_tokens=context - 16, ignore_end=True, temperature=1.0, seed=seed)
        for token in make_tokens(options):
            ids.append(token.id)
            if clock.left(part) <= 0 and before is not None:
                break
        before = before or soak.Resources()
        seed += 1
    return ids, before


def main():
    clock = soak.Clock(20)
    with minim.Model(soak.MODEL, threads=2) as model:
        context = model.info.n_context_train
        start = time.monotonic()
        with model.session(context=context) as session:

            def of_session(options):
                session.truncate(0)
                return session.generate([5, 6, 7], **options)

            alone, before = read(of_session, context, clock, 0.5)
            soak.require_no_more(before, LARGEST_GROWTH)
        seconds = time.monotonic() - start
        with minim.Engine(model, kv_tokens=context, context=context, max_requests=1) as engine:

            def of_engine(options):
                with engine.submit([5, 6, 7], **options) as request:
                    yield from request.tokens()

            shared, before = read(of_engine, context, clock, 1.0)
            after = soak.require_no_more(before, LARGEST_GROWTH)
        n = min(len(alone), len(shared))
        if alone[:n] != shared[:n]:
            sys.exit(f"session and engine differ from token {next(i for i in range(n) if alone[i] != shared[i])} on")
    print(f"{len(alone)} tokens of a session in {seconds:.0f} seconds, {len(shared)} of an engine; {n} equal; after: {after}")


if __name__ == "__main__":
    main()
