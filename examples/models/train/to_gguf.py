# SPDX-License-Identifier: Apache-2.0
"""Hugging Face folder -> GGUF files of all formats the goldens cover.

LLAMA_CPP must name a built source tree of llama.cpp. With IK_LLAMA_CPP naming one of ik_llama.cpp its types
(IQ2_K ... IQ6_K) are made too. All files are made in the work directory; a selection is copied to the output.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import world

PLAIN_TYPES = ["F16", "Q8_0", "Q4_0", "Q4_K_M", "Q5_K_M", "Q6_K", "Q3_K_M"]
IMPORTANCE_TYPES = ["Q2_K", "IQ4_NL", "IQ4_XS", "IQ3_S", "IQ3_XXS", "IQ2_M", "IQ2_S", "IQ2_XS", "IQ2_XXS"]
IK_TYPES = ["IQ6_K", "IQ5_K", "IQ4_K", "IQ3_K", "IQ2_K"]
SHIPPED = ["q8_0", "q4_k_m", "mix-k", "mix-ik"]
SPLIT_SHIPPED = "mix-iq"
TENSORS_PER_SPLIT = 20

CALIBRATION_SEED = 4242
CALIBRATION_DOCUMENTS = 120
CALIBRATION_CONTEXT = 512
THREADS = 2


class LayerTypes(NamedTuple):
    """The types of a layer's matrices."""

    gate: str
    up: str
    down: str
    attention: str


class Mix(NamedTuple):
    """A file of many types: the type of everything else, then each layer's types."""

    name: str
    base: str
    layers: list[LayerTypes]


MIXES = [
    Mix(
        "mix-k",
        "Q4_0",
        [
            LayerTypes("q2_k", "q2_k", "q3_k", "q6_k"),
            LayerTypes("q5_k", "q4_0", "q5_0", "q5_1"),
            LayerTypes("iq4_nl", "q4_1", "q6_k", "q8_0"),
        ],
    ),
    Mix(
        "mix-iq",
        "IQ4_XS",
        [
            LayerTypes("iq2_xxs", "iq2_xs", "iq2_s", "iq4_xs"),
            LayerTypes("iq3_xxs", "iq3_s", "iq4_xs", "iq4_nl"),
            LayerTypes("iq3_s", "iq2_s", "iq3_xxs", "iq3_s"),
        ],
    ),
]
IK_MIX = Mix(
    "mix-ik",
    "IQ4_K",
    [
        LayerTypes("iq2_k", "iq3_k", "iq4_k", "iq6_k"),
        LayerTypes("iq5_k", "iq6_k", "iq2_k", "iq5_k"),
        LayerTypes("iq3_k", "iq2_k", "iq5_k", "iq4_k"),
    ],
)

# The converter knows pre-tokenizers by a hash of their output, and this small vocabulary is not in its list:
# the name is given to it. Arguments: the llama.cpp tree, then those of convert_hf_to_gguf.py.
CONVERTER = """
import sys
tree = sys.argv.pop(1)
sys.path[:0] = [tree, tree + "/gguf-py"]
sys.argv[0] = tree + "/convert_hf_to_gguf.py"
from conversion import base
base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "minimax-m2"
import convert_hf_to_gguf
convert_hf_to_gguf.main()
"""


def run(*command: Any) -> str:
    """Run a program and return its output; a failure ends this script with the last of it."""
    words = [str(word) for word in command]
    result = subprocess.run(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(words)}\n{result.stdout[-3000:]}")
    return result.stdout


def tensor_types(mix: Mix) -> list[str]:
    """A mix as PATTERN=TYPE overrides."""
    overrides = []
    for number, layer in enumerate(mix.layers):
        overrides += [
            f"blk\\.{number}\\.ffn_gate_exps={layer.gate}",
            f"blk\\.{number}\\.ffn_up_exps={layer.up}",
            f"blk\\.{number}\\.ffn_down_exps={layer.down}",
            f"blk\\.{number}\\.attn_(q|k|v|output)={layer.attention}",
        ]
    return overrides


