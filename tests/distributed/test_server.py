# SPDX-License-Identifier: Apache-2.0
"""minim-server on ranks: texts, signals, rest, sockets, and what its clients are told when a rank is lost."""

import concurrent.futures
import json
import os
import signal
import time
import unittest

from support import IS_FULL, QUESTIONS, Case, Server, listening_ports, cpu_seconds

N_CLIENTS = 8


class Asked:
    """Clients that ask for long answers at once, every second one for a stream."""

    def __init__(self, server, max_tokens):
        self.pool = concurrent.futures.ThreadPoolExecutor(N_CLIENTS)
        ask = lambda i: server.chat("Tell me a short story.", max_tokens=max_tokens, ignore_eos=True, stream=i % 2 == 0)  # noqa: E731
        self.waiting = [self.pool.submit(ask, i) for i in range(N_CLIENTS)]
        time.sleep(0.4)

    def answers(self):
        with self.pool:
            return [one.result() for one in self.waiting]


class ServerCase(Case):
    def failed_with(self, answers, since, within, *facts):
        """Checks that every client has an error with these facts in time: an event of its stream, or a status of 500 or above."""
        for status, text, when in answers:
            self.assertLess(when - since, within, (status, text[-300:]))
            self.assertTrue(status == 200 or status >= 500, (status, text[-300:]))
            last = text.strip().rpartition("data: ")[2] if status == 200 else text
            message = json.loads(last)["error"]["message"]
            for fact in facts:
                self.assertRegex(message, fact)


class Texts(ServerCase):
    def test_eight_chats_at_once(self):
        def answers(n, *options):
            with Server(n, *options) as server:
                with concurrent.futures.ThreadPoolExecutor(N_CLIENTS) as pool:
                    found = list(pool.map(lambda i: server.chat(QUESTIONS[i % 4], max_tokens=30), range(N_CLIENTS)))
                os.kill(server.leader(), signal.SIGTERM)
                self.ended_well(server, 10)
            return [json.loads(text)["choices"][0]["message"] for _, text, _ in found]

        want = answers(0)
        for n, options in ((2, ("-tp", 2)), (3, ("-ep", 3)), (2, ("-pp", 2))) if IS_FULL else ((2, ("-tp", 2)),):
            with self.subTest(n=n, options=options):
                self.assertEqual(answers(n, *options), want)


class Rest(ServerCase):
    def test_a_follower_rests_and_listens_nowhere(self):
        with Server(2, "-ep", 2, mpirun=["--mca", "btl", "self,vader"]) as server:
            self.assertEqual(server.chat(QUESTIONS[0], max_tokens=4)[0], 200)
            follower, leader = server.pid_of(1), server.pid_of(0)
            self.assertEqual(listening_ports(follower), set())
            self.assertEqual(listening_ports(leader), {server.port})
            time.sleep(1)
            before, began = (cpu_seconds(follower), cpu_seconds(leader)), time.monotonic()
            time.sleep(1.5)
            seconds = time.monotonic() - began
            shares = [(cpu_seconds(pid) - old) / seconds for pid, old in zip((follower, leader), before)]
            self.assertLess(max(shares), 0.25)
            self.assertEqual(server.chat(QUESTIONS[0], max_tokens=4)[0], 200)


