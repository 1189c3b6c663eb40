#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare two builds of the library, of any two versions, through the C interface.

    compare_builds.py OLD NEW                                 logits, greedy texts, saved states, exported symbols
    compare_builds.py OLD NEW --speed MODEL... [--rounds 5]   load time, prompts, decoding, concurrent sequences

OLD and NEW are build folders. Structs are taken from the header in each build's source folder. Every measurement runs in a
process of its own; the builds take turns. The status is 1 if the bits differ, an exported symbol is gone, or a speed ratio is
below --least.
"""

import argparse
import array
import ctypes as c
import hashlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import describe_abi  # noqa: E402

LEVELS = ["scalar", "avx2", "avx2_vnni", "avx512", "avx512_vbmi"]
KV_FORMATS = {"F16": 1, "F32": 2}  # MINIM_KV_*
NEXT_END = 0
SCALARS = {"char": c.c_char, "int32_t": c.c_int32, "uint32_t": c.c_uint32, "int64_t": c.c_int64, "uint64_t": c.c_uint64,
           "size_t": c.c_size_t, "float": c.c_float, "double": c.c_double, "const char*": c.c_char_p}


class Failed(Exception):
    pass


# ------------------------------------------------------------------------------------------------- one library


def source_of(build):
    cache = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    return pathlib.Path(re.search(r"^CMAKE_HOME_DIRECTORY:\w+=(.*)$", cache, re.MULTILINE)[1])


class Library:
    def __init__(self, build):
        header = (source_of(build) / "include" / "minim" / "minim.h").read_text(encoding="utf-8")
        # Older headers have enums without names.
        self.abi = describe_abi.describe(re.sub(r"\benum\s*\{", "enum unnamed {", header))
        self.library = c.CDLL(str(build / "libminim.so"))

    def struct(self, name, **values):
        fields = []
        for field in self.abi["structs"][name]:
            kind = SCALARS.get(field["type"], c.c_void_p)
            fields.append((field["name"], kind * field["length"] if "length" in field else kind))
        kind = type(name, (c.Structure,), {"_fields_": fields})
        return kind(size=c.sizeof(kind), **values)

    def call(self, name, *arguments):
        """A call whose last parameter is the error."""
        error = self.struct("minim_error")
        if getattr(self.library, name)(*arguments, c.byref(error)) != 0:
            raise Failed(error.message.decode("utf-8", "replace"))

    def make(self, name, *arguments):
        """A call that sets a handle before the error."""
        handle = c.c_void_p()
        self.call(name, *arguments, c.byref(handle))
        return handle

    def release(self, name, handle):
        function = getattr(self.library, name)
        function.restype = None
        function(handle)


class Model:
    def __init__(self, library, path, n_threads):
        self.library = library
        self.runtime = library.make("minim_runtime_create",
                                    c.byref(library.struct("minim_runtime_params", n_threads=n_threads)))
        start = time.monotonic()
        self.handle = library.make("minim_model_open", self.runtime, os.fsencode(path), None, None)
        self.load_seconds = time.monotonic() - start
        info = library.struct("minim_model_info")
        library.call("minim_model_get_info", self.handle, c.byref(info))
        self.n_vocab = info.n_vocab

    def session(self, kv_format=1, max_context=1024):
        params = self.library.struct("minim_session_params", max_context=max_context, k_format=kv_format,
                                     v_format=kv_format)
        return self.library.make("minim_session_create", self.handle, c.byref(params))

    def eval(self, session, ids, wants_all=False):
        """The logits of every id, or of the last one, as bytes."""
        n_floats = self.n_vocab * (len(ids) if wants_all else 1)
        logits = (c.c_float * n_floats)()
        self.library.call("minim_session_eval", session, (c.c_int32 * len(ids))(*ids), c.c_size_t(len(ids)),
                          1 if wants_all else 0, logits, c.c_size_t(n_floats), None)
        return bytes(logits)

    def greedy(self, n_tokens):
        """Options for that many tokens, whichever they are."""
        sampling = self.library.make("minim_sampling_create")
        for name, value in (("max_tokens", n_tokens), ("ignore_end", 1)):
            if name in self.options():
                self.library.call("minim_sampling_set_i64", sampling, name.encode(), c.c_int64(value))
        return sampling

    def options(self):
        self.library.library.minim_sampling_option_count.restype = c.c_size_t
        names = set()
        for i in range(self.library.library.minim_sampling_option_count()):
            info = self.library.struct("minim_option_info")
            self.library.call("minim_sampling_option", c.c_size_t(i), c.byref(info))
            names.add(info.name.decode())
        return names


def best(logits):
    row = array.array("f", logits)
    return max(range(len(row)), key=row.__getitem__)


def rows_of(logits, n_vocab):
    width = 4 * n_vocab
    return [hashlib.sha256(logits[at : at + width]).hexdigest() for at in range(0, len(logits), width)]


# ------------------------------------------------------------------------------------- what a worker process does


def read_bits(model, job):
    """Logits of all positions, read at once and in pieces; a greedy text; a saved session."""
    ids, kv_format = job["ids"], KV_FORMATS[job["kv"]]
    whole = model.session(kv_format)
    at_once = model.eval(whole, ids, wants_all=True)
    pieces = model.session(kv_format)
    in_pieces = b"".join(model.eval(pieces, ids[at : at + 7], wants_all=True) for at in range(0, len(ids), 7))
    model.library.call("minim_session_save", whole, os.fsencode(job["state"]), None)
    text = [best(at_once[-4 * model.n_vocab :])]
    for _ in range(job["n_greedy"]):
        text.append(best(model.eval(whole, text[-1:])))
    for session in (whole, pieces):
        model.library.release("minim_session_free", session)
    return {"at once": rows_of(at_once, model.n_vocab), "in pieces": rows_of(in_pieces, model.n_vocab), "greedy": text}


def resume(model, job):
    """The logits behind a saved session."""
    session = model.library.make("minim_session_restore", model.handle, os.fsencode(job["state"]), None, None)
    return {"resumed": rows_of(model.eval(session, job["ids"], wants_all=True), model.n_vocab)}


def read_concurrently(model, n_requests, n_prompt, n_tokens):
    """Tokens a second of all requests together."""
    library = model.library
    engine = library.make("minim_engine_create", model.handle,
                          c.byref(library.struct("minim_engine_params", kv_tokens=n_requests * 512, n_requests=n_requests)))
    sampling = model.greedy(n_tokens)
    start, n_made = time.monotonic(), 0
    requests = []
    for i in range(n_requests):
        ids = (c.c_int32 * n_prompt)(*(1000 + 37 * i + k for k in range(n_prompt)))
        requests.append(library.make("minim_engine_submit", engine, sampling, ids, c.c_size_t(n_prompt), None))
    for request in requests:
        token, following = library.struct("minim_token"), c.c_int32()
        while True:
            library.call("minim_request_next", request, c.c_int64(-1), c.byref(token), c.byref(following))
            if following.value == NEXT_END:
                break
            n_made += 1
    seconds = time.monotonic() - start
    for request in requests:
        library.release("minim_request_free", request)
    library.release("minim_engine_free", engine)
    return n_made / seconds


def measure(model, job):
    figures = {"load, 1/s": 1 / model.load_seconds}
    n_prompt, n_tokens = job["n_prompt"], job["n_tokens"]
    session = model.session(max_context=n_prompt + n_tokens + 8)
    start = time.monotonic()
    model.eval(session, [1000 + 7 * k for k in range(n_prompt)])
    figures["prompt, tokens/s"] = n_prompt / (time.monotonic() - start)
    model.eval(session, [5, 6])
    start = time.monotonic()
    for k in range(n_tokens):
        model.eval(session, [2000 + 11 * k])
    figures["decoding, tokens/s"] = n_tokens / (time.monotonic() - start)
    model.library.release("minim_session_free", session)
    if job["n_sequences"] > 0:
        figures[f"{job['n_sequences']} sequences, tokens/s"] = read_concurrently(model, job["n_sequences"], 16, n_tokens)
    return figures


JOBS = {"bits": read_bits, "resume": resume, "speed": measure}


def work(build):
    job = json.load(sys.stdin)
    try:
        model = Model(Library(build), job["model"], job["threads"])
        print(json.dumps(JOBS[job["kind"]](model, job)))
    except Failed as error:
        print(json.dumps({"error": str(error)}))


def ask(build, level=None, **job):
    """The result of a job in a process of its own."""
    environment = {**os.environ, **({} if level is None else {"MINIM_CPU": level})}
    done = subprocess.run([sys.executable, __file__, "--worker", str(build)], input=json.dumps(job), env=environment,
                          stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{build}: {job['kind']} of {job['model']} ended with {done.returncode}")
    return json.loads(done.stdout)


# -------------------------------------------------------------------------------------------------- comparisons


def bundled_models():
    data = ROOT / "tests" / "data" / "models"
    folders = {path.parent for path in data.glob("*/*.safetensors")}
    files = [path for path in data.glob("*.gguf") if not re.search(r"-0000[2-9]-of-", path.name)]
    return sorted([*(ROOT / "examples" / "models").glob("*.gguf"), *files, *folders])


def known_levels(builds, path):
    """The instruction sets of this machine that both builds have."""
    return [level for level in LEVELS
            if all("error" not in ask(build, level, kind="speed", model=str(path), threads=1, n_prompt=1, n_tokens=0,
                                      n_sequences=0) for build in builds.values())]


def compare_states(builds, level, job, folder):
    """What happens to a session that one build saves and the other restores."""
    ids = job["ids"][:5]
    faults = []
    for writer in builds:
        state = str(folder / f"{writer}.state")
        results = {reader: ask(builds[reader], level, **{**job, "kind": "resume", "state": state, "ids": ids})
                   for reader in builds}
        if results["old"] == results["new"]:
            continue
        refused = [result["error"] for result in results.values() if "error" in result]
        if refused and "version" in refused[0]:
            print(f"    a state of the {writer} build is not taken by the other: {refused[0]}")
        else:
            faults.append(f"a state of the {writer} build: {refused or 'other logits behind it'}")
    return faults


def compare_bits(builds, level, path, kv, ids):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        job = {"kind": "bits", "model": str(path), "threads": 2, "kv": kv, "ids": ids, "n_greedy": 24}
        results = {which: ask(build, level, **job, state=str(folder / f"{which}.state"))
                   for which, build in builds.items()}
        if "error" in results["old"]:
            return None, [] if "error" not in results["new"] else [f"neither opens it: {results['new']['error']}"]
        if "error" in results["new"]:
            return 0, [f"the new build fails: {results['new']['error']}"]
        faults = []
        for part in ("at once", "in pieces"):
            n_other = sum(a != b for a, b in zip(results["old"][part], results["new"][part], strict=True))
            if n_other > 0:
                faults.append(f"{n_other} of {len(ids)} rows of logits differ, read {part}")
        if results["old"]["greedy"] != results["new"]["greedy"]:
            faults.append("another greedy text")
        return len(ids), faults + compare_states(builds, level, job, folder)


def exports_of(build):
    listing = subprocess.run(["nm", "-D", "--defined-only", str(build / "libminim.so")], capture_output=True, text=True,
                             check=True).stdout
    return {line.split()[-1].split("@")[0] for line in listing.splitlines() if " T " in line}


def compare_all_bits(builds, models):
    prompts = ROOT / "tests" / "data" / "golden" / "prompts"
    ids = [i for name in ("unicode", "tool_call") for i in json.loads((prompts / f"{name}.json").read_text())["ids"]][:150]
    n_faults = 0
    levels = known_levels(builds, models[0])
    print(f"instruction sets: {', '.join(levels)}; {len(ids)} positions")
    for path in models:
        for level in levels:
            for kv in KV_FORMATS:
                n_rows, faults = compare_bits(builds, level, path, kv, ids)
                said = "; ".join(faults) or ("only the new build opens it" if n_rows is None else "equal")
                print(f"{path.name}, {level}, KV {kv}: {said}", flush=True)
                n_faults += len(faults)
    exports = {which: exports_of(build) for which, build in builds.items()}
    gone, added = exports["old"] - exports["new"], exports["new"] - exports["old"]
    print(f"exports: {len(exports['old'])} before, {len(added)} added, gone: {', '.join(sorted(gone)) or 'none'}")
    return n_faults + len(gone)


def compare_speed(builds, options):
    n_slow = 0
    for path in options.speed:
        for threads in options.threads:
            rounds = {which: [] for which in builds}
            job = {"kind": "speed", "model": str(path), "threads": threads, "n_prompt": options.n_prompt,
                   "n_tokens": options.n_tokens, "n_sequences": options.n_sequences}
            for i in range(options.rounds):
                for which in sorted(builds, reverse=i % 2 == 1):
                    rounds[which].append(ask(builds[which], **job))
                    if "error" in rounds[which][-1]:
                        sys.exit(f"{which}: {rounds[which][-1]['error']}")
            for figure in rounds["old"][0]:
                old, new = (statistics.median(r[figure] for r in rounds[which]) for which in ("old", "new"))
                n_slow += new / old < options.least
                print(f"{path.name}, {threads} threads, {figure}: {old:.3f} -> {new:.3f}, ratio {new / old:.3f}", flush=True)
    return n_slow


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("--models", type=pathlib.Path, nargs="+", help="of the bits; those of this repository")
    parser.add_argument("--speed", type=pathlib.Path, nargs="+", metavar="MODEL")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--n-prompt", type=int, default=256)
    parser.add_argument("--n-tokens", type=int, default=32)
    parser.add_argument("--n-sequences", type=int, default=8)
    parser.add_argument("--least", type=float, default=0.98, help="the ratio new / old that is good enough")
    options = parser.parse_args()
    builds = {"old": options.old.resolve(), "new": options.new.resolve()}
    if options.speed:
        sys.exit(1 if compare_speed(builds, options) > 0 else 0)
    sys.exit(1 if compare_all_bits(builds, options.models or bundled_models()) > 0 else 0)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--worker":
        work(pathlib.Path(sys.argv[2]))
    else:
        main()
