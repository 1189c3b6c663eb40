#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes minim-tiny in a layout in which MiniMax-M2 models are published, and its twin in plain float32.

usage: make.py SOURCE LAYOUT OUT [--twin TWIN] [--seed N]
       make.py --list

SOURCE is the BF16 folder minim-tiny. The same seed gives the same bytes.
"""

import argparse
import dataclasses
import json
import pathlib
import re
import shutil
import zlib

import numpy as np

import tensors
from packing import Awq, CtInt, Fp8, Gptq, Int8, Mxfp4, Mxfp8, Nvfp4
from tensors import Tensor, tensor

ATTENTION = r"self_attn\.[qkvo]_proj$"
EXPERTS = r"\.experts\.\d+\.w[123]$"
LINEARS = f"{ATTENTION}|{EXPERTS}"  # the weights that quantisers pack; the router and lm_head stay as they are


class Model:
    """The source: .config, and .weights by the names of its files, float32, and the types they are stored in."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.config = json.loads((self.folder / "config.json").read_text())
        stored = {}
        for path in sorted(self.folder.glob("*.safetensors")):
            stored.update(tensors.read_file(path))
        self.weights = {name: t.floats() for name, t in stored.items()}
        self.dtypes = {name: t.dtype for name, t in stored.items()}

    @property
    def n_layer(self):
        return self.config["num_hidden_layers"]

    @property
    def n_expert(self):
        return self.config["num_local_experts"]

    def matching(self, pattern):
        modules = (name.removesuffix(".weight") for name in self.weights)
        return [module for module in modules if re.search(pattern, module)]

    def routers(self):
        return self.matching(r"block_sparse_moe\.gate$")

    def changed(self, weights, **config):
        """Returns a model with these weights, and with some settings changed."""
        other = object.__new__(Model)
        other.folder, other.config, other.weights = self.folder, self.config | config, weights
        other.dtypes = {name: self.dtypes.get(name, "BF16") for name in weights}
        return other

    def pruned(self, experts):
        """Returns the model with these experts alone, in this order, as REAP leaves a model."""
        weights = {}
        for name, w in self.weights.items():
            if match := re.search(r"\.experts\.(\d+)\.", name):
                if int(match[1]) in experts:
                    new = f".experts.{experts.index(int(match[1]))}."
                    weights[name.replace(match[0], new)] = w
            elif name.endswith(("block_sparse_moe.gate.weight", "e_score_correction_bias")):
                weights[name] = w[experts]
            else:
                weights[name] = w
        return self.changed(weights, num_local_experts=len(experts))

    def narrowed(self, expert_ff):
        """Returns the model with the first `expert_ff` hidden units of each expert."""
        weights = {
            name: w[:, :expert_ff] if name.endswith(".w2.weight") else w[:expert_ff] if ".experts." in name else w
            for name, w in self.weights.items()
        }
        return self.changed(weights, intermediate_size=expert_ff)


@dataclasses.dataclass
class Layout:
    """rules: (pattern, packing); the first rule whose pattern matches a module packs it, and a module that none matches stays as it is.

    config: further members of config.json, or a function of the model. hf_quant: hf_quant_config.json, likewise.
    plain: the type of what stays; the router and its bias keep theirs unless `router` says otherwise.
    names: from a tensor's name in the source to its name here. fuse_qkv: q, k and v in one qkv_proj.
    stack: experts in 3-D tensors, "rows" [E, 2I, H] and [E, H, I], "columns" [E, H, 2I] and [E, I, H].
    extra: more tensors, a function of (model, rng). n_shard: files, by name; place: from a name to a file or None.
    change: what happens to the model first. order: "library", as the safetensors library sorts, or "shuffled".
    """

    rules: list = dataclasses.field(default_factory=list)
    config: object = None
    hf_quant: object = None
    plain: str = "BF16"
    router: str = None
    names: object = None
    fuse_qkv: bool = False
    stack: str = None
    extra: object = None
    n_shard: int = 1
    place: object = None
    change: object = None
    order: str = "library"
    what: str = ""


def generator(seed, *names):
    return np.random.Generator(np.random.PCG64([seed, zlib.crc32("/".join(names).encode())]))


def packed_model(model, layout, seed, name):
    """Returns the tensors by their names on disk, and the float32 weights that they represent by the source's names."""
    stored, twin = {}, {}
    for weight, w in model.weights.items():
        module = weight.removesuffix(".weight")
        packing = next((p for pattern, p in layout.rules if re.search(pattern, module)), None)
        if packing is not None:
            packed = packing.pack(w, generator(seed, name, module))
            twin[weight] = packing.unpack(packed)
            stored.update({module + suffix: t for suffix, t in packed.items()})
        else:
            dtype = layout.plain
            if model.dtypes[weight] == "F32":  # the router and its bias
                dtype = layout.router if layout.router and weight.endswith(".weight") else "F32"
            stored[weight] = tensor(w, dtype)
            twin[weight] = stored[weight].floats()
    if layout.fuse_qkv:
        stored, twin = fused_qkv(model, layout, stored, twin, seed, name)
    if layout.stack:
        stored = stacked(model, layout, stored)
    if layout.extra:
        stored.update(layout.extra(model, generator(seed, name, "extra")))
    if layout.names:
        stored = {layout.names(key): t for key, t in stored.items()}
    return stored, twin


