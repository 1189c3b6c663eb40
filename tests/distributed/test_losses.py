# SPDX-License-Identifier: Apache-2.0
"""Programs of the library whose ranks are lost: killed, crashed, standing still, failing; while they compute, rest, or are opened."""

import pathlib
import signal
import tempfile
import time
import unittest

from support import IS_FULL, LONG_PROMPT, Q8_0, Case, Job, simulated

EXPERTS = {2: {"expert_parallel": 2}, 3: {"expert_parallel": 3}}
KILL, CRASH, STOP = signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP


class LossCase(Case):
    def check_ends(self, job, since, within, status, fact):
        """Checks that every call failed in time with the status and the fact, and that later calls fail at once."""
        ends, later = job.reported()["ends"], job.reported()["later"]
        for end in [*ends, *later]:
            self.assertEqual(end["status"], status, end)
            self.assertRegex(end["text"], fact)
        for end in later:
            self.assertLess(end["seconds"], 0.5)
        slowest = max(end["at"] for end in ends) - since
        self.assertLess(slowest, within)
        return slowest

    def check_end(self, job, victim, seconds=10):
        code = job.wait(seconds)
        self.assertNotIn(code, (0, None), job.errors[-2000:])
        self.left_nothing(job)
        if victim == 0:
            self.assertRegex(job.errors, r"rank 0 \(host \S+, process \d+\) has")

    def lose_busy(self, n, victim, number, options=None, within=1.0, timeout=None, **more):
        options = {**(options or EXPERTS[n]), **({"rank_timeout": timeout} if timeout else {})}
        with Job(n, "busy", model=Q8_0, options=options, **more) as job:
            job.wait_for("started")
            time.sleep(0.05)
            since = job.signal(victim, number)
            self.check_end(job, victim, within + 10)
            return self.check_ends(job, since, within, "peer_lost", rf"rank {victim} \(host \S+, process \d+\) has") if victim else None

    def lose_idle(self, n, victim, number, within=1.0, timeout=None):
        options = {**EXPERTS[n], **({"rank_timeout": timeout} if timeout else {})}
        with tempfile.TemporaryDirectory() as folder, Job(n, "idle", model=Q8_0, options=options, go=pathlib.Path(folder, "go")) as job:
            job.wait_for("started")
            time.sleep(0.3)
            since = job.signal(victim, number)
            time.sleep(0.2)
            pathlib.Path(folder, "go").touch()
            self.check_end(job, victim, within + 10)
            return self.check_ends(job, since, within, "peer_lost", rf"rank {victim} \(host \S+, process \d+\) has") if victim else None


class Busy(LossCase):
    def test_killed(self):
        for n, victim in ((2, 1), (2, 0), (3, 2)) if IS_FULL else ((3, 2), (2, 0)):
            with self.subTest(n=n, victim=victim):
                self.lose_busy(n, victim, KILL)

    def test_crashed(self):
        self.lose_busy(2, 1, CRASH)

    def test_standing_still(self):
        for n in (2, 3) if IS_FULL else (3,):
            with self.subTest(n=n):
                self.lose_busy(n, 1, STOP, within=3, timeout=1)

    def test_the_leader_stands_still(self):
        self.lose_busy(2, 0, STOP, within=3, timeout=1)

    def test_other_kinds_of_ranks(self):
        if IS_FULL:
            self.lose_busy(2, 1, KILL, {"tensor_parallel": 2})
        self.lose_busy(2, 1, KILL, {"pipeline_parallel": 2})

    @unittest.skipUnless(IS_FULL, "MINIM_DISTRIBUTED_TESTS=full runs it")
    def test_while_prompts_are_read(self):
        self.lose_busy(2, 1, KILL, prompt=LONG_PROMPT)

    @unittest.skipUnless(IS_FULL, "MINIM_DISTRIBUTED_TESTS=full runs it")
    def test_behind_sockets(self):
        self.lose_busy(2, 1, KILL, mpirun=["--mca", "btl", "self,tcp"])

    @unittest.skipUnless(IS_FULL, "MINIM_DISTRIBUTED_TESTS=full runs it")
    def test_fifty_of_each(self):
        for victim, number in ((1, KILL), (1, CRASH), (0, KILL), (1, STOP)):
            seconds = [self.lose_busy(2, victim, number, within=3 if number == STOP else 1, timeout=1 if number == STOP else None) for _ in range(50)]
            if victim:
                print(f"50 times {number.name} of rank {victim}: errors after {min(seconds):.3f} to {max(seconds):.3f} s")


class Idle(LossCase):
    def test_killed(self):
        for victim in (1, 0):
            with self.subTest(victim=victim):
                self.lose_idle(2, victim, KILL)

    def test_crashed(self):
        self.lose_idle(3, 2, CRASH)

    def test_standing_still(self):
        self.lose_idle(2, 1, STOP, within=3, timeout=1)

    @unittest.skipUnless(IS_FULL, "MINIM_DISTRIBUTED_TESTS=full runs it")
    def test_fifty_of_each(self):
        for victim, number in ((1, KILL), (0, KILL)):
            seconds = [self.lose_idle(2, victim, number) for _ in range(50)]
            if victim:
                print(f"50 times {number.name} of rank {victim} between steps: errors after {min(seconds):.3f} to {max(seconds):.3f} s")


