# SPDX-License-Identifier: Apache-2.0
"""The verdict of tests/speed_gate.py, on simulated speeds."""

import contextlib
import io
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import speed_gate  # noqa: E402


def verdict(old, new):
    """`old` and `new`: speeds of the rounds, in the order of measuring. Returns what is slow, and the order of the builds."""
    left, order = {"old": list(old), "new": list(new)}, []

    def measure(build):
        order.append(build)
        return {"speed": left[build].pop(0)}

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return speed_gate.report(speed_gate.compare([measure], "old", "new", len(old) // speed_gate.ROUNDS)), order


class Gate(unittest.TestCase):
    def test_two_slow_rounds_of_three_are_a_fault(self):
        self.assertEqual(verdict((100, 100, 100), (94, 120, 94))[0], ["speed"])
        self.assertEqual(verdict((100, 100, 100), (94, 94, 94))[0], ["speed"])

    def test_one_slow_round_is_none(self):
        self.assertEqual(verdict((100, 100, 100), (50, 100, 96))[0], [])
        self.assertEqual(verdict((100, 200, 100), (100, 200, 100))[0], [])

    def test_the_turn_with_the_middle_ratio_counts(self):
        self.assertEqual(verdict((100,) * 9, (50, 100, 100) * 3)[0], [])
        self.assertEqual(verdict((100,) * 9, (50, 94, 200) * 3)[0], ["speed"])

    def test_the_builds_take_turns_in_both_orders(self):
        self.assertEqual(verdict((1, 1, 1), (1, 1, 1))[1], ["old", "new", "new", "old", "old", "new"])

    def test_a_build_beside_itself_is_measured_twice(self):
        left = [1.0, 2.0, 1.0, 2.0, 1.0, 2.0]
        with contextlib.redirect_stderr(io.StringIO()):
            rounds = speed_gate.compare([lambda _: {"speed": left.pop(0)}], "same", "same", 1)
        self.assertEqual(rounds, {"speed": [(1.0, 2.0), (2.0, 1.0), (1.0, 2.0)]})

    def test_builds_that_measure_different_things_are_refused(self):
        with self.assertRaisesRegex(SystemExit, "different things: [ab], [ab]"):
            with contextlib.redirect_stderr(io.StringIO()):
                speed_gate.compare([lambda build: {"a" if build == "old" else "b": 1.0}], "old", "new")


if __name__ == "__main__":
    unittest.main()
