# SPDX-License-Identifier: Apache-2.0
"""minim from Python: ctypes over minim.h, and NumPy for logits.

    import minim

    with minim.Model("model.gguf") as model, model.session(context=2048) as session:
        prompt = model.tokenize_chat([{"role": "user", "content": "What is the capital of France?"}])
        for token in session.generate(prompt, temperature=1.0, top_p=0.95, top_k=40):
            print(token.text, end="", flush=True)
        print(session.finish_reason)

The library is loaded from the file that MINIM_LIBRARY names, else from this package's folder, else from the newest build folder of
the source tree around this file, else from the system. minim.h is the manual: names and meanings are the same here.

minim.aio is for asyncio. minim.LLM has generate() and chat() of vLLM's offline class, minim.Llama the completions of llama-cpp-python's
class; parameters of theirs are used, refused by name, or warned about as without effect.

Handles are released when they are collected, in any order, and when the interpreter exits; close() and `with` do it earlier. Calls on a
released handle raise ValueError. At the exit, calls of daemon threads are ended first, which takes at most ten seconds. A Model may be used from many
threads, a Session by one at a time. An exception in a callback is raised from the call that ran the callback. An exception
in a signal handler, such as Ctrl-C, ends a call on the main thread: the call runs on another thread meanwhile.
"""

import collections
import collections.abc
import ctypes as c
import functools
import importlib
import io
import json
import math
import operator
import os
import re
import threading
import time
import types
import typing

import numpy as np

from . import _abi as abi
from . import _files as files
from ._abi import (
    ArgumentError,
    Error,
    FileError,
    MissingFileError,
    OutOfMemoryError,
    Reason,
    Status,
)

__all__ = [
    "Answer", "ArgumentError", "Cancel", "ChatMarkup", "Checkpoint", "CompletionOutput", "Constraint", "Conversion",
    "Decoder", "Device", "DeviceMemory", "Engine", "EngineState", "Error", "FileError", "FinishReason", "FormatInfo",
    "GenerateResult", "Generation", "Importance", "LLM", "Llama", "MissingFileError", "Model", "NodeMemory",
    "OutOfMemoryError", "OutputParser", "PENDING", "Reason", "RecommendedSampling", "Request", "RequestOutput",
    "RequestState", "SamplingOption", "SamplingParams", "Session", "Status", "StructuredOutputsParams", "TensorInfo",
    "Token", "aio", "build_info", "check", "convert", "decode_format", "devices", "encode_format", "formats",
    "has_feature", "plan", "sampling_options", "version",
]

__version__ = ".".join(map(str, abi.tables.VERSION))


for _kind in (ArgumentError, Error, FileError, MissingFileError, OutOfMemoryError, Reason, Status):
    _kind.__module__ = __name__  # as users know them


class FinishReason(abi.Named):
    END = "end", 1
    STOP_TEXT = "stop_text", 2
    LENGTH = "length", 3
    CONTEXT_FULL = "context_full", 4
    STOPPED = "stopped", 5
    TIMEOUT = "timeout", 6
    TOOL_CALLS = "tool_calls", 7
    LOOP = "loop", 8


def _ids_of(ids):
    """Returns a sequence or array of integers as contiguous int32. Numbers out of range become ids that no token has."""
    array = np.asarray(ids)
    if array.size == 0:
        return np.empty(0, np.int32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError("token ids are a one-dimensional sequence of integers")
    if array.min() < -1 or array.max() >= 2**31:  # np.clip alone takes as long as the whole of most calls
        limits = np.iinfo(array.dtype)
        array = np.clip(array, max(-1, limits.min), min(2**31 - 1, limits.max))
    return array.astype(np.int32, order="C", copy=False)


def _int32(value):
    """Returns an int32 argument. A number out of range becomes the nearest int32, so that the library refuses it."""
    return max(-(2**31), min(2**31 - 1, operator.index(value)))


def _ids_pointer(array):
    return array.ctypes.data_as(abi.ids)


def _utf8(text, name="the text"):
    """Returns a str as UTF-8, or the bytes of a bytes-like object."""
    if not isinstance(text, str):
        view = memoryview(text)
        if view.format not in ("B", "b", "c"):
            raise TypeError(f"{name} is a str or bytes, not {type(text).__name__}")
        return bytes(view)
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        half = text[error.start]
        raise ValueError(
            f"{name} has half of a surrogate pair, {half!r}, at position {error.start}: it stands for no character"
        ) from None


def _zero_terminated(text, name):
    encoded = _utf8(text, name)
    if b"\0" in encoded:
        raise ValueError(f"{name} {text!r} holds a null character")
    return encoded


def _path(path):
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise ValueError(f"the path {path!r} holds a null character")
    return encoded


def _descriptor(file):
    """Returns the descriptor of an int or of an object with one, or None for a path."""
    if isinstance(file, int):
        return _int32(file)
    return None if isinstance(file, (str, bytes, os.PathLike)) else _int32(file.fileno())


def _checkpoint_path(file):
    """Returns a path; an open file's is that of its descriptor, of which the library keeps a copy."""
    if isinstance(file, io.IOBase) and not files.is_plain(getattr(file, "buffer", file)):
        raise TypeError(f"a {type(file).__name__} is not a file of the system: write its bytes to a file, and open that")
    descriptor = _descriptor(file)
    if descriptor is None:
        return _path(file)
    if descriptor < 0:
        raise ValueError(f"the descriptor is {descriptor}; it must not be negative")
    return b"/dev/fd/%d" % descriptor


def _json(value):
    return None if value is None else json.dumps(value).encode()


# ------------------------------------------------------------------------------- runtimes, checkpoints

_LOG_LEVELS = {"off": 0, "error": 1, "warning": 2, "info": 3, "debug": 4}


class _Runtime(abi.Handle):
    def __init__(
        self, threads=0, log=None, log_level=None, threads_decode=0, pin_threads=False, numa="auto"
    ):
        if log is None and log_level is not None:
            raise ValueError(f"log_level is {log_level!r}, but log, which would get the lines, is None")
        level = "warning" if log_level is None else log_level
        if level not in range(len(_LOG_LEVELS)):
            level = _choice(_LOG_LEVELS, level, "log_level")
        raised = []

        @abi.LogFn
        def write(_, level, line):
            with abi.callback:
                try:
                    log(level, line.decode("utf-8", "replace"))
                except BaseException as exception:
                    raised.append(exception)

        params = abi.RuntimeParams(
            n_threads=_int32(threads),
            n_threads_decode=_int32(threads_decode),
            pin_threads=int(pin_threads),
            numa=_choice(_NUMA, numa, "numa"),
        )
        if log is not None:
            params.log, params.log_level = write, operator.index(level)
        out = c.c_void_p()
        abi.check("runtime_create", c.byref(params), c.byref(out))
        self._own("runtime_free", out.value, raised, write)


class TensorInfo(typing.NamedTuple):
    name: str
    shape: tuple  # outermost first
    format: str
    bytes: int


class _Metadata(collections.abc.Mapping):
    """Maps keys to values as text: numbers in decimal, arrays in brackets."""

    def __init__(self, checkpoint):
        self._checkpoint = checkpoint

    def __len__(self):
        return self._checkpoint._get("checkpoint_metadata_count")

    def __iter__(self):
        for index in range(len(self)):
            yield self._checkpoint._get("checkpoint_metadata_key", index).decode("utf-8", "surrogateescape")

    def __getitem__(self, key):
        name = key.encode("utf-8", "surrogateescape")
        if b"\0" in name:
            raise KeyError(key)
        try:
            return self._checkpoint._out(abi.take_text, "checkpoint_metadata", name, 0).decode(
                "utf-8", "replace"
            )
        except Error as error:
            if error.status == Status.NOT_FOUND:
                raise KeyError(key) from None
            raise


class Checkpoint(abi.Handle):
    """The headers of a GGUF or safetensors checkpoint: .metadata maps keys to texts, .tensors lists TensorInfo. `path`: a file or a
    folder, or an open one: a file object or a descriptor, which may be closed afterwards."""

    def __init__(self, path):
        runtime, out = _Runtime(threads=1), c.c_void_p()
        runtime._check("checkpoint_open", _checkpoint_path(path), c.byref(out))
        self._adopt(out.value, runtime._raised, runtime)

    def _adopt(self, handle, raised, runtime):
        self._own("checkpoint_close", handle, raised, runtime)
        self.metadata = _Metadata(self)
        self.file_count = self._get("checkpoint_file_count")
        self.file_bytes = self._get("checkpoint_file_bytes")

    @property
    def recommended_sampling(self):
        """The RecommendedSampling of its makers: temperature, top_p, top_k, min_p ... and `source`, "" if it has none."""
        sampling = abi.RecommendedSampling()
        self._check("checkpoint_recommended_sampling", c.byref(sampling))
        return _values_of(RecommendedSampling, sampling)

    @functools.cached_property
    def tensors(self):
        tensors = []
        for index in range(self._get("checkpoint_tensor_count")):
            info = abi.TensorInfo()
            self._check("checkpoint_tensor", index, c.byref(info))
            tensors.append(
                TensorInfo(
                    info.name.decode("utf-8", "replace"),
                    tuple(info.dims[: info.n_dims]),
                    info.format.decode(),
                    info.bytes,
                )
            )
        return tensors


# ---------------------------------------------------------------------------------------------- models

_SPECIALS = {True: 0, "exact": 0, "safe": 1, False: 2, "none": 2}
_KV_FORMATS = {"auto": 0, "f16": 1, "f32": 2, "bf16": 3, "q8_0": 4, "q4_0": 5}
_RESIDENCE = {None: 0, True: 1, False: 2}  # by `mmap`
_ALL_LAYERS = 2**31 - 1
_EXPAND = {"auto": 0, "off": 1, "on": 2}
_NUMA = {"auto": 0, "off": 1, "interleave": 2, "split": 3}
_EXPERT_MOVES = {"auto": 0, "fixed": 1, "reproducible": 2, "eager": 3}
_EXPERT_CACHE_ROOM = 2**64 - 1
_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def _choice(choices, value, name):
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; possible: {', '.join(map(repr, choices))}")
    return choices[value]


def _cache_bytes(size):
    """Bytes of 4096, "4MiB" or "room"."""
    if size is None or size == "room":
        return 0 if size is None else _EXPERT_CACHE_ROOM
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kKMGT]?i?B)?", str(size))
    if match is None or (match[2] or "B") not in _UNITS:
        raise ValueError(f"expert_cache is {size!r}; bytes, a size like '4MiB', or 'room'")
    return int(float(match[1]) * _UNITS[match[2] or "B"])


