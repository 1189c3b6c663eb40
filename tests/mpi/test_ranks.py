# SPDX-License-Identifier: Apache-2.0
"""Ranks in several processes under mpirun: bits, opening, losses, rest. Without mpirun it exits with 77, which CTest reports as skipped."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest

if shutil.which("mpirun") is None:
    print("skipped: mpirun is missing (openmpi-bin)")
    sys.exit(77)

PROGRAM = os.environ["MINIM_RANKS_PROGRAM"]
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
SECONDS = 120  # ranks wait for each other with all their threads: two took more than 60 seconds beside compilers
# A process that has failed stays for a while, so that every other one says what it has seen: mpirun ends all when the first has ended.
ALL_SPEAK = {"MINIM_TEST_LAST_MS": "800"}


def state_of(pid):
    """Returns the state of a process, "S" for example; "" if there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


class Run:
    """A program under mpirun, whose lines are collected while it runs."""

    def __init__(self, n, *arguments, mpirun=(), **environment):
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", *mpirun, "-n", str(n), PROGRAM, *map(str, arguments)]
        self.process = subprocess.Popen(command, env={**ENVIRONMENT, **environment}, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.lines = {"stdout": [], "stderr": []}
        self.threads = [threading.Thread(target=self.read, args=(name,)) for name in self.lines]
        for thread in self.threads:
            thread.start()

    def read(self, name):
        for line in getattr(self.process, name):
            self.lines[name].append(line)

    @property
    def output(self):
        return "".join(self.lines["stdout"])

    @property
    def errors(self):
        return "".join(self.lines["stderr"])

    def wait_for(self, text):
        end = time.monotonic() + SECONDS
        while text not in self.output:
            if time.monotonic() > end or (self.process.poll() is not None and not self.threads[0].is_alive()):
                raise AssertionError(f"no {text!r} in:\n{self.output}\n{self.errors}")
            time.sleep(0.01)

    def pids(self):
        """Returns the pid of each process."""
        return {int(p): int(pid) for p, pid in re.findall(r"process (\d+) has pid (\d+)", self.output)}

    def end(self, seconds=SECONDS):
        """Returns the exit code of mpirun, and kills what is left."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            for pid in self.pids().values():
                if state_of(pid):
                    os.kill(pid, signal.SIGKILL)
            code = None
        for thread in self.threads:
            thread.join(10)
        self.process.stdout.close()
        self.process.stderr.close()
        return code

    def messages(self):
        """Returns, for each process that has failed, the time and the message."""
        found = re.findall(r"process (\d+) at ([\d.]+): (status \d+: .*)", self.errors)
        return {int(p): (float(when), text) for p, when, text in found}


class Case(unittest.TestCase):
    def run_right(self, n, *arguments, **options):
        run = Run(n, *arguments, **options)
        code = run.end()
        self.assertEqual(code, 0, run.output + run.errors)
        return run

    def nothing_is_left(self, run):
        end = time.monotonic() + 10
        while any(state_of(pid) not in ("", "Z") for pid in run.pids().values()):
            self.assertLess(time.monotonic(), end, f"{run.pids()} are left")
            time.sleep(0.05)


class Bits(Case):
    def test_processes(self):
        for n in (2, 3, 4):
            with self.subTest(n=n):
                run = self.run_right(n, "exchange")
                self.assertIn(f"the bits of {n} ranks are right", run.output)

    def test_devices(self):
        run = self.run_right(2, "exchange", MINIM_TEST_DEVICES="2")
        self.assertIn("the bits of 4 ranks are right", run.output)

    def test_other_channels(self):
        """Sockets, and shared memory without reading another process's memory, as in a container."""
        for mpirun in (["--mca", "btl", "self,tcp"], ["--mca", "btl_vader_single_copy_mechanism", "none"]):
            with self.subTest(mpirun=mpirun):
                run = self.run_right(2, "exchange", mpirun=mpirun)
                self.assertIn("the bits of 2 ranks are right", run.output)

    def test_two_models(self):
        run = self.run_right(2, "twice")
        self.assertEqual(run.output.count("ready"), 2)

    def test_times(self):
        run = self.run_right(2, "times")
        self.assertRegex(run.output, r"12288 bytes: [\d.]+ us")
        self.assertRegex(self.run_right(2, "message").output, r"message of a step of 16 rows, mean: [\d.]+ us")


class Opening(Case):
    def test_equal(self):
        self.assertIn("all are equal", self.run_right(3, "hello").output)

    def test_another_model(self):
        for differing in (0, 1, 2):
            with self.subTest(differing=differing):
                run = Run(3, "hello", differing, **ALL_SPEAK)
                self.assertNotIn(run.end(), (0, None))
                messages = run.messages()
                self.assertEqual(set(messages), {0, 1, 2}, run.errors)
                for p, (_, text) in messages.items():
                    named = differing if p != differing else (1 if differing == 0 else 0)
                    values = "bbbb, here aaaa" if p != differing else "aaaa, here bbbb"
                    self.assertRegex(text, rf"status 1: rank {named} \(host \S+, process \d+\) has opened another model: "
                                           rf"fingerprint {values}")
                self.nothing_is_left(run)

    def test_a_process_that_ends(self):
        for leaving in (0, 1):
            with self.subTest(leaving=leaving):
                run = Run(2, "leaves", leaving)
                self.assertEqual(run.end(20), 3, run.errors)
                self.nothing_is_left(run)


class Losses(Case):
    def lose(self, kind, victim, number, timeout_ms=30_000, mpirun=()):
        """Sends a signal to a process, and returns the seconds until each other one has said what is lost."""
        run = Run(3, "steps", kind, mpirun=mpirun, MINIM_TEST_TIMEOUT=str(timeout_ms), **ALL_SPEAK)
        run.wait_for("ready")
        time.sleep(0.2)
        pids = run.pids()
        start = time.time()
        os.kill(pids[victim], number)
        code = run.end(20)
        self.assertNotIn(code, (0, None), run.errors)
        self.nothing_is_left(run)
        messages = run.messages()
        messages.pop(victim, None)  # one that stood still may go on before it is ended
        self.assertEqual(set(messages), {0, 1, 2} - {victim}, run.errors)
        end = "has ended" if number != signal.SIGSTOP else "has not answered for"
        for _, text in messages.values():
            self.assertRegex(text, rf"^status 13: rank {victim} \(host \S+, process {pids[victim]}\) {end}")
        seconds = [when - start for when, _ in messages.values()]
        print(f"{' '.join(mpirun)} {kind}, {signal.Signals(number).name} to {victim}: {min(seconds):.3f} to {max(seconds):.3f} s", file=sys.stderr)
        return seconds

    def test_a_process_that_is_killed(self):
        for kind in ("busy", "idle"):
            for victim in (0, 1, 2):
                with self.subTest(kind=kind, victim=victim):
                    self.assertLess(max(self.lose(kind, victim, signal.SIGKILL)), 1)

    def test_a_process_that_crashes(self):
        for kind, victim in (("busy", 1), ("idle", 0)):
            with self.subTest(kind=kind, victim=victim):
                self.assertLess(max(self.lose(kind, victim, signal.SIGSEGV)), 1)

    def test_a_process_that_is_killed_behind_sockets(self):
        for kind, victim in (("busy", 0), ("busy", 1), ("idle", 2)):
            with self.subTest(kind=kind, victim=victim):
                self.assertLess(max(self.lose(kind, victim, signal.SIGKILL, mpirun=("--mca", "btl", "self,tcp"))), 1)

    def test_the_leader_speaks_first(self):
        """mpirun ends all processes when the first of them ends with an error."""
        for arguments, said in ((("fails", 1), "rank 1 .* what rank 1 wants"), (("hello", 1), "rank 1 .* has opened another model")):
            with self.subTest(arguments=arguments):
                run = Run(3, *arguments)
                self.assertNotIn(run.end(), (0, None), run.errors)
                self.assertRegex(run.messages()[0][1], said)

    def test_a_process_that_stands_still(self):
        for victim in (0, 1, 2):
            with self.subTest(victim=victim):
                seconds = self.lose("busy", victim, signal.SIGSTOP, timeout_ms=1000)
                # Its last sign of life was up to an eighth of the time before it stopped.
                self.assertGreaterEqual(min(seconds), 0.85)
                self.assertLess(max(seconds), 3)

    def test_an_error_of_a_rank(self):
        for failing in (0, 1, 2):
            with self.subTest(failing=failing):
                run = Run(3, "fails", failing, **ALL_SPEAK)
                self.assertNotIn(run.end(), (0, None), run.errors)
                self.nothing_is_left(run)
                messages = run.messages()
                self.assertEqual(set(messages), {0, 1, 2}, run.errors)
                for p, (_, text) in messages.items():
                    name = "" if p == failing else rf"rank {failing} \(host \S+, process \d+\): "
                    self.assertRegex(text, rf"^status 6: {name}what rank 1 wants: 1000 bytes needed")

    def test_an_error_of_a_device(self):
        run = Run(2, "fails", 3, MINIM_TEST_DEVICES="2", **ALL_SPEAK)
        self.assertNotIn(run.end(), (0, None), run.errors)
        self.assertRegex(run.messages()[0][1], r"^status 6: rank 3 \(host \S+, process \d+\): what rank 1 wants")


class Rest(Case):
    def test_followers_rest(self):
        run = self.run_right(3, "rest", 5)
        shares = [float(share) for share in re.findall(r"a follower took ([\d.]+) of a core", run.output)]
        print(f"between two steps followers take {shares} of a core", file=sys.stderr)
        self.assertEqual(len(shares), 2)
        self.assertLess(max(shares), 0.05)


if __name__ == "__main__":
    unittest.main()
