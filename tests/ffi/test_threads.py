import concurrent.futures
import threading
import unittest

from support import Q8_0, minim, model, prompt, prompt_names


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

    def test_decoding_on_fewer_or_pinned_threads_changes_no_bit(self):
        ids = prompt("memory")["ids"][:20]

        def logits(**threads):
            with minim.Model(Q8_0, **threads) as opened, opened.session(context=64) as session:
                session.eval(ids)
                return [session.eval([id]).tobytes() for id in ids[:3]]

        expected = logits(threads=2)
        self.assertEqual(logits(threads=2, threads_decode=1), expected)
        self.assertEqual(logits(threads=1, threads_decode=2, pin_threads=True), expected)

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