def fused_qkv(model, layout, stored, twin, seed, name):
    """Packs q, k and v as one matrix, which then has one scale for the whole matrix if the packing has such a scale."""
    for layer in range(model.n_layer):
        stem = f"model.layers.{layer}.self_attn."
        parts = [f"{stem}{x}_proj" for x in "qkv"]
        rows = np.cumsum([len(model.weights[part + ".weight"]) for part in parts])[:-1]
        w = np.concatenate([model.weights[part + ".weight"] for part in parts])
        packing = next((p for pattern, p in layout.rules if re.search(pattern, parts[0])), None)
        packed = {".weight": tensor(w, layout.plain)}
        if packing is not None:
            packed = packing.pack(w, generator(seed, name, stem + "qkv_proj"))
        meant = packing.unpack(packed) if packing is not None else packed[".weight"].floats()
        for part, piece in zip(parts, np.split(meant, rows)):
            twin[part + ".weight"] = piece
        stored = {key: t for key, t in stored.items() if key.rsplit(".", 1)[0] not in parts}
        stored.update({f"{stem}qkv_proj{suffix}": t for suffix, t in packed.items()})
    return stored, twin


def stacked(model, layout, stored):
    """Experts' tensors X.weight + s → experts.gate_up_proj + s', down_proj + s'; .weight_scale_inv → _scale_inv."""
    out = {key: t for key, t in stored.items() if ".experts." not in key}
    suffixes = {key.split(".w1", 1)[1] for key in stored if ".experts." in key and ".w1." in key}
    for layer in range(model.n_layer):
        stem = f"model.layers.{layer}.block_sparse_moe.experts."
        for suffix in suffixes:

            def part(w):
                return [stored[f"{stem}{e}.{w}{suffix}"] for e in range(model.n_expert)]

            gate, up, down = part("w1"), part("w3"), part("w2")
            gate_up = np.stack([np.concatenate([g.bits, u.bits]) for g, u in zip(gate, up)])
            down = np.stack([d.bits for d in down])
            if layout.stack == "columns":
                gate_up, down = gate_up.transpose(0, 2, 1), down.transpose(0, 2, 1)
            end = {".weight": ""}.get(suffix, "_" + suffix.removeprefix(".weight_"))
            out[f"{stem}gate_up_proj{end}"] = Tensor(gate[0].dtype, gate_up)
            out[f"{stem}down_proj{end}"] = Tensor(gate[0].dtype, down)
    return out


def write_folder(folder, model, config, files, hf_quant=None):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for path in model.folder.iterdir():
        if path.suffix != ".safetensors" and path.name not in ("config.json", "model.safetensors.index.json"):
            shutil.copyfile(path, folder / path.name)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    if hf_quant is not None:
        (folder / "hf_quant_config.json").write_text(json.dumps(hf_quant, indent=4) + "\n")
    for name, stored in files.items():
        tensors.write_file(folder / name, stored)
    if len(files) > 1:
        index = {
            "metadata": {"total_size": sum(t.bits.nbytes for stored in files.values() for t in stored.values())},
            "weight_map": {key: name for name, stored in sorted(files.items()) for key in stored},
        }
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def into_files(layout, stored, rng):
    """Returns the tensors of each file, by the file's name."""
    if layout.order == "shuffled":
        keys = list(stored)
        stored = {keys[i]: stored[keys[i]] for i in rng.permutation(len(keys))}
    files = {}
    n = layout.n_shard
    for i, (key, t) in enumerate(stored.items()):
        file = layout.place(key) if layout.place else None
        if file is None:
            file = "model.safetensors" if n == 1 else f"model-{i * n // len(stored) + 1:05d}-of-{n:05d}.safetensors"
        files.setdefault(file, {})[key] = t
    if layout.order == "library":
        files = {name: tensors.library_order(stored) for name, stored in files.items()}
    return files


def write_twin(folder, model, twin):
    plain = {key: Tensor("F32", w) for key, w in twin.items()}
    config = {key: value for key, value in model.config.items() if key != "quantization_config"}
    write_folder(folder, model, config | {"torch_dtype": "float32"}, {"model.safetensors": plain})