def _device_names(devices):
    """Returns a list of names or Devices, or a text with commas, as a list of names; spaces around a name do not count."""
    names = []
    several = [devices] if isinstance(devices, (str, Device)) else list(devices) if devices is not None else []
    for device in several:
        if isinstance(device, Device):
            device = device.name
        if not isinstance(device, str):
            raise TypeError(f"the device {device!r} is not a text such as 'cuda:0'")
        names += [name.strip() for name in device.split(",")] if device.strip() else []
    return names


def _with_budgets(names, budgets):
    """The names of devices as the library takes them, and budgets that are bytes: texts and parts go behind the names."""
    if budgets is None:
        return ",".join(names), None
    several = [budgets] * len(names) if isinstance(budgets, (str, int, float)) else list(budgets)
    several = [operator.index(budget) if hasattr(budget, "__index__") else budget for budget in several]
    if all(isinstance(budget, int) for budget in several):
        return ",".join(names), several
    if len(several) != len(names):
        raise ValueError(f"{len(several)} budgets for {len(names)} devices")
    texts = [f"{budget}B" if isinstance(budget, int) else str(budget) for budget in several]
    return ",".join(name if text == "0B" else f"{name}={text}" for name, text in zip(names, texts)), None


class Device(typing.NamedTuple):
    name: str  # "cpu", "cuda:0"
    description: str
    usable: bool
    reason: str  # why not; "" if it is usable
    memory_bytes: int
    free_bytes: int
    unified: bool  # its memory is the host's


class _Devices(abi.Handle):
    def __init__(self):
        runtime, out = _Runtime(threads=1), c.c_void_p()
        runtime._check("devices_list", c.byref(out))
        self._own("devices_free", out.value, runtime._raised, runtime)

    def __iter__(self):
        for index in range(self._get("devices_count")):
            info = abi.DeviceInfo()
            self._check("devices_get", index, c.byref(info))
            texts = (value.decode("utf-8", "replace") for value in (info.name, info.description, info.reason))
            name, description, reason = texts
            yield Device(name, description, bool(info.usable), reason, info.memory_bytes, info.free_bytes, bool(info.unified))


def devices():
    """Returns the devices of this machine: a list of Device, the CPU first."""
    return list(_Devices())


def plan(
    path,
    *,
    context,
    devices=None,
    host=None,
    parallel=1,
    kv="f16",
    overrides=None,
    split=None,
    ubatch=0,
    threads=0,
    device_layers=0,
    host_experts=0,
    expert_cache=0,
    engine=False,
    tensor_parallel=0,
    expert_parallel=0,
    pipeline_parallel=0,
    link=None,
):
    """Predicts where the weights of a checkpoint go and how fast it runs. Returns a dict; minim.h (minim_plan_make) has its keys.
    Reads only headers. `devices`: texts such as "cuda:0=96GiB,1790GB/s,pcie=50GB/s" or "4x RTX 3090", of devices that need not exist;
    [] is the CPU alone, None the devices of this machine. `host`: "768GiB,576GB/s"; None is this machine. `context`: tokens of each of
    `parallel` sequences. `kv`: a format of the KV cache, or a pair, for K and for V. `overrides`: such as "exps=CPU". `split`: each
    device's share of the layers. `ubatch`: rows of a prompt step; 0 chooses. `device_layers`, `host_experts`, `expert_cache`: as of Model.
    `engine`: the sequences are the requests of an Engine and share a KV cache, whose size is chosen; with context 0 the context too.
    `tensor_parallel`, `expert_parallel`, `pipeline_parallel`: ranks that share every layer, groups of them with whole experts, and stages;
    -1 for one on each device. `link`: between the ranks, such as "9us,20GB/s".
    """
    k_format, v_format = _kv_pair(kv)
    texts = [text for text in ([devices] if isinstance(devices, str) else devices or ()) if text.strip()]
    encoded = [_zero_terminated(text, "the device") for text in texts]
    names = (c.c_char_p * (len(encoded) + 1))(*encoded, None)
    shares = [float(share) for share in split or []]
    params = abi.PlanParams(
        devices=None if devices is None else c.cast(names, c.c_void_p),
        n_devices=len(encoded),
        host=None if host is None else _zero_terminated(host, "the host"),
        n_context=context,
        n_sequences=_int32(parallel),
        n_ubatch=_int32(ubatch),
        k_format=k_format,
        v_format=v_format,
        overrides=None if overrides is None else _zero_terminated(overrides, "the overrides"),
        split=c.cast((c.c_double * len(shares))(*shares), c.c_void_p) if shares else None,
        n_split=len(shares),
        n_device_layers=_int32(device_layers),
        for_engine=int(engine),
        n_host_experts=_ALL_LAYERS if host_experts is True else host_experts,
        expert_cache_bytes=expert_cache,
        tensor_parallel=_int32(tensor_parallel),
        expert_parallel=_int32(expert_parallel),
        pipeline_parallel=_int32(pipeline_parallel),
        link=None if link is None else _zero_terminated(link, "the link"),
    )
    text = c.c_void_p()
    with _Runtime(threads=threads) as runtime:
        runtime._check("plan_make", _checkpoint_path(path), c.byref(params), c.byref(text))
    return json.loads(abi.take_text(text))


class Conversion(typing.NamedTuple):
    """How far convert() is. `result` is the tensor that was just finished, a dict as in the report, or None."""

    done_bytes: int  # of the source
    total_bytes: int
    n_done: int  # tensors that are finished
    n_tensors: int
    tensor: str  # the one that is worked on, or was just finished
    result: typing.Optional[dict]


def _edits(edits):
    """Returns metadata to set, to set as texts, and to remove."""
    values, texts, removed = [], [], []
    for key, value in (edits or {}).items():
        if value is None:
            removed.append(key)
        elif isinstance(value, str):
            texts.append(f"{key}={value}")
        else:
            values.append(f"{key}={str(value).lower() if isinstance(value, bool) else value}")
    return values, texts, removed


_EFFORTS = {"full": 0, "fast": 1}


def convert(
    source,
    output,
    recipe=None,
    *,
    type=None,
    rules=(),
    output_type=None,
    embedding_type=None,
    keep_output=False,
    pure=False,
    allow_requantize=False,
    imatrix=None,
    include_weights=(),
    exclude_weights=(),
    without_importance=False,
    effort="full",
    hashes=True,
    name=None,
    metadata=None,
    part_bytes=0,
    part_tensors=0,
    first_part_empty=False,
    keep_parts=False,
    dry_run=False,
    overwrite=False,
    restart=False,
    verify=True,
    memory=0,
    layout=None,
    keep_experts=None,
    reuse=None,
    container=None,
    threads=0,
    progress=None,
    cancel=None,
    log=None,
    log_level=None,
):
    """Converts a checkpoint of any layout to a GGUF file or a safetensors folder, or quantises it if there is a `recipe`, such as "Q4_K_M".
    Returns the report, a dict; minim.h (minim_convert) has its keys. Work that was interrupted goes on with the same call.
    `type`: of all matrices, without a recipe: "keep", "auto", "f32", "f16", "bf16" or "q8_0". `rules`: a list of "PATTERN=TYPE", or a dict of
    patterns and types; the first regular expression that matches a tensor's GGUF name decides, before the recipe. `output_type`,
    `embedding_type`: of these tensors, before the rules. `pure`: without the recipe's exceptions. `imatrix`: a file of importance data, for
    tensors whose names have one of `include_weights` and none of `exclude_weights`. `effort`: "full" or "fast". `metadata`: a dict of
    metadata keys; None removes one. `part_bytes`, `part_tensors`: limits of a part. `dry_run`: only plan. `memory`: the most memory of all
    buffers, in bytes; 0 is 2 GiB. `layout`: of a folder, "bf16", "fp8", "mxfp8", "nvfp4", "nvfp4-ct", "mxfp4-ct", "int4-g32", "int4-g128" or "int8".
    `keep_experts`: how many of each layer, by `imatrix`, or a file that lists them. `reuse`: an earlier output, from which tensors that would
    be the same are copied. `container`: "gguf" or "safetensors", else by the name of the output. `progress`: progress(Conversion), from another thread; raise an exception to cancel.
    """
    runtime = _Runtime(threads, log, log_level)

    @abi.ConvertProgressFn
    def report(_, pointer):
        try:
            now = abi.ConvertProgress.from_address(pointer)
            result = None if now.result is None else json.loads(now.result)
            tensor = now.tensor.decode("utf-8", "replace")
            progress(Conversion(now.done_bytes, now.total_bytes, now.n_done, now.n_tensors, tensor, result))
            return 0
        except BaseException as exception:
            runtime._raised.append(exception)
            return 1

    def text(value, what):
        return None if value is None else _zero_terminated(value, what)

    kept = []  # arrays that the parameters point to

    def texts(values, what):
        encoded = [_zero_terminated(value, what) for value in ([values] if isinstance(values, str) else values)]
        kept.append((c.c_char_p * (len(encoded) + 1))(*encoded, None))
        return c.cast(kept[-1], c.c_void_p), len(encoded)

    if isinstance(rules, collections.abc.Mapping):
        rules = [f"{pattern}={kind}" for pattern, kind in rules.items()]
    values, strings, removed = _edits(metadata)
    params = abi.ConvertParams(
        recipe=text(recipe, "the recipe"),
        matrix_type=text(type, "the type"),
        output_type=text(output_type, "output_type"),
        embedding_type=text(embedding_type, "embedding_type"),
        keep_output=int(keep_output),
        pure=int(pure),
        allow_requantize=int(allow_requantize),
        without_importance=int(without_importance),
        imatrix=None if imatrix is None else _path(imatrix),
        effort=_choice(_EFFORTS, effort, "effort"),
        no_hashes=int(not hashes),
        name=text(name, "the name"),
        part_bytes=part_bytes,
        part_tensors=part_tensors,
        first_part_empty=int(first_part_empty),
        keep_parts=int(keep_parts),
        dry_run=int(dry_run),
        overwrite=int(overwrite),
        restart=int(restart),
        no_verify=int(not verify),
        memory_bytes=memory,
        layout=text(layout, "the layout"),
        keep_experts=None if keep_experts is None else _path(keep_experts if not isinstance(keep_experts, int) else str(keep_experts)),
        reuse=None if reuse is None else _path(reuse),
        container=text(container, "the container"),
    )
    params.rules, params.n_rules = texts(rules, "a rule")
    params.include_weights, params.n_include_weights = texts(include_weights, "include_weights")
    params.exclude_weights, params.n_exclude_weights = texts(exclude_weights, "exclude_weights")
    params.unset, params.n_unset = texts(removed, "a metadata key")
    params.set, params.n_set = texts(values, "metadata")
    params.set_text, params.n_set_text = texts(strings, "metadata")
    if progress is not None:
        params.progress = report
    paths, out = (_checkpoint_path(source), _path(output)), c.c_void_p()
    with runtime:
        _cancellable(lambda switch: runtime._check("convert", *paths, c.byref(params), switch, c.byref(out)), cancel)
    return json.loads(abi.take_text(out))


