#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills processes with SIGKILL at random times while they write: packed weights, states of sessions, prefix caches, the cache of measured
speeds, quantized files and folders; kills servers, and one of two ranks. Afterwards a file is there whole or not at all, the same
command succeeds with the right result, and no process of a group of ranks stays.

    kills.py [SECONDS] [SEED]
"""

import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import soak

server_support = soak.support("server")
QUESTION = ("-p", "What is 2 + 2?", "-n", "8", "--temp", "0", "-t", "2")
SOURCE = soak.MADE_MODELS / "minim-tiny"

SAVER = """
import sys
sys.path.insert(0, sys.argv[1])
import minim
with minim.Model(sys.argv[2], threads=1) as model, minim.Engine(model, kv_tokens=2048) as engine, model.session(context=1024) as session:
    ids = [5 + i % 1900 for i in range(1000)]
    session.eval(ids[:900])
    engine.submit(ids, max_tokens=1).result()
    print("ready", flush=True)
    while True:
        session.save(sys.argv[3] + ".state")
        engine.save_prefixes(sys.argv[3] + ".prefixes")
        engine.save_prefix(ids, sys.argv[3] + ".prefix")
"""


def ended(process):
    process.kill()
    process.wait()


def run(*command, **environment):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, env={**os.environ, **environment})
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ends with {done.returncode} after a kill: {done.stderr[-600:]}")
    return done.stdout


class Kills:
    def __init__(self, dice, folder):
        self.dice, self.folder = dice, folder
        self.answer = run(soak.CLI, "-m", soak.MODEL, *QUESTION)
        self.seconds = {}  # what a whole run takes, of each command
        self.wanted = {}
        self.n_left = 0  # kills that left an unfinished file

    def kill(self, name, command, **environment):
        """Starts the command and kills it at some time of its run."""
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **environment})
        time.sleep(self.dice.random() * self.seconds[name])
        ended(process)

    def time_of(self, name, work):
        if name not in self.seconds:
            start = time.monotonic()
            result = work()
            self.seconds[name] = time.monotonic() - start
            self.wanted[name] = result

    def packed(self):
        path = self.folder / "m.packed"
        command = (soak.CLI, "-m", soak.MODEL, "--packed-file", path, *QUESTION)
        self.time_of("packed", lambda: (run(*command), path.read_bytes())[1])
        path.unlink(missing_ok=True)
        self.kill("packed", command)
        if path.exists() and path.read_bytes() != self.wanted["packed"]:
            sys.exit("a packed file has its name before it is whole")
        if run(*command) != self.answer or path.read_bytes() != self.wanted["packed"]:
            sys.exit("after a kill the packed file or the answer is another one")
        self.sweep(path)

    def sweep(self, kept):
        """Counts and removes unfinished files; as many as kills may be left."""
        for path in self.folder.glob("*"):
            if path.name.startswith("." + kept.name) or (path.name.startswith(kept.name) and path != kept):
                self.n_left += 1
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def quantized(self):
        self.convert("q.gguf", "Q8_0", "--pure")

    def converted_folder(self):
        self.convert("q", "int4-g32", "--split-max-size", "1M")

    def convert(self, name, kind, *options):
        path = self.folder / name
        command = (soak.CLI, "quantize", SOURCE, path, kind, *options)

        def content():
            return [(file.name, file.read_bytes()) for file in sorted(path.iterdir())] if path.is_dir() else path.read_bytes()

        self.time_of(name, lambda: (run(*command), content())[1])
        if path.exists():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.kill(name, command)
        if not path.exists():
            run(*command)
        if content() != self.wanted[name]:
            sys.exit(f"after a kill {name} is another one")
        self.sweep(path)

    def states(self):
        import minim
        base = self.folder / "saved"
        with subprocess.Popen([sys.executable, "-c", SAVER, soak.ROOT / "bindings/python", soak.MODEL, base], stdout=subprocess.PIPE, text=True) as process:
            process.stdout.readline()
            end = time.monotonic() + 60
            while not pathlib.Path(f"{base}.prefix").exists() and time.monotonic() < end:
                time.sleep(0.01)
            time.sleep(self.dice.random() * 0.2)
            ended(process)
        with minim.Model(soak.MODEL, threads=1) as model, minim.Engine(model, kv_tokens=2048) as engine:
            with model.restore(f"{base}.state") as session:
                if len(session) != 900:
                    sys.exit(f"a state has {len(session)} tokens after a kill")
            if engine.load_prefixes(f"{base}.prefixes") == 0 or len(engine.load_prefix(f"{base}.prefix")) < 900:
                sys.exit("a prefix cache lost tokens after a kill")
        for path in self.folder.glob("saved*"):
            path.unlink()

    def measured(self):
        """The cache of measured speeds: whatever a kill leaves, the plan is made."""
        cache = self.folder / "cache"
        command = (soak.CLI, "plan", "-m", soak.MODEL, "-c", "1024")
        self.time_of("measured", lambda: run(*command, XDG_CACHE_HOME=str(cache)))
        shutil.rmtree(cache, ignore_errors=True)
        self.kill("measured", command, XDG_CACHE_HOME=str(cache))
        run(*command, XDG_CACHE_HOME=str(cache))

    def server(self):
        """A server that saves slots and prefixes; the next one starts with what is there and answers alike."""
        saved, slots = self.folder / "server.prefixes", self.folder / "slots"
        slots.mkdir(exist_ok=True)
        arguments = ("-t", "2", "--save-prefixes", saved, "--slot-save-path", slots)
        body = {"messages": server_support.COUNT, "temperature": 0, "max_tokens": 8}
        answers = []
        for how in ("stop", "kill"):
            server = server_support.Server(*arguments)
            try:
                answers.append(server.ok(server_support.CHAT, body)["choices"])
                status, _, answer = server.post("/slots/0?action=save", {"filename": "slot"})
                if status not in (200, 400, 404):
                    sys.exit(f"saving a slot: status {status}: {answer}")
                if how == "kill":
                    server.process.send_signal(signal.SIGTERM)  # it saves its prefixes, and dies somewhere in it
                    time.sleep(self.dice.random() * 0.1)
                    server.kill()
                elif server.stop() != 0:
                    sys.exit(f"the server ends with {server.process.returncode}: {server.text()[-500:]}")
            finally:
                server.kill()
                server.process.stderr.close()
                server.log.close()
        with server_support.Server(*arguments) as server:
            answers.append(server.ok(server_support.CHAT, body)["choices"])
            if "error" in server.text():
                sys.exit(f"a server after a kill says: {server.text()[-500:]}")
        if answers.count(answers[0]) != len(answers):
            sys.exit(f"a server after a kill answers otherwise: {answers}")

    def rank(self):
        """One of two processes of mpirun; without mpirun nothing."""
        plugin = soak.BUILD / "minim-0"
        if shutil.which("mpirun") is None or not any(plugin.glob("libminim-mpi.so")):
            return
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "MINIM_PLUGIN_PATH": str(plugin)}
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2", str(soak.CLI), "-m", str(soak.MODEL), "-tp", "2", "-p", "Hello", "-n", "3000", "--ignore-eos", "-t", "1"]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        ranks, end = [], time.monotonic() + 60
        while len(ranks) < 2 and time.monotonic() < end and process.poll() is None:
            ranks = children_of(process.pid)
            time.sleep(0.02)
        time.sleep(self.dice.random())
        if len(ranks) == 2:
            os.kill(self.dice.choice(ranks), signal.SIGKILL)
        try:
            _, errors = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            ended(process)
            sys.exit("the other rank still runs a minute after a kill")
        if len(ranks) == 2 and process.returncode == 0:
            sys.exit(f"a group that lost a rank ends with 0: {errors[-300:]}")
        end = time.monotonic() + 20
        while (left := [pid for pid in ranks if runs(pid)]) and time.monotonic() < end:
            time.sleep(0.05)
        if left:
            sys.exit(f"processes {left} of a group that lost a rank are left")


def runs(pid):
    """Returns whether there is such a process that has not ended; one that nobody has asked for its end counts as ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children_of(pid):
    try:
        return [int(child) for task in pathlib.Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
                if pathlib.Path(f"/proc/{child}/comm").read_text().strip() == "minim"]
    except OSError:
        return []


def main():
    clock = soak.Clock(40)
    dice = random.Random(clock.seed)
    counts = {}
    with soak.temporary_folder() as name:
        kills = Kills(dice, pathlib.Path(name))
        works = (kills.packed, kills.quantized, kills.converted_folder, kills.states, kills.measured, kills.server, kills.rank)
        while clock.left() > 0:
            for work in works:
                work()
                counts[work.__name__] = counts.get(work.__name__, 0) + 1
                if clock.left() <= 0:
                    break
    print(f"{sum(counts.values())} kills: {', '.join(f'{what} {n}' for what, n in counts.items())}; {kills.n_left} left an unfinished file")


if __name__ == "__main__":
    main()
