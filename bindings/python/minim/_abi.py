# SPDX-License-Identifier: Apache-2.0
"""minim.h in ctypes: structures, signatures, errors, handles, and where the library is; __init__.py uses it. The structures and
signatures themselves are in _tables.py, which is written from the header."""

import atexit
import ctypes as c
import ctypes.util
import enum
import importlib.util
import os
import pathlib
import sys
import threading
import time
import typing
import weakref

from . import _tables as tables


class Named(str, enum.Enum):
    """A str with its number in minim.h: int(Status.FORMAT) is MINIM_E_FORMAT."""

    def __new__(cls, text, number):
        member = str.__new__(cls, text)
        member._value_ = text
        member._number = number
        return member

    def __int__(self):
        return self._number

    __str__ = str.__str__
    __format__ = str.__format__


class Status(Named):
    OK = "ok", 0
    INVALID = "invalid", 1
    NOT_FOUND = "not_found", 2
    IO = "io", 3
    FORMAT = "format", 4
    UNSUPPORTED = "unsupported", 5
    OUT_OF_MEMORY = "out_of_memory", 6
    OUT_OF_DEVICE_MEMORY = "out_of_device_memory", 7
    CONTEXT_FULL = "context_full", 8
    CANCELLED = "cancelled", 9
    DEVICE_LOST = "device_lost", 10
    BUSY = "busy", 11
    INTERNAL = "internal", 12
    PEER_LOST = "peer_lost", 13


class Reason(Named):
    """The fault of a bad file."""

    TRUNCATED = "truncated", 1
    FORMAT = "format", 2
    LIMIT = "limit", 3
    TYPE = "type", 4
    SHAPE = "shape", 5
    OFFSET = "offset", 6
    DUPLICATE = "duplicate", 7
    VALUE = "value", 8
    IO = "io", 9


def by_number(kind, number, otherwise=None):
    return next((member for member in kind if int(member) == number), otherwise)


class Error(Exception):
    """A failed call: status, reason (None unless a file is bad), message, and the figures of minim_error."""

    def __init__(self, status, message, reason=None, offset=-1, requested=0, available=0, os_code=0, device=-1):
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message
        self.offset, self.requested, self.available, self.os_code = offset, requested, available, os_code
        self.device = device

    def __str__(self):
        return self.message

    def __reduce__(self):
        """Supports pickle and copy, which do not know the arguments."""
        figures = (self.offset, self.requested, self.available, self.os_code, self.device)
        return (type(self), (self.status, self.message, self.reason, *figures))


class FileError(Error, OSError):
    """The system failed to read or write: status IO. `errno` is the system's error number, if there is one."""

    def __init__(self, status, message, *figures):
        super().__init__(status, message, *figures)
        self.errno, self.strerror = self.os_code or None, message


class MissingFileError(FileError, FileNotFoundError):
    """A file or folder does not exist: status NOT_FOUND."""


class OutOfMemoryError(Error, MemoryError):
    """Memory of the host or of a device is short: status OUT_OF_MEMORY or OUT_OF_DEVICE_MEMORY."""


class ArgumentError(Error, ValueError):
    """An argument of the package's own classes is refused, before the library is called: status INVALID."""


def refusal(message):
    return ArgumentError(Status.INVALID, message)


def _error_class(status, os_code):
    if status == Status.IO:
        return FileError
    if status == Status.NOT_FOUND and os_code != 0:
        return MissingFileError
    if status in (Status.OUT_OF_MEMORY, Status.OUT_OF_DEVICE_MEMORY):
        return OutOfMemoryError
    return Error


i32, u32, i64, u64, f32, f64 = c.c_int32, c.c_uint32, c.c_int64, c.c_uint64, c.c_float, c.c_double
size, text, pointer, ids = c.c_size_t, c.c_char_p, c.c_void_p, c.POINTER(c.c_int32)

_TYPES = {
    "void": None,
    "int32_t": i32,
    "minim_status": i32,
    "uint32_t": u32,
    "int64_t": i64,
    "uint64_t": u64,
    "size_t": size,
    "float": f32,
    "double": f64,
    "const char*": text,
    "const int32_t*": ids,
}
# Texts that come with a length, as they may hold zeros: ctypes would cut a c_char_p there.
_WITH_LENGTH = {
    "minim_token.text",
    "minim_text_data",
    "minim_output_delta.name",
    "minim_output_delta.text",
    "minim_output_info.content",
    "minim_output_info.reasoning",
    "minim_tool_call.name",
    "minim_tool_call.arguments",
}