def check(
    path,
    *,
    quick=False,
    machine=False,
    sums=None,
    answers=None,
    reference=None,
    want_sums=False,
    want_answers=False,
    threads=0,
    cancel=None,
):
    """Checks whether a checkpoint is whole, is a model of the family, and is computed right here. Returns a dict; minim.h (minim_check)
    has its keys: `faults`, `warnings`, `stages`, and `sums` and `answers` if they are wanted. `quick`: nothing that reads all weights or
    computes. `machine`: also this machine's kernels, devices and storage. `sums`: text as sha256sum writes it. `answers`: those of
    another report. `reference`: path of a checkpoint of the same model.
    """

    def text_or_none(text, what):
        return None if text is None else _zero_terminated(text, what)

    params = abi.CheckParams(
        quick=int(quick),
        wants_sums=int(want_sums),
        wants_answers=int(want_answers),
        machine=int(machine),
        sums=text_or_none(sums, "the sums"),
        answers=text_or_none(answers, "the answers"),
        reference=None if reference is None else _checkpoint_path(reference),
    )
    text = c.c_void_p()
    with _Runtime(threads=threads) as runtime:
        file = _checkpoint_path(path)
        _cancellable(lambda switch: runtime._check("check", file, c.byref(params), switch, c.byref(text)), cancel)
    return json.loads(abi.take_text(text))


class DeviceMemory(typing.NamedTuple):
    """Memory of a device that a model uses, as in minim_device_memory; in bytes unless stated."""

    name: str
    first_layer: int
    n_layer: int
    weights: int
    experts: int  # part of the weights
    weights_mapped: bool  # pages of the files, which the system may drop and read again
    kv: int
    work: int
    free: typing.Optional[int]  # None if unknown
    kept: int  # unused, kept for later sessions; part of `free`
    budget: typing.Optional[int]  # limit of allocations; None: no limit
    n_expert_layers: int  # layers whose experts it has
    token_in: int  # received from other devices for each token of a step
    token_out: int
    locked: int  # of weights and KV cache in host memory


class NodeMemory(typing.NamedTuple):
    """A NUMA node of the host and the weights that are in its memory, as in minim_node_memory."""

    node: int
    n_threads: int
    n_threads_decode: int
    wanted: int  # bytes planned for it; 0: anywhere
    weights: int


class ChatMarkup(typing.NamedTuple):
    """The markup of a model's chat format."""

    format: str  # "minimax_m2" or "minimax_m3"
    think_begin: str  # the token that begins reasoning
    think_end: str  # the token that ends it: for starts_after of a constraint
    call_begin: str  # the token that calls begin with


