# SPDX-License-Identifier: Apache-2.0
"""Failing allocations and starts of threads, by the walks of tests/soak/failures.py, which goes on for as long as it is told to."""

import os
import pathlib
import random
import shutil
import sys
import tempfile
import unittest

from support import PROGRAM, SANITIZER

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "soak"))
os.environ["MINIM_BUILD"] = str(pathlib.Path(PROGRAM).resolve().parents[2])


@unittest.skipIf(SANITIZER, "a sanitizer has its own allocator")
@unittest.skipIf(shutil.which("cc") is None, "no compiler for the library that lets calls fail")
class Failures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import failures
        import soak
        cls.failures, folder = failures, cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.faults = soak.Faults(folder)

    def test_a_thread_that_cannot_be_started_is_an_error_of_the_start(self):
        walk = self.failures.program_walk(self.failures.ServerStart(), "thread", self.faults, random.Random(1))
        walk.start()
        self.assertGreater(walk.total, 4)
        while walk.step():
            pass
        self.assertEqual(walk.n_done, walk.total)

    def test_a_server_goes_on_after_an_allocation_has_failed(self):
        requests = self.failures.Requests(self.faults)
        self.addCleanup(requests.close)
        fault, n_calls, _ = requests.run("allocation", 0)
        self.assertIsNone(fault)
        self.assertGreater(n_calls, 500)
        # What reads and frees JSON, the event loop, and some of all others.
        for n in [*range(1, 65), *range(65, n_calls, 37)]:
            fault, _, _ = requests.run("allocation", n)
            self.assertIsNone(fault, f"failure {n}")
        self.assertEqual(requests.server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
