# SPDX-License-Identifier: Apache-2.0
"""The facts that minim.LLM needs before it opens a checkpoint: its quantization, and the size of its experts."""

from __future__ import annotations

import json
import math
import os
import pathlib
import re
import typing

import minim

from ._abi import refusal

# Other names that vLLM has for kernels of a method.
_SAME = {
    "awq_marlin": "awq",
    "gptq_marlin": "gptq",
    "modelopt_fp4": "modelopt",
    "nvfp4": "modelopt",
    "modelopt_mxfp8": "modelopt",
    "inc": "auto-round",
    "fbgemm_fp8": "fp8",
}
_EITHER = {"moe_wna16": ("awq", "gptq")}


def _config(folder: pathlib.Path) -> typing.Dict[str, typing.Any]:
    """The quantization of a safetensors folder: quantization_config of config.json, also inside of text_config, or a file of its own."""
    for name, key in (("config.json", "quantization_config"), ("hf_quant_config.json", "quantization")):
        try:
            config = json.loads((folder / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        found = config.get(key) or config.get("text_config", {}).get(key)
        if found:
            return typing.cast(typing.Dict[str, typing.Any], found)
    return {}


def quantization_of(path: typing.Any) -> typing.Optional[str]:
    """The name of the quantization: "gguf", "fp8", "awq", "modelopt" ..., or None for weights that are not quantized."""
    folder = pathlib.Path(os.fsdecode(path))
    if folder.suffix in (".safetensors", ".json"):
        folder = folder.parent
    if not folder.is_dir() or not (folder / "config.json").exists():
        return "gguf"
    config = _config(folder)
    method = str(config.get("quant_method") or ("modelopt" if config else "")).lower()
    return _SAME.get(method, method) or None


def check_quantization(path: typing.Any, wanted: typing.Optional[str]) -> None:
    """Raises ArgumentError if the weights are not quantized as wanted; None is as the file is."""
    if wanted is None:
        return
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise refusal(f"quantization={wanted!r} is refused: it is checked for a path only, not for an open file")
    if not os.path.exists(path):
        return  # opening it says so
    found = quantization_of(path)
    name = str(wanted).lower().replace("-", "_").replace("compressed_tensors", "compressed-tensors").replace("auto_round", "auto-round")
    if found not in _EITHER.get(name, (_SAME.get(name, name),)):
        is_what = "not quantized" if found is None else f"quantized as {found!r}"
        raise refusal(f"quantization={wanted!r}, but {os.fsdecode(path)} is {is_what}; weights are not quantized at load")


def host_experts_of(path: typing.Any, gib: float, n_devices: int) -> int:
    """Returns the number of layers whose experts stay in host memory: `gib` GiB of experts for each device, rounded up."""
    bytes_by_layer: typing.Dict[int, int] = {}
    with minim.Checkpoint(path) as checkpoint:
        for tensor in checkpoint.tensors:
            match = re.search(r"(?:blk|layers)\.(\d+)\..*(?:_exps|experts)\b", tensor.name)
            if match:
                bytes_by_layer[int(match[1])] = bytes_by_layer.get(int(match[1]), 0) + tensor.bytes
    if not bytes_by_layer:
        return 0
    return min(len(bytes_by_layer), math.ceil(gib * 2**30 * n_devices / max(bytes_by_layer.values())))