def _type_of(c_type, owner=""):
    """Returns the ctypes type for a type of the header; pointers to other types are c_void_p."""
    if owner in _WITH_LENGTH:
        return pointer
    return _TYPES[c_type] if c_type in _TYPES else _CALLBACKS.get(c_type, pointer)


class _Sized(c.Structure):
    def __init__(self, **fields):
        super().__init__(size=c.sizeof(type(self)), **fields)


def _structure(name, fields):
    """Makes a ctypes structure; if its first field is the size, its constructor sets it."""

    def field(field_name, c_type, length=None):
        if c_type == "char":
            return field_name, c.c_char * length
        kind = pointer if c_type == "const int32_t*" else _type_of(c_type, f"{name}.{field_name}")
        return field_name, kind if length is None else kind * length

    base = _Sized if fields[0][0] == "size" else c.Structure
    return type(name, (base,), {"_fields_": [field(*entry) for entry in fields]})


_CALLBACKS = {}
for _name, (_result, _arguments) in tables.CALLBACKS.items():
    _CALLBACKS[_name] = c.CFUNCTYPE(_type_of(_result), *map(_type_of, _arguments))
STRUCTURES = {name: _structure(name, fields) for name, fields in tables.STRUCTS.items()}

LogFn, ProgressFn = _CALLBACKS["minim_log_fn"], _CALLBACKS["minim_progress_fn"]
NotifyFn = _CALLBACKS["minim_notify_fn"]
ConvertProgressFn = _CALLBACKS["minim_convert_progress_fn"]
ErrorInfo = STRUCTURES["minim_error"]
RuntimeParams = STRUCTURES["minim_runtime_params"]
TensorInfo = STRUCTURES["minim_tensor_info"]
RecommendedSampling = STRUCTURES["minim_recommended_sampling"]
ConvertProgress = STRUCTURES["minim_convert_progress"]
ConvertParams = STRUCTURES["minim_convert_params"]
ModelParams = STRUCTURES["minim_model_params"]
DeviceInfo = STRUCTURES["minim_device_info"]
ModelInfo = STRUCTURES["minim_model_info"]
DeviceMemory = STRUCTURES["minim_device_memory"]
NodeMemory = STRUCTURES["minim_node_memory"]
LayerDevices = STRUCTURES["minim_layer_devices"]
ExpertCache = STRUCTURES["minim_expert_cache"]
SessionParams = STRUCTURES["minim_session_params"]
OptionInfo = STRUCTURES["minim_option_info"]
Token = STRUCTURES["minim_token"]
TokenProbability = STRUCTURES["minim_token_probability"]
GenerateResult = STRUCTURES["minim_generate_result"]
ConstraintParams = STRUCTURES["minim_constraint_params"]
ImportanceParams = STRUCTURES["minim_importance_params"]
ChatParams = STRUCTURES["minim_chat_params"]
ChatMarkup = STRUCTURES["minim_chat_markup"]
OutputParserParams = STRUCTURES["minim_output_parser_params"]
OutputDelta = STRUCTURES["minim_output_delta"]
OutputInfo = STRUCTURES["minim_output_info"]
ToolCall = STRUCTURES["minim_tool_call"]
PlanParams = STRUCTURES["minim_plan_params"]
CheckParams = STRUCTURES["minim_check_params"]
EngineParams = STRUCTURES["minim_engine_params"]
EngineState = STRUCTURES["minim_engine_state"]
RequestParams = STRUCTURES["minim_request_params"]
RequestState = STRUCTURES["minim_request_state"]
FormatInfo = STRUCTURES["minim_format_info"]


def _library_path():
    if os.environ.get("MINIM_LIBRARY"):
        return os.environ["MINIM_LIBRARY"]
    folder = pathlib.Path(__file__).resolve().parent
    inside = folder / "libminim.so.0"
    if inside.exists():
        return str(inside)
    build = folder.parents[2] / "build"
    built = [*build.glob("libminim.so"), *build.glob("*/libminim.so")]
    if built:
        return str(max(built, key=lambda path: path.stat().st_mtime))
    return ctypes.util.find_library("minim") or "libminim.so.0"


