#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that no cell of a table in Markdown is longer than 120 characters."""

import re

import project

LONGEST = 120


def check(root):
    faults = []
    for path in project.files(root, {".md"}):
        text = project.FENCE.sub(project.blank, project.read(root, path))
        for number, line in enumerate(text.split("\n"), 1):
            if not line.startswith("|"):
                continue
            for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")):
                shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", cell.strip())
                if len(shown) > LONGEST:
                    faults.append(f"{path}:{number}: a cell of {len(shown)} characters, at most {LONGEST}: {shown[:60]}...")
    return faults


if __name__ == "__main__":
    project.main(check, __doc__)
