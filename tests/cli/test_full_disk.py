# SPDX-License-Identifier: Apache-2.0
"""Conversions onto a file system that is full, at once or on the way. It is mounted in a namespace of its own, which needs no privilege."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from support import MADE_MODELS, PROGRAM, errors_of, run

FOLDER = MADE_MODELS / "minim-tiny"
IS_INSIDE = "MINIM_TEST_IN_NAMESPACE" in os.environ
INSIDE = ["unshare", "--user", "--map-root-user", "--mount"]


class Namespace(unittest.TestCase):
    @unittest.skipIf(IS_INSIDE, "runs outside")
    def test_in_a_namespace(self):
        try:
            subprocess.run([*INSIDE, "true"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            self.skipTest(f"no namespaces: {error}")
        done = subprocess.run([*INSIDE, sys.executable, "-m", "unittest", "-v", "test_full_disk.FullDisk"], capture_output=True, text=True,
                              env={**os.environ, "MINIM_TEST_IN_NAMESPACE": "1"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"Ran [1-9]\d* tests in .*\n\nOK\n")


@unittest.skipUnless(IS_INSIDE, "runs in a namespace")
class FullDisk(unittest.TestCase):
    def mount(self, *options):
        subprocess.run(["mount", "-t", "tmpfs", *options, "none", str(self.disk)], check=True)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.disk = pathlib.Path(folder.name, "disk")
        self.disk.mkdir()
        self.mount("-o", "size=16m")
        self.addCleanup(lambda: subprocess.run(["umount", str(self.disk)], check=True))
        self.output = self.disk / "x.gguf"
        self.wanted = pathlib.Path(folder.name, "wanted.gguf")

    def test_what_does_not_fit_is_refused_before_it_is_read(self):
        self.mount("-o", "remount,size=2m")
        done = run("quantize", FOLDER, self.output, "Q8_0", "--pure")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(errors_of(done)[0], rf"the output needs \d+ bytes in {self.disk}, where \d+ are free \(MINIM_E_IO, io\)")
        self.assertEqual(list(self.disk.iterdir()), [])

    def test_a_disk_that_others_fill_loses_nothing(self):
        parts = ("--split-max-size", "1M", "-t", "1")
        self.assertEqual(run("quantize", FOLDER, self.wanted, "Q8_0", "--pure", *parts).returncode, 0)
        command = [PROGRAM, "quantize", FOLDER, self.output, "Q8_0", "--pure", *parts, "--progress", "json"]
        child = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
        for _ in range(3):
            child.stderr.readline()
        filler = self.disk / "filler"
        free = os.statvfs(self.disk)
        filler.write_bytes(bytes(free.f_bavail * free.f_frsize))
        errors = child.stderr.read()
        child.stderr.close()
        if child.wait() == 0:
            self.skipTest("the conversion ended before the disk was full")
        self.assertEqual(child.returncode, 1, errors)
        self.assertRegex(errors, r"minim: error: \S*x\.gguf\S*: .*No space left on device")
        self.assertEqual(list(self.disk.glob("x*.gguf")), [])
        filler.unlink()
        done = run("quantize", FOLDER, self.output, "Q8_0", "--pure", *parts)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"resuming: \d+ of \d+ tensors are done")
        made, right = sorted(self.disk.glob("x-*.gguf")), sorted(self.wanted.parent.glob("wanted-*.gguf"))
        self.assertGreater(len(made), 1)
        self.assertEqual([path.read_bytes() for path in made], [path.read_bytes() for path in right])


if __name__ == "__main__":
    unittest.main()
