#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that relative links in Markdown lead to files that exist, and their anchors to headings."""

import re
import urllib.parse

import project

LINK = re.compile(r"(?<!\!)\[[^\]\n]*\]\(([^)\s]+)\)|!\[[^\]\n]*\]\(([^)\s]+)\)|^\[[^\]\n]+\]:\s*(\S+)", re.MULTILINE)


def anchors(text):
    """Returns the anchors of a page's headings, as GitHub makes them."""
    found, counts = set(), {}
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", project.FENCE.sub(project.blank, text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        n = counts.get(name, 0)
        counts[name] = n + 1
        found.add(name if n == 0 else f"{name}-{n}")
    return found | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


def check(root):
    faults = []
    for path in project.files(root, {".md"}):
        text = project.read(root, path)
        shown = re.sub(r"`[^`\n]+`", project.blank, project.FENCE.sub(project.blank, text))
        for match in LINK.finditer(shown):
            link = next(group for group in match.groups() if group)
            line = text.count("\n", 0, match.start()) + 1
            target, _, anchor = urllib.parse.unquote(link).partition("#")
            if re.match(r"[a-z][a-z0-9+.-]*:", target):
                continue
            file = (root / path).parent / target if target else root / path
            if not file.exists():
                faults.append(f"{path}:{line}: link to {link}: there is no such file")
            elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text(encoding="utf-8")):
                faults.append(f"{path}:{line}: link to {link}: the page has no such heading")
    return faults


if __name__ == "__main__":
    project.main(check, __doc__)
