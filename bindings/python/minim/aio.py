# SPDX-License-Identifier: Apache-2.0
"""minim for asyncio: the requests of an engine as asynchronous iterators.

    model = minim.Model("model.gguf")
    async with minim.aio.Engine(model, kv_tokens=65536) as engine:
        async with engine.submit(messages=[{"role": "user", "content": "Hello"}]) as request:
            async for token in request:
                print(token.text, end="", flush=True)
        print(request.finish_reason)

The engine's thread wakes the event loop through `notify`, once for all requests that have something new, so no thread blocks.
An Engine belongs to the loop in which it submits.
"""

from __future__ import annotations

import asyncio
import threading
import typing

import minim

__all__ = ["Engine", "Request"]


class _Wakeups:
    """Events of one loop that another thread sets, all waiting ones with one call."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._lock = threading.Lock()
        self._waiting: typing.List[asyncio.Event] = []

    def wake(self, event: asyncio.Event) -> None:
        """Wakes the loop; callable from any thread."""
        with self._lock:
            self._waiting.append(event)
            is_first = len(self._waiting) == 1
        if is_first:
            try:
                self._loop.call_soon_threadsafe(self._run)
            except RuntimeError:  # the loop is closed: nobody waits any more
                pass

    def _run(self) -> None:
        with self._lock:
            events, self._waiting = self._waiting, []
        for event in events:
            event.set()


class Request:
    """One request of an Engine. Iterate over its minim.Tokens, or await result(). `async with` cancels it at the end of the block if it
    is still running. One task at a time."""

    def __init__(self, submit: typing.Callable[[typing.Callable[[], None]], minim.Request], wakeups: _Wakeups):
        self._event = asyncio.Event()
        self._request = submit(lambda: wakeups.wake(self._event))

    def __aiter__(self) -> Request:
        return self

    async def __anext__(self) -> minim.Token:
        while True:
            self._event.clear()
            token = self._request.poll()
            if token is None:
                raise StopAsyncIteration
            if token is not minim.PENDING:
                return token
            await self._event.wait()

    async def result(self) -> minim.Answer:
        """Waits for the end and returns an Answer with the ids and the text that have not been iterated over. asyncio.wait_for() may
        cancel it; called again, it loses nothing of the answer."""
        while True:
            self._event.clear()
            answer = self._request.poll_result()
            if answer is not minim.PENDING:
                return answer
            await self._event.wait()

    def cancel(self) -> None:
        """Ends the answer after the tokens reported so far."""
        self._request.cancel()

    @property
    def state(self) -> minim.RequestState:
        return self._request.state

    @property
    def finish_reason(self) -> typing.Optional[minim.FinishReason]:
        return self._request.finish_reason

    async def __aenter__(self) -> Request:
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self.finish_reason is None:
            self.cancel()


class Engine:
    """A minim.Engine for one event loop, with the same arguments. `async with` closes it, which ends running requests."""

    def __init__(self, model: minim.Model, **params: typing.Any):
        self._engine = minim.Engine(model, **params)
        self._wakeups: typing.Optional[_Wakeups] = None

    def submit(self, prompt: typing.Any = None, **options: typing.Any) -> Request:
        """Submits a prompt or `messages` and returns at once; the arguments are those of minim.Engine.submit(), except n: submit a
        prompt several times instead, which evaluates it once too."""
        if "n" in options:
            raise TypeError("submit() has no n: submit the prompt several times, with seeds of their own")
        if self._wakeups is None:
            self._wakeups = _Wakeups(asyncio.get_running_loop())
        return Request(lambda notify: self._engine.submit(prompt, notify=notify, **options), self._wakeups)

    async def generate(self, prompt: typing.Any = None, **options: typing.Any) -> minim.Answer:
        """Waits for the whole Answer. Cancelling the task cancels the request."""
        async with self.submit(prompt, **options) as request:
            return await request.result()

    async def drain(self, timeout: typing.Optional[float] = None) -> bool:
        """Refuses new requests and waits for the running ones. Returns False if they are not done within `timeout` seconds."""
        return await asyncio.get_running_loop().run_in_executor(None, self._engine.drain, timeout)

    @property
    def state(self) -> minim.EngineState:
        return self._engine.state

    async def __aenter__(self) -> Engine:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._engine.close)
