#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Opens what minim writes with the libraries that define the formats: gguf, safetensors, compressed-tensors and ModelOpt, all from PyPI.

usage: libraries.py SOURCE      SOURCE: the BF16 folder minim-tiny

The libraries are installed in a temporary virtual environment; without network the test is skipped (exit code 77). compressed-tensors and
ModelOpt need torch, which is too large for a test. Of them only the code without tensors is used: the schema of config.json, the matching of
module names, and the conversion of hf_quant_config.json. In place of torch, empty classes are imported. The tensors themselves are
checked in written.py, by the definitions of packing.py.
"""

import abc
import importlib.abc
import importlib.machinery
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import types

SKIPPED = 77
ALONE = ("gguf", "safetensors", "compressed-tensors", "nvidia-modelopt")  # without what they depend on
WITH_THEIRS = ("pydantic", "tqdm", "pyyaml")
LAYOUTS = ("bf16", "fp8", "nvfp4", "nvfp4-ct", "mxfp4-ct", "int4-g32", "int4-g128", "int8")
TYPES = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s",
         "iq3_xxs", "iq3_s", "iq4_nl", "iq4_xs", "mxfp4", "nvfp4")  # fmt: skip
MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")


# ---- in place of torch


class Anything(abc.ABCMeta):
    """The type of classes that have every attribute, and give one when they are called."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return empty_class(name)

    def __call__(cls, *arguments, **options):
        if "is_empty" not in cls.__dict__:  # a class of a library that derives from one of these
            return super().__call__(*arguments, **options)
        is_decorator = len(arguments) == 1 and callable(arguments[0]) and not options
        return arguments[0] if is_decorator else empty_class("called")

    def __or__(cls, other):
        return cls

    __ror__ = __or__


def empty_class(name):
    return Anything(name, (), {"is_empty": True})


class Type:
    """torch.dtype"""


class EmptyModule(types.ModuleType):
    __path__ = ()
    finfo = staticmethod(lambda _: types.SimpleNamespace(min=-448.0, max=448.0, eps=0.125, bits=8))
    iinfo = staticmethod(lambda _: types.SimpleNamespace(min=-128, max=127, bits=8))
    dtype = Type

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = Type() if re.match(r"u?int\d|b?float\d|bool$|half$", name) else empty_class(name)
        setattr(self, name, value)
        return value


class EmptyModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    NAMES = ("torch", "transformers", "huggingface_hub", "loguru", "psutil", "accelerate")

    def find_spec(self, name, path, target=None):
        is_known = name.partition(".")[0] in self.NAMES
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if is_known else None

    def create_module(self, spec):
        return EmptyModule(spec.name)

    def exec_module(self, module):
        pass


# ---- what is compared


def check_gguf(source, folder):
    import gguf
    import minim
    import numpy as np
    from gguf.quants import dequantize

    rules = [f"blk\\.{i // len(MATRICES)}\\.{MATRICES[i % len(MATRICES)]}\\.={name}" for i, name in enumerate(TYPES)]
    minim.convert(source, folder / "x.gguf", "Q8_0", rules=rules, without_importance=True, effort="fast", name="small")
    minim.convert(folder / "x.gguf", folder / "f32.gguf", type="f32")
    made, decoded = gguf.GGUFReader(folder / "x.gguf"), gguf.GGUFReader(folder / "f32.gguf")
    texts = {key: bytes(made.fields[key].parts[-1]).decode() for key in ("general.architecture", "general.name", "tokenizer.ggml.model")}
    assert texts == {"general.architecture": "minimax-m2", "general.name": "small", "tokenizer.ggml.model": "gpt2"}, texts
    assert len(made.fields["minim.tensor_xxh3"].data) == len(made.tensors)
    wanted = {tensor.name: tensor for tensor in decoded.tensors}
    factors = {tensor.name: tensor.data for tensor in made.tensors if tensor.name.endswith(".scale")}
    seen = set()
    for tensor in made.tensors:
        if tensor.name in factors:
            continue
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
        factor = factors.get(tensor.name.removesuffix("weight") + "scale")
        if factor is not None:
            values *= factor.reshape(-1, *[1] * (values.ndim - 1))
        want = wanted[tensor.name].data.reshape(values.shape)
        assert list(tensor.shape) == list(wanted[tensor.name].shape), tensor.name
        off = np.abs(values - want).max() / np.abs(want).max()
        assert off < 1e-6, (tensor.name, tensor.tensor_type, off)
        seen.add(tensor.tensor_type.name.lower())
    assert seen >= set(TYPES), set(TYPES) - seen
    # The numbers of general.file_type are those of the library.
    for kind in gguf.LlamaFileType:
        name = kind.name.removeprefix("MOSTLY_").removeprefix("ALL_")
        if int(kind) >= 1024 or name in ("TQ1_0", "TQ2_0", "Q1_0"):
            continue  # no type, or one for models that were trained with its values
        minim.convert(source, folder / "y.gguf", name, without_importance=True, dry_run=True)  # the name is known
        if name in ("F32", "F16", "BF16", "Q8_0"):
            minim.convert(source, folder / "y.gguf", name, overwrite=True)
            assert gguf.GGUFReader(folder / "y.gguf").fields["general.file_type"].parts[-1][0] == int(kind), name


