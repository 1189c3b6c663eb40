# SPDX-License-Identifier: Apache-2.0
"""Helpers for the tests of bindings/python. Without NumPy they exit with 77, which CTest reports as skipped."""

import functools
import json
import os
import pathlib
import sys

try:
    import numpy as np
except ImportError:
    print("skipped: NumPy is missing")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
Q8_0 = ROOT / "examples" / "models" / "minim-tiny-q8_0.gguf"
MIX_IQ = DATA / "models" / "minim-tiny-mix-iq-00001-of-00003.gguf"
MADE_MODELS = pathlib.Path(os.environ["MINIM_TEST_MODELS"])
BF16 = MADE_MODELS / "minim-tiny-bf16.gguf"
END = 2004  # "[e~[", the end token of minim-tiny

if not os.environ.get("MINIM_TEST_INSTALLED"):  # tests/packages/wheel.sh
    sys.path.insert(0, str(ROOT / "bindings" / "python"))
sys.path.insert(0, str(ROOT / "tests" / "support"))
import minim  # noqa: E402
from gguf_file import Gguf  # noqa: E402, F401
from minim import _abi as abi  # noqa: E402, F401

PACKAGES = pathlib.Path(minim.__file__).parents[1]  # the folder to find it in, for other processes


@functools.lru_cache(maxsize=None)
def model(path=Q8_0, backend="cpu"):
    """Returns a model that all tests of a module share."""
    return minim.Model(path, backend=backend, threads=2)


def load_json(name):
    return json.loads((DATA / name).read_text(encoding="utf-8"))


def prompt(name):
    """Returns a golden prompt: text, ids, greedy_ids, greedy_text."""
    return load_json(f"golden/prompts/{name}.json")


def prompt_names():
    return load_json("golden/index.json")["prompts"]


def golden_logits(name):
    return np.load(DATA / "golden" / "prompts" / f"{name}.npy")


def divergence(expected, actual):
    """Returns KL(expected || actual) of rows of logits, in nats."""

    def log_softmax(x):
        x = x.astype(np.float64)
        x = x - x.max(axis=-1, keepdims=True)
        return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))

    p, q = log_softmax(expected), log_softmax(actual)
    return (np.exp(p) * (p - q)).sum(axis=-1)
