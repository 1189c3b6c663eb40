#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes the exact bytes of a MiniMax-M2 checkpoint from shapes and types alone, and the bounds of its speed.

    figures.py                      a table of all mixes of make_headers.py
    figures.py --json iq5_k         everything known about one

Formulas
    bytes of a tensor    rows * (row header + columns / block * block bytes)            types: make_headers.py
    experts              every ffn_*_exps tensor (folders: block_sparse_moe.experts.*)
    dense                all other tensors: attention, norms, routers and their biases, embedding, output head
    KV cache             context * layers * 2 * KV heads * head dimension * bytes per value     F16: 253,952 bytes a token
    read per token       dense: all but the embedding (one row of it is read, 3 to 12 KB); experts: used / experts of their bytes;
                         KV: the cache of the whole context
    layer split          one device works at a time: seconds = sum over devices of the bytes they read / their bandwidth
    tensor split         all work at once: seconds = bytes / sum of the bandwidths; no exchange counted: a bound, not a forecast
    experts in RAM       seconds >= max(bytes read from RAM / its bandwidth, bytes read from devices / theirs)

The same weights have two forms: `file`, as the checkpoint stores them, and `resident`, as the library keeps them in memory. Both are
equal for GGUF types. In folders the library assembles blocks: FP8 132 bytes for 128 numbers (a scale for each row of a block), AWQ 133 for 256,
NVFP4 36 for 64, and norms become F32.
"""
import json
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import make_headers as headers  # noqa: E402

KV_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "Q8_0": 34 / 32, "Q4_0": 18 / 32}  # per value
KV_ROUNDING = 256  # tokens: pages may round a context up to a multiple of at most this


def model_of(spec):
    return headers.Model(layers=spec.get("layers", 62), experts=spec.get("experts", 256))


def tensors_of(spec):
    """spec: {"mix"} or {"types"}, optionally with "experts", "layers", "fused", "parts"."""
    model = model_of(spec)
    kind = spec.get("mix")
    if kind in headers.SHARDS:
        return model, kind, headers.hf_tensors(model, kind)
    return model, None, headers.gguf_tensors(model, spec.get("types") or kind, spec.get("fused", False))


def resident_bytes(tensor, kind):
    """Returns the bytes in memory of a folder's tensor."""
    if tensor.name.endswith("norm.weight"):
        return tensor.bytes * 2  # BF16 to F32
    if kind == "fp8":
        if tensor.type == "F8_E4M3":
            return tensor.bytes // 128 * 132
        if tensor.name.endswith("_scale_inv"):
            return 0  # the scales are inside the blocks
    if kind == "awq":
        if tensor.name.endswith(".qweight"):
            return tensor.bytes * 2 // 256 * 133
        if tensor.name.endswith((".qzeros", ".scales")):
            return 0
    if kind == "nvfp4" and tensor.name.endswith((".input_scale", ".weight_scale_2")):
        return 0
    return tensor.bytes


def layer_of(name):
    parts = name.split(".")
    return int(parts[1]) if parts[0] == "blk" else int(parts[2]) if parts[1] == "layers" else -1


def weights(spec):
    """{"file": ..., "resident": ...}: experts, dense, embedding, head (with the last norm), dense and experts of each layer."""
    model, kind, tensors = tensors_of(spec)
    forms = {}
    for form in ("file", "resident"):
        sums = {"total": 0, "experts": 0, "dense": 0, "embedding": 0, "head": 0}
        layers, expert_layers = [0] * model.layers, [0] * model.layers
        for t in tensors:
            size = t.bytes if form == "file" or kind is None else resident_bytes(t, kind)
            layer = layer_of(t.name)
            sums["total"] += size
            if "_exps." in t.name or ".experts." in t.name:
                sums["experts"] += size
                expert_layers[layer] += size
                continue
            sums["dense"] += size
            if layer >= 0:
                layers[layer] += size
            else:
                sums["embedding" if "embd" in t.name or "embed_tokens" in t.name else "head"] += size
        forms[form] = sums | {"layer_dense": layers, "layer_experts": expert_layers}
    return forms


