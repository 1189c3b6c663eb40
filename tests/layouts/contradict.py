#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Folders whose files contradict each other are refused, naming both.

usage: contradict.py SOURCE      SOURCE: the BF16 folder minim-tiny
"""

import json
import pathlib
import sys
import tempfile

import make
import minim


def edit_json(folder, name, *keys, value):
    """Sets a member of a JSON file."""
    path = pathlib.Path(folder, name)
    whole = json.loads(path.read_text())
    inner = whole
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    path.write_text(json.dumps(whole))


def map_entry(folder):
    """Sets another algorithm for one expert in the map of layers, in both files alike."""
    config = json.loads(pathlib.Path(folder, "config.json").read_text())
    module = next(name for name in config["quantization_config"]["quantized_layers"] if "experts.2.w1" in name)
    other = {"quant_algo": "MXFP8"}
    edit_json(folder, "config.json", "quantization_config", "quantized_layers", module, value=other)
    edit_json(folder, "hf_quant_config.json", "quantization", "quantized_layers", module, value=other)


def stated_shape(folder):
    """Adds one row to the shape that one weight_shape states."""
    path = next(pathlib.Path(folder).glob("*.safetensors"))
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    name = next(key for key in sorted(header) if key.endswith("experts.1.w2.weight_shape"))
    data[8 + size + header[name]["data_offsets"][0]] += 1
    path.write_bytes(data)


CASES = [
    # layout, change, what the message names
    (
        "nvfp4-modelopt-kv",
        lambda folder: edit_json(folder, "hf_quant_config.json", "quantization", "quant_algo", value="FP8"),
        ["hf_quant_config.json", "config.json", "FP8", "NVFP4"],
    ),
    (
        "nvfp4-modelopt-kv",
        lambda folder: edit_json(folder, "hf_quant_config.json", "quantization", "group_size", value=32),
        ["tensor ", "experts.0.w1.weight", "groups of 16", "hf_quant_config.json", "group_size 32"],
    ),
    ("nvfp4-w4a16-map", map_entry, ["experts.2.w1.weight", "NVFP4", "MXFP8", "config.json"]),
    (
        "modelopt-fp8",
        lambda folder: [
            edit_json(folder, "config.json", "quantization_config", "quant_algo", value="MXFP8"),
            edit_json(folder, "hf_quant_config.json", "quantization", "quant_algo", value="MXFP8"),
        ],
        ["q_proj.weight holds FP8", "MXFP8"],
    ),
    ("ct-int4-w4a8", stated_shape, ["experts.1.w2.weight_shape says", "experts.1.w2.weight_packed"]),
]


def main():
    model, bad = make.Model(sys.argv[1]), 0
    for layout, change, names in CASES:
        with tempfile.TemporaryDirectory() as folder:
            make.make(model, layout, folder)
            minim.Model(folder, backend="reference").close()  # the unchanged folder opens
            change(folder)
            try:
                minim.Model(folder, backend="reference").close()
                message = "opened"
            except minim.Error as error:
                message = str(error)
        if not all(name in message for name in names):
            bad += 1
            print(f"{layout}: {message}")
    print(f"{len(CASES) - bad} of {len(CASES)} contradictions are refused with the names")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
