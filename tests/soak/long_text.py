#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates 50,000 tokens in one session and in an engine, or as many as there is time for. Once the context is taken, memory, descriptors
and threads do not grow, and the tokens of both are the same.

    long_text.py [SECONDS] [SEED]
"""

import sys
import time

import soak

import minim  # noqa: E402  isort: skip

N_TOKENS = 50_000
LARGEST_GROWTH = 32  # MiB, of what Python keeps of the tokens, too


def read(tokens, clock, part):
    """Returns the ids until this part of the time is over, and what is in use at first and at the end."""
    ids, before = [], None
    for token in tokens:
        ids.append(token.id)
        if len(ids) == 200:
            before = soak.Resources()
        if clock.left(part) <= 0 and len(ids) > 400:
            break
    return ids, before


def main():
    clock = soak.Clock(20)
    with minim.Model(soak.MODEL, threads=2) as model:
        context = min(N_TOKENS + 64, model.info.n_context_train) if hasattr(model.info, "n_context_train") else N_TOKENS + 64
        options = dict(max_tokens=context - 64, ignore_end=True, temperature=1.0, seed=clock.seed)
        start = time.monotonic()
        with model.session(context=context) as session:
            session.eval([5])  # its memory is reserved now, and taken page by page
            alone, before = read(session.generate([5, 6, 7], **options), clock, 0.5)
            kv_mib = session.kv_bytes / (1 << 20)
            soak.require_no_more(before, LARGEST_GROWTH + kv_mib)
        seconds = time.monotonic() - start
        with minim.Engine(model, kv_tokens=context, max_requests=1) as engine:
            request = engine.submit([5, 5, 6, 7], **options)
            shared, before = read(request.tokens(), clock, 1.0)
            after = soak.require_no_more(before, LARGEST_GROWTH + kv_mib)
            request.cancel()
        n = min(len(alone), len(shared))
        if alone[:n] != shared[:n]:
            sys.exit(f"session and engine differ from token {next(i for i in range(n) if alone[i] != shared[i])} on")
    print(f"{len(alone)} tokens of a session in {seconds:.0f} seconds, {len(shared)} of an engine; {n} equal; after: {after}")


if __name__ == "__main__":
    main()