def make(source, name, out, twin=None, seed=0, layouts=None):
    """Writes a layout's folder, and its twin's; returns the float32 weights by the source's names."""
    layout = (LAYOUTS if layouts is None else layouts)[name]
    model = source if isinstance(source, Model) else Model(source)
    if layout.change:
        model = layout.change(model)
    stored, meant = packed_model(model, layout, seed, name)
    config = dict(model.config)
    if layout.plain != "BF16":
        config["torch_dtype"] = {"F16": "float16", "F32": "float32"}[layout.plain]
    config |= called(layout.config, model) or {}
    files = into_files(layout, stored, generator(seed, name, "files"))
    write_folder(out, model, config, files, called(layout.hf_quant, model))
    if twin is not None:
        write_twin(twin, model, meant)
    return meant


def called(value, model):
    return value(model) if callable(value) else value


# -------------------------------------------------------------------------------------- what writers put in config.json


def compressed_tensors(*groups, format, ignore, kv_cache=None):
    """quantization_config as llm-compressor saves it. ignore: a list, or a function of the model."""

    def config(model):
        return {
            "quantization_config": {
                "config_groups": {f"group_{i}": group for i, group in enumerate(groups)},
                "format": format,
                "global_compression_ratio": None,
                "ignore": called(ignore, model),
                "kv_cache_scheme": kv_cache,
                "quant_method": "compressed-tensors",
                "quantization_status": "compressed",
                "sparsity_config": {},
                "transform_config": {},
                "version": "0.12.2",
            }
        }

    return config


def group(targets, weights, inputs=None, format=None):
    return {
        "format": format,
        "input_activations": inputs,
        "output_activations": None,
        "targets": targets,
        "weights": weights,
    }


def args(bits, type, strategy, size=None, symmetric=True, **more):
    return {
        "actorder": None,
        "block_structure": None,
        "dynamic": False,
        "group_size": size,
        "num_bits": bits,
        "observer": "minmax",
        "observer_kwargs": {},
        "strategy": strategy,
        "symmetric": symmetric,
        "type": type,
    } | more


def token(bits, type):
    return args(bits, type, "token", dynamic=True, observer=None)


FP8_KV = args(8, "float", "tensor")
NVFP4_WEIGHTS = args(4, "float", "tensor_group", 16, scale_dtype="torch.float8_e4m3fn", zp_dtype=None)
NVFP4_INPUTS = args(4, "float", "tensor_group", 16, dynamic="local", scale_dtype="torch.float8_e4m3fn")


def gptq(bits, size, **more):
    return {
        "quantization_config": {
            "bits": bits,
            "checkpoint_format": "gptq",
            "desc_act": False,
            "dynamic": {r"-:.*block_sparse_moe\.gate$": {}},
            "group_size": size,
            "lm_head": False,
            "meta": {"quantizer": ["gptqmodel:4.2.5"], "damp_percent": 0.05, "true_sequential": True},
            "pack_dtype": "int32",
            "quant_method": "gptq",
            "sym": True,
        }
        | more
    }


def auto_round(format, bits, size, extra, **more):
    def config(model):
        return {
            "quantization_config": {
                "autoround_version": "0.9.2",
                "bits": bits,
                "block_name_to_quantize": "model.layers",
                "data_type": "int",
                "extra_config": called(extra, model),
                "group_size": size,
                "iters": 200,
                "low_gpu_mem_usage": True,
                "packing_format": format,
                "quant_method": "auto-round",
                "sym": True,
            }
            | more
        }

    return config


def quark_tensor(dtype, dynamic, **more):
    return {
        "block_size": None,
        "ch_axis": -1,
        "dtype": dtype,
        "group_size": None,
        "is_dynamic": dynamic,
        "is_scale_quant": False,
        "mx_element_dtype": None,
        "observer_cls": "PerChannelMinMaxObserver",
        "qscheme": "per_channel",
        "round_method": "half_even",
        "scale_calculation_mode": None,
        "scale_format": None,
        "scale_type": "float",
        "symmetric": True,
    } | more


def quark(weight, inputs, exclude):
    return {
        "quantization_config": {
            "algo_config": None,
            "exclude": exclude,
            "export": {
                "kv_cache_group": [],
                "min_kv_scale": 0.0,
                "pack_method": "reorder",
                "weight_format": "real_quantized",
                "weight_merge_groups": None,
            },
            "global_quant_config": {
                "bias": None,
                "input_tensors": inputs,
                "output_tensors": None,
                "target_device": None,
                "weight": weight,
            },
            "kv_cache_quant_config": {},
            "layer_quant_config": {},
            "layer_type_quant_config": {},
            "quant_method": "quark",
            "quant_mode": "eager_mode",
            "softmax_quant_spec": None,
            "version": "0.11.1",
        }
    }


MX = {
    "group_size": 32,
    "observer_cls": "PerBlockMXObserver",
    "qscheme": "per_group",
    "scale_calculation_mode": "even",
    "scale_format": "e8m0",
    "symmetric": None,
}
MODELOPT = {"name": "modelopt", "version": "0.43.0"}


