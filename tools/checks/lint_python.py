#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks Python files with ruff (ruff.toml). Exits with 77 where ruff is missing."""

import importlib.util
import shutil
import subprocess
import sys

import project


def ruff():
    """Returns the command that runs ruff, or nothing where it is missing."""
    if shutil.which("ruff"):
        return ["ruff"]
    return [sys.executable, "-m", "ruff"] if importlib.util.find_spec("ruff") else []


def check(root):
    command = [*ruff(), "check", "--no-cache", "--output-format", "concise", "--config", str(root / "ruff.toml")]
    result = subprocess.run([*command, "."], cwd=root, capture_output=True, text=True, check=False)
    return (result.stdout + result.stderr).splitlines() if result.returncode else []


if __name__ == "__main__":
    if not ruff():
        print("skipped: ruff is missing (pip install ruff)")
        sys.exit(77)
    project.main(check, __doc__)
