# SPDX-License-Identifier: Apache-2.0
"""Helpers for the tests of the command-line program. MINIM_CLI names the program, MINIM_TEST_MODELS the folder
with the models that the build made."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from gguf_file import Gguf  # noqa: E402, F401

DATA = ROOT / "tests" / "data"
Q8_0 = ROOT / "examples" / "models" / "minim-tiny-q8_0.gguf"
MADE_MODELS = pathlib.Path(os.environ["MINIM_TEST_MODELS"])
PROGRAM = os.environ["MINIM_CLI"]


def run(*arguments, **options):
    """Runs the program to its end; its output is decoded as text, whatever its bytes."""
    options = {"capture_output": True, "timeout": 600, **options}
    done = subprocess.run([PROGRAM, *map(str, arguments)], encoding="utf-8", errors="replace", **options)
    return done


def errors_of(done):
    """Returns the error lines on standard error."""
    return [line for line in done.stderr.splitlines() if line.startswith("minim: error: ")]