class Signals(ServerCase):
    def test_the_leader_lets_requests_finish(self):
        with Server(2, "-ep", 2) as server:
            asked = Asked(server, 300)
            os.kill(server.leader(), signal.SIGTERM)
            answers = asked.answers()
            self.ended_well(server, 10)
        for status, text, _ in answers:
            self.assertEqual(status, 200, text[-300:])
            self.assertNotIn('"error"', text)

    @unittest.skipUnless(IS_FULL, "MINIM_DISTRIBUTED_TESTS=full runs it")
    def test_a_follower_that_gets_the_signal_goes_on(self):
        with Server(2, "-ep", 2) as server:
            server.signal(1, signal.SIGTERM)
            self.assertEqual(server.chat(QUESTIONS[0], max_tokens=20)[0], 200)
            os.kill(server.leader(), signal.SIGTERM)
            self.ended_well(server, 10)

    def test_the_launcher_ends_all(self):
        """As when a process of another machine is lost: the launcher sends SIGTERM to all, and SIGKILL a second later."""
        for number in (signal.SIGTERM, signal.SIGINT) if IS_FULL else (signal.SIGTERM,):  # of a batch system, of a terminal
            with self.subTest(number=number), Server(2, "-ep", 2) as server:
                asked = Asked(server, 3900)
                now = time.time()
                os.kill(server.process.pid, number)
                self.failed_with(asked.answers(), now, 2, "launcher")
                self.assertNotIn(server.wait(10), (0, None))
                self.left_nothing(server)

    def test_a_launcher_that_dies(self):
        with Server(2, "-ep", 2) as server:
            asked = Asked(server, 3900)
            os.kill(server.process.pid, signal.SIGKILL)
            server.wait(10)
            self.left_nothing(server)
            asked.answers()

    def test_the_leader_ends_requests_that_stand_still(self):
        """Once it is told to end: nothing says that the other process has ended, and it does not answer."""
        with Server(2, "-ep", 2) as server:
            asked = Asked(server, 3900)
            server.signal(1, signal.SIGSTOP)
            time.sleep(0.1)
            now = time.time()
            os.kill(server.leader(), signal.SIGTERM)
            self.failed_with(asked.answers(), now, 0.7, "do not answer")
            self.assertNotIn(server.wait(10), (0, None))
            self.left_nothing(server)


class Losses(ServerCase):
    def lose(self, victim, number, options=(), error_within=1.0):
        with Server(2, "-ep", 2, *options) as server:
            asked = Asked(server, 3900)
            now = server.signal(victim, number)
            answers = asked.answers()
            if victim:
                self.failed_with(answers, now, error_within, rf"rank {victim} \(host \S+, process \d+\) has")
            code = server.wait(error_within + 10)
            self.assertNotIn(code, (0, None))
            self.left_nothing(server, 10)
            if not victim:
                self.assertRegex(server.logged(), r"rank 0 \(host \S+, process \d+\) has ended")

    def test_a_process_that_is_lost(self):
        for number in (signal.SIGKILL, signal.SIGSEGV) if IS_FULL else (signal.SIGKILL,):
            with self.subTest(number=number):
                self.lose(1, number)

    def test_a_process_that_stands_still(self):
        self.lose(1, signal.SIGSTOP, ("--rank-timeout", 1), 2.5)

    def test_the_leader(self):
        self.lose(0, signal.SIGKILL)

    def test_an_idle_server(self):
        """New requests and /health are told of the loss, and the server ends with exit code 1."""
        with Server(2, "-ep", 2) as server:
            leader = server.leader()
            self.assertEqual(server.ask("GET", "/health")[0], 200)
            victim = server.signal(1, signal.SIGKILL)
            seen = []
            while time.time() - victim < 5 and leader in server.pids():
                seen.append((server.ask("GET", "/health", timeout=2), server.chat("Hello!", max_tokens=2)))
                time.sleep(0.02)
            self.assertLess(time.time() - victim, 1.5)
            health = [(status, text) for (status, text, _), _ in seen if status not in (0, 200)]
            self.assertTrue(health)
            self.assertEqual({status for status, _ in health}, {503})
            self.assertRegex(health[0][1], r"rank 1 .* has ended")
            chats = [(status, text) for _, (status, text, _) in seen if status not in (0, 200)]
            self.assertTrue(chats)
            for status, text in chats:
                self.assertGreaterEqual(status, 500)
                self.assertRegex(json.loads(text)["error"]["message"], r"rank 1 .* has ended")
            self.assertNotIn(server.wait(10), (0, None))
            self.left_nothing(server)

    @unittest.skipUnless(IS_FULL, "MINIM_DISTRIBUTED_TESTS=full runs it")
    def test_fifty_losses(self):
        for _ in range(50):
            self.lose(1, signal.SIGKILL)


if __name__ == "__main__":
    unittest.main()
