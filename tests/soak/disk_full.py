#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes everything that is written onto file systems that are too small for it: packed weights, quantized files and folders, states, prefix
caches, logs of the server. A write that does not fit is an error that names the file; nothing unfinished stays, what was there before stays
whole, and a server goes on without its log. The file systems are mounted in a namespace, which needs no privilege.

    disk_full.py [SECONDS] [SEED]
"""

import os
import pathlib
import random
import shutil
import subprocess
import sys

import soak

INSIDE = ("unshare", "--user", "--map-root-user", "--mount")
QUESTION = ("-p", "What is 2 + 2?", "-n", "8", "--temp", "0", "-t", "2")
IS_INSIDE = "MINIM_SOAK_INSIDE" in os.environ
SOURCE = soak.MADE_MODELS / "minim-tiny"


class Disk:
    def __init__(self, path):
        self.path = path

    def __enter__(self):
        self.path.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", self.path], check=True)
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", "-l", self.path], check=True)

    def leave(self, n_bytes):
        """Fills the disk until about as many bytes are free."""
        free = os.statvfs(self.path)
        filler = free.f_bavail * free.f_frsize - n_bytes
        (self.path / "filler").write_bytes(bytes(max(0, filler)))

    def names(self):
        return sorted(path.name for path in self.path.iterdir() if path.name != "filler")


def program(*arguments):
    done = subprocess.run([str(soak.CLI), *map(str, arguments)], capture_output=True, text=True, timeout=300)
    if done.returncode not in (0, 1):
        sys.exit(f"{arguments[:3]} ends with {done.returncode}: {done.stderr[-500:]}")
    return done


class Full:
    def __init__(self, dice, disk):
        self.dice, self.disk = dice, disk
        self.n_refused = self.n_whole = 0

    def write(self, name, whole_bytes, write):
        """Writes with room for less than the whole: write() returns an error text, or None. Then without limit: nothing is in the way."""
        with self.disk as disk:
            disk.leave(self.dice.randrange(int(whole_bytes * 1.2) + 1))
            error = write(disk.path / name)
            if error is None:
                self.n_whole += 1
                return
            self.n_refused += 1
            if str(disk.path) not in error or ("space" not in error and "free" not in error):
                sys.exit(f"{name}: an error that does not say what is full: {error}")
            left = [other for other in disk.names() if not other.endswith(".partial")]  # a conversion goes on where it was
            if left:
                sys.exit(f"{name}: a write that failed left {left}")
            (disk.path / "filler").unlink()
            error = write(disk.path / name)
            if error is not None:
                sys.exit(f"{name}: with room again: {error}")

    def convert(self, name, kind, *options):
        def write(path):
            done = program("quantize", SOURCE, path, kind, *options)
            return done.stderr if done.returncode else None

        self.write(name, 8 << 20, write)

    def packed(self):
        def write(path):
            done = program("-m", soak.MODEL, "--packed-file", path, *QUESTION)
            return done.stderr if done.returncode else None

        self.write("m.packed", 8 << 20, write)

    def states(self, model, minim):
        with minim.Engine(model, kv_tokens=2048) as engine, model.session(context=1024) as session:
            ids = [5 + i % 1900 for i in range(1000)]
            session.eval(ids)
            engine.submit(ids, max_tokens=1).result()
            for name, save in (("a.state", session.save), ("a.prefixes", engine.save_prefixes), ("a.prefix", lambda path: engine.save_prefix(ids, path))):
                def write(path, save=save):
                    try:
                        save(path)
                    except minim.Error as error:
                        return str(error) if error.status == minim.Status.IO else f"status {error.status}: {error}"
                    return None

                self.write(name, 1 << 20, write)
            # An older file stays whole if the newer one has no room.
            with self.disk as disk:
                path = disk.path / "b.state"
                session.save(path)
                before = path.read_bytes()
                disk.leave(self.dice.randrange(len(before)))
                try:
                    session.save(path)
                except minim.Error:
                    pass
                if path.read_bytes() != before:
                    sys.exit("a state that could not be replaced is not what it was")

    def server(self, support):
        """Logs and prefixes on a disk that becomes full."""
        with self.disk as disk:
            with support.Server("-t", "2") as plain:
                right = plain.ok(support.CHAT, {"messages": support.COUNT, "temperature": 0, "max_tokens": 8})["choices"]
            server = support.Server("-t", "2", "--save-prefixes", disk.path / "s.prefixes", "--slot-save-path", disk.path)
            try:
                os.remove(server.log.name)
                os.symlink(disk.path / "server.log", server.log.name)
                server.process.send_signal(1)  # SIGHUP: it opens its log again, on the small disk
                server.get("/props")
                disk.leave(self.dice.randrange(3000))
                for _ in range(50):
                    answer = server.ok(support.CHAT, {"messages": support.COUNT, "temperature": 0, "max_tokens": 8})["choices"]
                    if answer != right:
                        sys.exit(f"a server whose log is full answers {answer}")
                status, _, answer = server.post("/slots/0?action=save", {"filename": "slot"})
                if status == 200 and not (disk.path / "slot").exists():
                    sys.exit(f"a slot that was not saved: {answer}")
                os.remove(server.log.name)
                pathlib.Path(server.log.name).touch()
                # Without room for its prefixes it ends with an error.
                if server.stop() not in (0, 1):
                    sys.exit(f"the server ends with {server.process.returncode} on a full disk: {server.process.stderr.read()}")
            finally:
                server.kill()
                server.process.stderr.close()
                server.log.close()
            if [name for name in disk.names() if name not in ("server.log", "slot", "s.prefixes")]:
                sys.exit(f"a server on a full disk left {disk.names()}")
        self.n_refused += 1


def main():
    clock = soak.Clock(20)
    if not IS_INSIDE:
        if shutil.which("unshare") is None or subprocess.run([*INSIDE, "true"], capture_output=True).returncode != 0:
            print("skipped: namespaces cannot be made here")
            sys.exit(77)
        os.environ["MINIM_SOAK_INSIDE"] = "1"
        os.execvp(INSIDE[0], [*INSIDE, sys.executable, *sys.argv[:1], str(clock.seconds), str(clock.seed)])
    import minim
    dice = random.Random(clock.seed)
    with soak.temporary_folder() as name, minim.Model(soak.MODEL, threads=2) as model:
        full = Full(dice, Disk(pathlib.Path(name) / "disk"))
        works = (full.packed, lambda: full.convert("q.gguf", "Q8_0", "--pure"), lambda: full.convert("q", "int4-g32", "--split-max-size", "1M"),
                 lambda: full.states(model, minim), lambda: full.server(soak.support("server")))
        n = 0
        while clock.left() > 0 or n < len(works):
            works[n % len(works)]()
            n += 1
    print(f"{full.n_refused} writes onto full disks were refused, {full.n_whole} had room")


if __name__ == "__main__":
    main()
