#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Converts and quantises minim-tiny from every published layout, with no file between.

usage: sources.py SOURCE [LAYOUT ...]      SOURCE: the BF16 folder minim-tiny; all layouts if none is named

A layout is right when
  - its GGUF file of F32 has the numbers of the float32 twin, but for the rounding of a product of scales;
  - a file without a change of types (`keep`) has them too, or to the 8 bits of BF16 where GGUF has no type for them, and runs;
  - Q4_0 is encoded from it as from the twin: the errors of both differ by less than one part in a thousand.
Sources below 8 bits are encoded only with leave. What is not read is refused by its name.
"""

import json
import pathlib
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]
import make
import minim
from check import in_a_process
from gguf_file import Gguf

# A layout of each family is also quantised, and checked for the leave that it needs; True: it has 8 bits or more as it is read. Codes whose
# inputs are in another order are read as such.
QUANTISED = {
    "ct-fp8-block": True, "stacked-fp8": True, "ct-mxfp8": True, "ct-int8-channel": True, "ct-int4-g32-sym": False, "awq-g32": False,
    "autoround-gptq": False, "gptq-4bit-desc_act": True, "ct-mxfp4-mlp-names": False, "nvfp4-modelopt-kv": False, "ct-nvfp4-attention": False,
}  # fmt: skip
REFUSED = {"mlx": "MLX", "exl3": "EXL3", "hqq": "HQQ", "bitsandbytes": "bitsandbytes", "torchao": "torchao", "aqlm": "AQLM"}


def floats(path):
    """Returns the F32 tensors of a GGUF file by name."""
    return {name: np.frombuffer(data, np.float32) for name, (_, kind, data) in Gguf(path).tensors.items() if kind == "F32"}


def relative(got, want):
    return float(np.abs(got - want).max() / max(np.abs(want).max(), 1e-30))


def compare(got, want, most):
    """Returns the faults of tensors beside those of the twin."""
    if set(got) != set(want):
        return [f"other tensors: {sorted(set(got) ^ set(want))[:3]}"]
    return [f"{name} off by {relative(got[name], want[name]):.1e}" for name in want if relative(got[name], want[name]) > most]


def encoded(source, output, **options):
    report = minim.convert(source, output, "Q4_0", pure=True, effort="fast", overwrite=True, threads=1, **options)
    return {tensor["name"]: tensor["rmse"] for tensor in report["tensors"] if "rmse" in tensor}


def quantised(folder, twin, output, has_8_bits):
    found = []
    try:
        own = encoded(folder, output)
        if not has_8_bits:
            found.append("encoded again without leave")
    except minim.Error as error:
        if has_8_bits or "below 8 bits" not in str(error):
            found.append(str(error))
        own = encoded(folder, output, allow_requantize=True)
    wanted = encoded(twin, output)
    off = [name for name in wanted if name not in own or abs(own[name] - wanted[name]) > 1e-3 * wanted[name]]
    return found + [f"Q4_0 of {name}: rmse {own.get(name)}, not {wanted[name]}" for name in off[:2]]


def faults(model, name):
    found = []
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        folder, twin, output = work / name, work / "twin", work / "x.gguf"
        make.make(model, name, folder, twin)
        minim.convert(twin, output, type="f32", threads=1)
        want = floats(output)
        minim.convert(folder, output, type="f32", overwrite=True, threads=1)
        found += compare(floats(output), want, 3e-7)
        report = minim.convert(folder, output, overwrite=True, threads=1)
        minim.convert(output, work / "again.gguf", type="f32", threads=1)
        kept = floats(work / "again.gguf")
        widened = {tensor["name"] for tensor in report["tensors"] if tensor["name"] in report["widened"]}
        found += compare({key: kept[key] for key in kept if key not in widened}, {key: want[key] for key in want if key not in widened}, 3e-7)
        found += compare({key: kept[key] for key in widened}, {key: want[key] for key in widened}, 1 / 256)
        with minim.Model(output, threads=1) as opened, opened.session(context=32) as session:
            if not np.isfinite(np.array(session.eval([1, 2, 3, 4]))).all():
                found.append("its file does not run")
        if name in QUANTISED:
            found += quantised(folder, twin, output, QUANTISED[name])
    return found


def refused(model):
    """Returns the layouts that are not refused by their names, with one line, before anything is written."""
    found = []
    with tempfile.TemporaryDirectory() as work:
        folder, output = pathlib.Path(work, "folder"), pathlib.Path(work, "x.gguf")
        make.make(model, "ct-fp8-block", folder)
        config = json.loads((folder / "config.json").read_text())
        for method, name in REFUSED.items():
            (folder / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": method}}))
            for recipe in (None, "Q4_0"):
                try:
                    minim.convert(folder, output, recipe)
                    found.append(f"{method} was read")
                except minim.Error as error:
                    if error.status != "unsupported" or name not in str(error):
                        found.append(f"{method}: {error}")
        if [path.name for path in pathlib.Path(work).iterdir()] != ["folder"]:
            found.append("something was written")
    return found


def main():
    model, bad = make.Model(sys.argv[1]), 0
    names = sys.argv[2:] or list(make.LAYOUTS)
    for name in names:
        found = in_a_process(faults, model, name)
        if found:
            bad += 1
            print(f"{name}: {'; '.join(found)[:300]}", flush=True)
    found = refused(model)
    print("".join(f"{line}\n" for line in found), end="")
    print(f"{len(names) - bad} of {len(names)} layouts are sources")
    return 1 if bad or found else 0


if __name__ == "__main__":
    sys.exit(main())
