"""minim.h in ctypes: structures, signatures, errors, handles, and where the library is; minim.py uses it."""

import ctypes as c
import ctypes.util
import enum
import os
import pathlib
import threading
import weakref


class Named(str, enum.Enum):
    """A text that also knows its number in minim.h: int(Status.FORMAT) is MINIM_E_FORMAT."""

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


class Reason(Named):
    """What is wrong with a file."""

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

    def __reduce__(self):
        """For pickle and copy, which know nothing of the arguments."""
        figures = (self.offset, self.requested, self.available, self.os_code, self.device)
        return (type(self), (self.status, self.message, self.reason, *figures))


class _Sized(c.Structure):
    def __init__(self, **fields):
        super().__init__(size=c.sizeof(type(self)), **fields)


def _struct(name, /, **fields):
    """A ctypes structure whose first field is the size, which its constructor fills in."""
    return type(name, (_Sized,), {"_fields_": [("size", c.c_uint32), *fields.items()]})


i32, u32, i64, u64, f32, f64 = c.c_int32, c.c_uint32, c.c_int64, c.c_uint64, c.c_float, c.c_double
size, text, pointer, ids = c.c_size_t, c.c_char_p, c.c_void_p, c.POINTER(c.c_int32)
LogFn = c.CFUNCTYPE(None, pointer, i32, text)
ProgressFn = c.CFUNCTYPE(i32, pointer, u64, u64)

ErrorInfo = _struct(
    "minim_error",
    status=i32,
    reason=i32,
    device=i32,
    os_code=i64,
    requested=i64,
    available=i64,
    offset=i64,
    message=c.c_char * 1024,
)
RuntimeParams = _struct(
    "minim_runtime_params",
    flags=u32,
    n_threads=i32,
    log_level=i32,
    log=LogFn,
    log_user_data=pointer,
    n_threads_decode=i32,
    pin_threads=i32,
    parallel_for=pointer,
    parallel_for_user_data=pointer,
    numa=i32,
    reserved=u32,
)
TensorInfo = _struct("minim_tensor_info", n_dims=i32, dims=i64 * 8, bytes=u64, name=text, format=text)
ModelParams = _struct(
    "minim_model_params",
    flags=u32,
    backend=text,
    residence=i32,
    engine_tokenizer=i32,
    progress=ProgressFn,
    progress_user_data=pointer,
    devices=text,
    split=pointer,
    n_split=size,
    n_device_layers=i32,
    allow_cpu=i32,
    budgets=pointer,
    n_budgets=size,
    overrides=text,
    n_host_experts=i64,
    fit_context=i64,
    lock=i32,
    prefault=i32,
    deterministic=i32,
    expand=i32,
    packed_file=text,
)
DeviceInfo = _struct(
    "minim_device_info",
    usable=i32,
    memory_bytes=u64,
    free_bytes=u64,
    name=text,
    description=text,
    reason=text,
)
ModelInfo = _struct(
    "minim_model_info",
    n_layer=i32,
    hidden=i64,
    n_head=i32,
    n_head_kv=i32,
    head_dim=i32,
    rotary_dim=i32,
    n_expert=i32,
    n_expert_used=i32,
    expert_ff=i64,
    n_vocab=i64,
    n_context_train=i64,
    n_parameters=i64,
    weight_bytes=u64,
    kv_token_bytes_f16=u64,
    rope_theta=f64,
    name=text,
    backend=text,
    placement=text,
)
DeviceMemory = _struct(
    "minim_device_memory",
    first_layer=i32,
    n_layer=i32,
    weights_mapped=i32,
    weight_bytes=u64,
    expert_bytes=u64,
    kv_bytes=u64,
    work_bytes=u64,
    free_bytes=u64,
    name=text,
    kept_bytes=u64,
    budget_bytes=u64,
    n_expert_layers=i64,
    token_in_bytes=u64,
    token_out_bytes=u64,
    locked_bytes=u64,
)
NodeMemory = _struct(
    "minim_node_memory", node=i32, n_threads=i32, n_threads_decode=i32, wanted_bytes=u64, weight_bytes=u64
)
LayerDevices = _struct("minim_layer_devices", device=i32, experts=i32)
SessionParams = _struct(
    "minim_session_params", flags=u32, max_context=u64, k_format=i32, v_format=i32, n_batch=i32, n_ubatch=i32
)
OptionInfo = _struct(
    "minim_option_info", type=i32, minimum=f64, maximum=f64, default_value=f64, name=text, help=text
)
Token = _struct("minim_token", id=i32, text=pointer, text_length=size, logprob=f32, n_top=i32, top=pointer)
GenerateResult = _struct(
    "minim_generate_result",
    finish=i32,
    stop_token=i32,
    reserved=u32,
    n_prompt=u64,
    n_generated=u64,
    prompt_us=u64,
    generate_us=u64,
    seed=u64,
)
ConstraintParams = _struct("minim_constraint_params", flags=u32, starts_after=text)

