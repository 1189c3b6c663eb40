# SPDX-License-Identifier: Apache-2.0
"""minim.aio: requests as asynchronous iterators."""

import asyncio
import gc
import os
import threading
import time
import unittest

from support import minim, model, prompt, prompt_names

PROMPTS = [prompt(name)["ids"] for name in prompt_names()[:8]]


def answers_of(engine, options):
    requests = [engine.submit(ids, **options) for ids in PROMPTS]
    return [request.result() for request in requests]


class Aio(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.engine = minim.aio.Engine(model(), kv_tokens=16384)

    async def asyncTearDown(self):
        async with self.engine:
            pass

    async def test_answers_are_those_of_the_engine(self):
        options = {"max_tokens": 24, "ignore_end": 1}
        with minim.Engine(model(), kv_tokens=16384) as plain:
            expected = answers_of(plain, options)

        async def iterated(ids):
            request = self.engine.submit(ids, **options)
            tokens = [token async for token in request]
            return [token.id for token in tokens], "".join(token.text for token in tokens), request.finish_reason

        iterations = asyncio.gather(*map(iterated, PROMPTS))
        whole = asyncio.gather(*(self.engine.generate(ids, **options) for ids in PROMPTS))
        self.assertEqual(await iterations, [tuple(answer) for answer in expected])
        self.assertEqual(await whole, expected)

    async def test_32_requests_leave_the_loop_free(self):
        longest = 0.0

        async def watch():
            nonlocal longest
            while True:
                before = time.perf_counter()
                await asyncio.sleep(0)
                longest = max(longest, time.perf_counter() - before)
                await asyncio.sleep(0.001)

        watcher = asyncio.ensure_future(watch())
        requests = [self.engine.submit(PROMPTS[i % 8], max_tokens=32, ignore_end=1) for i in range(32)]
        counts = await asyncio.gather(*(self.count(request) for request in requests))
        watcher.cancel()
        self.assertEqual(counts, [32] * 32)
        self.assertLess(longest, 0.5)  # generous, as the machine may do other work

    async def test_a_request_that_outlives_its_engine_ends(self):
        async with minim.aio.Engine(model(), kv_tokens=4096) as engine:
            request = engine.submit(PROMPTS[0], max_tokens=3000, ignore_end=1)
            task = asyncio.ensure_future(self.count(request))
            await asyncio.sleep(0.01)
        self.assertLess(await asyncio.wait_for(task, 60), 3000)
        self.assertEqual(request.finish_reason, "stopped")

    async def test_the_pipe_is_closed_with_its_engine_and_requests(self):
        def open_files():
            return set(os.listdir("/proc/self/fd"))

        before = open_files()
        for is_closed in (True, False):
            engine = minim.aio.Engine(model(), kv_tokens=1024)
            await engine.generate(PROMPTS[0], max_tokens=2)
            self.assertGreater(len(open_files() - before), 1)
            if is_closed:
                async with engine:
                    pass
            del engine
            gc.collect()
            await asyncio.sleep(0.01)
            self.assertLessEqual(open_files(), before)

    @staticmethod
    async def count(request):
        return len([token async for token in request])

    async def test_a_result_that_was_given_up_loses_nothing(self):
        request = self.engine.submit(PROMPTS[0], max_tokens=400, ignore_end=1)
        with self.assertRaises(asyncio.TimeoutError):
            await asyncio.wait_for(request.result(), 0.001)
        answer = await request.result()
        self.assertEqual(len(answer.ids), 400)
        self.assertEqual(answer.finish_reason, "length")

    async def test_a_cancelled_task_cancels_its_request(self):
        task = asyncio.ensure_future(self.engine.generate(PROMPTS[0], max_tokens=4000, ignore_end=1))
        while self.engine.state.n_running == 0:
            await asyncio.sleep(0.001)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        for _ in range(2000):
            if self.engine.state.n_running == 0:
                break
            await asyncio.sleep(0.005)
        self.assertEqual(self.engine.state.n_running, 0)

    async def test_messages_and_errors(self):
        question = [{"role": "user", "content": "What is the capital of France?"}]
        answer = await self.engine.generate(messages=question, max_tokens=200)
        self.assertIn("Paris", answer.text)
        with self.assertRaisesRegex(TypeError, "either a prompt or messages"):
            self.engine.submit()
        with self.assertRaisesRegex(TypeError, "no n"):
            self.engine.submit(PROMPTS[0], n=2)
        with self.assertRaisesRegex(minim.Error, "empty"):
            self.engine.submit([])
        self.assertTrue(await self.engine.drain(timeout=60))


class Loops(unittest.TestCase):
    def test_an_engine_serves_one_loop_after_another_and_two_at_once(self):
        engine = minim.aio.Engine(model(), kv_tokens=16384)
        options = {"max_tokens": 8, "ignore_end": 1}

        async def ask(repeat=3):
            return [(await engine.generate(PROMPTS[0], **options)).ids for _ in range(repeat)]

        expected = asyncio.run(ask())
        self.assertEqual(asyncio.run(ask()), expected)
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(asyncio.run(ask()))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(answers, [expected] * 3)
        loop = asyncio.new_event_loop()
        self.assertEqual(loop.run_until_complete(ask()), expected)
        self.assertEqual(loop.run_until_complete(ask()), expected)
        loop.close()
        n_open = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            asyncio.run(ask(1))
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), n_open + 2)

        async def leave_behind():
            return engine.submit(PROMPTS[0], max_tokens=3000, ignore_end=1)

        left = asyncio.run(leave_behind())
        self.assertEqual(asyncio.run(ask(1)), expected[:1])

        with self.assertRaisesRegex(RuntimeError, "submit\\(\\) of a minim.aio.Engine needs a running event loop"):
            engine.submit(PROMPTS[0])

        async def read_on():
            await left.result()

        with self.assertRaisesRegex(RuntimeError, "minim.aio.Engine is awaited in another event loop"):
            asyncio.run(read_on())

        async def close():
            async with engine:
                pass

        asyncio.run(close())


if __name__ == "__main__":
    unittest.main()
