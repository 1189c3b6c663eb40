# SPDX-License-Identifier: Apache-2.0
"""Random sequences of calls: whatever a session or an engine has done before, and wherever the model lies, a text is that of a fresh session on the CPU.

MINIM_SEQUENCES is the number of sequences, MINIM_SEQUENCE_SEED the seed of the first one, which a failure names.
"""

import os
import random
import sys
import tempfile
import time
import unittest

os.environ.setdefault("MINIM_PLUGIN_PATH", os.environ.get("MINIM_SIM_FOLDER", ""))

import numpy as np  # noqa: E402
from support import END, Q8_0, minim  # noqa: E402

COUNT = int(os.environ.get("MINIM_SEQUENCES", "30"))
FIRST = int(os.environ.get("MINIM_SEQUENCE_SEED", "0"))
PATIENCE = 240  # seconds for one answer, on a machine that does much else

PLACES = {
    "processor": {},
    "mapped": {"mmap": True},
    "device": {"devices": "sim:0"},
    "two devices": {"devices": "sim:0,sim:1"},
    "experts on the host": {"devices": "sim:0", "host_experts": 2},
    "no room in the cache": {"devices": "sim:0", "expert_cache": "4KiB"},
    "fixed cache": {"devices": "sim:1", "expert_cache": "1MiB", "expert_moves": "fixed"},
    "moving cache": {"devices": "sim:0", "expert_cache": "1MiB", "expert_moves": "reproducible"},
    "eager caches": {"devices": "sim:0,sim:1", "expert_cache": "2MiB", "expert_moves": "eager"},
}
QUESTIONS = ["What is 47 + 25?", "Say hello in Greek.", "Count from 4 to 9.", "Which animal is 🐝?", "Tell me a story."]
WORDS = ["one two three ", "Once upon a time, ", "\n\n", "é漢🐝 ", "<think>", "</think>", " 1 2 3 4 5 6 7 8 9 ", "The capital of France is Paris. "]
PLACE_TO_LOOK = {"type": "object", "properties": {"at": {"enum": ["sky", "sea"]}}, "required": ["at"]}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": PLACE_TO_LOOK}}]
CONSTRAINTS = {
    "regex": {"regex": r"[A-Z][a-z ]{2,12}\."},
    "choices": {"choices": ["Lima", "Lima, Peru", "Pa"]},
    "schema": {"schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}},
    "after reasoning": {"choices": ["yes", "no"], "starts_after": "</think>"},
    "tools": {"tools": TOOLS},
}


class World:
    """Models, constraints and reference answers, each made once."""

    def __init__(self):
        self.models, self.constraints, self.answers = {}, {}, {}
        self.think, self.end_think = (self.model("processor").tokenize(text, special=True)[0] for text in ("<think>", "</think>"))

    def model(self, place):
        if place not in self.models:
            self.models[place] = minim.Model(Q8_0, threads=2, **PLACES[place])
        return self.models[place]

    def constraint(self, place, name):
        if (place, name) not in self.constraints:
            self.constraints[place, name] = self.model(place).constraint(**CONSTRAINTS[name])
        return self.constraints[place, name]

    def given(self, place, options):
        """Returns options as generate() and submit() take them."""
        options = dict(options)
        if name := options.pop("constraint", None):
            options["schema"] = self.constraint(place, name)
        return options

    def answer(self, kv, context, tokens, options):
        """Returns ids, text and finish of a fresh session, without drafts."""
        options = {key: value for key, value in options.items() if key != "draft_tokens"}
        key = kv, context, tuple(tokens), repr(sorted(options.items(), key=str))
        if key not in self.answers:
            with self.model("processor").session(context=context, kv=kv) as session:
                out = list(session.generate(tokens, **self.given("processor", options)))
                self.answers[key] = [token.id for token in out], "".join(token.text for token in out), str(session.finish_reason)
        return self.answers[key]


def drawn_tokens(draw, model, most):
    kind = draw.random()
    if kind < 0.5:
        ids = model.tokenize_chat([{"role": "user", "content": draw.choice(QUESTIONS)}])
    elif kind < 0.85:
        ids = model.tokenize("".join(draw.choices(WORDS, k=draw.randint(1, 14))), draw.choice(["safe", "exact"]))
    else:
        ids = [draw.randrange(1984) for _ in range(draw.choice([1, 2, 63, 64, 65, 129]))]
    return [int(id) for id in ids][: max(1, most)]


def drawn_options(draw, world):
    options = {"max_tokens": draw.choice([1, 3, 8, 20, 40])}
    if draw.random() < 0.5:
        options["draft_tokens"] = draw.choice([1, 3, 8, 64])
    if draw.random() < 0.35:
        options.update(temperature=draw.choice([0.5, 1.5]), seed=draw.choice([draw.randrange(2**64), 2**63, 7]), top_k=draw.choice([0, 1, 20]))
    if draw.random() < 0.45:
        options["max_reasoning_tokens"] = draw.choice([1, 2, 6])
    if draw.random() < 0.2:
        options["logit_bias"] = {world.think: draw.choice([5.0, 12.0, 1000.0])}
    if draw.random() < 0.1:
        options["logit_bias"] = {world.end_think: -float("inf")}
    if draw.random() < 0.3:
        options["constraint"] = draw.choice(list(CONSTRAINTS))
    if draw.random() < 0.15:
        options["stop"] = draw.choice([["."], ["Ones", " 4"], ["</think>"], ["漢"]])
    if draw.random() < 0.15:
        options["ignore_end"] = 1
    elif draw.random() < 0.15:
        options["min_tokens"] = 6
    if draw.random() < 0.15:
        options["repetition_penalty"] = 1.3
    if draw.random() < 0.15:
        options["top_logprobs"] = 2
    return options


class Sequence:
    """One sequence on one placement. Its steps raise AssertionError."""

    def __init__(self, world, seed):
        self.world, self.draw = world, random.Random(seed)
        self.place = self.draw.choice(list(PLACES))
        self.model = world.model(self.place)

    def same(self, what, got, want, *facts):
        if got != want:
            raise AssertionError(f"{what} on {self.place}: {got!r} in place of {want!r}; {facts}")

    def check_answer(self, tokens, options, ids, text, finish):
        """Checks what must be true of an answer whatever the reference says."""
        if "constraint" in options and finish == "end":
            fits = self.world.constraint(self.place, options["constraint"]).matches(text)
            if not fits and options["constraint"] not in ("tools", "after reasoning"):
                raise AssertionError(f"{text!r} does not fit {options}")
        budget = options.get("max_reasoning_tokens")
        if not budget or options.get("constraint") in ("regex", "choices", "schema"):
            return
        n_open = None if self.world.think not in tokens else 0
        for id in tokens:
            n_open = 0 if id == self.world.think else None if id in (self.world.end_think, END) else n_open
        for id in ids:
            if id == self.world.think:
                n_open = 0
            elif id in (self.world.end_think, END):
                n_open = None
            elif n_open is not None:
                n_open += 1
                if n_open > budget + 1 and "<minimax:tool_call>" not in text:
                    raise AssertionError(f"{n_open} tokens of reasoning in {ids}, {options}")


class SessionSequence(Sequence):
    def run(self):
        self.live = []  # session, tokens, format of the KV cache, context
        for _ in range(self.draw.randint(10, 25)):
            self.step()
        for session, *_ in self.live:
            session.close()

    def step(self):
        draw = self.draw
        if not self.live or (len(self.live) < 4 and draw.random() < 0.15):
            kv, context = draw.choice(["f16", "q8_0", "f32"]), draw.choice([64, 65, 200, 400])
            self.live.append((self.model.session(context=context, kv=kv, n_ubatch=draw.choice([0, 1, 5, 64])), [], kv, context))
        entry = draw.choice(self.live)
        move = draw.choice([self.generate, self.generate, self.generate, self.evaluate, self.truncate, self.fork, self.restore, self.cancel, self.close])
        move(entry)
        for session, tokens, *_ in self.live:
            self.same("tokens", list(session.tokens), tokens, move.__name__)

    def generate(self, entry):
        session, tokens, kv, context = entry
        room = context - len(tokens)
        if room == 0:
            return
        prompt = [] if tokens and self.draw.random() < 0.3 else drawn_tokens(self.draw, self.model, room)
        options = drawn_options(self.draw, self.world)
        want = self.world.answer(kv, context, tokens + prompt, options)
        most = self.draw.choice([None, None, 1, 4])
        generation, out = session.generate(prompt, **self.world.given(self.place, options)), []
        for token in generation:
            out.append(token)
            if len(out) == most:
                break
        ids, text = [token.id for token in out], "".join(token.text for token in out)
        if most is not None and len(out) == most:
            session.truncate(len(tokens) + len(prompt) + len(ids))  # also ends the generation
            self.same("ids", ids, want[0][: len(ids)], options)
        else:
            self.same("answer", (ids, text, str(session.finish_reason)), want, options)
            self.check_answer(tokens + prompt, options, ids, text, want[2])
        tokens += prompt + ids

    def evaluate(self, entry):
        session, tokens, kv, context = entry
        if len(tokens) == context:
            return
        tokens += (more := drawn_tokens(self.draw, self.model, context - len(tokens)))
        got = session.eval(more)
        with self.world.model("processor").session(context=context, kv=kv) as fresh:
            want = fresh.eval(tokens)
        if not np.array_equal(got, want):
            raise AssertionError(f"other logits on {self.place}")

    def truncate(self, entry):
        session, tokens, *_ = entry
        session.truncate(count := self.draw.randint(0, len(tokens)))
        del tokens[count:]

    def fork(self, entry):
        session, tokens, kv, context = entry
        self.live.append((session.fork(), list(tokens), kv, context))

    def restore(self, entry):
        session, tokens, kv, context = entry
        if self.draw.random() < 0.5:
            other = self.model.restore_bytes(session.save_bytes())
        else:
            with tempfile.TemporaryDirectory() as folder:
                session.save(os.path.join(folder, "state"))
                other = self.model.restore(os.path.join(folder, "state"))
        self.live.append((other, list(tokens), kv, context))

    def cancel(self, entry):
        session, tokens, _, context = entry
        if len(tokens) + 70 > context:
            return
        with minim.Cancel() as cancel:
            cancel.trigger()
            try:
                session.eval([7] * 70, cancel=cancel)
            except minim.Error as error:
                self.same("status", error.status, "cancelled")
            else:
                raise AssertionError("a cancelled call went on")

    def close(self, entry):
        entry[0].close()
        self.live.remove(entry)


class EngineSequence(Sequence):
    def run(self):
        draw = self.draw
        self.kv, kv_tokens = draw.choice(["f16", "q8_0"]), draw.choice([128, 256, 1024, 4096])
        sizes = {"max_requests": draw.choice([1, 3, 16]), "n_batch": draw.choice([0, 17, 64])}
        engine = minim.Engine(self.model, kv_tokens=kv_tokens, kv=self.kv, prefix_cache=draw.random() < 0.7, **sizes)
        self.context = kv_tokens
        prompts = [drawn_tokens(draw, self.model, kv_tokens - 1) for _ in range(3)]
        pending = []
        for _ in range(draw.randint(4, 16)):
            pending += self.submit(engine, draw.choice(prompts))
            if draw.random() < 0.4:
                time.sleep(draw.random() * 0.01)
            if len(pending) > 2 and draw.random() < 0.25:
                self.finish(*pending.pop(draw.randrange(len(pending))))
        draw.shuffle(pending)
        for entry in pending:
            self.finish(*entry)
        self.same("drain", engine.drain(PATIENCE), True)
        self.same("requests left", (engine.state.n_running, engine.state.n_waiting), (0, 0))
        engine.close()

    def submit(self, engine, prompt):
        options, draw = drawn_options(self.draw, self.world), self.draw
        fate = draw.choice(["wait", "wait", "wait", "wait", "several", "cancel", "timeout", "forget"])
        more = {"priority": draw.choice([0, 0, 0, 1, 5, -1])}
        if fate == "timeout":
            more["timeout"] = draw.choice([0.001, 0.02])
        if fate != "several":
            return [(engine.submit(prompt, **more, **self.world.given(self.place, options)), prompt, options, fate)]
        requests = engine.submit(prompt, n=draw.randint(1, 3), **more, **self.world.given(self.place, options))
        seeds = [{"seed": (options["seed"] + i) % 2**64} if "seed" in options else {} for i in range(len(requests))]
        return [(request, prompt, {**options, **seed}, fate) for request, seed in zip(requests, seeds)]

    def finish(self, request, prompt, options, fate):
        if fate == "forget":
            return request.close()
        if fate == "cancel":
            request.cancel()
            return None
        answer = request.result(PATIENCE)
        finish = str(request.finish_reason)
        want = self.world.answer(self.kv, self.context, prompt, options)
        if finish == "timeout":
            return self.same("ids before a timeout", answer.ids, want[0][: len(answer.ids)], options)
        self.same("answer", (answer.ids, answer.text, finish), want, options, request.state)
        self.check_answer(prompt, options, answer.ids, answer.text, finish)
        return None


class Sequences(unittest.TestCase):
    def test_texts_do_not_depend_on_what_was_done_before(self):
        world, start, n_done = World(), time.monotonic(), 0
        for seed in range(FIRST, FIRST + COUNT):
            sequence = (SessionSequence if seed % 2 else EngineSequence)(world, seed)
            with self.subTest(seed=seed, place=sequence.place):
                try:
                    sequence.run()
                except TimeoutError:
                    print(f"seed {seed} on {sequence.place}: no answer within {PATIENCE} s", file=sys.stderr, flush=True)
                    os._exit(1)  # an engine that hangs cannot be closed
                n_done += 1
        print(f"{n_done} of {COUNT} sequences in {time.monotonic() - start:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    unittest.main()
