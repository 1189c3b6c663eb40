# SPDX-License-Identifier: Apache-2.0
"""Greedy texts of the command-line program on ranks, and commands that are refused."""

import os
import unittest

from support import BF16, CLI, FP8, IS_FULL, MIX_K, Q8_0, QUESTIONS, Case, Launch, simulated, under_mpirun


def ask(model, question, *options):
    return [CLI, "-m", model, "-p", question, "--temp", "0", "-n", "40", "-t", "1", *options]


class Texts(Case):
    def text_of(self, n, command, **environment):
        with Launch(under_mpirun(n, command), **environment) as launch:
            self.ended_well(launch)
            self.assertNotEqual(launch.output, "")
            return launch.output

    def test_processes(self):
        cases = [
            (2, Q8_0, "--expert-parallel", 2),
            (3, MIX_K, "-ep", 3),
            (4, Q8_0, "-ep", 4),
            (2, Q8_0, "-tp", 2),
            (3, Q8_0, "-pp", 3),
        ]
        if IS_FULL:
            cases += [(2, MIX_K, "-tp", 2), (2, BF16, "-tp", 2, "--enable-expert-parallel"), (2, FP8, "-pp", 2)]
        known = {}
        for i, (n, model, *options) in enumerate(cases):
            question = QUESTIONS[i % 2]
            with self.subTest(n=n, model=model.name, options=options):
                if (model, question) not in known:
                    known[model, question] = self.text_of(0, ask(model, question))
                self.assertEqual(self.text_of(n, ask(model, question, *options)), known[model, question])

    def test_simulated_devices_of_one_process(self):
        want = self.text_of(0, ask(Q8_0, QUESTIONS[0]))
        for devices, *options in (("sim:0,sim:1", "-tp", 2), ("sim:0,sim:1,sim:2,sim:3", "-ep", 4), ("sim:0,sim:1,sim:2", "-ep", 3)):
            with self.subTest(devices=devices, options=options):
                got = self.text_of(0, ask(Q8_0, QUESTIONS[0], "--device", devices, *options), **simulated())
                self.assertEqual(got, want)

    def test_simulated_devices_of_two_processes(self):
        want = self.text_of(0, ask(Q8_0, QUESTIONS[1]))
        for options in (("-tp", 2, "-pp", 2), ("-ep", 4)):
            with self.subTest(options=options):
                got = self.text_of(2, ask(Q8_0, QUESTIONS[1], "--device", "sim:0,sim:1", *options), **simulated("devices=2"))
                self.assertEqual(got, want)

    def test_a_launcher_is_not_looked_for_without_the_options(self):
        for options in (("-tp", 1), ("--rank-timeout", 5)):
            with self.subTest(options=options):
                want = self.text_of(0, ask(Q8_0, QUESTIONS[0]))
                both = self.text_of(2, ask(Q8_0, QUESTIONS[0], *options))  # one among the other
                self.assertEqual(sorted(both), sorted(2 * want))

    def test_other_channels(self):
        """Sockets, and shared memory without reading another process's memory, as in a container."""
        want = self.text_of(0, ask(Q8_0, QUESTIONS[1]))
        for mpirun in (["--mca", "btl", "self,tcp"], ["--mca", "btl_vader_single_copy_mechanism", "none"]):
            with self.subTest(mpirun=mpirun), Launch(under_mpirun(2, ask(Q8_0, QUESTIONS[1], "-ep", 2), mpirun)) as launch:
                self.ended_well(launch)
                self.assertEqual(launch.output, want)

    @unittest.skipIf((os.cpu_count() or 1) < 4, "two processes with a core each have their share of two cores")
    def test_a_process_with_one_core_of_many_is_warned_of(self):
        command = ask(Q8_0, QUESTIONS[0], "-ep", 2)
        words = under_mpirun(2, command)
        words[words.index("none")] = "core"
        with Launch(words) as launch:
            self.ended_well(launch)
            self.assertIn("--bind-to none", launch.errors)


class Refusals(Case):
    def test_options(self):
        for n, options, *facts in (
            (0, ("-tp", 2), "mpirun", r"\b2\b"),
            (0, ("-pp", 2), "mpirun|process", r"\b2\b"),
            (2, ("-ep", 3), "2 processes", r"\b3\b"),
            (2, ("-tp", 4), "4 ranks", "2 KV heads"),
            (2, ("-pp", 3), r"\b3\b", r"\b2\b"),
            (0, ("-tp", 2, "--device", "sim:0,sim:1", "--cpu-moe"), "keeping experts on the host"),
            (0, ("-tp", 2, "--device", "sim:0,sim:1", "-ot", "exps=CPU"), "the rule 'exps=CPU'"),
            (0, ("-ep", 2, "--device", "sim:0,sim:1", "-ts", "3,1"), "a share of 1 of the layers beside 3"),
            (0, ("-tp", 3, "--device", "sim:0,sim:1,sim:2"), "2 KV heads", "3 ranks"),
            (0, ("-tp", 2, "--device", "sim:0"), r"\b2\b", r"\b1\b"),
            (0, ("-ep", 16), "8 experts", r"\b16\b"),
        ):
            with self.subTest(n=n, options=options):
                self.refused(under_mpirun(n, ask(Q8_0, "Hi", *options)), *facts, **simulated())

    def test_blocks(self):
        command = ask(MIX_K, "Hi", "-tp", 2, "--expert-parallel", 1)
        self.refused(under_mpirun(2, command), "blocks of 256", "--expert-parallel 2")

    def test_processes_that_differ(self):
        """Each process says what the other has; the leader names rank 1."""
        usual = ("-ep", 2)
        for name, sides, fact in (
            ("model", (ask(Q8_0, "Hi", *usual), ask(BF16, "Hi", *usual)), "model"),
            ("kind of ranks", (ask(Q8_0, "Hi", *usual), ask(Q8_0, "Hi", "-tp", 2)), "tensor"),
            ("options", (ask(Q8_0, "Hi", *usual), ask(Q8_0, "Hi", *usual, "--deterministic")), "deterministic"),
            ("devices", (ask(Q8_0, "Hi", "-ep", 4, "--device", "sim:0,sim:1"), ask(Q8_0, "Hi", "-ep", 2, "--device", "sim:0")), "groups of experts 4"),
            ("kind of device", (ask(Q8_0, "Hi", *usual, "--device", "sim:0"), ask(Q8_0, "Hi", *usual, "--device", "cpu")), "sim"),
        ):
            with self.subTest(name):
                words = [*under_mpirun(1, sides[0]), ":", "-n", "1", *map(str, sides[1])]
                self.refused(words, r"rank [12]\b", fact, **simulated("devices=2"))


if __name__ == "__main__":
    unittest.main()
