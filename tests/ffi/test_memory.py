# SPDX-License-Identifier: Apache-2.0
"""Compares the host memory that a model reports with the growth of Rss in /proc/self/smaps_rollup. Rss is used instead of
Private because mapped weights are pages of the file. Each case has a process of its own."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from support import Q8_0, ROOT

sys.path.insert(0, str(ROOT / "tests" / "placement"))
import make_headers  # noqa: E402

SHAPE = make_headers.Model(layers=3, experts=64, hidden=1024, ff=512, heads=8, kv_heads=4, vocab=2048, context=8192)
CONTEXT = 4096

# Opens a small model first, so that code, threads and the interpreter's own memory are counted before.
CHILD = """
import json, sys
import minim

def resident():
    with open("/proc/self/smaps_rollup") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Rss:"))

def reported(model):
    memory = model.memory()
    return {"weights": sum(m.weights for m in memory), "session": sum(m.kv + m.work for m in memory)}

path, small, context, options = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
first = minim.Model(small, threads=2)
first.session(64).eval([1, 2, 3])
first.close()
before = resident()
model = minim.Model(path, threads=2, **options)
opened = {**reported(model), "resident": resident() - before}
session = model.session(context)
session.eval([5] * context)
print(json.dumps([opened, {**reported(model), "resident": resident() - before}]))
"""


@unittest.skipUnless(os.path.exists("/proc/self/smaps_rollup"), "no smaps_rollup")
class Memory(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def model(self, types):
        path = self.folder / "zeros.gguf"
        make_headers.write_gguf(path, SHAPE, make_headers.gguf_tensors(SHAPE, types), "zeros")
        return path

    def check(self, path, **options):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        done = subprocess.run([sys.executable, "-c", CHILD, path, Q8_0, str(CONTEXT), json.dumps(options)], check=True,
                              stdout=subprocess.PIPE, text=True, timeout=600, env=environment)
        opened, evaluated = json.loads(done.stdout)
        self.assertGreater(opened["weights"], 100 << 20)
        for state in (opened, evaluated):
            total = state["weights"] + state["session"]
            self.assertLess(abs(total - state["resident"]) / state["resident"], 0.02, f"{options}: {state}")
        kv = 2 * 2 * SHAPE.layers * SHAPE.kv_heads * SHAPE.head_dim * CONTEXT
        self.assertGreaterEqual(evaluated["session"], kv)

    def test_weights_that_are_read_and_packed(self):
        self.check(self.model(".=Q8_0"), mmap=False)

    def test_weights_that_are_mapped(self):
        self.check(self.model(".=Q8_0"), mmap=True, prefault=True)

    def test_weights_of_codebooks_as_they_are_and_unpacked(self):
        for expand in ("off", "on"):
            self.check(self.model("_exps=IQ3_S,.=Q8_0"), mmap=False, expand=expand)

    def test_weights_that_are_mapped_from_a_packed_file(self):
        path = self.model("_exps=Q4_K,.=Q8_0")
        for _ in range(2):  # the first pass writes the file, the second maps it
            self.check(path, packed_file=str(self.folder / "packed"), prefault=True)


if __name__ == "__main__":
    unittest.main()
