# SPDX-License-Identifier: Apache-2.0
"""The program of the tests: every process runs it with the same job, an object in JSON whose member `do` names a function below. The
leader writes lines of JSON to the file `report`; what it computes on several ranks it compares with one rank, which it has for itself."""

import json
import os
import pathlib
import random
import signal
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bindings" / "python"))
import minim  # noqa: E402
import numpy as np  # noqa: E402

JOB = json.loads(sys.argv[1])
N_TOKENS = 2038  # of the vocabulary that have a text


def report(**values):
    with open(JOB["report"], "a", encoding="utf-8") as file:
        file.write(json.dumps(values) + "\n")


def on_ranks(work, path=None, **options):
    """Calls work(model) in the leader, while the others follow it."""
    with minim.Model(path or JOB["model"], threads=1, **{**JOB.get("options", {}), **options}) as model:
        if model.rank:
            model.follow()
            return None
        return work(model)


def on_one_rank(work, path=None):
    with minim.Model(path or JOB["model"], threads=1, **JOB.get("one", {})) as model:
        return work(model)


def is_leader():
    return os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0")) == "0"


def prompt_of(length):
    return [5 + 31 * i % (N_TOKENS - 10) for i in range(length)]


def rows_of(model, ids, chunk, kv="f16"):
    """Returns the logits of all positions, evaluated in chunks."""
    session = model.session(context=512, kv=kv)
    return np.concatenate([session.eval(ids[at : at + chunk], all_logits=True) for at in range(0, len(ids), chunk)])


def difference(got, want):
    """Returns the number of rows whose bits differ, the largest difference, and the mean KL divergence."""

    def log_softmax(rows):
        rows = rows.astype(np.float64) - rows.max(axis=1, keepdims=True)
        return rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))

    p, q = log_softmax(want), log_softmax(got)
    n_other = int((got.view(np.uint32) != want.view(np.uint32)).any(axis=1).sum())
    return {
        "rows": n_other,
        "largest": float(np.abs(got - want).max()),
        "divergence": float((np.exp(p) * (p - q)).sum(axis=1).mean()),
    }


def logits():
    """Compares logits in chunks of each size, of each model and each kind of ranks."""
    ids = prompt_of(70)
    for path in JOB["models"]:
        for kv in JOB["kv"]:
            want = on_one_rank(lambda model: rows_of(model, ids, 70, kv), path) if is_leader() else None
            for name, options in JOB["ranks"].items():

                def compare(model):
                    rows = [difference(rows_of(model, ids, chunk, kv), want) for chunk in JOB["chunks"]]
                    report(**{f"{pathlib.Path(path).name} {kv} {name}": rows})

                on_ranks(compare, path, **options)


def answers_of(model):
    """Returns the ids of 16 requests at once, every fourth of them sampled."""
    with minim.Engine(model, kv_tokens=16384, max_requests=16, context=1024) as engine:
        requests = []
        for i in range(16):
            ids = model.tokenize_chat([{"role": "user", "content": JOB["questions"][i % len(JOB["questions"])]}])
            sampling = {"temperature": 0.9, "seed": 7 + i} if i % 4 == 3 else {"temperature": 0.0}
            requests.append(engine.submit(ids, max_tokens=20, **sampling))
        return [[int(id) for id in request.result(timeout=60).ids] for request in requests]


def engine():
    want = on_one_rank(answers_of) if is_leader() else None
    on_ranks(lambda model: report(answers=answers_of(model), one_rank=want, **states_of(model)))


def states_of(model):
    """Answers four prompts twice, with pages for two of them: the others are in the leader's host memory meanwhile."""
    first, again, cached = [], [], []
    with minim.Engine(model, kv_tokens=640, max_requests=1, host_cache=-1) as engine:
        for answers in (first, again):
            for i in range(4):
                request = engine.submit(prompt_of(300 + i)[i:], max_tokens=4, ignore_end=1, logprobs=1)
                answers.append([(token.id, token.logprob) for token in request.tokens()])
                cached.append(request.cached_tokens)
    return {"first": first, "again": again, "cached": cached}