class Model(abi.Handle):
    """A loaded model. `path`: a file or a folder, or an open one: a file object or a descriptor, which may be closed afterwards.

    backend    "cpu", or "reference": plain float arithmetic, slow and exact
    devices    devices for the layers: "cuda:0", "cuda:0, cuda:1" or a list of names (or Devices), each with a budget if need be ("cuda:0=20GiB",
               "cuda:0=0.9"); "auto": all usable devices; None or []: all layers are on `backend`
    split      shares of the layers, one for each device; None: in proportion to the memory that may be used
    budgets    the maximum to use of each device: bytes, "20GiB", a part of its memory (0.9), 0 for no limit; one for all devices, or a
               list; None: no limits
    device_layers     the number of layers on the devices, the last ones of the model; None: all
    host_experts      experts of the first n layers stay on `backend`, below 0 those of the last n; True: of all layers
    overrides  experts on another device than their layer: "PATTERN=DEVICE,..." or {pattern: device}, as in minim_model_params
    fit_context       tokens of context to leave room for, by keeping experts on `backend` as needed; None: do not
    fit_requests      requests of an Engine to leave room for, with `fit_context` each, or the longest context that fits; None: one
    fit_ubatch        rows of a prompt step to leave room for, as in session(ubatch=); None: what a plan finds best
    expert_cache      device memory for the experts that are used most, while the CPU computes the others: bytes, "4MiB", or "room"
               for what is left beside the context; None: "room" if no other option is about experts
    expert_moves      when experts of the cache change: "fixed" (never), "reproducible" or "eager", as in minim.h; "auto"
    expert_profile    a file of save_expert_profile(), which says what the cache holds at first
    fit_k_format, fit_v_format   of the KV cache that room is left for, as in session(); None: F16
    allow_cpu  True: a device that cannot be used is left out with a warning
    threads           0: the cores that this process may use
    threads_decode    threads for steps of one token, which are bound by memory; 0: as `threads`
    pin_threads       True: bind each thread of the library to a core
    numa       placement of threads and memory on NUMA nodes: "auto", "off", "interleave" or "split" (by rows)
    lock       True: lock weights and KV cache in host memory, so that they are never paged out
    prefault   True: prefault mapped weights before the model is ready
    deterministic     True: logits of devices do not depend on batch composition or prompt chunking; slower
    expand     unpack the codebooks of IQ1 to IQ3 weights at load: "off", "on", or "auto" if that is faster
    packed_file       map the backend's packed weights from this file; the file is created if needed
    mmap       True: map the file; False: read the weights into memory; None: read them if memory allows
    engine_tokenizer  True: split text as llama.cpp does
    chat_template     the text of a Jinja template in place of the checkpoint's templates
    tensor_parallel   ranks that share the layers, one for each device of each process; -1: all. Processes other than 0 call follow()
    expert_parallel   groups of ranks with whole experts, or without tensor_parallel ranks that share experts alone; -1: one for each rank
    pipeline_parallel   processes that have layers each
    rank_timeout      seconds that a rank may not answer within a step; None: 30
    progress   progress(done_bytes, total_bytes), from another thread; raise an exception to cancel
    cancel     a Cancel
    log        log(level, line), from any thread, up to log_level: "error", "warning" (the default), "info", "debug"
    """

    def __init__(
        self,
        path,
        *,
        backend="cpu",
        devices=None,
        split=None,
        budgets=None,
        device_layers=None,
        host_experts=0,
        overrides=None,
        fit_context=None,
        fit_ubatch=None,
        fit_requests=None,
        expert_cache=None,
        expert_moves="auto",
        expert_profile=None,
        fit_k_format=None,
        fit_v_format=None,
        allow_cpu=False,
        threads=0,
        threads_decode=0,
        pin_threads=False,
        numa="auto",
        lock=False,
        prefault=False,
        deterministic=False,
        expand="auto",
        packed_file=None,
        mmap=None,
        engine_tokenizer=False,
        chat_template=None,
        tensor_parallel=0,
        expert_parallel=0,
        pipeline_parallel=0,
        rank_timeout=None,
        progress=None,
        cancel=None,
        log=None,
        log_level=None,
    ):
        residence = _choice(_RESIDENCE, mmap, "mmap")
        runtime = _Runtime(threads, log, log_level, threads_decode, pin_threads, numa)

        @abi.ProgressFn
        def report(_, done, total):
            try:
                progress(done, total)
                return 0
            except BaseException as exception:
                runtime._raised.append(exception)
                return 1

        params = abi.ModelParams(
            backend=_zero_terminated(backend, "backend"),
            residence=residence,
            engine_tokenizer=int(engine_tokenizer),
            lock=int(lock),
            prefault=int(prefault),
            deterministic=int(deterministic),
            expand=_choice(_EXPAND, expand, "expand"),
            packed_file=None if packed_file is None else _path(packed_file),
            expert_cache_bytes=_cache_bytes(expert_cache),
            expert_moves=_choice(_EXPERT_MOVES, expert_moves, "expert_moves"),
            fit_k_format=_choice(_KV_FORMATS, fit_k_format or "auto", "fit_k_format"),
            fit_v_format=_choice(_KV_FORMATS, fit_v_format or "auto", "fit_v_format"),
            expert_profile=None if expert_profile is None else _path(expert_profile),
            chat_template=None if chat_template is None else _zero_terminated(chat_template, "chat_template"),
            tensor_parallel=_int32(tensor_parallel),
            expert_parallel=_int32(expert_parallel),
            pipeline_parallel=_int32(pipeline_parallel),
            rank_timeout_ms=_int32(_timeout_ms(rank_timeout)),
        )
        names = _device_names(devices)
        if names and device_layers != 0:
            joined, budgets = _with_budgets(names, budgets)
            params.devices = _zero_terminated(joined, "devices")
            params.n_device_layers = _int32(device_layers or 0)
            params.allow_cpu = int(allow_cpu)
        shares = None
        if split is not None and len(split) > 0:
            shares = (c.c_double * len(split))(*split)
            params.split, params.n_split = c.cast(shares, c.c_void_p), len(split)
        limits = None
        if budgets is not None and not isinstance(budgets, (str, int, float)) and len(budgets) > 0:
            limits = (c.c_uint64 * len(budgets))(*budgets)
            params.budgets, params.n_budgets = c.cast(limits, c.c_void_p), len(budgets)
        if overrides is not None and not isinstance(overrides, str):
            overrides = ",".join(f"{pattern}={device}" for pattern, device in overrides.items())
        params.overrides = None if overrides is None else _zero_terminated(overrides, "overrides")
        params.n_host_experts = _ALL_LAYERS if host_experts is True else host_experts
        params.fit_context = fit_context or 0
        params.fit_n_ubatch = _int32(fit_ubatch or 0)
        params.fit_requests = fit_requests or 0
        if progress is not None:
            params.progress = report
        self._runtime, out, file = runtime, c.c_void_p(), _checkpoint_path(path)
        try:
            _cancellable(
                lambda switch: runtime._check("model_open", file, c.byref(params), switch, c.byref(out)), cancel
            )
        finally:
            if out:
                self._own("model_close", out.value, runtime._raised, runtime)
        self.info = self._info()
        self.n_vocab = self.info.n_vocab

    def _info(self):
        """Returns the fields of minim_model_info, copied so that they outlive the model."""
        info = abi.ModelInfo()
        self._check("model_get_info", c.byref(info))
        fields = {name: getattr(info, name) for name, _ in info._fields_ if name != "size"}
        return types.SimpleNamespace(
            **{
                name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value
                for name, value in fields.items()
            }
        )

    @property
    def rank(self):
        """The number of this process. Process 0 has sessions and engines; the others follow() it."""
        return self.info.process

    def check(self):
        """Raises the error that ended the work of the ranks, if one is lost."""
        self._check("model_check")

    def follow(self):
        """Computes this process's share of the model until process 0 closes it."""
        self._check("model_follow")

    @property
    def threads(self):
        """The number of compute threads, with the calling one."""
        return self._runtime._get("runtime_thread_count")

    @property
    def cpu_level(self):
        """The instruction set that is in use: "scalar", "avx2", "avx2_vnni", "avx512", "avx512_vbmi", "neon_dotprod" or "neon_i8mm"."""
        return self._runtime._get("runtime_cpu_level").decode()

    @property
    def numa(self):
        """The mode that is in use: "off", "interleave" or "split"."""
        return self._runtime._get("runtime_numa").decode()

    def nodes(self):
        """Returns where the weights in host memory are, as the system reports it: a list of NodeMemory."""
        count, room = c.c_size_t(), 0
        while True:
            nodes = (abi.NodeMemory * room)(*(abi.NodeMemory() for _ in range(room)))
            self._check("model_nodes", nodes if room else None, room, c.byref(count))
            if count.value <= room:
                break
            room = count.value
        return [
            NodeMemory(n.node, n.n_threads, n.n_threads_decode, n.wanted_bytes, n.weight_bytes)
            for n in nodes[: count.value]
        ]

    def memory(self):
        """Returns the memory that the model and its sessions use now on each device: a list of DeviceMemory."""
        devices = []
        for index in range(self._get("model_device_count")):
            info = abi.DeviceMemory()
            self._check("model_device_memory", index, c.byref(info))
            devices.append(
                DeviceMemory(
                    info.name.decode(),
                    info.first_layer,
                    info.n_layer,
                    info.weight_bytes,
                    info.expert_bytes,
                    bool(info.weights_mapped),
                    info.kv_bytes,
                    info.work_bytes,
                    None if info.free_bytes == 2**64 - 1 else info.free_bytes,
                    info.kept_bytes,
                    info.budget_bytes or None,
                    info.n_expert_layers,
                    info.token_in_bytes,
                    info.token_out_bytes,
                    info.locked_bytes,
                )
            )
        return devices

    @property
    def expert_cache(self):
        """Counts of the devices' caches of experts since the model was opened: a dict with "places", "hits", "misses", "moves",
        "bytes" (of the devices' memory) and "moved_bytes"."""
        total = dict.fromkeys(("places", "hits", "misses", "moves", "bytes", "moved_bytes"), 0)
        for index in range(self._get("model_device_count")):
            info = abi.ExpertCache()
            self._check("model_expert_cache", index, c.byref(info))
            for name in total:
                total[name] += getattr(info, name if "bytes" in name else "n_" + name)
        return total

    def save_expert_profile(self, path):
        """Writes how often each expert was used recently, for Model(expert_profile=...)."""
        self._check("model_save_expert_profile", _path(path))

    def layer_devices(self, layer):
        """Returns the devices of a layer and of its experts: two indices into memory()."""
        info = abi.LayerDevices()
        self._check("model_layer_devices", _int32(layer), c.byref(info))
        return info.device, info.experts

    def checkpoint(self):
        def adopt(out):
            checkpoint = Checkpoint.__new__(Checkpoint)
            checkpoint._adopt(out.value, self._raised, self._runtime)
            return checkpoint

        return self._out(adopt, "model_checkpoint")

    def tokenize(self, text, special=True):
        """Returns the token ids of a str or bytes. special: True or "exact", "safe", False or "none" as in minim.h."""
        data = _utf8(text)
        return self._out(abi.take_tokens, "tokenize", data, len(data), _choice(_SPECIALS, special, "special"))

    def detokenize(self, ids, skip_special=False):
        array = _ids_of(ids)
        text = self._out(abi.take_text, "detokenize", _ids_pointer(array), array.size, int(skip_special))
        return text.decode("utf-8", "replace")

    def token_text(self, id):
        """Returns the token's bytes, which may be part of a UTF-8 sequence."""
        return self._out(abi.take_text, "token_text", _int32(id))

    def token_attributes(self, id):
        """Returns bits of MINIM_TOKEN_*, or -1 if `id` is not a token."""
        return self._get("token_attributes", _int32(id))

    def decoder(self, skip_special=False):
        """Returns a Decoder for the text of tokens that come one by one."""
        return Decoder(self, lambda out: self._check("decoder_create", int(skip_special), out))

    def render_chat(
        self,
        messages,
        tools=None,
        add_generation_prompt=True,
        kwargs=None,
        null_content="template",
        template=None,
        thinking=True,
        continue_final_message=False,
    ):
        """Renders the prompt for a conversation as text. kwargs: variables of the template, add_generation_prompt among them.
        `null_content`: render a message without content as the "template" does (None), or as "empty" text. `template`: the name
        of one of the checkpoint's templates. thinking=False closes the think block that the prompt opens.
        continue_final_message: the answer continues the last message, the assistant's; no generation prompt is added.
        """
        params = _chat_params(
            tools, add_generation_prompt, kwargs, null_content, template, thinking, continue_final_message
        )
        text = self._out(abi.take_text, "chat_render_with", _json(messages), c.byref(params))
        return text.decode("utf-8", "replace")

    def tokenize_chat(
        self,
        messages,
        tools=None,
        add_generation_prompt=True,
        kwargs=None,
        special="safe",
        null_content="template",
        template=None,
        thinking=True,
        continue_final_message=False,
    ):
        """Renders the prompt for a conversation as ids. "safe": no message can forge the control tokens of the template;
        "template": nor any other added token, such as <think>."""
        params = _chat_params(
            tools, add_generation_prompt, kwargs, null_content, template, thinking, continue_final_message
        )
        specials = _choice({**_SPECIALS, "template": 3}, special, "special")
        return self._out(abi.take_tokens, "chat_tokenize_with", _json(messages), c.byref(params), specials)

    def _said_of_prompt(self, name, prompt):
        array, said = _ids_of(prompt), c.c_int32()
        self._check(name, _ids_pointer(array), array.size, c.byref(said))
        return said.value == 1

    def chat_opens_thinking(self, prompt):
        """Returns whether a prompt, as ids, ends in an open think block, so that the answer begins with reasoning."""
        return self._said_of_prompt("chat_opens_thinking", prompt)

    def chat_may_reason(self, prompt):
        """Returns whether a prompt, as ids, leaves it to the model whether the answer begins with reasoning: for may_reason of constraint()."""
        return self._said_of_prompt("chat_may_reason", prompt)

    @property
    def chat_markup(self):
        """The ChatMarkup of the model's chat format: format, think_begin, think_end, call_begin."""
        markup = abi.ChatMarkup()
        self._check("chat_get_markup", c.byref(markup))
        texts = (markup.think_begin, markup.think_end, markup.call_begin)
        return ChatMarkup(_FORMATS[markup.format], *(text.decode() for text in texts))

    def parse_output(self, text, *, tools=None, reasoning=None, starts_in_reasoning=True, finish="stop"):
        """Parses the model's output (str or bytes) to {"content", "reasoning_content", "tool_calls", "finish_reason"}. `tools`: the
        tools of the request. `reasoning`: "minimax_m2", "minimax_m3", "minimax_m2_append_think", "minimax_m3_append_think" or
        "none"; None: "minimax_m2" or "minimax_m3", as the model is. "none" has the format of the model too. `starts_in_reasoning`:
        the prompt ends in an open think block. `finish`: "stop", or "length" for a cut output.
        """
        params = self._parser_params(tools, reasoning, starts_in_reasoning)
        data = _utf8(text)
        output = c.c_void_p()
        ended = _choice(_FINISHES, finish, "finish")
        abi.check("output_parse", c.byref(params), data, len(data), ended, c.byref(output))
        try:
            return _whole_output(output)
        finally:
            abi.call("output_free", output)

    def output_parser(self, tools=None, reasoning=None, starts_in_reasoning=True):
        """Returns a parser for output while it is generated; the arguments are those of parse_output()."""
        return OutputParser(self._parser_params(tools, reasoning, starts_in_reasoning))

    def _parser_params(self, tools, reasoning, starts_in_reasoning):
        mode, format_ = _choice(_REASONING, reasoning, "reasoning")
        return abi.OutputParserParams(
            reasoning=mode,
            starts_in_content=int(not starts_in_reasoning),
            tools=_json(tools),
            format=_FORMATS.index(format_ or self.chat_markup.format),
        )

    def constraint(
        self,
        schema=None,
        *,
        regex=None,
        grammar=None,
        choices=None,
        tools=None,
        tool=None,
        single=False,
        starts_after=None,
        optional=False,
        relax=False,
        may_reason=False,
    ):
        """Makes a Constraint for generate() and submit(): structured output. It can be used for any number of answers.

        schema        a JSON Schema, as a dict or bool
        regex         a regular expression that the whole answer must match
        grammar       a grammar in GBNF ("root ::= ..."), as of llama.cpp, xgrammar and SGLang
        choices       texts, one of which must be the answer
        tools         the tools of a chat request, to be called; `tool` names one of them, `single` means one call
        starts_after  "</think>": anything is allowed up to this token
        optional      with tools: the answer may be text; a call, once the model opens it, fits the tools
        relax         with tools: keywords that cannot be enforced are left out, with a warning in the log
        may_reason    instead of starts_after: the answer may begin with reasoning, which the prompt leaves to the model
        """
        given = [form for form in (schema, regex, grammar, choices, tools) if form is not None]
        if len(given) != 1:
            raise TypeError("a constraint is one of schema, regex, grammar, choices and tools")
        params = abi.ConstraintParams(
            starts_after=None if starts_after is None else _zero_terminated(starts_after, "starts_after"),
            calls_are_optional=int(optional),
            relax=int(relax),
            may_reason=int(may_reason),
        )
        if schema is not None:
            call = "constraint_from_schema", _json(schema)
        elif regex is not None:
            pattern = _utf8(regex)
            call = "constraint_from_regex_n", pattern, len(pattern)
        elif grammar is not None:
            text = _utf8(grammar)
            call = "constraint_from_grammar_n", text, len(text)
        elif choices is not None:
            texts = [_utf8(choice) for choice in choices]
            lengths = (c.c_size_t * len(texts))(*map(len, texts))
            call = "constraint_from_choices_n", (c.c_char_p * len(texts))(*texts), lengths, len(texts)
        else:
            name = None if tool is None else _zero_terminated(tool, "tool")
            call = "constraint_from_tools", _json(tools), name, int(single)
        return Constraint(self, lambda out: self._check(*call, c.byref(params), out))

    def session(self, context=0, kv="f16", n_batch=0, n_ubatch=0):
        """Makes a Session. context: its most tokens; 0: the context that the model was trained for, or what fits in memory. kv: a format
        of the KV cache, or a pair, for K and for V."""
        params = _session_params(context, kv, n_batch, n_ubatch)
        return Session(self, lambda out: self._check("session_create", c.byref(params), out))

    def importance(self, dataset=None, chunk_size=512, process_output=False, text_hash=0):
        """Makes an Importance, which collects from the sessions that it is attached to. dataset: name of the text; chunk_size: tokens of a
        chunk; process_output: also collect for the output head; text_hash: any number that stands for the text."""
        params = abi.ImportanceParams(
            dataset=None if dataset is None else _zero_terminated(dataset, "dataset"),
            chunk_size=_int32(chunk_size),
            process_output=int(process_output),
            text_hash=text_hash,
        )
        return Importance(self, lambda out: self._check("importance_create", c.byref(params), out))

    def restore(self, path, context=0, kv=None, n_batch=0, n_ubatch=0, *, cancel=None):
        """Restores a session of Session.save(), with its context size and KV format. path: a path, a descriptor of a file,
        or any binary file object, compressed ones, pipes and makefile() of a socket too. A file is read from its position on, and left behind the session; after
        an error, one that can be positioned is where it was. cancel: a Cancel."""
        options = context, kv, n_batch, n_ubatch
        place = files.place_of(path)
        if place is None:
            return self._restored(("session_restore", _path(path)), *options, cancel)
        if isinstance(place, int):
            return self._restored(("session_restore_fd", _int32(place)), *options, cancel)
        if not files.is_plain(place) or not place.seekable():
            with files.session_bytes(place) as data:
                return self.restore_bytes(data, *options, cancel=cancel)
        with files.at_position(place) as descriptor:
            return self._restored(("session_restore_fd", descriptor), *options, cancel)

    def restore_bytes(self, data, context=0, kv=None, n_batch=0, n_ubatch=0, *, cancel=None):
        """Restores a session from the bytes of Session.save_bytes(), as restore() does."""
        array = np.asarray(memoryview(data).cast("B"))  # without a copy
        call = "session_restore_memory", array.ctypes.data, array.size
        return self._restored(call, context, kv, n_batch, n_ubatch, cancel)

    def _restored(self, call, context, kv, n_batch, n_ubatch, cancel):
        params = _session_params(context, "auto" if kv is None else kv, n_batch, n_ubatch)

        def restore(out):
            return _cancellable(lambda switch: self._check(*call, c.byref(params), switch, out), cancel)

        return Session(self, restore)


