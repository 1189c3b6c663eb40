#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the C reference as one HTML page, from the comments of include/minim/minim.h.

    tools/make_reference.py FILE       writes the page; `-`: to standard output
"""

import argparse
import html
import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[1]
HEADER = ROOT / "include/minim/minim.h"
SECTION = re.compile(r"^/\* -+ (?P<title>[\w ]+) \*/$", re.MULTILINE)
# A comment at the start of a line, then the declarations up to an empty line, the next such comment, or the end.
COMMENT = re.compile(r"^/\*(?P<text>.*?)\*/\n", re.MULTILINE | re.DOTALL)
STYLE = """
body { font: 16px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222; background: #fff; }
pre { background: #f4f4f2; padding: .8em 1em; overflow-x: auto; font-size: 14px; line-height: 1.4; }
h2 { margin-top: 2.5em; border-bottom: 1px solid #ccc; } a { color: #06c; text-decoration: none; } a:hover { text-decoration: underline; }
nav li { display: inline-block; margin-right: 1em; } :target { background: #ffd; }
"""


def known_names():
    abi = json.loads((ROOT / "bindings/abi.json").read_text(encoding="utf-8"))
    return {name for group in ("functions", "structs", "callbacks", "constants", "handles") for name in abi[group]}


def linked(text, names):
    """Returns escaped text in which known names lead to their declarations."""
    return re.sub(r"\b(?:minim|MINIM)_\w+", lambda match: f'<a href="#{match[0]}">{match[0]}</a>' if match[0] in names else match[0],
                  html.escape(text, quote=False))


def prose(comment, names):
    """Returns a comment's paragraphs, lists and indented code."""
    lines = [re.sub(r"^ ?\*? ?", "", line).rstrip() for line in comment.strip("\n").split("\n")]
    parts = []
    for line in lines:
        kind = "" if not line.strip() else "pre" if line.startswith("    ") else "li" if line.startswith("- ") else "p"
        text = line[4:] if kind == "pre" else line.strip().removeprefix("- ") if kind == "li" else line.strip()
        if kind == "p" and parts and parts[-1][0] in ("p", "li"):
            parts[-1][1].append(text)
        elif kind == "pre" and parts and parts[-1][0] == "pre":
            parts[-1][1].append(text)
        else:
            parts.append((kind, [text]))
    found = "\n".join(f"<{kind}>{linked(chr(10).join(texts), names)}</{kind}>" for kind, texts in parts if kind)
    return re.sub(r"(?:<li>(?:(?!<li>).)*?</li>\n?)+", lambda match: f"<ul>\n{match[0].rstrip()}\n</ul>\n", found, flags=re.DOTALL)


def code(text, names, declared):
    """Returns declarations as a block in which each name is an anchor where it is declared, and a link at other places."""
    def mark(match):
        name = match[0]
        if name not in names:
            return name
        if name not in declared and is_declared(name, text):
            declared.add(name)
            return f'<b id="{name}">{name}</b>'
        return f'<a href="#{name}">{name}</a>'

    return "<pre>" + re.sub(r"\b(?:minim|MINIM)_\w+", mark, html.escape(text.strip("\n"), quote=False)) + "</pre>"


def is_declared(name, text):
    escaped = re.escape(name)
    return re.search(rf"#define {escaped}\b|\b{escaped}\(|\*{escaped}\)\(|\b{escaped}\s+=|\}} {escaped};|typedef struct {escaped}\s+{escaped};|"
                     rf"typedef \w+ {escaped};", text, re.MULTILINE)


def section(text, names, declared):
    found, at = [], 0
    for match in COMMENT.finditer(text):
        if text[at:match.start()].strip():
            found.append(code(text[at:match.start()], names, declared))
        found.append(prose(match["text"], names))
        at = match.end()
    if text[at:].strip():
        found.append(code(text[at:], names, declared))
    return "\n".join(found)


def page(header):
    names, declared = known_names(), set()
    intro, *rest = SECTION.split(header)
    titles, texts = rest[::2], rest[1::2]
    texts[-1] = texts[-1].split("\n#ifdef __cplusplus")[0]
    toc = "".join(f'<li><a href="#section-{i}">{title}</a></li>' for i, title in enumerate(titles))
    body = [f"<h1>minim.h</h1>\n<nav><ul>{toc}</ul></nav>", prose(COMMENT.search(intro)["text"], names)]
    body += [f'<h2 id="section-{i}">{title}</h2>\n{section(text, names, declared)}' for i, (title, text) in enumerate(zip(titles, texts))]
    missing = names - declared
    if missing:
        raise SystemExit(f"{HEADER.name}: no declaration was found of {', '.join(sorted(missing))}")
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>minim.h</title>'
            f"<style>{STYLE}</style></head><body>\n" + "\n".join(body) + "\n</body></html>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="the page to write")
    args = parser.parse_args()
    text = page(HEADER.read_text(encoding="utf-8"))
    if args.file == "-":
        print(text, end="")
    else:
        pathlib.Path(args.file).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
