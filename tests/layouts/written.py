# SPDX-License-Identifier: Apache-2.0
"""Reads the folders that minim writes by the definitions of packing.py, without minim.

    written.py FOLDER     a BF16 folder: minim writes it in each of its layouts

Every matrix must be as far from the source as the report says, and every tensor of the folder must belong to one. FP8 with a scale for each row
is encoded again in blocks.
"""

import json
import pathlib
import re
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import make
import minim
from packing import CtInt, Fp8, Int8, Mxfp4, Mxfp8, Nvfp4
from tensors import read_file

EXPERTS = r"\.experts\.\d+\.w[123]$"
LINEARS = EXPERTS + r"|\.self_attn\.[qkvo]_proj$"
# Layout: its packing, the modules that are packed, their tensors.
LAYOUTS = {
    "fp8": (Fp8("block", ".weight_scale_inv"), LINEARS, {".weight", ".weight_scale_inv"}),
    "mxfp8": (Mxfp8(".weight_scale_inv"), LINEARS, {".weight", ".weight_scale_inv"}),
    "nvfp4": (Nvfp4("modelopt", input=False), EXPERTS, {".weight", ".weight_scale", ".weight_scale_2"}),
    "nvfp4-ct": (Nvfp4("ct", input=False), EXPERTS, {".weight_packed", ".weight_scale", ".weight_global_scale"}),
    "mxfp4-ct": (Mxfp4(), EXPERTS, {".weight_packed", ".weight_scale"}),
    "int4-g32": (CtInt(group=32), EXPERTS, {".weight_packed", ".weight_scale", ".weight_shape"}),
    "int4-g128": (CtInt(group=128), EXPERTS, {".weight_packed", ".weight_scale", ".weight_shape"}),
    "int8": (Int8(), EXPERTS, {".weight", ".weight_scale"}),
}


def read_folder(folder):
    """Returns all tensors, after comparing the index with the files."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    tensors, total = {}, 0
    for name in sorted(set(index["weight_map"].values())):
        part = read_file(folder / name)
        assert {key for key, value in index["weight_map"].items() if value == name} == set(part), name
        tensors.update(part)
        total += sum(tensor.bits.nbytes for tensor in part.values())
    assert total == index["metadata"]["total_size"]
    return tensors


def check(source, name, folder):
    packing, pattern, suffixes = LAYOUTS[name]
    report = minim.convert(source, folder, layout=name, part_bytes=1_500_000)
    wanted, written = read_folder(source), read_folder(folder)
    rmse = {tensor["name"]: tensor["rmse"] for tensor in report["tensors"] if "rmse" in tensor}
    modules = [key[: -len(".weight")] for key in wanted if re.search(pattern, key[: -len(".weight")])]
    assert len(modules) > 70
    for module in modules:
        parts = {key[len(module) :]: written.pop(key) for key in list(written) if key.startswith(module + ".")}
        assert set(parts) == suffixes, (module, set(parts))
        weight = wanted.pop(module + ".weight").floats()
        error = packing.unpack(parts).astype(np.float64) - weight
        off = float(np.sqrt((error**2).sum() / (weight.astype(np.float64) ** 2).sum()))
        assert abs(off - rmse[module + ".weight"]) < 1e-5, (module, off, rmse[module + ".weight"])
        assert 0 < off < 0.15, (module, off)
    assert set(written) == set(wanted)
    for key, tensor in wanted.items():
        assert written[key].dtype == tensor.dtype and (written[key].bits == tensor.bits).all(), key


def check_rows_in_blocks(source, folder):
    make.make(source, "quark-fp8-ptpc", folder / "rows", folder / "twin")
    report = minim.convert(folder / "rows", folder / "blocks", layout="fp8")
    packing, pattern, _ = LAYOUTS["fp8"]
    twin = {}
    for path in (folder / "twin").glob("*.safetensors"):
        twin.update(read_file(path))
    written = read_folder(folder / "blocks")
    n = 0
    for tensor in report["tensors"]:
        module = tensor["name"][: -len(".weight")]
        if not re.search(pattern, module):
            continue
        parts = {suffix: written[module + suffix] for suffix in (".weight", ".weight_scale_inv")}
        weight = twin[tensor["name"]].floats().astype(np.float64)
        off = float(np.sqrt(((packing.unpack(parts) - weight) ** 2).sum() / (weight**2).sum()))
        assert 0 < off < 0.04 and abs(off - tensor["rmse"]) < 1e-5, (module, off, tensor["rmse"])
        n += 1
    assert n > 70


def main():
    source = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        check_rows_in_blocks(source, pathlib.Path(folder))
    for name in LAYOUTS:
        with tempfile.TemporaryDirectory() as folder:
            check(source, name, pathlib.Path(folder) / "model")
        print(f"{name}: right")


if __name__ == "__main__":
    main()