EngineParams = _struct(
    "minim_engine_params",
    flags=u32,
    kv_tokens=u64,
    k_format=i32,
    v_format=i32,
    n_requests=i32,
    n_batch=i32,
    n_prompt_rows=i32,
    forget_prefixes=i32,
)
EngineState = _struct(
    "minim_engine_state",
    reserved=u32,
    n_waiting=u64,
    n_running=u64,
    n_steps=u64,
    n_evaluated=u64,
    n_preempted=u64,
    n_pages=u64,
    n_pages_held=u64,
    n_pages_cached=u64,
)
RequestParams = _struct(
    "minim_request_params",
    flags=u32,
    priority=i32,
    reserved=i32,
    timeout_ms=i64,
    notify=pointer,
    notify_user_data=pointer,
)
RequestState = _struct(
    "minim_request_state",
    finish=i32,
    stop_token=i32,
    reserved=u32,
    n_prompt=u64,
    n_cached=u64,
    n_generated=u64,
    n_preempted=u64,
    queue_us=u64,
    prompt_us=u64,
    generate_us=u64,
    seed=u64,
)


class TokenProbability(c.Structure):
    _fields_ = [("id", i32), ("logprob", f32)]


# Calls that return a status: the arguments before the minim_error, which each takes last.
_STATUS_CALLS = {
    "runtime_create": [pointer, pointer],
    "checkpoint_open": [pointer, text, pointer],
    "checkpoint_metadata": [pointer, text, size, pointer],
    "checkpoint_tensor": [pointer, size, pointer],
    "devices_list": [pointer, pointer],
    "devices_get": [pointer, size, pointer],
    "model_nodes": [pointer, pointer, size, pointer],
    "model_open": [pointer, text, pointer, pointer, pointer],
    "model_get_info": [pointer, pointer],
    "model_device_memory": [pointer, size, pointer],
    "model_layer_devices": [pointer, i32, pointer],
    "model_checkpoint": [pointer, pointer],
    "tokenize": [pointer, text, size, i32, pointer],
    "detokenize": [pointer, ids, size, i32, pointer],
    "token_text": [pointer, i32, pointer],
    "chat_render": [pointer, text, text, text, pointer],
    "chat_tokenize": [pointer, text, text, text, i32, pointer],
    "session_create": [pointer, pointer, pointer],
    "session_fork": [pointer, pointer],
    "session_save": [pointer, text, pointer],
    "session_restore": [pointer, text, pointer, pointer, pointer],
    "session_truncate": [pointer, size],
    "session_eval": [pointer, ids, size, i32, pointer, size, pointer],
    "constraint_from_schema": [pointer, text, pointer, pointer],
    "constraint_from_regex": [pointer, text, pointer, pointer],
    "constraint_from_choices": [pointer, pointer, size, pointer, pointer],
    "constraint_from_tools": [pointer, text, text, i32, pointer, pointer],
    "sampling_create": [pointer],
    "sampling_set_constraint": [pointer, pointer],
    "sampling_set_i64": [pointer, text, i64],
    "sampling_set_f64": [pointer, text, f64],
    "sampling_add_stop": [pointer, text, size],
    "sampling_add_stop_token": [pointer, i32],
    "sampling_add_logit_bias": [pointer, i32, f32],
    "sampling_option": [size, pointer],
    "generate_begin": [pointer, pointer, ids, size, pointer],
    "generate_next": [pointer, pointer, pointer, pointer],
    "generate_state": [pointer, pointer],
    "engine_create": [pointer, pointer, pointer],
    "engine_drain": [pointer, i64, pointer],
    "engine_get_state": [pointer, pointer],
    "engine_save_prefixes": [pointer, text, pointer],
    "engine_load_prefixes": [pointer, text, pointer, pointer],
    "engine_submit": [pointer, pointer, ids, size, pointer, pointer],
    "request_next": [pointer, i64, pointer, pointer],
    "request_get_state": [pointer, pointer],
    "format_decode": [text, pointer, size, size, pointer],
}
_PLAIN_CALLS = {
    "version": (text, []),
    "build_info": (text, []),
    "has_feature": (i32, [text]),
    "tokens_data": (pointer, [pointer]),
    "tokens_count": (size, [pointer]),
    "text_data": (pointer, [pointer]),
    "text_length": (size, [pointer]),
    "checkpoint_file_count": (size, [pointer]),
    "checkpoint_file_bytes": (u64, [pointer]),
    "checkpoint_metadata_count": (size, [pointer]),
    "runtime_numa": (text, [pointer]),
    "checkpoint_metadata_key": (text, [pointer, size]),
    "checkpoint_tensor_count": (size, [pointer]),
    "devices_count": (size, [pointer]),
    "model_device_count": (size, [pointer]),
    "token_attributes": (i32, [pointer, i32]),
    "session_token_count": (size, [pointer]),
    "session_context_size": (size, [pointer]),
    "session_kv_bytes": (u64, [pointer]),
    "sampling_option_count": (size, []),
}
_RELEASES = [
    "tokens_free",
    "text_free",
    "runtime_free",
    "checkpoint_close",
    "devices_free",
    "model_close",
    "session_free",
    "sampling_free",
    "constraint_free",
    "engine_free",
    "request_cancel",
    "request_free",
]