# ------------------------------------------------------------------------------------------- cancelling


class Cancel(abi.Handle):
    """Cancels calls: a call with a triggered Cancel raises an Error of status CANCELLED.

    trigger() may be called from any thread, also before the call; it stays triggered until reset().
    """

    _interrupt = "cancel_trigger"

    def __init__(self):
        out = c.c_void_p()
        abi.check("cancel_create", c.byref(out))
        self._own("cancel_free", out.value, [])
        self._is_on = False

    def trigger(self):
        self._is_on = True
        self._get("cancel_trigger")

    def reset(self):
        self._is_on = False
        self._get("cancel_reset")


def _cancellable(work, cancel=None):
    """Runs work(handle of a Cancel). Python runs signal handlers only on the main thread, between its instructions. So on the main
    thread, the work is done by another thread, and is cancelled if a handler raises."""
    with Cancel() if cancel is None else _borrowed(cancel) as switch:

        def with_handle():
            return switch._use(lambda _, handle: work(handle), "cancel")

        if threading.current_thread() is not threading.main_thread():
            return with_handle()
        return _on_a_thread(with_handle, switch)


def _timeout_ms(seconds):
    """Returns the milliseconds of a time limit; 0 if there is none, and a negative number, which the library refuses, of 0 and below."""
    if seconds is None:
        return 0
    return max(1, round(seconds * 1000)) if seconds > 0 else min(-1, round(seconds * 1000))


class _borrowed:
    """Borrows the Cancel of the caller, which stays open."""

    def __init__(self, cancel):
        if not isinstance(cancel, Cancel):
            raise TypeError(f"cancel is a minim.Cancel, not {type(cancel).__name__}")
        self._cancel = cancel

    def __enter__(self):
        return self._cancel

    def __exit__(self, *exception):
        pass


def _on_a_thread(work, switch):
    outcome, claim, done = [], threading.Lock(), threading.Event()

    def run():
        if not claim.acquire(blocking=False):
            return  # a handler raised before this thread ran
        try:
            outcome.append((work(), None))
        except BaseException as exception:
            outcome.append((None, exception))
        finally:
            done.set()

    interruption = None
    try:
        threading.Thread(target=run, name="minim call").start()
    except RuntimeError:  # no more threads can be started
        run()
    except BaseException as exception:
        if claim.acquire(blocking=False):  # the work has not begun, and will not
            raise
        interruption = exception
        switch._get("cancel_trigger")
    while not done.is_set():
        try:
            done.wait()  # join() may take an interrupted thread for ended
        except BaseException as exception:  # raised by a signal handler; the first one is raised again once the work has ended
            interruption = interruption or exception
            switch._get("cancel_trigger")
    # What is raised has this frame in its traceback. If the frame kept it, the handles of the call would live until the garbage collector runs.
    value, exception = outcome.pop()
    if interruption is not None:
        exception = interruption
        if not switch._is_on:
            switch._get("cancel_reset")
    interruption = None
    try:
        if exception is not None:
            raise exception
        return value
    finally:
        exception = None


# ------------------------------------------------------------------------------------------ generation


class Token(typing.NamedTuple):
    id: int
    text: str  # whole UTF-8; "" while a sequence or a possible stop text is held back
    logprob: float  # 0.0 unless logprobs was asked for
    top_logprobs: list  # of (id, logprob)
    prompt_rank: int = 0  # of a token of the prompt (option prompt_logprobs): 1 for the likeliest; 0: a generated token


def _values(name, structure):
    """Makes a named tuple with the fields of a structure, except its size and reserved fields."""
    names = [field for field, _ in structure._fields_ if field != "size" and not field.startswith("reserved")]
    kind = collections.namedtuple(name, names, module=__name__)
    kind.__doc__ = f"The values of a minim.h structure: {', '.join(names)}."
    return kind


def _values_of(kind, structure):
    values = (getattr(structure, name) for name in kind._fields)
    return kind(*(value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in values))


RecommendedSampling = _values("RecommendedSampling", abi.RecommendedSampling)
GenerateResult = _values("GenerateResult", abi.GenerateResult)
EngineState = _values("EngineState", abi.EngineState)
RequestState = _values("RequestState", abi.RequestState)
SamplingOption = _values("SamplingOption", abi.OptionInfo)


@functools.lru_cache(maxsize=None)
def sampling_options():
    """Returns the options of Session.generate by name: SamplingOptions with type, minimum, maximum, default_value and help."""
    options = {}
    for index in range(abi.call("sampling_option_count")):
        info = abi.OptionInfo()
        abi.check("sampling_option", index, c.byref(info))
        option = _values_of(SamplingOption, info)
        options[option.name] = option
    return options


class _ModelPart(abi.Handle):
    """A handle that belongs to a model."""

    def _make(self, model, create, release):
        """`create` fills the handle that it gets; the handle must be released even if a callback raised meanwhile."""
        out = c.c_void_p()
        try:
            create(c.byref(out))
        finally:
            if out:
                self._own(release, out.value, model._raised, model._runtime)


class Constraint(_ModelPart):
    """A constraint on answers (structured output); made by Model.constraint(). Usable for any number of answers at once."""

    def __init__(self, model, create):
        self._make(model, create, "constraint_free")

    def matches(self, text):
        """Returns whether the constraint allows the whole text (str or bytes)."""
        data = _utf8(text)
        result = c.c_int32()
        self._check("constraint_matches", data, len(data), c.byref(result))
        return result.value != 0


