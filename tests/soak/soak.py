# SPDX-License-Identifier: Apache-2.0
"""Helpers of the soak tests: the build that they use, the time that they have, what a process uses, and the line that they end with."""

import atexit
import copy
import importlib.util
import mmap
import os
import pathlib
import re
import resource
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MINIM_BUILD", ROOT / "build" / "release")).resolve()
MODEL = ROOT / "examples" / "models" / "minim-tiny-q8_0.gguf"
MADE_MODELS = BUILD / "tests" / "models"
CLI, SERVER = BUILD / "apps/minim/minim", BUILD / "apps/server/minim-server"
os.environ.update(MINIM_LIBRARY=str(BUILD / "libminim.so"), MINIM_SERVER=str(SERVER), MINIM_CLI=str(CLI), MINIM_TEST_MODELS=str(MADE_MODELS))
for needed in (BUILD / "libminim.so", CLI, SERVER):
    if not needed.exists():
        sys.exit(f"{needed} is missing: build the preset 'release', or name another build folder in MINIM_BUILD")
sys.path.insert(0, str(ROOT / "bindings" / "python"))


def support(kind):
    """Returns tests/KIND/support.py as a module."""
    spec = importlib.util.spec_from_file_location(f"{kind}_support", ROOT / "tests" / kind / "support.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def print_cpu_seconds():
    """Prints what this process and its children that have ended computed, for run.sh."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    sys.stdout.flush()
    print(f"CPU seconds: {sum(used.ru_utime + used.ru_stime for used in both):.0f}", file=sys.stderr)


class Clock:
    """The seconds that the first argument gives, and a seed for what is chosen by chance: the second one, or another one each time."""

    def __init__(self, default):
        self.seconds = float(sys.argv[1]) if len(sys.argv) > 1 else default
        self.seed = int(sys.argv[2]) if len(sys.argv) > 2 else int.from_bytes(os.urandom(4), "little")
        self.start = time.monotonic()
        print(f"{self.seconds:g} seconds, seed {self.seed}", flush=True)
        atexit.register(print_cpu_seconds)

    def from_now(self, part):
        """Returns a clock of this part of the time that starts now."""
        other = copy.copy(self)
        other.seconds, other.start = part * self.seconds, time.monotonic()
        return other

    def left(self, part=1.0):
        """Returns the seconds that are left of this part of the time."""
        return self.start + part * self.seconds - time.monotonic()


class Resources:
    """What a process uses: anonymous memory in MiB, descriptors, threads, and ports that it listens at."""

    def __init__(self, pid="self"):
        folder = pathlib.Path("/proc") / str(pid)
        status = (folder / "status").read_text(encoding="utf-8")
        self.mib = int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) / 1024
        self.threads = int(re.search(r"Threads:\s+(\d+)", status)[1])
        links = [self.link(entry) for entry in (folder / "fd").iterdir()]
        self.descriptors = sum(link is not None for link in links)
        sockets = {link[8:-1] for link in links if link and link.startswith("socket:[")}
        rows = [line.split() for line in (folder / "net" / "tcp").read_text(encoding="utf-8").splitlines()[1:]]
        self.ports = sum(row[3] == "0A" and row[9] in sockets for row in rows)  # 0A: LISTEN

    @staticmethod
    def link(entry):
        try:
            return os.readlink(entry)
        except OSError:
            return None

    def __str__(self):
        return f"{self.mib:.0f} MiB, {self.descriptors} descriptors, {self.threads} threads, {self.ports} ports"

    def exceeds(self, before, mib):
        return (self.descriptors > before.descriptors or self.threads > before.threads or self.ports > before.ports or
                self.mib > before.mib + mib)


def require_no_more(before, mib, pid="self", seconds=5):
    """Returns the Resources of a process, which ends the test if they stay more than `before`, by more than `mib` of memory. A thread that
    was joined, or a connection that was cut, is there for a moment longer."""
    end = time.monotonic() + seconds
    while (now := Resources(pid)).exceeds(before, mib):
        if time.monotonic() > end:
            sys.exit(f"in use before: {before}; after: {now}; {mib} MiB more at most")
        time.sleep(0.05)
    return now


def compiled(source, *flags):
    """Returns the path of a shared library made from a C file of this folder, in the build folder."""
    out = BUILD / "soak" / f"lib{pathlib.Path(source).stem}.so"
    path = pathlib.Path(__file__).with_name(source)
    if not out.exists() or out.stat().st_mtime < path.stat().st_mtime:
        out.parent.mkdir(exist_ok=True)
        subprocess.run(["cc", "-O1", "-g", "-shared", "-fPIC", "-Wall", "-Wextra", *flags, "-o", out, path, "-ldl", "-lpthread"], check=True)
    return out


KINDS = ("none", "allocation", "read", "map", "thread", "open", "write")


class Faults:
    """Control of faults.c in another process, through a file that both map."""

    LAYOUT = struct.Struct("=iiqqqq")  # as struct control of faults.c, whose stacks follow
    MOST_STACKS = 1 << 20

    def __init__(self, folder):
        self.path = pathlib.Path(folder) / "faults"
        with open(self.path, "wb") as file:
            file.truncate(self.LAYOUT.size + 8 * self.MOST_STACKS)
        with open(self.path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 0)
        self.environment = {"LD_PRELOAD": str(compiled("faults.c")), "MINIM_FAULTS": str(self.path)}

    def arm(self, kind, at):
        """The call number `at` of this kind fails, counted from 1 and from now; 0: none does, calls are counted."""
        self.map[: self.LAYOUT.size] = self.LAYOUT.pack(KINDS.index(kind), 0, at, 0, 0, self.read()[5])

    def disarm(self):
        """Returns (calls of the kind, failures) since arm()."""
        _, _, _, calls, failures, _ = self.read()
        self.map[:4] = struct.pack("=i", 0)
        return calls, failures

    def step_clock(self, seconds):
        """Moves the wall clock of the process."""
        self.map[32:40] = struct.pack("=q", seconds)

    def read(self):
        return self.LAYOUT.unpack_from(self.map)

    def stacks(self, n_calls):
        """Returns a number for the callers of each of the first calls since arm(kind, 0): equal ones for equal callers."""
        return struct.unpack_from(f"={min(n_calls, self.MOST_STACKS)}Q", self.map, self.LAYOUT.size)


def temporary_folder():
    return tempfile.TemporaryDirectory(prefix="minim-soak-")