def formula(spec, context, k_type="F16", v_type="F16"):
    """Returns the sums of weights() and kv_bytes(), term by term, for the tensors as the checkpoint stores them."""
    model, _, tensors = tensors_of(spec)
    terms = {}
    for t in tensors:
        part = "experts" if "_exps." in t.name or ".experts." in t.name else "embedding" if "embd" in t.name or "embed_tokens" in t.name else "other dense"
        count, _ = terms.get((part, t.type), (0, 0))
        terms[part, t.type] = (count + math.prod(t.shape), terms.get((part, t.type), (0, 0))[1] + t.bytes)
    lines = {}
    for (part, kind), (count, size) in sorted(terms.items()):
        lines.setdefault(part, []).append(f"{kind} {count:,} * {8 * size / count:g} bits / 8 = {size:,}")
    lines["kv"] = [f"{context:,} * {model.layers} * {model.kv_heads} * {model.head_dim} * ({KV_BYTES[k_type]:g} + {KV_BYTES[v_type]:g}) = "
                   f"{kv_bytes(context, k_type, v_type, model):,}"]
    return lines


FULL_SIZE = headers.Model()


def kv_bytes(context, k_type="F16", v_type="F16", model=FULL_SIZE):
    return round(context * model.layers * model.kv_heads * model.head_dim * (KV_BYTES[k_type] + KV_BYTES[v_type]))


def bytes_per_token(form, spec, context=0, k_type="F16", v_type="F16"):
    model = model_of(spec)
    return {"dense": form["dense"] - form["embedding"], "experts": form["experts"] * model.used // model.experts,
            "kv_at_context": kv_bytes(context, k_type, v_type, model)}


UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def size_of(text):
    """Returns the bytes of "96GiB", "26.8GB"."""
    number = text.rstrip("kKMGTiB")
    return float(number) * UNITS[text[len(number):]]


def facts(text):
    """Returns ("cuda:0", bytes, bytes a second) for "cuda:0=96GiB,1790GB/s,pcie=50GB/s"; the name is empty for a host's text."""
    name, _, memory = text.split(",")[0].rpartition("=")
    return name, int(size_of(memory)), size_of(text.split(",")[1].removesuffix("/s"))


def layer_split_limit(form, spec, devices, context, k_type="F16", v_type="F16"):
    """Returns the tokens per second if the devices read their parts one after the other at full bandwidth, parts in proportion to memory."""
    read = sum(bytes_per_token(form, spec, context, k_type, v_type).values())
    parts = [facts(d)[1:] for d in devices]
    total = sum(memory for memory, _ in parts)
    return 1 / sum(read * memory / total / bandwidth for memory, bandwidth in parts)


def tensor_split_limit(form, spec, devices, context, k_type="F16", v_type="F16"):
    return sum(facts(d)[2] for d in devices) / sum(bytes_per_token(form, spec, context, k_type, v_type).values())


def report(spec):
    forms = weights(spec)
    model = model_of(spec)
    return {"model": spec, **{form: {k: v for k, v in sums.items() if not k.startswith("layer_")} | {
        "one_layer_dense": sums["layer_dense"][0], "one_expert": sorted({b // model.experts for b in sums["layer_experts"]}),
        "read_per_token": bytes_per_token(sums, spec)} for form, sums in forms.items()}}


def main():
    if sys.argv[1:2] == ["--json"]:
        print(json.dumps(report({"mix": sys.argv[2]}), indent=1))
        return
    print(f"{'mix':9} {'total':>16} {'experts':>16} {'dense':>14} {'embedding':>13} {'one expert':>21} {'read/token':>13}   bytes in the file")
    for mix in headers.MIXES:
        r = report({"mix": mix})["file"]
        read = r["read_per_token"]["dense"] + r["read_per_token"]["experts"]
        print(f"{mix:9} {r['total']:16,} {r['experts']:16,} {r['dense']:14,} {r['embedding']:13,} {' '.join(f'{b:,}' for b in r['one_expert']):>21} {read:13,}")


if __name__ == "__main__":
    main()