def check_parts(source, folder):
    import gguf
    import minim

    minim.convert(source, folder / "p.gguf", type="q8_0", part_tensors=20)
    names = []
    for number in range(1, 4):
        part = gguf.GGUFReader(folder / f"p-{number:05}-of-00003.gguf")
        assert part.fields["split.no"].parts[-1][0] == number - 1
        names += [tensor.name for tensor in part.tensors]
    assert len(names) == len(set(names)) == part.fields["split.tensors.count"].parts[-1][0] == 42


def check_importance(source, folder):
    import gguf
    import minim

    with minim.Model(source, threads=1) as model, model.session(context=64) as session:
        importance = model.importance()
        importance.attach(session)
        session.eval(list(range(10, 40)))
        importance.save(folder / "i.gguf")
    read = gguf.GGUFReader(folder / "i.gguf")
    assert bytes(read.fields["general.type"].parts[-1]) == b"imatrix"
    shapes = {tensor.name: list(tensor.shape) for tensor in read.tensors}
    columns, experts = shapes["blk.0.ffn_down_exps.weight.in_sum2"]
    assert shapes["blk.0.ffn_down_exps.weight.counts"] == [1, experts] and columns > 1 < experts, shapes


def tensors_by_safetensors(folder):
    """Returns the type, shape and number of bytes of each tensor, as the library reads the files."""
    import safetensors

    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        for name, tensor in safetensors.deserialize(path.read_bytes()):
            found[name] = (tensor["dtype"], tuple(tensor["shape"]), len(tensor["data"]))
        with safetensors.safe_open(path, framework="numpy") as opened:
            assert opened.metadata() == {"format": "pt"}, path
    return found


def check_folder(layout, folder):
    found = tensors_by_safetensors(folder)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == set(found)
    assert index["metadata"]["total_size"] == sum(size for _, _, size in found.values())
    config = json.loads((folder / "config.json").read_text())
    if layout == "nvfp4":
        check_modelopt(config["quantization_config"], json.loads((folder / "hf_quant_config.json").read_text()))
    if layout not in ("bf16", "fp8", "nvfp4"):
        check_compressed_tensors(layout, config["quantization_config"], found)
    return found


def check_modelopt(own, stated):
    """The library's conversion of hf_quant_config.json gives quantization_config."""
    (package,) = importlib.util.find_spec("modelopt").submodule_search_locations
    path = pathlib.Path(package, "torch", "export", "convert_hf_config.py")
    spec = importlib.util.spec_from_file_location("convert_hf_config", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    converted = module.convert_hf_quant_config_format(stated)
    assert converted == own, (converted, own)


def check_compressed_tensors(layout, config, found):
    from compressed_tensors.quantization import QuantizationConfig
    from compressed_tensors.utils.match import match_name

    read = QuantizationConfig.model_validate(config)
    (scheme,) = read.config_groups.values()
    bits = {"nvfp4-ct": (4, "float", 16), "mxfp4-ct": (4, "float", 32), "int4-g32": (4, "int", 32), "int4-g128": (4, "int", 128), "int8": (8, "int", None)}
    assert (scheme.weights.num_bits, scheme.weights.type, scheme.weights.group_size) == bits[layout], scheme
    for name in found:
        module = name.rpartition(".")[0]
        if not re.search(r"(_proj|gate|w\d|lm_head)$", module):
            continue  # not a linear module
        is_packed = f"{module}.weight_scale" in found
        is_ignored = any(match_name(module, pattern) for pattern in read.ignore)
        assert is_packed != is_ignored, (module, is_packed, read.ignore)


def check_all(source):
    import minim

    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        for check in (check_gguf, check_parts, check_importance):
            check(source, work)
            print(f"{check.__name__[6:]}: right", flush=True)
        for layout in LAYOUTS:
            minim.convert(source, work / layout, layout=layout, part_bytes=1_500_000)
            found = check_folder(layout, work / layout)
            print(f"{layout}: {len(found)} tensors, right", flush=True)


def main():
    source = pathlib.Path(sys.argv[1]).resolve()
    if sys.argv[2:] == ["--inside"]:
        if importlib.util.find_spec("torch") is None:
            sys.meta_path.append(EmptyModules())
        return check_all(source)
    with tempfile.TemporaryDirectory() as folder:
        python = pathlib.Path(folder, "bin", "python")
        for command in (
            [sys.executable, "-m", "venv", "--system-site-packages", folder],
            [python, "-m", "pip", "install", "--quiet", "--retries", "0", "--timeout", "10", "--no-deps", *ALONE],
            [python, "-m", "pip", "install", "--quiet", "--retries", "0", "--timeout", "10", *WITH_THEIRS],
        ):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                print(f"skipped: the libraries cannot be installed: {(done.stderr or done.stdout).strip()[-300:]}")
                return SKIPPED
        return subprocess.run([python, __file__, str(source), "--inside"]).returncode


if __name__ == "__main__":
    sys.exit(main())
