#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what sessions and the engine save: shared prefixes, prompt states in host memory, saved states, draft tokens; how soon a
step is cancelled.

    engine_bench.py MODEL [--prefix 2000] [--state 20000] [--stop 2000] [--turns 2000] [--threads N]

Prompts are random ids, so any model of the right shape will do. Speeds that are compared are medians, measured in
turns.
"""

import argparse
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bindings" / "python"))
import minim


def ids_of(dice, count, n_vocab):
    return [dice.randrange(n_vocab) for _ in range(count)]


def timed(work):
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def first_token_ms(engine, ids):
    request = engine.submit(ids, max_tokens=1, ignore_end=1)
    request.result()
    return (request.state.queue_us + request.state.prompt_us) * 1e-3, request.cached_tokens


def bench_prefix(model, n_prefix, rounds):
    dice, n_vocab = random.Random(1), min(model.n_vocab, 1900)
    first, second, cached = [], [], 0
    with minim.Engine(model, kv_tokens=4 * n_prefix, max_requests=4) as engine:
        for _ in range(rounds):
            prefix = ids_of(dice, n_prefix, n_vocab)
            for times in (first, second):
                ms, cached = first_token_ms(engine, prefix + ids_of(dice, 10, n_vocab))
                times.append(ms)
    ms = statistics.median(first), statistics.median(second)
    print(f"first token of a prompt of {n_prefix} + 10 tokens: {ms[0]:.1f} ms; of one that begins with the same "
          f"{n_prefix} ({cached} cached): {ms[1]:.1f} ms, {100 * ms[1] / ms[0]:.2f} %")


def bench_turns(model, n_conversations, n_tokens, n_fitting, n_rounds):
    """Holds conversations in turn, with pages for a few of them, without and with prompt states in host memory."""
    answers, computed, seconds = [], [], []
    for host_cache in (0, -1):
        dice = random.Random(3)
        texts = [ids_of(dice, n_tokens, min(model.n_vocab, 1900)) for _ in range(n_conversations)]
        answers.append([])
        computed.append(0)
        room = n_tokens + n_rounds * 24
        with minim.Engine(model, kv_tokens=n_fitting * room, max_requests=1, context=room, host_cache=host_cache) as engine:
            start = time.perf_counter()
            for _ in range(n_rounds):
                for number, text in enumerate(texts):
                    request = engine.submit(text, max_tokens=8, ignore_end=1)
                    ids = request.result().ids
                    answers[-1].append(ids)
                    computed[-1] += len(text) - request.cached_tokens
                    texts[number] = text + ids + ids_of(dice, 16, min(model.n_vocab, 1900))
            seconds.append(time.perf_counter() - start)
            state = engine.state
    print(f"{n_conversations} conversations of {n_tokens} tokens, {n_rounds} times in turn, with pages for {n_fitting}: {computed[0]} tokens of "
          f"prompts computed in {seconds[0]:.1f} s; with prompt states in host memory {computed[1]} ({computed[1] / computed[0]:.3f}) in "
          f"{seconds[1]:.1f} s, {state.host_cache_bytes / 1e6:.0f} MB; answers {'equal' if answers[0] == answers[1] else 'DIFFERENT'}")


def forget(path):
    """Drops the file from the system's page cache."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read(path):
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 24):
            pass


def bench_state(model, n_tokens, rounds):
    dice = random.Random(2)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", ".")) as folder:
        path = os.path.join(folder, "state")
        with model.session(context=n_tokens + 64) as session:
            evaluated, _ = timed(lambda: session.eval(ids_of(dice, n_tokens, min(model.n_vocab, 1900))))
            saved, _ = timed(lambda: session.save(path))
        size = os.path.getsize(path)
        reads, restores, warm = [], [], []
        for _ in range(rounds):
            forget(path)
            reads.append(timed(lambda: read(path))[0])
            forget(path)
            seconds, session = timed(lambda: model.restore(path))
            session.close()
            restores.append(seconds)
            seconds, session = timed(lambda: model.restore(path))
            session.close()
            warm.append(seconds)
    reading, restoring, from_memory = map(statistics.median, (reads, restores, warm))
    print(f"{n_tokens} tokens: evaluated in {evaluated:.2f} s, saved in {saved:.3f} s, {size / 1e6:.1f} MB; "
          f"reading the file {reading:.3f} s, restoring it {restoring:.3f} s, from memory {from_memory:.3f} s")