def left_out(model):
    """Returns the modules that stay unquantised, as ModelOpt lists them: with a wildcard for the attention of each layer."""
    per_layer = ((router, router.replace("block_sparse_moe.gate", "self_attn*")) for router in model.routers())
    return ["lm_head", *(name for pair in per_layer for name in pair)]


def modelopt_file(algorithm, exclude=left_out, **more):
    def config(model):
        details = {"quant_algo": algorithm, "kv_cache_quant_algo": None, "exclude_modules": called(exclude, model)}
        return {"producer": MODELOPT, "quantization": details | called(more, model)}

    return config


def modelopt_flat(algorithm, weights, inputs, exclude=left_out, **more):
    """The same in config.json, in the shape of compressed-tensors."""

    def config(model):
        details = {"dynamic": False} | weights
        entry = {"weights": details, "targets": ["Linear"]}
        if inputs:
            entry["input_activations"] = {"dynamic": False} | inputs
        return {
            "quantization_config": {
                "config_groups": {"group_0": entry},
                "ignore": called(exclude, model),
                "producer": MODELOPT,
                "quant_algo": algorithm,
                "quant_method": "modelopt",
            }
            | more
        }

    return config


FP4 = {"num_bits": 4, "type": "float", "group_size": 16}
KV_FLAT = {"kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"}}


def layer_map(model):
    """Returns ModelOpt's map of a mixed model: attention in FP8 except in the last layer, experts in W4A16."""
    last = f"layers.{model.n_layer - 1}."
    attention = {m: {"quant_algo": "FP8"} for m in model.matching(ATTENTION) if last not in m}
    return attention | {m: {"quant_algo": "W4A16_NVFP4", "group_size": 16} for m in model.matching(EXPERTS)}


def mixed_file(model):
    details = {"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": None, "quantized_layers": layer_map(model)}
    return {"producer": MODELOPT, "quantization": details}


def mixed_flat(model):
    layers, groups = layer_map(model), {}
    for module, algorithm in layers.items():
        fp8 = algorithm["quant_algo"] == "FP8"
        entry = groups.setdefault(f"group_{0 if fp8 else 1}", {"weights": {"dynamic": False} | FP4, "targets": []})
        if fp8:
            entry["weights"] = entry["input_activations"] = {"dynamic": False, "num_bits": 8, "type": "float"}
        entry["targets"].append(module)
    return {
        "quantization_config": {
            "config_groups": groups,
            "ignore": [],
            "producer": MODELOPT,
            "quant_algo": "MIXED_PRECISION",
            "quant_method": "modelopt",
            "quantized_layers": layers,
        }
    }


# ------------------------------------------------------------------------------------------- other tensors, other names


def kv_scales(where, dtype="F32", shape=(), names="kv"):
    """Factors of an eight-bit cache; where: "proj" (k_proj.k_scale) or "attention" (self_attn.k_scale)."""

    def extra(model, rng):
        out = {}
        for layer in range(model.n_layer):
            for x in names:
                module = f"{x}_proj." if where == "proj" else ""
                value = tensor(np.full(shape, rng.uniform(0.01, 2)), dtype)
                out[f"model.layers.{layer}.self_attn.{module}{x}_scale"] = value
        return out

    return extra


def mlp_names(name):
    """Returns the name that transformers uses: mlp.experts.E.gate_proj."""
    name = name.replace(".block_sparse_moe.", ".mlp.")
    for old, new in (("w1", "gate_proj"), ("w3", "up_proj"), ("w2", "down_proj")):
        name = re.sub(rf"(\.experts\.\d+)\.{old}\.", rf"\1.{new}.", name)
    return name


def mlp_stack_names(name):
    return name.replace(".block_sparse_moe.", ".mlp.")


def bias_in_gate(name):
    return name.replace("block_sparse_moe.e_score", "block_sparse_moe.gate.e_score")


def zero_points(shape):
    """Returns a function that adds zero points of 0, which Quark writes for symmetric integers too."""

    def extra(model, rng):
        return {
            f"{m}.weight_zero_point": Tensor("I8", np.zeros(shape(model, m), np.int8)) for m in model.matching(LINEARS)
        }

    return extra


def input_scales_apart(name):
    return "model-inputscales.safetensors" if name.endswith(".input_scale") else None


# -------------------------------------------------------------------------------------------------------------- layouts

GATE = r"re:.*block_sparse_moe\.gate$"
INT4_32 = args(4, "int", "group", 32)
ROW = args(8, "float", "channel")
BLOCK = args(8, "float", "block", block_structure=[128, 128])

