#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lets each allocation, read, write, map, open and start of a thread fail, one a run, in the programs: answers, packing, quantizing, the start
of the server, and its requests; and each allocation, transfer and operation of a simulated device. Each must end in success or in an
error that is said, without a crash, and a server must go on and use no more than before.

    failures.py [SECONDS] [SEED]

The calls of a run are counted first, with their callers. First one call of each place fails: calls that have the same twelve callers are
made at one place. If there is time, the others follow by chance; the last line says how many did.
"""

import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import threading
import time

import soak

server_support = soak.support("server")
QUESTION = ("-p", "What is 2 + 2?", "-n", "4", "--temp", "0", "-t", "2")
HANGS = 60  # seconds that no run takes


class Program:
    """A program that runs to its end."""

    def __init__(self, name, *arguments, output=None):
        self.name, self.output = name, output
        self.command = [str(soak.CLI), *map(str, arguments)]
        self.expected = None

    def clear(self):
        if self.output is None:
            return
        for path in self.output.parent.glob(self.output.name + "*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def run(self, environment):
        """Returns a fault, or None."""
        self.clear()
        try:
            done = subprocess.run(self.command, capture_output=True, env={**os.environ, **environment}, timeout=HANGS)
        except subprocess.TimeoutExpired:
            return f"does not end within {HANGS} seconds"
        errors = done.stderr.decode(errors="replace")
        if done.returncode not in (0, 1, 2):
            return f"ends with {done.returncode}: {errors[-400:]}"
        if done.returncode != 0:
            return None if re.search(r"(?m)^minim: error: \S", errors) else f"ends with {done.returncode} and says: '{errors[-400:]}'"
        result = self.output.read_bytes() if self.output else done.stdout
        if self.expected is None:
            self.expected = result
        return None if result == self.expected else "succeeds with another result than without a failure"


class ServerStart:
    name, expected = "server start", None

    def run(self, environment):
        command = [str(soak.SERVER), "-m", str(soak.MODEL), "--port", "0", "-c", "1024", "--parallel", "2", "-t", "2"]
        with subprocess.Popen(command, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True, errors="replace") as process:
            timer = threading.Timer(HANGS, process.kill)
            timer.start()
            said = ""
            for line in process.stderr:
                said += line
                if " at http://" in line:  # the model is loaded
                    process.terminate()
            process.wait()
            timer.cancel()
        if process.returncode == -9:
            return f"does not end within {HANGS} seconds: {said[-400:]}"
        if process.returncode not in (0, 1, 2):
            return f"ends with {process.returncode}: {said[-400:]}"
        if process.returncode in (1, 2) and not re.search(r"error: \S", said):
            return f"ends with {process.returncode} and says: '{said[-400:]}'"
        return None


class Walk:
    """The calls of one kind in one work, in the order in which they fail: one of each place, then the others."""

    def __init__(self, name, run, dice, stacks=None):
        self.name, self.run, self.dice, self.stacks = name, run, dice, stacks
        self.calls, self.n_done, self.total, self.n_places = None, 0, 0, 0

    def start(self):
        fault, self.total, _ = self.run(0)
        if fault is not None:
            raise soak_fault(self.name, 0, fault)
        self.calls = list(range(1, self.total + 1))
        if self.stacks is None:
            self.n_places = self.total
            return
        stacks = self.stacks(self.total)
        self.dice.shuffle(self.calls)
        firsts = {stacks[n - 1]: n for n in self.calls if n <= len(stacks)}
        self.n_places = len(firsts)
        chosen = set(firsts.values())
        self.calls.sort(key=lambda n: n not in chosen)

    def step(self):
        """Lets one call fail. Returns whether there are more."""
        if not self.calls:
            return False
        n = self.calls.pop(0)
        fault, _, _ = self.run(n)
        if fault is not None:
            raise soak_fault(self.name, n, fault)
        self.n_done += 1
        return True


def soak_fault(name, n, fault):
    return AssertionError(f"{name}, failure {n}: {fault}")


def program_walk(program, kind, faults, dice):
    def run(n):
        faults.arm(kind, n)
        fault = program.run(faults.environment)
        return fault, *faults.disarm()

    return Walk(f"{program.name}: {kind}", run, dice, faults.stacks)


def device_walk(program, setting, dice):
    # The device does not count for us: the run without a failure is the first that no longer fails.
    def run(n):
        return program.run({"MINIM_PLUGIN_PATH": str(soak.BUILD / "tests" / "sim"), "MINIM_SIM": f"devices=1 memory=256 {setting}={n}"}), 400, 0

    return Walk(f"{program.name}: {setting}", run, dice)


class Requests:
    """Failures in a server that answers: it goes on, and the next answer is right. A server that ended is followed by another one."""

    BODY = {"messages": server_support.PARIS, "temperature": 0, "max_tokens": 6, "tools": server_support.TOOLS}

    def __init__(self, faults):
        self.faults = faults
        self.start()

    def start(self):
        self.server = server_support.Server("-t", "2", environment=self.faults.environment)
        self.expected = self.ask()
        self.before = soak.Resources(self.server.process.pid)

    def ask(self):
        return self.server.ok(server_support.CHAT, self.BODY)["choices"]

    def fault_of_request(self):
        try:
            status, _, answer = self.server.post(server_support.CHAT, self.BODY, timeout=HANGS)
        except (OSError, server_support.http.client.HTTPException):
            return None  # a connection may end
        if status == 200:
            return None if answer["choices"] == self.expected else f"another answer: {answer}"
        return None if status in (500, 503) else f"status {status}: {answer}"

    def run(self, kind, n):
        self.faults.arm(kind, n)
        fault = self.fault_of_request()
        counts = self.faults.disarm()
        time.sleep(0.01)
        if self.server.process.poll() is not None:
            code = self.server.process.returncode
            fault = f"the server ended with {code}: {self.server.text()[-300:]} {self.server.process.stderr.read()[-300:]}"
            self.close()
            self.start()
        elif fault is None:
            self.server.wait_until_free(HANGS)
            again = self.ask()
            fault = None if again == self.expected else f"the answer behind it is another one: {again}"
        return fault, *counts

    def walk(self, kind, dice):
        return Walk(f"server requests: {kind}", lambda n: self.run(kind, n), dice, self.faults.stacks)

    def close(self):
        self.server.kill()
        self.server.process.stderr.close()
        self.server.log.close()


def take_turns(walks, clock, part):
    """Steps of all walks, until this part of the time is over."""
    faults = []
    for walk in walks:
        try:
            walk.start()
        except AssertionError as error:
            faults.append(str(error))
            walk.calls = []
    waiting = [walk for walk in walks if walk.calls]
    while waiting and clock.left(part) > 0:
        for walk in list(waiting):
            try:
                if not walk.step():
                    waiting.remove(walk)
            except AssertionError as error:
                faults.append(str(error))
                print(error, flush=True)
            if clock.left(part) <= 0:
                break
    for walk in walks:
        print(f"{walk.name}: {walk.n_done} of {walk.total} calls at {walk.n_places} places failed", flush=True)
    return faults


def main():
    clock = soak.Clock(60)
    dice = random.Random(clock.seed)
    with soak.temporary_folder() as name:
        folder = pathlib.Path(name)
        faults = soak.Faults(folder)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        source = soak.MADE_MODELS / "minim-tiny"
        programs = [Program("answer", "-m", soak.MODEL, *QUESTION), Program("answer of a folder", "-m", source, *QUESTION),
                    Program("answer, mapped", "-m", soak.MODEL, "--mmap", *QUESTION),
                    Program("quantize", "quantize", source, folder / "q.gguf", "Q8_0", "--pure", "-t", "2", output=folder / "q.gguf"),
                    Program("pack", "-m", soak.MODEL, "--packed-file", folder / "m.packed", *QUESTION)]
        programs[-1].clear = lambda: (folder / "m.packed").unlink(missing_ok=True)
        on_device = Program("answer of a device", "-m", soak.MODEL, "--device", "sim:0", *QUESTION)
        kinds = soak.KINDS[1:]
        walks = [program_walk(program, kind, faults, dice) for program in [*programs, ServerStart()] for kind in kinds]
        walks += [device_walk(on_device, f"failing_{what}", dice) for what in ("allocation", "transfer", "operation")]
        found = take_turns(walks, clock, 0.7)
        requests = Requests(faults)
        request_walks = [requests.walk(kind, dice) for kind in ("allocation", "thread", "map")]
        found += take_turns(request_walks, clock, 1.0)
        soak.require_no_more(requests.before, 32, requests.server.process.pid)
        if requests.server.stop() != 0:
            found.append(f"the server ends with {requests.server.process.returncode}")
        requests.close()
        walks += request_walks
    n_done = sum(walk.n_done for walk in walks)
    n_places, n_tried = sum(walk.n_places for walk in walks), sum(min(walk.n_places, walk.n_done) for walk in walks)
    if found:
        print("\n".join(found))
        sys.exit(1)
    print(f"{n_done} failures of {len(walks)} kinds, at {n_tried} of {n_places} places, each an error or survived")


if __name__ == "__main__":
    main()