class Decoder(_ModelPart):
    """Decodes tokens as they come; made by Model.decoder(). At most 3 bytes of an incomplete UTF-8 sequence are held back."""

    def __init__(self, model, create):
        self._make(model, create, "decoder_free")

    def push(self, id):
        """Adds a token and returns the whole UTF-8 sequences so far."""
        return self._text("decoder_push", _int32(id))

    def finish(self):
        """Returns U+FFFD for an incomplete sequence, and starts anew."""
        return self._text("decoder_finish")

    def _text(self, name, *arguments):
        text, length = c.c_char_p(), c.c_size_t()
        with self._lock:
            self._check(name, *arguments, c.byref(text), c.byref(length))
            return c.string_at(text, length.value).decode()


_NULL_CONTENT = {"template": 0, "empty": 1}


def _chat_params(
    tools, add_generation_prompt, kwargs, null_content, template, thinking, continue_final_message
):
    add_generation_prompt = add_generation_prompt and not continue_final_message
    return abi.ChatParams(
        null_content=_choice(_NULL_CONTENT, null_content, "null_content"),
        tools=_json(tools),
        kwargs=_json({"add_generation_prompt": add_generation_prompt, **(kwargs or {})}),
        template_name=None if template is None else _zero_terminated(template, "the template"),
        thinking_off=int(not thinking),
        continue_final_message=int(continue_final_message),
    )


_FORMATS = ("minimax_m2", "minimax_m3")
# By name: the number, and the chat format; None: that of the model.
_REASONING = {
    None: (0, None),
    "minimax_m2": (0, "minimax_m2"),
    "minimax_m3": (0, "minimax_m3"),
    "minimax_m2_append_think": (1, "minimax_m2"),
    "minimax_m3_append_think": (1, "minimax_m3"),
    "none": (2, None),
}
_FINISHES = {"stop": FinishReason.END._number, "length": FinishReason.LENGTH._number}
_FINISH_NAMES = {1: "stop", 3: "length", 7: "tool_calls"}
_DELTA_KINDS = {1: "reasoning_content", 2: "content"}


def _decoded(data, length):
    text = abi.bytes_at(data, length)
    return None if text is None else text.decode()


def _whole_output(output):
    info, call = abi.OutputInfo(), abi.ToolCall()
    abi.check("output_get_info", output, c.byref(info))
    calls = []
    for index in range(info.n_tool_calls):
        abi.check("output_get_tool_call", output, index, c.byref(call))
        name, arguments = _decoded(call.name, call.name_length), _decoded(call.arguments, call.arguments_length)
        calls.append({"name": name, "arguments": arguments})
    return {
        "content": _decoded(info.content, info.content_length),
        "reasoning_content": _decoded(info.reasoning, info.reasoning_length),
        "tool_calls": calls,
        "finish_reason": _FINISH_NAMES[info.finish_reason],
    }


class OutputParser(abi.Handle):
    """Parses output while it is generated; made by Model.output_parser(). Deltas are {"reasoning_content": str},
    {"content": str} or {"tool_call": {"index", "name", "arguments"}}; only the first delta of a call has the name.
    """

    def __init__(self, params):
        out = c.c_void_p()
        abi.check("output_parser_create", c.byref(params), c.byref(out))
        self._own("output_parser_free", out.value, [])
        self.finish_reason = None  # set by finish(): "stop", "length" or "tool_calls"

    def feed(self, data):
        """Adds bytes (or str) and returns the deltas."""
        data, n_deltas = _utf8(data), c.c_size_t()
        with self._lock:
            self._check("output_parser_feed", data, len(data), c.byref(n_deltas))
            return self._deltas(n_deltas.value)

    def finish(self, finish="stop"):
        """Ends the output, sets finish_reason and returns the last deltas. "length": the output was cut; an incomplete call is dropped."""
        ended, n_deltas, reason = _choice(_FINISHES, finish, "finish"), c.c_size_t(), c.c_int32()
        with self._lock:
            self._check("output_parser_finish", ended, c.byref(n_deltas), c.byref(reason))
            self.finish_reason = _FINISH_NAMES[reason.value]
            return self._deltas(n_deltas.value)

    def _deltas(self, count):
        return [self._delta(index) for index in range(count)]

    def _delta(self, index):
        delta = abi.OutputDelta()
        self._check("output_parser_delta", index, c.byref(delta))
        text = abi.bytes_at(delta.text, delta.length).decode()
        if delta.kind in _DELTA_KINDS:
            return {_DELTA_KINDS[delta.kind]: text}
        call = {"index": delta.index, "arguments": text}
        if delta.name is not None:
            call["name"] = _decoded(delta.name, delta.name_length)
        return {"tool_call": call}


class _Sampling(abi.Handle):
    _INTEGER = 1

    def __init__(self, model, options, logit_bias, stop, stop_tokens, schema):
        out = c.c_void_p()
        abi.check("sampling_create", c.byref(out))
        self._own("sampling_free", out.value, [])
        if options["temperature"] is None:
            model._use(lambda _, handle: self._check("sampling_set_recommended", handle), "model")
        breakers = options.pop("dry_breakers", None)
        if breakers is not None:
            texts = [_utf8(text, "a DRY breaker") for text in breakers]
            lengths = (c.c_size_t * len(texts))(*map(len, texts))
            self._check("sampling_set_dry_breakers", (c.c_char_p * len(texts))(*texts), lengths, len(texts))
        for name, value in options.items():
            if value is not None:
                self._set(name, value)
        for text in [stop] if isinstance(stop, (str, bytes)) else stop or ():
            data = _utf8(text, "a stop text")
            self._check("sampling_add_stop", data, len(data))
        for id in stop_tokens or ():
            self._check("sampling_add_stop_token", _int32(id))
        for id, bias in (logit_bias or {}).items():
            self._check("sampling_add_logit_bias", _int32(id), bias)
        if isinstance(schema, Constraint):
            schema._use(lambda _, handle: self._check("sampling_set_constraint", handle), "constraint")
        elif schema is not None:
            with model.constraint(schema) as constraint:
                self._check("sampling_set_constraint", constraint._handle)

    def _set(self, name, value):
        if name not in sampling_options():
            raise TypeError(f"there is no option {name!r}: there are {', '.join(sampling_options())}")
        if sampling_options()[name].type != self._INTEGER:
            return self._check("sampling_set_f64", name.encode(), float(value))
        value = operator.index(value)
        if not -(2**63) <= value < (2**64 if name == "seed" else 2**63):
            raise OverflowError(f"{name} is {value}, more than 64 bits")
        self._check(
            "sampling_set_i64", name.encode(), c.c_int64(value).value
        )  # a seed is 64 bits: the highest one becomes the sign


def _token_of(token):
    """Copies a minim_token, whose pointers are valid only until the next call."""
    text = c.string_at(token.text, token.text_length).decode("utf-8", "replace")
    if token.n_top == 0:
        return Token(token.id, text, token.logprob, [], token.prompt_rank)
    top = c.cast(token.top, c.POINTER(abi.TokenProbability))
    return Token(token.id, text, token.logprob, [(top[i].id, top[i].logprob) for i in range(token.n_top)], token.prompt_rank)


class Generation:
    """An iterator over the Tokens of one answer."""

    __reduce_ex__ = abi.no_copy

    def __init__(self, session, cancel):
        self._session, self._change, self._cancel = session, session._change, cancel

    def __iter__(self):
        return self

    def __next__(self):
        if self._cancel is None:
            token = self._session._use(self._read, "generate_next", None)
        else:
            token = self._cancel._use(
                lambda _, switch: self._session._use(self._read, "generate_next", switch), "cancel"
            )
        if token is None:
            raise StopIteration
        return token

    def _read(self, name, handle, switch):
        """Reads the next token, copied before another call on the session can change it."""
        token, has_token = abi.Token(), c.c_int32()
        with self._session._reading:
            if self._session._change != self._change:
                raise Error(Status.INVALID, "another call on the session ended this generation")
            abi.check(name, handle, c.byref(token), c.byref(has_token), switch)
            if not has_token.value:
                return None
            return _token_of(token)


def _prompt_ids(model, prompt, special, messages, tools):
    if (prompt is None) == (messages is None):
        raise TypeError("what to answer is either a prompt or messages")
    if messages is None and tools is not None:
        raise TypeError("tools go with messages")
    if messages is not None:
        return _ids_of(model.tokenize_chat(messages, tools))
    is_text = isinstance(prompt, (str, bytes, bytearray))
    return _ids_of(model.tokenize(prompt, special) if is_text else prompt)


def _kv_pair(kv):
    """Returns the numbers of the formats of K and V, of a name for both or of a pair."""
    names = (kv, kv) if isinstance(kv, str) else tuple(kv)
    if len(names) != 2:
        raise ValueError(f"kv is {kv!r}; a format, or a pair of those of K and V")
    return tuple(_choice(_KV_FORMATS, name.lower(), "kv") for name in names)


def _session_params(context, kv, n_batch, n_ubatch):
    k_format, v_format = _kv_pair(kv)
    return abi.SessionParams(
        max_context=max(-1, min(context, 2**63)),
        k_format=k_format,
        v_format=v_format,
        n_batch=_int32(n_batch),
        n_ubatch=_int32(n_ubatch),
    )