LAYOUTS = {
    # compressed-tensors
    "ct-int4-g32-sym": Layout(
        what="INT4 in groups of 32, attention too",
        rules=[(LINEARS, CtInt(group=32))],
        config=compressed_tensors(
            group(["Linear"], INT4_32, format="pack-quantized"), format="pack-quantized", ignore=["lm_head", GATE]
        ),
    ),
    "ct-int4-g128-asym": Layout(
        what="INT4 in groups of 128 with zero points, experts only",
        rules=[(EXPERTS, CtInt(group=128, symmetric=False))],
        config=compressed_tensors(
            group(["Linear"], args(4, "int", "group", 128, symmetric=False)),
            format="pack-quantized",
            ignore=["lm_head", "re:.*self_attn.*", GATE],
        ),
        n_shard=2,
    ),
    "ct-int4-g64": Layout(
        what="INT4 in groups of 64, attention too",
        rules=[(LINEARS, CtInt(group=64))],
        config=compressed_tensors(
            group(["Linear"], args(4, "int", "group", 64)), format="pack-quantized", ignore=["lm_head", GATE]
        ),
    ),
    "ct-int4-channel": Layout(
        what="INT4 with a scale for each row",
        rules=[(LINEARS, CtInt(group=-1, shape_tensor=False))],
        config=compressed_tensors(
            group(["Linear"], args(4, "int", "channel")), format="pack-quantized", ignore=["lm_head", GATE]
        ),
    ),
    "ct-int8-g32-asym": Layout(
        what="INT8 in groups of 32 with zero points, packed; experts only",
        rules=[(EXPERTS, CtInt(bits=8, group=32, symmetric=False))],
        config=compressed_tensors(
            group([r"re:.*experts\.\d+\.w\d$"], args(8, "int", "group", 32, symmetric=False)),
            format="pack-quantized",
            ignore=["lm_head"],
        ),
    ),
    "ct-int8-g64": Layout(
        what="INT8 in groups of 64, packed; experts only",
        rules=[(EXPERTS, CtInt(bits=8, group=64))],
        config=compressed_tensors(
            group([r"re:.*experts\.\d+\.w\d$"], args(8, "int", "group", 64)), format="pack-quantized", ignore=[]
        ),
    ),
    "ct-int4-gidx": Layout(
        what="INT4 in groups of 64, inputs ordered by activation: weight_g_idx",
        rules=[(LINEARS, CtInt(group=64, actorder=True))],
        config=compressed_tensors(
            group(["Linear"], args(4, "int", "group", 64, actorder="group")),
            format="pack-quantized",
            ignore=lambda model: [*model.routers(), "lm_head"],
        ),
    ),
    "ct-int4-w4a8": Layout(
        what="INT4 in groups of 128; 8-bit activations that a weight-only loader need not mind",
        rules=[(EXPERTS, CtInt(group=128))],
        config=compressed_tensors(
            group(["Linear"], args(4, "int", "group", 128), token(8, "int")),
            format="pack-quantized",
            ignore=["lm_head", "re:.*self_attn", GATE],
        ),
    ),
    "ct-int8-g128": Layout(
        what="INT8 in groups of 128, packed like INT4, four numbers a word",
        rules=[(LINEARS, CtInt(bits=8, group=128))],
        config=compressed_tensors(
            group(["Linear"], args(8, "int", "group", 128, observer="memoryless_minmax")),
            format="pack-quantized",
            ignore=["lm_head", "re:.*router.*", r"re:.*\.gate\b", "re:.*embed_tokens.*"],
        ),
    ),
    "ct-mixed": Layout(
        what="attention in FP8 by rows, experts INT4 in groups of 32, each group's targets a regular expression",
        rules=[(ATTENTION, Fp8("row", scale_dtype="BF16")), (EXPERTS, CtInt(group=32))],
        config=compressed_tensors(
            group([r"re:.*self_attn\.(q|k|v|o)_proj$"], ROW, token(8, "float"), "float-quantized"),
            group([r"re:.*block_sparse_moe\.experts\.\d+\.(w1|w2|w3)$"], INT4_32, format="pack-quantized"),
            format="mixed-precision",
            ignore=lambda model: ["lm_head", *model.routers()],
        ),
    ),
    "ct-mixed-block": Layout(
        what="attention in the FP8 blocks of the original, renamed to weight_scale; both groups' targets say Linear",
        rules=[(ATTENTION, Fp8("block")), (EXPERTS, CtInt(group=32))],
        config=compressed_tensors(
            group(["Linear"], BLOCK, token(8, "float"), "float-quantized"),
            group(["Linear", r"re:.*block_sparse_moe\.experts\.\d+\.(w1|w2|w3)$"], INT4_32, format="pack-quantized"),
            format="mixed-precision",
            ignore=lambda model: ["lm_head", *model.routers()],
        ),
        n_shard=3,
    ),
    "ct-fp8-channel": Layout(
        what="FP8 with a scale for each row",
        rules=[(LINEARS, Fp8("row", scale_dtype="BF16"))],
        config=compressed_tensors(
            group(["Linear"], ROW, token(8, "float"), "float-quantized"),
            format="float-quantized",
            ignore=["lm_head", GATE],
        ),
    ),
    "ct-fp8-tensor": Layout(
        what="FP8 with one scale a matrix, static input scales, factors for an FP8 cache",
        rules=[(LINEARS, Fp8("whole", scale_dtype="BF16", whole=(1,), input_scale=True))],
        config=compressed_tensors(
            group(["Linear"], args(8, "float", "tensor"), args(8, "float", "tensor"), "float-quantized"),
            format="float-quantized",
            ignore=["re:.*lm_head", "re:.*gate$"],
            kv_cache=FP8_KV,
        ),
        extra=kv_scales("attention", "BF16", (1,)),
    ),
    "ct-fp8-block": Layout(
        what="FP8 with a BF16 scale for each 128 x 128, called weight_scale",
        rules=[(LINEARS, Fp8("block", scale_dtype="BF16"))],
        config=compressed_tensors(
            group(["Linear"], BLOCK, args(8, "float", "group", 128, dynamic=True), "float-quantized"),
            format="float-quantized",
            ignore=["lm_head", GATE],
        ),
    ),
    "ct-int8-channel": Layout(
        what="INT8 bytes with a scale for each row, experts only",
        rules=[(EXPERTS, Int8())],
        config=compressed_tensors(
            group([r"re:.*block_sparse_moe\.experts\.\d+\.w[1-3]$"], args(8, "int", "channel"), token(8, "int")),
            format="int-quantized",
            ignore=["lm_head"],
        ),
    ),
    "ct-int8-asym": Layout(
        what="INT8 bytes with a scale and a zero point for each row",
        rules=[(LINEARS, Int8(symmetric=False))],
        config=compressed_tensors(
            group(["Linear"], args(8, "int", "channel", symmetric=False), token(8, "int"), "int-quantized"),
            format="int-quantized",
            ignore=["lm_head", GATE],
        ),
    ),
    "ct-nvfp4-attention": Layout(
        what="NVFP4 of attention and experts",
        rules=[(LINEARS, Nvfp4("ct"))],
        config=compressed_tensors(
            group(["Linear"], NVFP4_WEIGHTS, NVFP4_INPUTS, "nvfp4-pack-quantized"),
            format="nvfp4-pack-quantized",
            ignore=["lm_head", "model.embed_tokens", GATE],
        ),
    ),
    "ct-nvfp4-fused-qkv": Layout(
        what="NVFP4 of experts and of q, k and v in one qkv_proj",
        rules=[(r"self_attn\.[qkv]_proj$", Nvfp4("ct")), (EXPERTS, Nvfp4("ct"))],
        fuse_qkv=True,
        config=compressed_tensors(
            group([r"re:.*self_attn\.qkv_proj$", r"re:.*experts.*"], NVFP4_WEIGHTS, NVFP4_INPUTS),
            format="nvfp4-pack-quantized",
            ignore=["lm_head", r"re:.*\.o_proj$", GATE],
        ),
    ),
    "ct-mxfp4-mlp-names": Layout(
        what="MXFP4 of experts called mlp.experts.E.gate_proj, as llm-compressor's newer releases leave them",
        rules=[(EXPERTS, Mxfp4())],
        names=mlp_names,
        config=compressed_tensors(
            group(
                [r"re:.*mlp\.experts\.[0-9]+\.(gate|up|down)_proj$"],
                args(4, "float", "group", 32, scale_dtype="torch.uint8"),
                format="mxfp4-pack-quantized",
            ),
            format="mxfp4-pack-quantized",
            ignore=[],
        ),
    ),
    "ct-mxfp8": Layout(
        what="MXFP8, weight_scale of type U8",
        rules=[(LINEARS, Mxfp8())],
        config=compressed_tensors(
            group(
                ["Linear"],
                args(8, "float", "group", 32, scale_dtype="torch.uint8"),
                args(8, "float", "group", 32, dynamic=True, scale_dtype="torch.uint8"),
                "mxfp8-quantized",
            ),
            format="mxfp8-quantized",
            ignore=["lm_head", GATE],
        ),
    ),
    # AWQ
    "awq-g32": Layout(
        what="AutoAWQ in groups of 32",
        rules=[(LINEARS, Awq(32))],
        plain="F16",
        config={
            "quantization_config": {
                "bits": 4,
                "group_size": 32,
                "modules_to_not_convert": ["gate", "lm_head"],
                "quant_method": "awq",
                "version": "gemm",
                "zero_point": True,
            }
        },
    ),
    "awq-g64-bf16scales": Layout(
        what="AutoAWQ in groups of 64, scales of type BF16, experts only",
        rules=[(EXPERTS, Awq(64, scale_dtype="BF16"))],
        config={
            "quantization_config": {
                "bits": 4,
                "group_size": 64,
                "modules_to_not_convert": ["self_attn", "block_sparse_moe.gate", "lm_head"],
                "quant_method": "awq",
                "version": "GEMM",
                "zero_point": True,
            }
        },
        n_shard=2,
    ),
    # GPTQ
    "gptq-4bit-sym": Layout(
        what="GPTQ v1 in groups of 128, inputs in order",
        rules=[(LINEARS, Gptq(4, 128))],
        config=gptq(4, 128),
    ),
    "gptq-4bit-desc_act": Layout(
        what="GPTQ v1 in groups of 32 with zero points, inputs out of order: g_idx",
        rules=[(LINEARS, Gptq(4, 32, symmetric=False, desc_act=True))],
        plain="F16",
        config=gptq(4, 32, desc_act=True, sym=False),
    ),
    "gptq-8bit-asym": Layout(
        what="GPTQ v1 of 8 bits in groups of 128 with zero points",
        rules=[(LINEARS, Gptq(8, 128, symmetric=False))],
        config=gptq(8, 128, sym=False),
    ),
    "gptq_v2-8bit": Layout(
        what="GPTQ v2 of 8 bits in groups of 64 with zero points",
        rules=[(LINEARS, Gptq(8, 64, symmetric=False, bias=0, scale_dtype="BF16"))],
        config=gptq(8, 64, sym=False, checkpoint_format="gptq_v2"),
    ),
    # AutoRound
    "autoround-gptq": Layout(
        what="AutoRound, packed like GPTQ v1 without g_idx; scales may be negative; experts only",
        rules=[(EXPERTS, Gptq(4, 128, g_idx=False, negative_scales=True))],
        config=auto_round(
            "auto_round:auto_gptq",
            4,
            128,
            {r".*self_attn.*": {"bits": 16, "data_type": "float"}, r".*gate": {"bits": 16, "data_type": "float"}},
        ),
    ),
    "autoround-awq": Layout(
        what="AutoRound, packed like AutoAWQ, with zero points",
        rules=[(LINEARS, Awq(128))],
        plain="F16",
        config=auto_round(
            "auto_round:auto_awq", 4, 128, lambda model: {r: {"bits": 16} for r in model.routers()}, sym=False
        ),
    ),
    "autoround-plain": Layout(
        what="AutoRound's own packing: like GPTQ v2 without g_idx, zero points as they are",
        rules=[(LINEARS, Gptq(4, 32, symmetric=False, bias=0, g_idx=False))],
        config=auto_round("auto_round", 4, 32, lambda model: {r: {"bits": 16} for r in model.routers()}, sym=False),
    ),
    "autoround-mxfp4": Layout(
        what="AutoRound, MXFP4 in the tensors of compressed-tensors",
        rules=[(LINEARS, Mxfp4())],
        config=auto_round(
            "auto_round:llm_compressor",
            4,
            32,
            lambda model: {r: {"bits": 16, "act_bits": 16} for r in model.routers()},
            data_type="mx_fp",
            act_bits=4,
            act_data_type="mx_fp_rceil",
            act_dynamic=True,
            act_group_size=32,
            act_sym=True,
        ),
    ),
    # Quark
    "quark-mxfp4": Layout(
        what="Quark's MXFP4: weight U8, weight_scale U8; experts only",
        rules=[(EXPERTS, Mxfp4(".weight"))],
        config=lambda model: quark(
            quark_tensor("fp4", False, **MX),
            quark_tensor("fp4", True, **MX),
            ["lm_head", "*block_sparse_moe.gate", *model.matching(ATTENTION)],
        ),
    ),
    "quark-fp8-ptpc": Layout(
        what="Quark's FP8 with a scale for each row [N]",
        rules=[(LINEARS, Fp8("row", scale_dtype="F32", vector=True))],
        config=quark(
            quark_tensor("fp8_e4m3", False, ch_axis=0),
            quark_tensor("fp8_e4m3", True, ch_axis=1),
            ["lm_head", "*.gate"],
        ),
    ),
    "quark-int8-ptpc": Layout(
        what="Quark's INT8 with a scale [N] and a zero point, always 0, for each row",
        rules=[(LINEARS, Int8(shape="vector", scale_dtype="F32"))],
        config=quark(
            quark_tensor("int8", False, ch_axis=0), quark_tensor("int8", True, ch_axis=1), ["lm_head", "re:.*gate$"]
        ),
        extra=zero_points(lambda model, module: len(model.weights[module + ".weight"])),
    ),
    # MXFP8
    "mxfp8-1x32-u8": Layout(
        what="MXFP8, weight_scale_inv of type U8",
        rules=[(LINEARS, Mxfp8(".weight_scale_inv"))],
        config=lambda model: {
            "quantization_config": {
                "activation_scheme": "dynamic",
                "fmt": "e4m3",
                "ignored_layers": ["lm_head", "model.embed_tokens", *model.routers()],
                "quant_method": "mxfp8",
                "scale_fmt": "ue8m0",
                "weight_block_size": [1, 32],
            }
        },
    ),
    "mxfp8-1x32-e8m0": Layout(
        what="MXFP8, weight_scale of type F8_E8M0",
        rules=[(LINEARS, Mxfp8(".weight_scale", "F8_E8M0"))],
        config={
            "quantization_config": {
                "activation_scheme": "dynamic",
                "ignored_layers": ["lm_head", "gate"],
                "quant_method": "mxfp8",
                "scale_fmt": "ue8m0",
                "weight_block_size": [1, 32],
            }
        },
    ),
    "mxfp8-nvfp4-moe": Layout(
        what="attention in MXFP8, experts in NVFP4 of compressed-tensors",
        rules=[(ATTENTION, Mxfp8(".weight_scale_inv")), (EXPERTS, Nvfp4("ct", input=False))],
        config={
            "quantization_config": {
                "activation_scheme": "dynamic",
                "ignored_layers": ["lm_head", "gate"],
                "moe_quant_algo": "NVFP4",
                "moe_quant_format": "nvfp4-pack-quantized",
                "quant_method": "mxfp8",
                "scale_fmt": "ue8m0",
                "weight_block_size": [1, 32],
            }
        },
    ),
    # ModelOpt
    "nvfp4-modelopt-kv": Layout(
        what="ModelOpt's NVFP4 of experts, k_scale and v_scale, input scales in a file of their own",
        rules=[(EXPERTS, Nvfp4("modelopt"))],
        config=modelopt_flat("NVFP4", FP4, FP4, **KV_FLAT),
        hf_quant=modelopt_file("NVFP4", kv_cache_quant_algo="FP8", group_size=16),
        extra=kv_scales("proj"),
        n_shard=2,
        place=input_scales_apart,
    ),
    "nvfp4-w4a16-map": Layout(
        what="ModelOpt's map of layers: experts W4A16 NVFP4, attention FP8 but for the last layer's",
        rules=[
            (r"layers\.[01]\." + ATTENTION, Fp8("whole", whole=(), input_scale=True)),
            (EXPERTS, Nvfp4("modelopt", input=False)),
        ],
        config=mixed_flat,
        hf_quant=mixed_file,
    ),
    "modelopt-fp8": Layout(
        what="ModelOpt's FP8, scales of shape []",
        rules=[(LINEARS, Fp8("whole", whole=(), input_scale=True))],
        config=modelopt_flat(
            "FP8",
            {"num_bits": 8, "type": "float"},
            {"num_bits": 8, "type": "float"},
            lambda model: ["lm_head", *model.routers()],
        ),
        hf_quant=modelopt_file("FP8", lambda model: ["lm_head", *model.routers()]),
    ),
    # names
    "names-mlp-experts": Layout(
        what="BF16, mlp.experts.E.{gate,up,down}_proj, mlp.gate, mlp.e_score_correction_bias", names=mlp_names
    ),
    "names-bias-in-gate": Layout(
        what="BF16, block_sparse_moe and w1, w2, w3, the bias in gate, a BF16 router", names=bias_in_gate, router="BF16"
    ),
    "stacked-rows": Layout(
        what="BF16, mlp.experts.gate_up_proj [E, 2I, H] and down_proj [E, H, I], as transformers holds them",
        stack="rows",
        names=mlp_stack_names,
    ),
    "stacked-columns": Layout(
        what="BF16, gate_up_proj [E, H, 2I] and down_proj [E, I, H]", stack="columns", names=mlp_stack_names
    ),
    "stacked-columns-square": Layout(
        what="the same where 2I = H as in the real model: down_proj alone shows the order",
        stack="columns",
        names=mlp_stack_names,
        change=lambda model: model.narrowed(128),
    ),
    "stacked-fp8": Layout(
        what="FP8 blocks, stacked by rows, with gate_up_proj_scale_inv and down_proj_scale_inv",
        rules=[(LINEARS, Fp8("block", ".weight_scale_inv"))],
        stack="rows",
        names=mlp_stack_names,
        config={
            "quantization_config": {
                "activation_scheme": "dynamic",
                "fmt": "float8_e4m3fn",
                "modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"],
                "quant_method": "fp8",
                "weight_block_size": [128, 128],
            }
        },
    ),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source", nargs="?")
    parser.add_argument("layout", nargs="?", choices=LAYOUTS, metavar="layout")
    parser.add_argument("out", nargs="?")
    parser.add_argument("--twin")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        for name, layout in LAYOUTS.items():
            print(f"{name:24} {layout.what}")
    elif options.out is None:
        parser.error("SOURCE, LAYOUT and OUT are needed")
    else:
        make(options.source, options.layout, options.out, options.twin, options.seed)


if __name__ == "__main__":
    main()