def _name_nccl():
    """Tells the library, for sums between GPUs, the folder of NCCL if that is installed as a Python package."""
    try:
        package = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        return
    for folder in package.submodule_search_locations if package else ():
        if (pathlib.Path(folder) / "lib").is_dir():
            os.environ.setdefault("MINIM_NCCL_FOLDER", str(pathlib.Path(folder) / "lib"))


def _load_library():
    _name_nccl()
    try:
        library = c.CDLL(_library_path())
    except OSError as error:
        raise ImportError(f"cannot load the minim library: {error}; MINIM_LIBRARY may name it") from error
    for name, (result, arguments) in tables.FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = _type_of(result, name), [_type_of(kind) for kind in arguments]
    return library


library = _load_library()
notify_fd = NotifyFn(("minim_notify_fd", library))  # of the library: its call needs no lock of Python


# The calls, without "minim_". ctypes would pass a handle of a call that it does not know as a C int.
DECLARED = {name.removeprefix("minim_") for name in tables.FUNCTIONS}


def call(name, *arguments):
    if name not in DECLARED:
        raise AttributeError(f"minim_{name} is not a call of minim.h as _tables.py has it")
    return getattr(library, "minim_" + name)(*arguments)


def check(name, *arguments):
    err = ErrorInfo()
    if call(name, *arguments, c.byref(err)) != 0:
        status = by_number(Status, err.status, Status.INTERNAL)
        raise _error_class(status, err.os_code)(
            status,
            err.message.decode("utf-8", "replace"),
            by_number(Reason, err.reason),
            err.offset,
            err.requested,
            err.available,
            err.os_code,
            err.device,
        )


def bytes_at(data, length):
    """Returns the bytes at a pointer with a length; None for NULL."""
    return None if data is None else c.string_at(data, length)


def take_text(text):
    """Returns the bytes of a minim_text and releases it."""
    try:
        return c.string_at(call("text_data", text), call("text_length", text))
    finally:
        call("text_free", text)


def take_tokens(tokens):
    try:
        data = c.cast(call("tokens_data", tokens), ids)
        return data[: call("tokens_count", tokens)]
    finally:
        call("tokens_free", tokens)


def no_copy(self, *protocol):
    """The __reduce_ex__ of objects with memory of the library, through which copy and pickle go: two of them would release it twice."""
    name = type(self).__name__
    instead = _IN_PLACE_OF_COPIES.get(name, "share the object itself between threads, and make a new one in another process")
    raise TypeError(f"a minim {name} cannot be copied or pickled, as its memory is the library's: {instead}")


_IN_PLACE_OF_COPIES = {
    "Session": "fork() makes a second session, and save_bytes() gives bytes for Model.restore_bytes()",
}


class _Callback(threading.local):
    """A `with` block around a callback of the library: tells a release that it may be on the thread of the engine that it ends."""

    depth = 0

    def __enter__(self):
        self.depth += 1

    def __exit__(self, *exception):
        self.depth -= 1


callback = _Callback()