def gguf_path(folder: Path, format_name: str) -> Path:
    """The file of a format."""
    return folder / f"minim-tiny-{format_name.lower()}.gguf"


def convert(llama: Path, checkpoint: Path, target: Path) -> None:
    """The BF16 file all others are made from."""
    output = run(
        *(sys.executable, "-c", CONVERTER, llama, checkpoint),
        *("--outtype", "bf16", "--outfile", target, "--model-name", "minim-tiny"),
    )
    print(output[-300:])


def measure_importance(llama: Path, model: Path, work: Path) -> Path:
    """An importance matrix from documents of the synthetic world."""
    rng = random.Random(CALIBRATION_SEED)
    calibration = work / "calib.txt"
    documents = [world.document_text(rng) + "\n" for _ in range(CALIBRATION_DOCUMENTS)]
    calibration.write_text("".join(documents), encoding="utf-8")
    importance = work / "imatrix.gguf"
    run(
        *(llama / "build/bin/llama-imatrix", "-m", model, "-f", calibration, "-o", importance),
        *("-c", CALIBRATION_CONTEXT, "-t", THREADS, "--parse-special", "--output-format", "gguf", "-ngl", 0),
    )
    return importance


def quantise_with_llama(llama: Path, source: Path, importance: Path, work: Path) -> None:
    """The files of llama.cpp's types."""
    program = llama / "build/bin/llama-quantize"
    for name in PLAIN_TYPES:
        run(program, source, gguf_path(work, name), name, THREADS)
    for name in IMPORTANCE_TYPES:
        run(program, "--imatrix", importance, source, gguf_path(work, name), name, THREADS)
    for mix in MIXES:
        options = [word for override in tensor_types(mix) for word in ("--tensor-type", override)]
        target = gguf_path(work, mix.name)
        run(program, "--imatrix", importance, *options, source, target, mix.base, THREADS)


def quantise_with_ik_llama(ik_llama: Path, source: Path, work: Path) -> None:
    """The files of ik_llama.cpp's types."""
    program = ik_llama / "build/bin/llama-quantize"
    for name in IK_TYPES:
        run(program, source, gguf_path(work, name), name, THREADS)
    overrides = ",".join(tensor_types(IK_MIX))
    run(program, "--custom-q", overrides, source, gguf_path(work, IK_MIX.name), IK_MIX.base, THREADS)


def copy_shipped(llama: Path, work: Path, output: Path) -> None:
    """Copy the selection; one file is split into parts."""
    for name in SHIPPED:
        path = gguf_path(work, name)
        if path.exists():
            shutil.copy(path, output)
    splitter = llama / "build/bin/llama-gguf-split"
    if splitter.exists():
        target = output / f"minim-tiny-{SPLIT_SHIPPED}"
        options = ["--split", "--split-max-tensors", TENSORS_PER_SPLIT]
        run(splitter, *options, gguf_path(work, SPLIT_SHIPPED), target)


def main() -> None:
    """Make all files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path, help="the minim-tiny folder")
    parser.add_argument("work", type=Path, help="directory for all files")
    parser.add_argument("output", type=Path, help="directory for the selection")
    arguments = parser.parse_args()
    if "LLAMA_CPP" not in os.environ:
        parser.error("LLAMA_CPP must name a built source tree of llama.cpp")
    llama = Path(os.environ["LLAMA_CPP"])
    arguments.work.mkdir(parents=True, exist_ok=True)
    arguments.output.mkdir(parents=True, exist_ok=True)

    source = gguf_path(arguments.work, "bf16")
    convert(llama, arguments.checkpoint, source)
    importance = measure_importance(llama, source, arguments.work)
    quantise_with_llama(llama, source, importance, arguments.work)
    if os.environ.get("IK_LLAMA_CPP"):
        quantise_with_ik_llama(Path(os.environ["IK_LLAMA_CPP"]), source, arguments.work)
    copy_shipped(llama, arguments.work, arguments.output)
    for path in sorted(arguments.work.iterdir()):
        print(f"{path.name:36s} {path.stat().st_size}")


if __name__ == "__main__":
    main()
