# SPDX-License-Identifier: Apache-2.0
"""minim for asyncio: the requests of an engine as asynchronous iterators.

    model = minim.Model("model.gguf")
    async with minim.aio.Engine(model, kv_tokens=65536) as engine:
        async with engine.submit(messages=[{"role": "user", "content": "Hello"}]) as request:
            async for token in request:
                print(token.text, end="", flush=True)
        print(request.finish_reason)

The engine's thread wakes the event loop through a pipe, once for all requests that have something new: no thread blocks, and the
engine waits for no Python code.
An Engine may be used from several event loops, at once or one after another; a Request belongs to the loop in which it was submitted.
"""

from __future__ import annotations

import asyncio
import os
import typing
import weakref

import minim

from ._abi import no_copy

__all__ = ["Engine", "Request"]


class _Wakeups:
    """Wakes the tasks of one loop whose requests have something new, as the engine's thread says through a pipe."""

    _PAUSE = 0.001  # seconds: most tokens of a step come together, and are handed over together

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._waiting: typing.List[typing.Tuple[asyncio.Future[None], typing.Callable[[], bool]]] = []
        self._last, self._is_due = 0.0, False
        self._read_end, self._write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._is_open = True
        loop.add_reader(self._read_end, self._read, self._read_end, loop, weakref.ref(self))

    def fileno(self) -> int:
        return self._write_end

    async def wait(self, is_ready: typing.Callable[[], bool]) -> None:
        """Waits until is_ready() is true; it is asked when some request has something new."""
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("a Request of minim.aio.Engine is awaited in another event loop than that of its submit()")
        future = self._loop.create_future()
        self._waiting.append((future, is_ready))
        await future

    @staticmethod
    def _read(read_end: int, loop: asyncio.AbstractEventLoop, owner: weakref.ref[_Wakeups]) -> None:
        is_closed = not os.read(read_end, 1 << 16)
        if is_closed:
            loop.remove_reader(read_end)
            os.close(read_end)
        wakeups = owner()
        if wakeups is None or wakeups._is_due:
            return
        pause = 0.0 if is_closed else wakeups._last + wakeups._PAUSE - loop.time()
        if pause <= 0:
            wakeups._wake()
        else:
            wakeups._is_due = True
            loop.call_later(pause, wakeups._wake)

    def _wake(self) -> None:
        self._is_due = False
        asked, self._waiting = self._waiting, []
        for future, is_ready in asked:
            if future.done():  # its task was cancelled
                continue
            if is_ready():
                future.set_result(None)
            else:
                self._waiting.append((future, is_ready))
        self._last = self._loop.time()

    def close(self) -> None:
        """Wakes all tasks a last time. Called once no request can have something new; by any thread."""
        if self._is_open:
            self._is_open = False
            os.close(self._write_end)
            if self._loop.is_closed():
                os.close(self._read_end)

    __del__ = close


class Request:
    """One request of an Engine. Iterate over its minim.Tokens, or await result(). `async with` cancels it at the end of the block if it
    is still running. One task at a time."""

    __reduce_ex__ = no_copy

    def __init__(self, request: minim.Request, wakeups: _Wakeups):
        self._request, self._wakeups = request, wakeups

    def __aiter__(self) -> Request:
        return self

    async def __anext__(self) -> minim.Token:
        while (token := self._request.poll()) is minim.PENDING:
            await self._wakeups.wait(self._request._has_news)
        if token is None:
            raise StopAsyncIteration
        return token

    async def result(self) -> minim.Answer:
        """Waits for the end and returns an Answer with the ids and the text that have not been iterated over. asyncio.wait_for() may
        cancel it; called again, it loses nothing of the answer."""
        while (answer := self._request.poll_result()) is minim.PENDING:
            await self._wakeups.wait(self._request._has_whole_answer)
        return answer

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
    """A minim.Engine for asyncio, with the same arguments. `async with` closes it, which ends running requests."""

    __reduce_ex__ = no_copy

    def __init__(self, model: minim.Model, **params: typing.Any):
        self._engine = minim.Engine(model, **params)
        self._wakeups: typing.Dict[asyncio.AbstractEventLoop, _Wakeups] = {}  # of each loop that submitted

    def submit(self, prompt: typing.Any = None, **options: typing.Any) -> Request:
        """Submits a prompt or `messages` and returns at once; the arguments are those of minim.Engine.submit(), except n: submit a
        prompt several times instead, which evaluates it once too."""
        if "n" in options:
            raise TypeError("submit() has no n: submit the prompt several times, with seeds of their own")
        if "notify" in options:
            raise TypeError("submit() has no notify: the event loop is notified")
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError("submit() of a minim.aio.Engine needs a running event loop: call it in a coroutine") from None
        wakeups = self._wakeups_of(loop)
        return Request(self._engine.submit(prompt, notify=wakeups, **options), wakeups)

    def _wakeups_of(self, loop: asyncio.AbstractEventLoop) -> _Wakeups:
        wakeups = self._wakeups.get(loop)
        if wakeups is None:
            for other in list(self._wakeups):
                if other.is_closed():  # requests that it left behind keep theirs
                    self._wakeups.pop(other, None)
            wakeups = self._wakeups[loop] = _Wakeups(loop)
        return wakeups

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
        for wakeups in list(self._wakeups.values()):
            wakeups.close()
        self._wakeups.clear()
        await asyncio.sleep(0)  # the loop sees the end of the pipe