class Handle:
    """One handle of the library. It is released once: by close(), when it is collected, or when the interpreter exits; if another
    thread is in a call on it, at the end of that call. Exceptions of callbacks are stored in _raised, which the children of a runtime
    share. `kept` is an object that lives until the release, such as the runtime, to whose log the library may still write.
    """

    _handle, _raised, _lock = None, (), threading.RLock()  # of an object that is not made yet
    _interrupt: typing.Optional[str] = None  # the call that ends the running calls of other threads, for the exit
    _all: "weakref.WeakSet[Handle]" = weakref.WeakSet()
    _is_exiting = False  # of the class: all handles are released, and no new ones are made
    _releasing: typing.List[int] = []  # an entry for each release that is running now
    _kept: typing.List[object] = []  # what engines may use until the process ends, as they could not be waited for
    _late: typing.List[BaseException] = []  # what signals raised during releases; the next call raises it

    __reduce_ex__ = no_copy

    def _own(self, release, handle, raised, kept=None):
        if Handle._is_exiting:
            call(release, handle)
            _let_the_process_end()
            raise ValueError(f"there is no new {type(self).__name__}: the interpreter is exiting, and minim is closed")
        self._handle, self._raised, self._lock, self._users = handle, raised, threading.RLock(), 0
        self._release = weakref.finalize(self, self._release_now, release, handle, kept)
        self._release.atexit = False  # _release_all() does it
        self._all.add(self)

    @staticmethod
    def _release_now(release, handle, kept):
        if release == "engine_free" and callback.depth > 0:
            # The engine's thread cannot wait for its own end, and `kept` has to live until then.
            try:
                threading.Thread(target=Handle._release_here, args=(release, handle, kept)).start()
                return
            except RuntimeError:  # the interpreter is exiting
                Handle._kept.append(kept)
        Handle._release_here(release, handle, kept)

    @staticmethod
    def _release_here(release, handle, kept):
        Handle._releasing.append(handle)
        try:
            call(release, handle)
        except BaseException as error:  # of a signal's handler, such as KeyboardInterrupt: the garbage collector would only print it
            Handle._late.append(error)
        finally:
            Handle._releasing.remove(handle)

    @staticmethod
    def _raise_late():
        if Handle._late and threading.current_thread() is threading.main_thread():
            raise Handle._late.pop(0)

    def close(self):
        if not hasattr(self, "_release"):
            return
        with self._lock:
            self._handle = None
            is_unused = self._users == 0
        if is_unused:  # outside of the lock: an engine waits for its thread, which may be in a callback that needs the lock
            self._release()
            self._raise_late()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def _require_open(self):
        if self._handle is None:
            raise ValueError(f"the {type(self).__name__} is closed")

    def _use(self, function, name, *arguments):
        is_user, is_done = False, False
        try:
            with self._lock:
                self._require_open()
                handle = self._handle
                self._users += 1
                is_user = True
            result = function(name, handle, *arguments)
            is_done = True
            return result
        finally:
            if is_user:
                with self._lock:
                    self._users -= 1
                    is_last = self._users == 0 and self._handle is None
                if is_last:
                    self._release()
            if Handle._is_exiting and not is_done:
                _let_the_process_end()
            if self._raised:
                raise self._raised.pop(0)
            self._raise_late()

    def _get(self, name, *arguments):
        return self._use(call, name, *arguments)

    def _check(self, name, *arguments):
        return self._use(check, name, *arguments)

    def _out(self, take, name, *arguments):
        out = pointer()
        try:
            self._check(name, *arguments, c.byref(out))
        finally:
            result = take(out) if out else None
        return result


_EXIT_SECONDS = 10  # how long the exit waits for calls of other threads
_HOLD_SECONDS = 2  # and how long a thread waits for the end of the process


def _let_the_process_end():
    """Holds up a daemon thread whose call failed as the interpreter exits, before the error is raised: the process may end meanwhile. A
    thread that prints a traceback just then can make CPython abort, as it has the lock of stderr.
    """
    if threading.get_ident() == threading.main_thread().ident:
        return
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code is Handle._use.__code__:  # a call inside of another one, whose handle is to be released first
            return
        frame = frame.f_back
    time.sleep(_HOLD_SECONDS)


def _release_all():
    """Closes all handles before the interpreter ends. Calls of daemon threads are ended first: a thread that came back from the library
    into an interpreter that is gone, or was in a callback, would crash the process. Handles of calls that do not end stay unreleased.
    """
    Handle._is_exiting = True
    handles = _all_handles()
    for handle in handles:
        with handle._lock:
            if handle._users > 0 and handle._interrupt is not None and handle._handle is not None:
                call(handle._interrupt, handle._handle)
            handle._handle = None
    for handle in handles:
        handle.close()
    end = time.monotonic() + _EXIT_SECONDS
    while any(handle._release.alive for handle in handles) or Handle._releasing:
        if time.monotonic() > end:
            break
        time.sleep(0.001)


def _all_handles():
    while True:
        try:
            return list(Handle._all)
        except RuntimeError:  # another thread made one meanwhile
            pass


# The first finalizer of a process makes weakref register its own function for the exit, after which finalizers do nothing. Functions run
# in the opposite order, so that one has to be registered before ours.
weakref.finalize(Handle, int).atexit = False
atexit.register(_release_all)


def _renew_locks():
    """In the child of a fork: threads of the parent that had a lock, or were in a call, do not exist."""
    Handle._releasing.clear()
    for handle in _all_handles():
        handle._lock, handle._users = threading.RLock(), 0
        if hasattr(handle, "_reading"):
            handle._reading = threading.Lock()


os.register_at_fork(after_in_child=_renew_locks)