class Session(_ModelPart):
    """The tokens and the KV cache of one conversation; len() is the number of tokens."""

    def __init__(self, model, create):
        """Called by Model.session(), Model.restore() and Session.fork(); `create` fills the handle that it gets."""
        self.model, self._reading = model, threading.Lock()
        self._change = 0  # counts the calls that end a generation
        self._make(model, create, "session_free")

    def __len__(self):
        return self._get("session_token_count")

    def __bool__(self):
        return True

    @property
    def tokens(self):
        """The token ids of the session, as an int32 array."""
        return self._out(abi.take_tokens, "session_get_tokens")

    @property
    def context_size(self):
        return self._get("session_context_size")

    @property
    def kv_bytes(self):
        return self._get("session_kv_bytes")

    def fork(self):
        """Returns a second session with the same tokens, which shares their KV cache with this one."""
        return Session(self.model, lambda out: self._check("session_fork", out))

    def save(self, path, *, cancel=None):
        """Writes the session, for Model.restore(). path: a path, whose old file is unchanged after an error; or a descriptor, a socket
        or any binary file object, to which the session is written from its position on. What is not a file of the system, such as a
        GzipFile or a BytesIO, gets the bytes of save_bytes() through its write(). cancel: a Cancel."""
        place = files.place_of(path)
        if place is None or isinstance(place, int):
            call = ("session_save", _path(path)) if place is None else ("session_save_fd", _int32(place))
            _cancellable(lambda switch: self._check(*call, switch), cancel)
        elif files.is_plain(place):
            with files.at_position(place) as descriptor:
                _cancellable(lambda switch: self._check("session_save_fd", descriptor, switch), cancel)
        else:
            files.write_all(place, self.save_bytes(cancel=cancel))

    def save_bytes(self, *, cancel=None):
        """Returns the session as bytes, for Model.restore_bytes(). cancel: a Cancel."""
        size = c.c_size_t()
        self._check("session_save_memory", None, 0, c.byref(size), None)
        data = bytearray(size.value)
        buffer = (c.c_char * len(data)).from_buffer(data)

        def save(switch):
            self._check("session_save_memory", buffer, len(data), c.byref(size), switch)

        _cancellable(save, cancel)
        return bytes(data)

    def truncate(self, count):
        """Forgets every token from position `count` on."""
        if count < 0:
            raise ValueError(f"cannot truncate to {count} tokens")
        self._check("session_truncate", min(count, 2**63))
        self._change += 1

    def eval(self, ids, all_logits=False, *, cancel=None):
        """Appends and evaluates tokens. Returns logits as float32 [n, n_vocab], or [1, n_vocab] of the last token. cancel: a Cancel."""
        array = _ids_of(ids)
        logits = np.empty((array.size if all_logits else 1, self.model.n_vocab), np.float32)

        def work(switch):
            tokens = _ids_pointer(array), array.size
            self._check("session_eval", *tokens, int(all_logits), logits.ctypes.data, logits.size, switch)

        _cancellable(work, cancel)
        self._change += 1
        return logits

    def generate(
        self,
        prompt=None,
        max_tokens=0,
        temperature=0.0,
        *,
        messages=None,
        tools=None,
        schema=None,
        stop=(),
        stop_tokens=(),
        logit_bias=None,
        special="safe",
        cancel=None,
        **options,
    ):
        """Evaluates the prompt at once and returns an iterator over the answer's Tokens.

        The prompt is ids or a text, or `messages` and `tools` as Model.tokenize_chat() takes them. Control tokens in a text are not
        recognised, so that a user's text cannot end a turn; special="exact" recognises all, for texts of render_chat(). cancel: a
        Cancel, for the prompt and for the tokens.

        temperature: 0 is greedy; None is the sampling that the checkpoint recommends (Checkpoint.recommended_sampling),
        with the other options in place of what it says of them.

        options: see sampling_options(): top_k, top_p, min_p, repetition_penalty, presence_penalty,
        frequency_penalty, seed, logprobs, top_logprobs, min_tokens, dry_multiplier ... None is the same as leaving one out.
        dry_breakers: texts that end repetitions for DRY, in place of the usual ones. logit_bias maps ids to numbers that are added
        to their logits. schema is a JSON Schema that the answer must fit, or a Constraint. The answer does not include the token
        that ends it.
        """
        array = _prompt_ids(self.model, prompt, special, messages, tools)
        options.update(max_tokens=max_tokens, temperature=temperature)
        with _Sampling(self.model, options, logit_bias, stop, stop_tokens, schema) as sampling:

            def work(switch):
                self._check("generate_begin", sampling._handle, _ids_pointer(array), array.size, switch)

            _cancellable(work, cancel)
        self._change += 1
        return Generation(self, cancel)

    @property
    def result(self):
        """Returns the GenerateResult of the last generation: n_prompt, n_generated, n_reasoning, stop_text, seed ..."""
        result = abi.GenerateResult()
        self._check("generate_state", c.byref(result))
        return _values_of(GenerateResult, result)

    @property
    def finish_reason(self):
        """A FinishReason, or None while the answer is not finished."""
        return abi.by_number(FinishReason, self.result.finish)


# --------------------------------------------------------------------------------------------- engines


_IMPORTANCE_FORMATS = {"auto": 0, "gguf": 1, "dat": 2}


class Importance(_ModelPart):
    """Importance data: sums of squares of the inputs of each weight, with which quantisers weigh errors. Collected from what attached
    sessions evaluate (Model.importance()), read from a file (Importance.load()), or both (merge())."""

    def __init__(self, model, create):
        self.model = model
        self._make(model, create, "importance_free")

    @classmethod
    def load(cls, path, chunk_size=0):
        """Reads a file of either form. chunk_size: tokens of a chunk of an older file, which has no counts; 0: not known."""
        importance, out = cls.__new__(cls), c.c_void_p()
        importance.model = None
        abi.check("importance_load", _path(path), _int32(chunk_size), c.byref(out))
        importance._own("importance_free", out.value, [])
        return importance

    def attach(self, session):
        """Collects from all that the session evaluates from now on."""
        session._use(lambda name, handle: self._check(name, handle), "importance_attach")

    @staticmethod
    def detach(session):
        session._use(lambda name, handle: abi.check(name, None, handle), "importance_attach")

    def merge(self, other):
        """Adds the sums and counts of another one, which stays as it is."""
        other._use(lambda name, handle: self._check(name, handle), "importance_merge")

    def save(self, path, format="auto"):
        """Writes a file. format: "gguf", "dat" (llama.cpp's older form), or "auto": by the name."""
        self._check("importance_save", _path(path), _choice(_IMPORTANCE_FORMATS, format, "format"))

    def describe(self):
        """Returns the data in short, as a dict of minim_importance_describe()."""
        return json.loads(self._out(abi.take_text, "importance_describe"))


class Engine(_ModelPart):
    """Serves many requests at once, on a thread of its own. close() ends the running requests.

    kv_tokens: the size of the KV cache in tokens, for all requests and cached prefixes together.
    context: the maximum number of tokens of one request, prompt and answer; 0: kv_tokens, at most the context that the model was trained for.
    kv: a format of the KV cache, or a pair, for K and for V.
    Sizes that are 0 become what fits; state() has them. fewer_requests: max_requests may be reduced too. warm_up: computes two small
    steps first. host_cache: the limit in bytes of host memory for prompt states, which are pages of the prefix cache that must make room;
    -1: what is free.
    """

    def __init__(
        self,
        model,
        kv_tokens=0,
        kv="f16",
        max_requests=0,
        n_batch=0,
        n_prompt_rows=0,
        prefix_cache=True,
        context=0,
        fewer_requests=False,
        warm_up=False,
        host_cache=0,
    ):
        if host_cache < -1:
            raise ValueError(f"host_cache is {host_cache}: a number of bytes, or -1 for what is free")
        self.model = model
        k_format, v_format = _kv_pair(kv)
        params = abi.EngineParams(
            kv_tokens=max(-1, min(kv_tokens, 2**63)),
            k_format=k_format,
            v_format=v_format,
            n_requests=_int32(max_requests),
            n_batch=_int32(n_batch),
            n_prompt_rows=_int32(n_prompt_rows),
            forget_prefixes=int(not prefix_cache),
            max_context=max(-1, min(context, 2**63)),
            fewer_requests=int(fewer_requests),
            warm_up=int(warm_up),
            host_cache_bytes=min(operator.index(host_cache), 2**64 - 1),
        )
        self._make(model, lambda out: model._check("engine_create", c.byref(params), out), "engine_free")

    def submit(
        self,
        prompt=None,
        max_tokens=0,
        temperature=0.0,
        *,
        messages=None,
        tools=None,
        n=None,
        priority=0,
        timeout=None,
        notify=None,
        schema=None,
        stop=(),
        stop_tokens=(),
        logit_bias=None,
        special="safe",
        **options,
    ):
        """Submits a prompt (ids or a text, or `messages` and `tools`) and returns a Request at once.

        n: the number of answers to the prompt, which is evaluated once: returns a list of Requests. With a seed, answer i has the
        seed plus i. priority: higher ones go first. timeout: seconds after which the answer is ended; None or 0: no limit. notify:
        called without arguments on the engine's thread if the request has something new; it must return at once, and its exceptions
        are dropped. Or the descriptor of a non-blocking pipe, socket or eventfd, which gets 8 bytes then, without any Python code
        that the engine would wait for. The other arguments are those of Session.generate().
        """
        array = _prompt_ids(self.model, prompt, special, messages, tools)
        seconds = _seconds(timeout)
        has_limit = seconds is not None and seconds > 0
        params = abi.RequestParams(
            priority=_int32(priority), timeout_ms=max(1, int(seconds * 1000)) if has_limit else 0
        )
        def run_notify(_):
            with abi.callback:
                notify()

        callback = None
        if isinstance(notify, int) or hasattr(notify, "fileno"):
            callback, params.notify, params.notify_user_data = notify, abi.notify_fd, _descriptor(notify)
        elif notify is not None:
            callback = params.notify = abi.NotifyFn(run_notify)
        options.update(max_tokens=max_tokens, temperature=temperature)
        with _Sampling(self.model, options, logit_bias, stop, stop_tokens, schema) as sampling:
            made = (c.c_void_p * (1 if n is None else max(0, min(operator.index(n), 2**16))))()
            tokens = _ids_pointer(array), array.size
            self._check("engine_submit_n", sampling._handle, *tokens, c.byref(params), len(made), made)
        requests = [Request(self, handle, callback) for handle in made]
        return requests[0] if n is None else requests

    def drain(self, timeout=None):
        """Refuses new requests and waits for the running ones. Returns False if they are not done within `timeout` seconds."""
        done, seconds = c.c_int32(), _seconds(timeout)
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            left_ms = _SLICE_MS if end is None else math.ceil((end - time.monotonic()) * 1000)
            self._check("engine_drain", max(0, min(left_ms, _SLICE_MS)), c.byref(done))
            if done.value or left_ms <= 0:
                return bool(done.value)

    def save_prefixes(self, path, *, cancel=None):
        """Writes the prefix cache to a file. cancel: a Cancel."""
        file = _path(path)
        _cancellable(lambda switch: self._check("engine_save_prefixes", file, switch), cancel)

    def load_prefixes(self, path, *, cancel=None):
        """Adds a file of save_prefixes() to the prefix cache, as far as there is room. Returns the number of pages read. cancel: a Cancel."""
        file, n_pages = _path(path), c.c_uint64()
        _cancellable(lambda switch: self._check("engine_load_prefixes", file, switch, c.byref(n_pages)), cancel)
        return n_pages.value

    def save_prefix(self, ids, path, *, cancel=None):
        """Writes the longest cached prefix of `ids` to a file of its own. Returns its length. cancel: a Cancel."""
        array, file, n_tokens = _ids_of(ids), _path(path), c.c_uint64()
        arguments = _ids_pointer(array), array.size, file
        _cancellable(lambda switch: self._check("engine_save_prefix", *arguments, switch, c.byref(n_tokens)), cancel)
        return n_tokens.value

    def load_prefix(self, path, *, cancel=None):
        """Reads a file of save_prefix(), for which other prefixes make room. Returns the ids that are cached then. cancel: a Cancel."""
        file, out = _path(path), c.c_void_p()
        _cancellable(lambda switch: self._check("engine_load_prefix", file, switch, c.byref(out)), cancel)
        return abi.take_tokens(out)

    def erase_prefix(self, ids):
        """Drops what only these ids have in the prefix cache. Returns how many of them were dropped."""
        array, n_tokens = _ids_of(ids), c.c_uint64()
        self._check("engine_erase_prefix", _ids_pointer(array), array.size, c.byref(n_tokens))
        return n_tokens.value

    @property
    def state(self):
        """Returns an EngineState: n_waiting, n_running, n_steps, n_evaluated, n_pages_cached ..."""
        state = abi.EngineState()
        self._check("engine_get_state", c.byref(state))
        return _values_of(EngineState, state)