def cancelled():
    """Cancels long prompts at random times, and many short requests; then answers."""
    want = on_one_rank(answers_of) if is_leader() else None

    def work(model):
        chance, n_cancelled, n_read = random.Random(3), 0, 0
        with minim.Engine(model, kv_tokens=16384, max_requests=4, context=4096) as engine:
            for _ in range(JOB["rounds"]):
                long = engine.submit(JOB["long"], max_tokens=100, ignore_end=1)
                short = [engine.submit(prompt_of(5 + i), max_tokens=chance.randrange(1, 60), ignore_end=1) for i in range(JOB["short"])]
                chance.shuffle(short)
                time.sleep(chance.uniform(0.0, 0.1))
                for request in [long, *short[: JOB["short"] * 3 // 4]]:
                    request.cancel()
                    time.sleep(chance.uniform(0.0, 0.002))
                n_read += engine.state.n_evaluated
                for request in [long, *short]:
                    n_cancelled += request.result(timeout=60).finish_reason == "stopped"
            n_steps = engine.state.n_steps
        report(cancelled=n_cancelled, read=n_read, steps=n_steps, answers=answers_of(model), one_rank=want)

    on_ranks(work)


def cancelled_session():
    """Cancels the evaluation of a long prompt by a session, and evaluates on."""
    ids = prompt_of(24)
    want = on_one_rank(lambda model: rows_of(model, ids, 24)) if is_leader() else None

    def work(model):
        results = []
        for after in JOB["after"]:
            session, cancel = model.session(context=4096), minim.Cancel()
            timer = threading.Timer(after, cancel.trigger)
            timer.start()
            try:
                session.eval(JOB["long"], cancel=cancel)
                how = "read"
            except minim.Error as error:
                how = str(error.status)
            timer.join()
            results.append([how, difference(rows_of(model, ids, 24), want)["rows"]])
        report(results=results)

    on_ranks(work)


def save():
    """Saves the state of a session; the leader says how a session of one rank goes on."""
    ids = prompt_of(40)

    def work(model):
        session = model.session(context=256, kv=JOB["kv"])
        session.eval(ids)
        session.save(JOB["state"])

    on_ranks(work)


def continued(model, session):
    rows, token = [], 17
    for _ in range(12):
        rows.append(session.eval([token], all_logits=True)[0])
        token = int(rows[-1][:N_TOKENS].argmax())
    return np.array(rows)


def go_on():
    """Goes on from a saved state, and compares with one rank that has never been saved."""
    ids = prompt_of(40)

    def whole(model):
        session = model.session(context=256, kv=JOB["kv"])
        session.eval(ids)
        return continued(model, session)

    want = on_one_rank(whole) if is_leader() else None
    on_ranks(lambda model: report(difference=difference(continued(model, model.restore(JOB["state"])), want)))


def result_of(request):
    try:
        request.result(timeout=100)
        return {"status": "ok", "text": "", "at": time.time()}
    except minim.Error as error:
        return {"status": str(error.status), "text": str(error), "at": time.time()}
    except TimeoutError as error:
        return {"status": "timeout", "text": str(error), "at": time.time()}


def busy():
    """Runs 16 requests, 4 at once, until something ends them, and reports how each has ended."""

    def work(model):
        engine = minim.Engine(model, kv_tokens=16384, max_requests=4, context=4096)
        prompt = JOB.get("prompt") or prompt_of(9)
        requests = [engine.submit(prompt, max_tokens=3900 if len(prompt) < 100 else 500, ignore_end=1) for _ in range(16)]
        if "prompt" not in JOB:
            tokens = requests[0].tokens()
            for _ in range(3):
                next(tokens)
        report(started=True)
        ends = [None] * len(requests)

        def wait(i):
            ends[i] = result_of(requests[i])

        threads = [threading.Thread(target=wait, args=(i,)) for i in range(len(requests))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        later = [result_of_call(lambda: engine.submit(prompt_of(9), max_tokens=4).result(timeout=100))]
        later.append(result_of_call(lambda: model.session(context=256).eval(prompt_of(3))))
        later.append(result_of_call(model.check))
        report(ends=ends, later=later)
        os._exit(5)  # as a program that does not wait for what it has

    on_ranks(work)


def result_of_call(call):
    began = time.monotonic()
    try:
        call()
        status, text = "ok", ""
    except minim.Error as error:
        status, text = str(error.status), str(error)
    return {"status": status, "text": text, "seconds": time.monotonic() - began, "at": time.time()}


def idle():
    """Computes once, and again when the file `go` is there."""

    def work(model):
        session = model.session(context=256)
        session.eval(prompt_of(9))
        report(started=True)
        end = time.monotonic() + 60
        while not pathlib.Path(JOB["go"]).exists() and time.monotonic() < end:
            time.sleep(0.005)
        end_of = result_of_call(lambda: session.eval([17]))
        report(ends=[end_of], later=[result_of_call(lambda: session.eval([17])), result_of_call(model.check)])
        sys.exit(0 if end_of["status"] == "ok" else 5)

    on_ranks(work)


def opening():
    """Ends a process while the model is being opened: `how`, by `rank`, in the progress callback."""
    own = int(os.environ["OMPI_COMM_WORLD_RANK"])
    seen = []

    def progress(done, total):
        seen.append(done)
        if own == JOB["rank"] and len(seen) == 2:
            report(at=time.time())
            if JOB["how"] == "raise":
                raise ValueError("no more of this")
            os.kill(os.getpid(), getattr(signal, JOB["how"]))

    on_ranks(lambda model: report(opened=True), progress=progress)


def follower():
    """Calls everything that computes in process 1, then follows, and follows again."""
    with minim.Model(JOB["model"], threads=1, **JOB["options"]) as model:
        calls = {"check": model.check}
        if model.rank == 0:
            calls["follow"] = model.follow
        else:
            calls["session"] = lambda: model.session(context=256)
            calls["engine"] = lambda: minim.Engine(model, kv_tokens=1024)
            calls["restore"] = lambda: model.restore(JOB["state"])
            calls["tokenize"] = lambda: model.tokenize("Hello")
            calls["memory"] = model.memory
        report(**{f"{name} of {model.rank}": result_of_call(call) for name, call in calls.items()})
        if model.rank:
            thread = threading.Thread(target=lambda: report(followed=result_of_call(model.follow)))
            thread.start()
            time.sleep(0.2)
            report(**{"second follow": result_of_call(model.follow)})
            thread.join()
            report(**{"third follow": result_of_call(model.follow)})
        else:
            time.sleep(0.5)
            model.session(context=256).eval([17])


def never_follows():
    """Process 1 closes the model without following."""
    with minim.Model(JOB["model"], threads=1, **JOB["options"]) as model:
        if model.rank:
            return
        report(ended=result_of_call(lambda: [model.session(context=256).eval(prompt_of(9)) for _ in range(1000)]))


def offline():
    """LLM, as vLLM's users call it: every process runs the same lines, and only the first one goes on."""
    llm = minim.LLM(JOB["model"], max_model_len=256, threads=1, **JOB["llm"])
    [output] = llm.generate("Once upon a time", minim.SamplingParams(temperature=0.0, max_tokens=12))
    report(ids=[int(id) for id in output.outputs[0].token_ids], ranks=llm.model.info.n_ranks)
    llm.close()


globals()[JOB["do"]]()
