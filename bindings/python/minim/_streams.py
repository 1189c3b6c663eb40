# SPDX-License-Identifier: Apache-2.0
"""Turns of a session that has one user at a time: of calls that return a whole answer, and of streams, which may never be read to their end.
The lock is held while tokens are computed, never while a stream waits for its reader.
"""

from __future__ import annotations

import os
import threading
import time
import typing
import weakref

import minim

from ._abi import no_copy

Json = typing.Dict[str, typing.Any]

# An open stream that was not read for so many seconds gives way to a call of the thread that read it last: at once on the main thread, which
# cannot read it meanwhile; threads of a pool may read several streams in turn. Calls of other threads raise an error then.
_OWN_SECONDS, _OTHER_SECONDS = 0.2, 2.0


class Turns:
    def __init__(self) -> None:
        self._lock, self._process = threading.Lock(), os.getpid()
        self._open: typing.Optional[weakref.ref[Stream]] = None

    def whole(self, chunks: typing.Iterable[Json]) -> typing.List[Json]:
        """Reads all chunks in one turn."""
        self.take(None)
        try:
            return list(chunks)
        finally:
            self._lock.release()

    def take(self, reader: typing.Optional[Stream]) -> None:
        """Takes the lock once no other stream is open. Raises BUSY if one is, and is not read."""
        if self._process != os.getpid():  # a fork: the thread that had the lock does not exist here
            self._lock, self._process = threading.Lock(), os.getpid()
        while True:
            self._lock.acquire()
            try:
                stream = None if self._open is None else self._open()
                if stream is None or stream is reader or self._gives_way(stream):
                    self._open = None if reader is None else weakref.ref(reader)
                    return
            except BaseException:
                self._lock.release()
                raise
            self._lock.release()
            del stream
            time.sleep(0.005)

    @staticmethod
    def _gives_way(stream: Stream) -> bool:
        idle = time.monotonic() - stream.read_at
        if stream.reader == threading.get_ident():
            if idle < _OWN_SECONDS and threading.current_thread() is not threading.main_thread():
                return False
            stream.end()
            return True
        if idle < _OTHER_SECONDS:
            return False
        raise minim.Error(
            minim.Status.BUSY,
            f"a stream of this Llama is open, and its thread has not read it for {idle:.0f} seconds: read it to its end, or close() it",
        )

    def leave(self, is_at_end: bool) -> None:
        if is_at_end:
            self._open = None
        self._lock.release()


class Stream:
    """An iterator over the chunks of an answer. close() ends it early, as does dropping it; so does another call of the thread that read it."""

    __reduce_ex__ = no_copy

    def __init__(self, turns: Turns, chunks: typing.Generator[Json, None, None]):
        self._turns, self._chunks = turns, chunks
        self._is_ended = False
        self.read_at, self.reader = time.monotonic(), threading.get_ident()

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Json:
        if not self._is_ended:
            self._turns.take(self)
            is_at_end = True
            try:
                chunk = next(self._chunks)
                is_at_end = False
                return chunk
            finally:
                self.read_at, self.reader = time.monotonic(), threading.get_ident()
                self._turns.leave(is_at_end)
        raise minim.Error(minim.Status.INVALID, "another call on this Llama ended this stream")

    def end(self) -> None:
        """Ends it for another call, which has the turn."""
        self._is_ended = True
        self._chunks.close()

    def close(self) -> None:
        if self._is_ended:
            return
        self._turns.take(self)
        try:
            self._chunks.close()
        finally:
            self._turns.leave(True)