class _Pending:
    def __repr__(self):
        return "minim.PENDING"


PENDING = _Pending()  # returned by Request.poll() if there is nothing new


class Answer(typing.NamedTuple):
    ids: list
    text: str
    finish_reason: FinishReason


_SLICE_MS = 100  # how long a call blocks before Python can handle signals


def _seconds(timeout):
    """Checks a number of seconds; None is no limit."""
    if timeout is None:
        return None
    if isinstance(timeout, (str, bytes)):
        raise TypeError(f"the timeout {timeout!r} is not a number of seconds")
    seconds = float(timeout)
    if math.isnan(seconds) or seconds < 0:
        raise ValueError(f"the timeout is {timeout!r} seconds")
    return seconds if seconds < 2**40 else None


class Request(abi.Handle):
    """A request made by Engine.submit(). Its answer can be read once, by tokens() or by result()."""

    _END, _TOKEN = 0, 1
    _interrupt = "request_cancel"

    def __init__(self, engine, handle, callback=None):
        self._reading = threading.Lock()
        self._kept = []  # tokens that were read and not returned
        self._answer = None  # what result() has returned
        self.prompt_tokens = []  # once result() has returned, with the option prompt_logprobs: Tokens of the prompt after the first, without text
        self._token, self._what = abi.Token(), c.c_int32(-1)  # of _next_now(), which is called for every token
        self._out_arguments = c.byref(self._token), c.byref(self._what)
        self._own("request_free", handle, engine._raised, (engine.model._runtime, callback))

    def tokens(self):
        """Iterates over the Tokens of the answer as they come."""
        while True:
            token = self._kept.pop(0) if self._kept else self._use(self._next, "request_next", None)
            if token is None:
                return
            yield token

    def poll(self):
        """Returns the next Token, PENDING if there is none yet, None after the last one. Never blocks."""
        return self._kept.pop(0) if self._kept else self._use(self._next_now, "request_next")

    def _next_now(self, name, handle):
        with self._reading:
            abi.check(name, handle, 0, *self._out_arguments)
            what = self._what.value
            if what == self._TOKEN:
                return _token_of(self._token)
        return None if what == self._END else PENDING

    def _has_news(self):
        """Returns whether poll() returns something, which is kept for it."""
        try:
            token = PENDING if self._kept else self._use(self._next_now, "request_next")
        except Exception:  # poll() raises it again
            return True
        if token is not None and token is not PENDING:
            self._kept.append(token)
        return token is None or bool(self._kept)

    def _has_whole_answer(self):
        """Returns whether poll_result() returns something, and keeps the tokens for it."""
        try:
            while (token := self._use(self._next_now, "request_next")) is not None:
                if token is PENDING:
                    return False
                self._kept.append(token)
        except Exception:  # poll_result() raises it again
            pass
        return True

    def poll_result(self):
        """Returns the Answer that result() waits for, or PENDING if the request has not ended. Never blocks."""
        while (token := self._use(self._next_now, "request_next")) is not None:
            if token is PENDING:
                return PENDING
            self._kept.append(token)
        return self._whole_answer()

    def _next(self, name, handle, end):
        """Waits for the next token; None after the last one. Raises TimeoutError if none has come by the time `end`."""
        token, what = abi.Token(), c.c_int32(-1)
        with self._reading:
            while True:
                self._require_open()  # close() of another thread, or the exit of the interpreter, ends the waiting
                left_ms = _SLICE_MS if end is None else math.ceil((end - time.monotonic()) * 1000)
                abi.check(name, handle, max(0, min(left_ms, _SLICE_MS)), c.byref(token), c.byref(what))
                if what.value == self._TOKEN:
                    return _token_of(token)
                if what.value == self._END:
                    return None
                if left_ms <= 0:
                    raise TimeoutError("the request has not ended yet")

    def result(self, timeout=None):
        """Waits for the end and returns an Answer with the ids and the text that tokens() has not returned yet; a later call returns the
        same Answer. Raises TimeoutError after `timeout` seconds; the request then goes on, and nothing of its answer is lost."""
        seconds = _seconds(timeout)
        end = None if seconds is None else time.monotonic() + seconds
        while (token := self._use(self._next, "request_next", end)) is not None:
            self._kept.append(token)
        return self._whole_answer()

    def _whole_answer(self):
        if self._answer is None:
            own = [t for t in self._kept if t.prompt_rank == 0]
            self.prompt_tokens += [t for t in self._kept if t.prompt_rank > 0]
            self._answer = Answer([t.id for t in own], "".join(t.text for t in own), self.finish_reason)
            self._kept = []
        return self._answer

    def cancel(self):
        """Ends the answer after the tokens reported so far."""
        self._get("request_cancel")

    @property
    def state(self):
        """Returns a RequestState: n_prompt, n_prompt_done, n_cached, n_generated, n_reasoning, stop_text, seed ..."""
        state = abi.RequestState()
        self._check("request_get_state", c.byref(state))
        return _values_of(RequestState, state)

    @property
    def cached_tokens(self):
        """Tokens of the prompt that were in the prefix cache."""
        return self.state.n_cached

    @property
    def finish_reason(self):
        """A FinishReason, or None while the answer is not finished."""
        return abi.by_number(FinishReason, self.state.finish)


# --------------------------------------------------------------------------------------------- formats


FormatInfo = _values("FormatInfo", abi.FormatInfo)


def formats():
    """Returns the weight formats by name: FormatInfos with gguf_type, block_elems, block_bytes, row_header_bytes and is_weight."""
    found = {}
    for index in range(abi.call("format_count")):
        info = abi.FormatInfo()
        abi.check("format_get_info", index, c.byref(info))
        format = _values_of(FormatInfo, info)
        found[format.name] = format
    return found


def decode_format(name, row_bytes, count):
    """Decodes one row of `count` weights in a format such as "Q4_K" to float32 [count]."""
    row = bytes(row_bytes)
    if count < 0:
        raise ValueError(f"count is {count}")
    out = np.empty(count, np.float32)
    abi.check("format_decode", _zero_terminated(name, "the format"), row, len(row), count, out.ctypes.data)
    return out


def encode_format(name, weights, importance=None):
    """Encodes rows of weights [rows, columns], or one row [columns], in a format such as "Q4_K". Returns uint8 [rows, bytes of a row] or
    [bytes of a row]. importance: the weight of each column's square errors [columns]."""
    text = _zero_terminated(name, "the format")
    x = np.asarray(weights, np.float32, order="C")
    if x.ndim not in (1, 2):
        raise ValueError(f"weights have {x.ndim} dimensions, not 1 or 2")
    rows, columns = x.shape if x.ndim == 2 else (1, x.size)
    if importance is not None:
        importance = np.ascontiguousarray(importance, np.float32)
        if importance.shape != (columns,):
            raise ValueError(f"importance has the shape {importance.shape}, not ({columns},)")
    format = formats().get(name)
    size = format.row_header_bytes + columns // format.block_elems * format.block_bytes if format else 0
    out = np.empty((rows, size), np.uint8)
    pointer = None if importance is None else importance.ctypes.data
    abi.check("format_encode", text, x.ctypes.data, rows, columns, pointer, out.ctypes.data, out.size)
    return out if x.ndim == 2 else out[0]


def version():
    return abi.call("version").decode()


def build_info():
    return abi.call("build_info").decode()


def has_feature(name):
    return abi.call("has_feature", _zero_terminated(name, "the feature")) == 1


def __getattr__(name):
    """Imports minim.aio at its first use: asyncio takes longer to import than this whole module."""
    if name == "aio":
        return importlib.import_module(".aio", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


from .chat import Llama  # noqa: E402  they use this module
from .llm import LLM, CompletionOutput, RequestOutput, SamplingParams, StructuredOutputsParams  # noqa: E402
