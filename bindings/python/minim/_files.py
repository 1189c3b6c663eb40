# SPDX-License-Identifier: Apache-2.0
"""Sessions in Python's file objects. The library reads and writes the descriptors of plain files, whose position must then be that of the
object, which may have read ahead. Any other object (compressed, in memory, a socket's) is read and written through its own methods.
"""

import contextlib
import io
import os
import struct
import tempfile

_BUFFERED = (io.BufferedReader, io.BufferedWriter, io.BufferedRandom)

# The header of a session, as lib/kv/README.md has it: its first 8 bytes, and where the bytes of the whole session are.
_HEADER_BYTES, _MAGIC = 96, b"minim-kv"
_TOTAL = struct.Struct("<80xQ8x")
_PART_BYTES = 1 << 20  # read at once, so that a header with a wrong size allocates no more than the file has


def place_of(file):
    """Returns None for a path, an int for a descriptor or an object that has nothing but one, else a binary file object."""
    if isinstance(file, int) or isinstance(file, (str, bytes, os.PathLike)):
        return file if isinstance(file, int) else None
    if isinstance(file, tempfile._TemporaryFileWrapper):
        file = file.file
    if isinstance(file, io.TextIOBase) or isinstance(getattr(file, "encoding", None), str):
        raise TypeError(f"a session is binary, but the {type(file).__name__} is open for text: open it with 'b' in its mode")
    if not hasattr(file, "write") and not hasattr(file, "read"):  # a socket, a connection
        if hasattr(file, "fileno"):
            return file.fileno()
        raise TypeError(
            f"a {type(file).__name__} is not a path, a descriptor or a file object; save_bytes() and restore_bytes() take bytes"
        )
    return file


def is_plain(file):
    """Returns whether bytes of the object's descriptor are bytes of the object: not for GzipFile, BytesIO, an SSL socket's file ..."""
    return type(file) is io.FileIO or (type(file) in _BUFFERED and type(file.raw) is io.FileIO)


@contextlib.contextmanager
def at_position(file):
    """Gives the descriptor of a plain file, at the position of the object, which is moved to that of the descriptor afterwards."""
    if file.writable():
        file.flush()
    if not file.seekable():
        yield file.fileno()
        return
    descriptor, position = file.fileno(), file.tell()
    ahead = os.lseek(descriptor, 0, os.SEEK_CUR)
    os.lseek(descriptor, position, os.SEEK_SET)
    try:
        yield descriptor
        position = os.lseek(descriptor, 0, os.SEEK_CUR)
    finally:
        os.lseek(descriptor, ahead, os.SEEK_SET)  # the position that the object's buffer assumes
        file.seek(position)


def write_all(file, data):
    """Writes all bytes; a raw file may take a part of them at a time."""
    rest = memoryview(data)
    try:
        while rest:
            count = file.write(rest)
            if count is None and isinstance(file, io.RawIOBase):
                raise BlockingIOError(f"the {type(file).__name__} takes no more bytes now")
            if not isinstance(count, int) or count >= len(rest):  # a write() that says nothing has taken all
                return
            if count <= 0:
                raise OSError(f"write() of the {type(file).__name__} took {count} of {len(rest)} bytes")
            rest = rest[count:]
    finally:
        rest.release()


@contextlib.contextmanager
def session_bytes(file):
    """Gives the bytes of the session at the position of a file object. After an error, the position is where it was, if it can be set."""
    position = _position_of(file)
    try:
        header = _read(file, _HEADER_BYTES)
        rest = b""
        if len(header) == _HEADER_BYTES and header.startswith(_MAGIC):
            rest = _read(file, max(0, _TOTAL.unpack(header)[0] - _HEADER_BYTES))
        yield header + rest
    except BaseException:
        if position is not None:
            file.seek(position)
        raise


def _position_of(file):
    try:
        return file.tell() if file.seekable() else None
    except (AttributeError, OSError):
        return None


def _read(file, count):
    """Reads `count` bytes, or as many as there are."""
    data = bytearray()
    while len(data) < count:
        part = file.read(min(count - len(data), _PART_BYTES))
        if part is None:
            raise BlockingIOError(f"the {type(file).__name__} has no more bytes now")
        if not isinstance(part, (bytes, bytearray, memoryview)):
            raise TypeError(f"a session is binary, but read() of the {type(file).__name__} gives a {type(part).__name__}")
        if not part:
            break
        data += part
    return data
