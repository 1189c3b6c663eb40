# SPDX-License-Identifier: Apache-2.0
"""Opens MiniMax-M3 in small in the layouts of quantised publications of M3, and compares it with its float32 twins.

usage: m3.py SOURCE [LAYOUT ...]      SOURCE: the BF16 folder minim-tiny-m3; all layouts if none is named

Names, and which modules are packed, are those of the publications; groups are smaller, since the model's rows are. A layout is right when
  - it opens, and the vision tower and nothing else is left out;
  - its logits on the prompt of golden/m3/b128-40, with a KV cache in F32, are the twin's: relative RMS over all positions at most 1e-4 with
    the reference backend; with the CPU's, of the median row at most 3e-2, since rounding may change an expert that wins narrowly;
  - n_parameters is the twin's.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pathlib
import sys
import tempfile

import numpy as np

import make
from make import INT4_32, Layout, args, auto_round, compressed_tensors, gptq, group, quark, quark_tensor
from packing import Awq, CtInt, Fp8, Gptq, Mxfp4

PROMPT = pathlib.Path(__file__).resolve().parents[1] / "data" / "golden" / "m3" / "b128-40.ids.npy"
LAYERS = r"^language_model\..*"
ATTENTION = LAYERS + r"self_attn\.[qkvo]_proj$"
INDEX = LAYERS + r"self_attn\.index_[qk]_proj$"
DENSE = LAYERS + r"\.(mlp|shared_experts)\.(gate|up|down)_proj$"
EXPERTS = LAYERS + r"\.experts\.\d+\.w[123]$"
LINEARS = "|".join((ATTENTION, INDEX, DENSE, EXPERTS))
VISION = ["re:.*vision_tower.*", "re:.*multi_modal_projector.*", "re:.*patch_merge_mlp.*"]
KEPT = ["lm_head", r"re:.*block_sparse_moe\.gate$", *VISION]


class Model(make.Model):
    """The source, whose text model is described in text_config."""

    @property
    def n_layer(self):
        return self.config["text_config"]["num_hidden_layers"]

    @property
    def n_expert(self):
        return self.config["text_config"]["num_local_experts"]


def all_but(*packed):
    """Returns a function that lists the modules of the text model that none of the patterns packs."""

    def left(model):
        modules = model.matching("|".join((ATTENTION, INDEX, DENSE, EXPERTS, r"block_sparse_moe\.gate$")))
        keep = set(modules) - set(model.matching("|".join(packed)))
        return ["*lm_head", "vision_tower*", "multi_modal_projector*", "patch_merge_mlp*", *sorted(keep)]

    return left


def quark_mxfp4(model, packed, layer_config):
    mx = quark_tensor("fp4", False, **make.MX), quark_tensor("fp4", True, **make.MX)
    config = quark(*mx, all_but(*packed)(model))
    config["quantization_config"]["layer_quant_config"] = layer_config
    return config


FP8_ROW = {
    "weight": quark_tensor("fp8_e4m3", False, ch_axis=0),
    "input_tensors": quark_tensor("fp8_e4m3", True, ch_axis=1),
    "output_tensors": None,
    "bias": None,
    "target_device": None,
}

LAYOUTS = {
    "quark-mxfp4": Layout(
        what="Quark's MXFP4 of experts, the rest BF16",
        rules=[(EXPERTS, Mxfp4(".weight"))],
        config=lambda model: quark_mxfp4(model, [EXPERTS], {}),
    ),
    "quark-mxfp4-attnfp8": Layout(
        what="Quark's MXFP4 of experts, attention in FP8 by rows",
        rules=[(EXPERTS, Mxfp4(".weight")), (ATTENTION, Fp8("row", vector=True))],
        config=lambda model: quark_mxfp4(model, [EXPERTS, ATTENTION], {f"*{x}_proj": FP8_ROW for x in "qkvo"}),
    ),
    "ct-mxfp4": Layout(
        what="MXFP4 of experts in the tensors of compressed-tensors, as AutoRound exports it",
        rules=[(EXPERTS, Mxfp4())],
        config=compressed_tensors(
            group(
                [r"re:.*experts\.\d+\.w[123]$"],
                args(4, "float", "group", 32, scale_dtype="torch.uint8"),
                format="mxfp4-pack-quantized",
            ),
            format="mxfp4-pack-quantized",
            ignore=[*KEPT, "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\..*"],
        ),
    ),
    "ct-int4-asym": Layout(
        what="INT4 with zero points of all feed-forwards, attention plain",
        rules=[(f"{EXPERTS}|{DENSE}", CtInt(group=32, symmetric=False))],
        config=compressed_tensors(
            group(["Linear"], INT4_32 | {"symmetric": False}),
            format="pack-quantized",
            ignore=[*KEPT, "re:.*self_attn.*"],
        ),
        n_shard=2,
    ),
    "awq": Layout(
        what="AutoAWQ of everything but the index",
        rules=[("|".join((ATTENTION, DENSE, EXPERTS)), Awq(32))],
        plain="F16",
        config={
            "quantization_config": {
                "bits": 4,
                "group_size": 32,
                "modules_to_not_convert": ["index_q_proj", "index_k_proj", "block_sparse_moe.gate", "lm_head", "vision_tower"],
                "quant_method": "awq",
                "version": "gemm",
                "zero_point": True,
            }
        },
    ),
    "gptq": Layout(
        what="GPTQ v1 of all linear weights, the index too",
        rules=[(LINEARS, Gptq(4, 32))],
        config=gptq(4, 32),
    ),
    "autoround-gptq": Layout(
        what="AutoRound, packed like GPTQ v1 without g_idx; scales may be negative; the index too",
        rules=[(LINEARS, Gptq(4, 64, g_idx=False, negative_scales=True))],
        config=auto_round("auto_round:auto_gptq", 4, 64, lambda model: {r: {"bits": 16, "data_type": "float"} for r in model.routers()}),
    ),
}


def logits(model, ids):
    with model.session(context=64, kv="f32") as session:
        return np.array(session.eval(ids, all_logits=True), np.float64)


def faults(minim, source, name, ids):
    """Returns the faults of a layout; an empty list if it is right."""
    found = []
    with tempfile.TemporaryDirectory() as work:
        folder, twin = f"{work}/{name}", f"{work}/{name}-twin"
        make.make(Model(source), name, folder, twin, layouts=LAYOUTS)
        with minim.Model(twin, backend="reference") as plain:
            want, n_parameters = logits(plain, ids), plain.info.n_parameters
        for backend, most in (("reference", 1e-4), ("cpu", 3e-2)):
            try:
                with minim.Model(folder, backend=backend) as opened:
                    got, counted = logits(opened, ids), opened.info.n_parameters
            except minim.Error as error:
                return [*found, f"refused: {error}"]
            rows = np.sqrt(((got - want) ** 2).mean(-1) / (want**2).mean(-1))
            off = rows.max() if backend == "reference" else np.median(rows)
            if not off <= most:
                found.append(f"{backend} off by {off:.1e}")
            if counted != n_parameters:
                found.append(f"{counted} parameters, not {n_parameters}")
    return found


def main():
    import minim

    ids = [int(token) for token in np.load(PROMPT)]
    names = sys.argv[2:] or list(LAYOUTS)
    bad = 0
    for name in names:
        found = faults(minim, sys.argv[1], name, ids)
        bad += bool(found)
        print(f"{name}: {'; '.join(found) or 'right'}", flush=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