def _library_path():
    if os.environ.get("MINIM_LIBRARY"):
        return os.environ["MINIM_LIBRARY"]
    build = pathlib.Path(__file__).resolve().parents[2] / "build"
    built = [*build.glob("libminim.so"), *build.glob("*/libminim.so")]
    if built:
        return str(max(built, key=lambda path: path.stat().st_mtime))
    return ctypes.util.find_library("minim") or "libminim.so.0"


def _load_library():
    try:
        library = c.CDLL(_library_path())
    except OSError as error:
        raise ImportError(f"cannot load the minim library: {error}; MINIM_LIBRARY may name it") from error
    for name, arguments in _STATUS_CALLS.items():
        function = getattr(library, "minim_" + name)
        function.restype, function.argtypes = i32, [*arguments, pointer]
    for name, (result, arguments) in _PLAIN_CALLS.items():
        function = getattr(library, "minim_" + name)
        function.restype, function.argtypes = result, arguments
    for name in _RELEASES:
        function = getattr(library, "minim_" + name)
        function.restype, function.argtypes = None, [pointer]
    return library


library = _load_library()


# Those whose arguments ctypes knows: it would pass a handle of a call that it does not know as a C int.
DECLARED = {*_STATUS_CALLS, *_PLAIN_CALLS, *_RELEASES}


def call(name, *arguments):
    if name not in DECLARED:
        raise AttributeError(f"minim_{name} has no row in the tables of minim_abi.py")
    return getattr(library, "minim_" + name)(*arguments)


def check(name, *arguments):
    err = ErrorInfo()
    if call(name, *arguments, c.byref(err)) != 0:
        raise Error(
            by_number(Status, err.status, Status.INTERNAL),
            err.message.decode("utf-8", "replace"),
            by_number(Reason, err.reason),
            err.offset,
            err.requested,
            err.available,
            err.os_code,
            err.device,
        )


def take_text(text):
    """The bytes of a minim_text, which is released."""
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


class Handle:
    """One handle of the library. It is released once: by close(), or when collected; while another thread is
    inside a call on it, by the end of that call. What a callback raised meanwhile waits in _raised, which the
    children of a runtime share. `kept` lives until the release: the runtime, whose log may still be written.
    """

    def _own(self, release, handle, raised, kept=None):
        self._handle, self._raised, self._lock, self._users = handle, raised, threading.RLock(), 0
        self._release = weakref.finalize(self, self._release_now, release, handle, kept)

    @staticmethod
    def _release_now(release, handle, kept):
        call(release, handle)

    def close(self):
        if not hasattr(self, "_release"):
            return
        with self._lock:
            self._handle = None
            if self._users == 0:
                self._release()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def _use(self, function, name, *arguments):
        with self._lock:
            handle = self._handle
            if handle is None:
                raise ValueError(f"the {type(self).__name__} is closed")
            self._users += 1
        try:
            return function(name, handle, *arguments)
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0 and self._handle is None:
                    self._release()
            if self._raised:
                raise self._raised.pop(0)

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
