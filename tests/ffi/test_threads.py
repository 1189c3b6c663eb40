# SPDX-License-Identifier: Apache-2.0
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

from support import MIX_IQ, Q8_0, minim, model, prompt, prompt_names


class Threads(unittest.TestCase):
    def test_sessions_of_one_model_run_side_by_side(self):
        def answer(name):
            golden = prompt(name)
            with model().session(context=512) as session:
                return [token.id for token in session.generate(golden["ids"], max_tokens=20)], golden[
                    "greedy_ids"
                ]

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for name, (ids, golden_ids) in zip(prompt_names(), pool.map(answer, prompt_names())):
                with self.subTest(name):
                    self.assertEqual(ids, golden_ids[: len(ids)])

    def test_layers_are_placed_alike_for_every_thread(self):
        def places():
            with minim.Model(Q8_0, threads=1) as opened:
                return [opened.layer_devices(layer) for layer in range(3)]

        # Handles that other threads create have addresses that do not fit into a C int.
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for made in (pool.submit(places), pool.submit(places)):
                self.assertEqual(made.result(), [(0, 0)] * 3)

    def test_decoding_on_fewer_or_pinned_threads_changes_no_bit(self):
        ids = prompt("memory")["ids"][:20]

        def logits(**threads):
            with minim.Model(Q8_0, **threads) as opened, opened.session(context=64) as session:
                session.eval(ids)
                return [session.eval([id]).tobytes() for id in ids[:3]]

        expected = logits(threads=2)
        self.assertEqual(logits(threads=2, threads_decode=1), expected)
        self.assertEqual(logits(threads=1, threads_decode=2, pin_threads=True), expected)

    def test_where_memory_is_and_whether_it_is_locked_changes_no_bit(self):
        ids = prompt("memory")["ids"][:20]

        def logits(**options):
            with minim.Model(Q8_0, threads=2, **options) as opened, opened.session(context=64) as session:
                bits = session.eval(ids).tobytes()
                return opened.numa, opened.nodes(), opened.memory()[0], bits

        numa, nodes, memory, expected = logits(numa="off", mmap=False)
        self.assertEqual((numa, memory.locked), ("off", 0))
        self.assertEqual(sum(node.weights for node in nodes), memory.weights)
        self.assertEqual({node.n_threads for node in nodes}, {0})
        for options in ({"numa": "auto"}, {"mmap": True, "prefault": True}):
            self.assertEqual(logits(**options)[3], expected)
        for mode in ("interleave", "split"):
            numa, nodes, memory, bits = logits(numa=mode, mmap=False)
            self.assertEqual((numa, bits), (mode, expected))
            self.assertEqual(sum(node.n_threads for node in nodes), 2)
            self.assertEqual(sum(node.weights for node in nodes), memory.weights)
            self.assertLessEqual(abs(sum(node.wanted for node in nodes) - memory.weights), len(nodes) ** 2)
        with self.assertRaises(ValueError):
            minim.Model(Q8_0, numa="everywhere")

    def test_unpacked_weights_take_more_memory_and_change_no_bit(self):
        ids = prompt("memory")["ids"][:20]

        def logits(expand):
            with minim.Model(MIX_IQ, threads=2, mmap=False, expand=expand) as opened:
                with opened.session(context=64) as session:
                    return opened.memory()[0].weights, session.eval(ids).tobytes()

        weights, expected = logits("off")
        more, bits = logits("on")
        self.assertEqual(bits, expected)
        self.assertGreater(more, 1.05 * weights)
        self.assertEqual(logits("auto"), (weights, expected))  # the weights are too small to be worth unpacking
        with self.assertRaises(ValueError):
            minim.Model(MIX_IQ, expand="maybe")

    def test_a_packed_file_is_made_once_and_changes_no_bit(self):
        ids = prompt("memory")["ids"][:20]
        lines = []

        def opened(path=Q8_0, **options):
            lines.clear()
            return minim.Model(
                path, threads=2, log=lambda level, line: lines.append(line), log_level="info", **options
            )

        def logits(model):
            with model, model.session(context=64) as session:
                return model.memory()[0].weights_mapped, session.eval(ids).tobytes()

        with tempfile.TemporaryDirectory() as folder:
            packed = pathlib.Path(folder, "packed")
            expected = logits(opened(mmap=False))[1]
            self.assertEqual(logits(opened(packed_file=packed)), (True, expected))
            self.assertTrue(any(f"{packed}: made" in line for line in lines), lines)
            made = packed.stat()
            self.assertEqual(logits(opened(packed_file=str(packed), prefault=True)), (True, expected))
            self.assertFalse(any("made" in line for line in lines), lines)
            self.assertEqual((packed.stat().st_ino, packed.stat().st_mtime), (made.st_ino, made.st_mtime))
            for options, status in (
                ({"path": MIX_IQ}, "format"),
                ({"mmap": False}, "invalid"),
                ({"packed_file": ""}, "invalid"),
                ({"packed_file": folder}, "io"),
            ):
                with self.subTest(options), self.assertRaises(minim.Error) as caught:
                    opened(**{"packed_file": packed, **options})
                self.assertEqual(caught.exception.status, status)
            self.assertEqual([entry.name for entry in pathlib.Path(folder).iterdir()], ["packed"])

    def test_memory_that_may_not_be_locked_is_an_error_with_the_limit(self):
        # Runs in a process of its own, without the privilege that lifts the limit.
        script = f"""
import ctypes, resource, sys
sys.path[:0] = {sys.path!r}
from support import Q8_0, minim
resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
if ctypes.CDLL(None).prctl(24, 14, 0, 0, 0) == 0 and os_is_root:
    import os
    os.setuid(65534)
for mmap in (True, False):
    try:
        minim.Model(Q8_0, lock=True, mmap=mmap, threads=1).close()
        print("locked")
    except minim.Error as error:
        print(error.status, error)
"""
        script = script.replace("os_is_root", str(os.geteuid() == 0))
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ})
        self.assertEqual(done.stderr, "")
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 2)
        for line in lines:
            self.assertTrue(line.startswith("out_of_memory "), line)
            self.assertRegex(line, r"[0-9]{7} bytes cannot be locked.*65536 bytes \(RLIMIT_MEMLOCK\).*ulimit -l")

    def test_one_session_in_two_threads_is_busy_and_never_harmed(self):
        ids = prompt("chat_capital")["ids"]
        with model().session(context=4096, n_ubatch=1) as session:
            outcomes = []

            def evaluate():
                try:
                    session.eval(ids * 4)
                    outcomes.append("done")
                except minim.Error as error:
                    outcomes.append(str(error.status))

            threads = [threading.Thread(target=evaluate) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(len(outcomes), 4)
            self.assertLessEqual(set(outcomes), {"done", "busy"})
            self.assertEqual(len(session), outcomes.count("done") * len(ids) * 4)

    def test_a_handle_closed_during_a_call_is_released_after_it(self):
        session = model().session(context=4096, n_ubatch=1)
        started = threading.Event()
        outcome = []

        def evaluate():
            started.set()
            try:
                outcome.append(session.eval([20] * 400).shape)
            except ValueError:
                outcome.append("closed before it began")

        thread = threading.Thread(target=evaluate)
        thread.start()
        started.wait()
        session.close()
        thread.join()
        self.assertIn(outcome[0], [(1, model().n_vocab), "closed before it began"])

    def test_the_number_of_threads_changes_no_token(self):
        golden = prompt("chat_capital")
        for threads in (1, 3):
            with minim.Model(Q8_0, threads=threads) as opened, opened.session(context=128) as session:
                ids = [
                    token.id
                    for token in session.generate(golden["ids"], temperature=1, seed=5, logprobs=True)
                ]
            with self.subTest(threads=threads), model().session(context=128) as session:
                self.assertEqual(
                    ids, [token.id for token in session.generate(golden["ids"], temperature=1, seed=5)]
                )


if __name__ == "__main__":
    unittest.main()