def bench_drafts(model, n_tokens, rounds):
    dice = random.Random(3)
    times = {0: [], 16: []}
    for seed in range(rounds):
        prompt = ids_of(dice, 32, min(model.n_vocab, 1900))
        for draft_tokens in (0, 16):
            with model.session(context=n_tokens + 64) as session:
                options = dict(max_tokens=n_tokens, temperature=1.0, seed=seed, ignore_end=1, draft_tokens=draft_tokens)
                for _ in session.generate(prompt, **options):
                    pass
                times[draft_tokens].append(session.result.generate_us)
    ratios = [without / drafted for without, drafted in zip(times[0], times[16])]
    print(f"{n_tokens} tokens that do not repeat: {n_tokens * 1e6 / statistics.median(times[0]):.1f} tokens/s, with "
          f"drafts {n_tokens * 1e6 / statistics.median(times[16]):.1f}; ratio {statistics.median(ratios):.3f} "
          f"({min(ratios):.3f} to {max(ratios):.3f})")


def seconds_to_end(request):
    start = time.perf_counter()
    request.result()
    return time.perf_counter() - start


def bench_stop(model, n_prompt, rounds):
    """Measures how soon an engine that reads a long prompt turns to something else."""
    dice, n_vocab = random.Random(4), min(model.n_vocab, 1900)
    urgent = dict(max_tokens=1, ignore_end=1)
    times = {"alone": [], "after a cancel": [], "of priority 10": [], "timeout": []}
    with minim.Engine(model, kv_tokens=4 * n_prompt, max_requests=4, prefix_cache=False) as engine:
        for _ in range(rounds):
            times["alone"].append(seconds_to_end(engine.submit(ids_of(dice, 4, n_vocab), **urgent)))
            reading = engine.submit(ids_of(dice, n_prompt, n_vocab), **urgent)
            time.sleep(0.2 + 0.5 * dice.random())
            times["of priority 10"].append(
                seconds_to_end(engine.submit(ids_of(dice, 4, n_vocab), priority=10, **urgent)))
            time.sleep(0.2 + 0.5 * dice.random())
            reading.cancel()
            times["after a cancel"].append(seconds_to_end(engine.submit(ids_of(dice, 4, n_vocab), **urgent)))
            late = engine.submit(ids_of(dice, n_prompt, n_vocab), timeout=0.25, **urgent)
            times["timeout"].append(seconds_to_end(late) - 0.25)
        reading = engine.submit(ids_of(dice, n_prompt, n_vocab), **urgent)
        whole = seconds_to_end(reading)
    alone = statistics.median(times["alone"])
    print(f"a prompt of {n_prompt} tokens: {n_prompt / whole:.1f} tokens/s; a request of 4 tokens alone: {1e3 * alone:.0f} ms")
    for name in ("after a cancel", "of priority 10"):
        late = [1e3 * (seconds - alone) for seconds in times[name]]
        print(f"the same {name}, while the prompt is read: {statistics.median(late):.0f} ms later, at most {max(late):.0f}")
    late = [1e3 * seconds for seconds in times["timeout"]]
    print(f"a timeout while the prompt is read: {statistics.median(late):.0f} ms late, at most {max(late):.0f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--prefix", type=int, default=2000, help="tokens that prompts begin with alike")
    parser.add_argument("--state", type=int, default=20000, help="tokens of the saved session")
    parser.add_argument("--drafts", type=int, default=128, help="tokens to generate with and without drafts")
    parser.add_argument("--stop", type=int, default=0, help="tokens of a prompt beside which others are stopped and started")
    parser.add_argument("--turns", type=int, default=0, help="tokens of conversations that ask in turn")
    parser.add_argument("--conversations", type=int, default=40, help="how many they are")
    parser.add_argument("--fitting", type=int, default=8, help="how many of them the KV cache has pages for")
    parser.add_argument("--turn-rounds", type=int, default=8, help="how often each of them has its turn")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with minim.Model(options.model, threads=options.threads, mmap=False) as model:
        if options.prefix > 0:
            bench_prefix(model, options.prefix, options.rounds)
        if options.drafts > 0:
            bench_drafts(model, options.drafts, options.rounds)
        if options.stop > 0:
            bench_stop(model, options.stop, options.rounds)
        if options.turns > 0:
            bench_turns(model, options.conversations, options.turns, options.fitting, options.turn_rounds)
        if options.state > 0:
            bench_state(model, options.state, options.rounds)


if __name__ == "__main__":
    main()