class Opening(LossCase):
    def lose(self, n, rank, how):
        with Job(n, "opening", model=Q8_0, options=EXPERTS[n], rank=rank, how=how) as job:
            self.check_end(job, rank, 20)
            self.assertNotIn("opened", job.reported())
            if how != "raise":
                self.assertRegex(job.errors, rf"rank {rank} \(host \S+, process \d+\) has ended")

    def test_killed(self):
        for n, rank in ((2, 1), (2, 0), (3, 1)) if IS_FULL else ((3, 1), (2, 0)):
            with self.subTest(n=n, rank=rank):
                self.lose(n, rank, "SIGKILL")

    def test_cancelled_by_one_process(self):
        for rank in (0, 1):
            with self.subTest(rank=rank), Job(2, "opening", model=Q8_0, options=EXPERTS[2], rank=rank, how="raise") as job:
                self.assertNotIn(job.wait(20), (0, None))
                self.left_nothing(job)
                self.assertNotIn("opened", job.reported())
                self.assertIn("no more of this", job.errors)


class Devices(LossCase):
    def test_a_device_of_a_group_that_fails(self):
        """Each kind of work fails once on one of the devices of a process; all requests say which, and nothing hangs."""
        options = {"devices": ["sim:0", "sim:1"]}
        for kind, n, device, ranks in (
            ("operation", 2000, 1, {"expert_parallel": 2}),
            ("operation", 2001, 0, {"tensor_parallel": 2}),
            ("transfer", 2000, 1, {"tensor_parallel": 2}),
        ):
            with self.subTest(kind=kind, device=device, ranks=ranks):
                environment = simulated(f"devices=2 failing_{kind}={n} failing_device={device}")
                with Job(0, "busy", model=Q8_0, options={**options, **ranks}, environment=environment) as job:
                    job.wait_for("ends")
                    job.wait(10)
                    for end in job.reported()["ends"]:
                        self.assertEqual(end["status"], "device_lost", end)
                        self.assertIn(f"sim:{device}", end["text"])
                    self.left_nothing(job)

    @unittest.skipUnless(IS_FULL, "MINIM_DISTRIBUTED_TESTS=full runs it")
    def test_a_device_of_another_process_that_fails(self):
        environment = simulated("devices=2 failing_operation=2000 failing_device=1")
        with Job(2, "busy", model=Q8_0, options={"devices": ["sim:0", "sim:1"], "expert_parallel": 4}, environment=environment) as job:
            job.wait_for("ends")
            job.wait(15)
            for end in job.reported()["ends"]:
                self.assertEqual(end["status"], "device_lost", end)
                self.assertIn("sim:1", end["text"])
            self.left_nothing(job)


class Followers(LossCase):
    def test_calls_of_a_follower(self):
        """Calls that compute are refused there, with the reason; it follows once."""
        with tempfile.TemporaryDirectory() as folder:
            state = pathlib.Path(folder, "a.state")
            self.result_of(0, "save", model=Q8_0, options={}, state=state, kv="f16")
            result = self.result_of(2, "follower", model=Q8_0, options=EXPERTS[2], state=state)
        for name in ("session", "engine", "restore"):
            self.assertEqual(result[f"{name} of 1"]["status"], "invalid")
            self.assertRegex(result[f"{name} of 1"]["text"], r"this process follows rank 0 \(host \S+, process \d+\)")
            self.assertLess(result[f"{name} of 1"]["seconds"], 0.5)
        for name in ("check of 0", "check of 1", "tokenize of 1", "memory of 1", "followed"):
            self.assertEqual(result[name]["status"], "ok", result[name])
        self.assertEqual(result["follow of 0"]["status"], "invalid")
        for name in ("second follow", "third follow"):
            self.assertEqual(result[name]["status"], "invalid", result[name])
            self.assertIn("a model follows once", result[name]["text"])

    def test_a_process_that_never_follows(self):
        with Job(2, "never_follows", model=Q8_0, options=EXPERTS[2]) as job:
            job.wait(20)
            self.left_nothing(job)
            ended = job.reported()["ended"]
            self.assertEqual(ended["status"], "peer_lost")
            self.assertRegex(ended["text"], r"rank 1 \(host \S+, process \d+\) has (closed the model|ended)")

    @unittest.skipUnless(IS_FULL, "MINIM_DISTRIBUTED_TESTS=full runs it")
    def test_interrupted(self):
        """Ctrl-C reaches the launcher, which ends all."""
        with Job(2, "busy", model=Q8_0, options=EXPERTS[2]) as job:
            job.wait_for("started")
            job.process.send_signal(signal.SIGINT)
            self.assertNotIn(job.wait(10), (0, None))
            self.left_nothing(job)


if __name__ == "__main__":
    unittest.main()
