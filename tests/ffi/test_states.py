# SPDX-License-Identifier: Apache-2.0
"""Sessions forked, saved to files and restored."""

import bz2
import gzip
import io
import lzma
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import zipfile

from support import PACKAGES, Q8_0, minim, model, np, prompt

# Saves two sessions in turn until the process is killed.
SAVER = """
import sys
sys.path.insert(0, sys.argv[1])
import minim
model = minim.Model(sys.argv[2], threads=1)
sessions = [model.session(context=1100), model.session(context=1100)]
for n, session in enumerate(sessions):
    session.eval([7 + n] * 1000)
print("ready", flush=True)
while True:
    for session in sessions:
        session.save(sys.argv[3])
"""


class States(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name) / "state"

    def test_only_their_owner_reads_new_states_and_prefixes(self):
        prefixes, link = self.path.with_name("prefixes"), self.path.with_name("link")
        before = os.umask(0)
        try:
            with model().session(context=64) as session:
                session.eval([5, 6])
                session.save(self.path)
                self.assertEqual(self.path.stat().st_mode & 0o777, 0o600)
                self.path.chmod(0o640)
                link.symlink_to("state")
                session.save(link)
            with minim.Engine(model(), kv_tokens=1024) as engine:
                engine.save_prefixes(prefixes)
        finally:
            os.umask(before)
        self.assertTrue(link.is_symlink())
        self.assertEqual(self.path.stat().st_mode & 0o777, 0o640)
        self.assertEqual(prefixes.stat().st_mode & 0o777, 0o600)

    def test_a_fork_answers_like_the_session_it_came_from(self):
        golden = prompt("chat_capital")
        with model().session(context=512) as session:
            session.eval(golden["ids"][:-3])
            with session.fork() as fork:
                answers = [
                    [token.id for token in each.generate(golden["ids"][-3:])] for each in (fork, session)
                ]
        self.assertEqual(answers, [golden["greedy_ids"][:-1]] * 2)

    def test_a_fork_in_the_middle_of_an_answer_has_what_was_reported(self):
        golden = prompt("chat_capital")
        with model().session(context=512) as session:
            answer = session.generate(golden["ids"])
            ids = [next(answer).id, next(answer).id]
            with session.fork() as fork:
                self.assertEqual(len(fork), len(golden["ids"]) + 2)
                rest = [token.id for token in fork.generate([])]
            self.assertEqual(ids + rest, golden["greedy_ids"][:-1])
            self.assertEqual(ids + [token.id for token in answer], golden["greedy_ids"][:-1])

    def test_a_restored_session_has_the_same_logits(self):
        ids = prompt("chat_capital")["ids"]
        for kv in ("f16", "f32", "bf16", "q8_0"):
            with self.subTest(kv), model().session(context=777, kv=kv) as session:
                session.eval(ids)
                session.save(self.path)
                expected = session.eval([5])
                with model().restore(self.path) as restored:
                    self.assertEqual((len(restored), restored.context_size), (len(ids), 777))
                    np.testing.assert_array_equal(restored.eval([5]), expected)

    def test_another_process_restores_it(self):
        golden = prompt("chat_capital")
        with model().session(context=512) as session:
            session.eval(golden["ids"])
            session.save(self.path)
        program = (
            "import sys; sys.path.insert(0, sys.argv[1]); import minim\n"
            "session = minim.Model(sys.argv[2], threads=1).restore(sys.argv[3])\n"
            "print([token.id for token in session.generate([])])\n"
        )
        arguments = [sys.executable, "-c", program, str(PACKAGES), str(Q8_0), self.path]
        done = subprocess.run(arguments, check=True, capture_output=True, text=True)
        self.assertEqual(done.stdout.strip(), str(golden["greedy_ids"][:-1]))

    def test_a_bad_file_is_refused_with_its_reason(self):
        with model().session(context=64) as session:
            session.eval([1, 2, 3])
            session.save(self.path)
        whole = self.path.read_bytes()
        for data, reason in (
            (whole[:-1], minim.Reason.TRUNCATED),
            (whole[:300] + b"?" + whole[301:], minim.Reason.VALUE),
            (b"GGUF" + whole[4:], minim.Reason.FORMAT),
        ):
            self.path.write_bytes(data)
            with self.assertRaises(minim.Error) as raised:
                model().restore(self.path)
            self.assertEqual(raised.exception.status, minim.Status.FORMAT)
            self.assertEqual(raised.exception.reason, reason)
            self.assertIn(str(self.path), str(raised.exception))

    def test_a_session_goes_on_from_its_bytes(self):
        golden = prompt("chat_capital")
        with model().session(context=512) as session:
            session.eval(golden["ids"])
            session.save(self.path)
            data = session.save_bytes()
        self.assertIsInstance(data, bytes)
        self.assertEqual(data, self.path.read_bytes())
        for same in (data, bytearray(data), memoryview(data), np.frombuffer(data, np.uint8)):
            with model().restore_bytes(same) as restored:
                answer = [token.id for token in restored.generate([])]
                self.assertEqual(answer, golden["greedy_ids"][:-1])
        for altered, reason in (
            (b"", minim.Reason.FORMAT),
            (data[:-1], minim.Reason.TRUNCATED),
            (data + b"?", minim.Reason.VALUE),
            (data[:200] + b"?" + data[201:], minim.Reason.VALUE),
        ):
            with self.assertRaises(minim.Error) as raised:
                model().restore_bytes(altered)
            self.assertEqual((raised.exception.status, raised.exception.reason), (minim.Status.FORMAT, reason))
        with self.assertRaises(TypeError):
            model().restore_bytes("text")

    def test_sessions_follow_each_other_in_an_open_file(self):
        for buffering in (-1, 0):
            with self.subTest(buffering=buffering), open(self.path, "wb", buffering) as file:
                file.write(b"head")
                for ids in ([5, 6, 7], [9]):
                    with model().session(context=64) as session:
                        session.eval(ids)
                        session.save(file)
                file.write(b"tail")
            with open(self.path, "rb", buffering) as file:
                self.assertEqual(file.read(4), b"head")
                for ids in ([5, 6, 7], [9]):
                    with model().restore(file) as session:
                        self.assertEqual(list(session.tokens), ids)
                self.assertEqual(file.read(), b"tail")
                os.lseek(file.fileno(), 4, os.SEEK_SET)
                with model().restore(file.fileno()) as session:
                    self.assertEqual(list(session.tokens), [5, 6, 7])

    def test_sessions_follow_each_other_in_file_objects_of_any_kind(self):
        def reopened(opened, again):
            def read(file):
                file.close()
                return again()

            return opened, read

        def rewound(file):
            file.seek(0)
            return file

        def peeked(mode):
            file = open(self.path, mode)
            file.peek(1)
            return file

        members = zipfile.ZipFile(io.BytesIO(), "w")
        ends = socket.socketpair()
        pipe = os.pipe()
        kinds = {
            "gzip": reopened(lambda: gzip.open(self.path, "wb"), lambda: gzip.open(self.path)),
            "bz2": reopened(lambda: bz2.open(self.path, "wb"), lambda: bz2.open(self.path)),
            "lzma": reopened(lambda: lzma.open(self.path, "wb"), lambda: lzma.open(self.path)),
            "a member of a zip file": reopened(lambda: members.open("member", "w"), lambda: members.open("member")),
            "bytes": (io.BytesIO, rewound),
            "a buffer over bytes": (lambda: io.BufferedRandom(io.BytesIO()), rewound),
            "a temporary file": (tempfile.TemporaryFile, rewound),
            "a named temporary file": (tempfile.NamedTemporaryFile, rewound),
            "a spooled file": (lambda: tempfile.SpooledTemporaryFile(max_size=100), rewound),
            "append": (lambda: open(self.path, "a+b"), rewound),
            "a small buffer": (lambda: open(self.path, "w+b", buffering=10), rewound),
            "peeked": reopened(lambda: open(self.path, "wb"), lambda: peeked("rb")),
            "peeked, for writing too": reopened(lambda: open(self.path, "wb"), lambda: peeked("r+b")),
            "unbuffered": reopened(lambda: open(self.path, "wb", 0), lambda: open(self.path, "rb", 0)),
            "a socket": reopened(lambda: ends[0].makefile("wb"), lambda: ends[1].makefile("rb")),
            "a pipe": reopened(lambda: os.fdopen(pipe[1], "wb"), lambda: os.fdopen(pipe[0], "rb")),
        }
        sessions = [model().session(context=64) for _ in range(3)]
        sessions[1].eval([5])
        sessions[2].eval([6, 7, 8])

        def save(file):
            file.write(b"head")
            for session in sessions:
                session.save(file)
            file.write(b"tail")
            if file.seekable():
                self.assertEqual(file.tell(), 8 + sum(len(session.save_bytes()) for session in sessions))

        for name, (opened, reader_of) in kinds.items():
            with self.subTest(name), opened() as file:
                if name in ("a socket", "a pipe"):  # has no room for all of it
                    writer = threading.Thread(target=lambda: (save(file), file.close()))
                    writer.start()
                    again = ends[1].makefile("rb") if name == "a socket" else os.fdopen(pipe[0], "rb")
                else:
                    save(file)
                    again = reader_of(file)
                with again:
                    self.assertEqual(again.read(4), b"head")
                    for session in sessions:
                        with model().restore(again) as restored:
                            self.assertEqual(list(restored.tokens), list(session.tokens))
                    self.assertEqual(again.read(4), b"tail")
                self.path.unlink(missing_ok=True)
        for end in ends:
            end.close()

    def test_what_is_no_binary_file_is_refused_and_errors_leave_the_position(self):
        with model().session(context=64) as session:
            for file in (io.StringIO(), gzip.open(self.path, "wt")):
                for call in (session.save, model().restore):
                    with self.subTest(file), self.assertRaisesRegex(TypeError, f"the {type(file).__name__} is open for text"):
                        call(file)
                file.close()
            for file in (None, [1], bytearray(8)):
                with self.subTest(file), self.assertRaisesRegex(TypeError, r"save_bytes\(\) and restore_bytes\(\) take bytes"):
                    session.save(file)
            for bad in (b"", b"short", b"minim-kv" + b"\xff" * 300, b"other" * 100, bytes(session.save_bytes())[:-1]):
                for file in (io.BytesIO(b"head" + bad), tempfile.TemporaryFile()):
                    if not isinstance(file, io.BytesIO):
                        file.write(b"head" + bad)
                    file.seek(4)
                    with self.subTest(bad[:10]), self.assertRaises(minim.Error):
                        model().restore(file)
                    self.assertEqual((file.tell(), file.read()), (4, bad))
                    file.close()
        for file in (io.BytesIO(b"GGUF"), gzip.GzipFile(fileobj=io.BytesIO(), mode="wb")):
            with self.assertRaisesRegex(TypeError, "is not a file of the system"):
                minim.Model(file)

    def test_a_session_goes_through_a_socket(self):
        with model().session(context=64) as session:
            session.eval([5, 6, 7])
            ends = socket.socketpair()
            with ends[0], ends[1]:
                with self.assertRaises(minim.Error) as raised:
                    model().restore(ends[1])
                self.assertEqual(raised.exception.status, minim.Status.IO)
                read = []
                reader = threading.Thread(target=lambda: read.append(ends[1].makefile("rb").read()))
                reader.start()
                session.save(ends[0])
                ends[0].shutdown(socket.SHUT_WR)
                reader.join()
            self.assertEqual(read[0], session.save_bytes())
            from_end, to_end = os.pipe()
            os.close(from_end)
            with self.assertRaises(OSError):
                session.save(to_end)
            os.close(to_end)
            for closed in (to_end, -1):
                with self.assertRaises(minim.Error):
                    session.save(closed)
                with self.assertRaises(minim.Error):
                    model().restore(closed)

    def test_a_path_that_is_no_file_is_refused(self):
        for path in (self.folder.name, "/dev/null"):
            with model().session(context=64) as session, self.assertRaises(minim.Error) as raised:
                session.save(path)
            self.assertEqual(raised.exception.status, minim.Status.IO)

    def test_killing_a_process_that_saves_leaves_a_whole_file(self):
        arguments = [sys.executable, "-c", SAVER, str(PACKAGES), str(Q8_0), self.path]
        for _ in range(4):
            saver = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
            with saver:
                self.assertEqual(saver.stdout.readline().strip(), "ready")
                while not self.path.exists():
                    time.sleep(0.001)
                time.sleep(random.uniform(0, 0.1))
                os.kill(saver.pid, signal.SIGKILL)
            with model().restore(self.path) as session:
                self.assertEqual(len(session), 1000)
            left = [entry.name for entry in self.path.parent.iterdir()]
            # The process may also die before the file's temporary name is replaced by the final one.
            self.assertLessEqual(len(left), 2)
            for name in left:
                (self.path.parent / name).unlink()


if __name__ == "__main__":
    unittest.main()
