#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that comments, messages, help texts and Markdown use the standard terms of words.json.

    words.py            prints the faults of every file except those in words_todo.txt, and the number of these
    words.py FILE ...   prints the faults of these files
    words.py --todo     prints the content for words_todo.txt: each file that has faults, with their number
"""

import argparse
import json
import pathlib
import re
import sys

import project

HERE = pathlib.Path(__file__).resolve().parent
RULES = HERE / "words.json"
TODO = "tools/checks/words_todo.txt"  # below the root
SUFFIXES = project.C_SUFFIXES | project.HASH_SUFFIXES | {".py", ".md", ".rs"}
# Goldens, corpora, the checks themselves (which name the words), and tables of names that are generated from minim.h.
SKIPPED = ("tests/data/", "tests/fuzz/corpus/", "tools/checks/", "tests/checks/", "LICENSE",
           "bindings/python/minim/_tables.py", "bindings/rust/minim-sys/src/bindings.rs")


def rules():
    found = []
    for rule in json.loads(RULES.read_text(encoding="utf-8"))["rules"]:
        pattern = re.sub(r"\(\?<!.*?\)| ", lambda part: r"\s+" if part.group() == " " else part.group(), rule["old"])
        found.append((re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE), rule["new"], tuple(rule.get("in", ())), rule.get("code", False)))
    return found


def faults_of(root, path, all_rules):
    name = path.as_posix()
    text = project.read(root, path)
    words = re.sub(r"(?m)^\s*(//|\*|#+|>)(?= )", project.blank, project.prose(path, text))
    faults = []
    for pattern, new, folders, in_code in all_rules:
        if folders and not name.startswith(tuple(f"{folder}/" for folder in folders)):
            continue
        for match in pattern.finditer(text if in_code else words):
            line = words.count("\n", 0, match.start()) + 1
            old = " ".join(match.group().split())
            faults.append((line, f"{name}:{line}: '{old}': say {new}"))
    return [fault for _, fault in sorted(faults)]


def files(root):
    paths = project.files(root, SUFFIXES, project.HASH_NAMES)
    return [path for path in paths if not path.as_posix().startswith(SKIPPED)]


def todo_files(root):
    path = root / TODO
    if not path.is_file():
        return set()
    lines = path.read_text(encoding="utf-8").splitlines()
    return {line.split()[0] for line in lines if line.strip() and not line.startswith("#")}


def check(root):
    """Returns the faults, and the number of files that words_todo.txt still lists."""
    all_rules, todo = rules(), todo_files(root)
    faults = []
    for path in files(root):
        found = faults_of(root, path, all_rules)
        if path.as_posix() not in todo:
            faults += found
        elif not found:
            faults.append(f"{path} has no fault any more: take it out of {TODO}")
    return faults, len(todo)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=project.ROOT)
    parser.add_argument("--todo", action="store_true")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    args = parser.parse_args()
    root = args.root.resolve()
    if args.todo:
        all_rules = rules()
        for path in files(root):
            n_faults = len(faults_of(root, path, all_rules))
            if n_faults:
                print(f"{path} {n_faults}")
        return
    if args.files:
        faults = [fault for path in args.files for fault in faults_of(root, path, rules())]
    else:
        faults, n_todo = check(root)
        if n_todo:
            print(f"{n_todo} files are still to do ({TODO})")
    print("\n".join(faults), end="\n" if faults else "")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
