#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that comments, messages, help texts, Markdown and, if words.json says so, identifiers use the standard terms of words.json.

    words.py                 prints the faults of every file except those in words_todo.txt, and the number of these
    words.py FILE ...        prints the faults of these files
    words.py --todo          prints the content for words_todo.txt: each file that has faults, with their number
    words.py --identifiers   looks at identifiers too, --no-identifiers does not, whatever words.json says
    words.py --count         prints each identifier with a fault, its uses by folder, and what to say
"""

import argparse
import collections
import fnmatch
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


IDENTIFIER = re.compile(r"(?<!\w)(?<!std::)[A-Za-z_]\w*")
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


class Identifiers:
    """The rules for identifiers: an identifier is read as its words, with small letters and `_` between them."""

    def __init__(self, part):
        self.is_on = part["checked"]
        self.rules = [(re.compile(rf"(?<![a-z0-9])(?:{rule['old']})(?![a-z0-9])"), rule["new"], tuple(f"{name}/" for name in rule.get("in", ())))
                      for rule in part["rules"]]
        self.terms = re.compile(rf"(?<![a-z0-9])(?:{'|'.join(part['terms'])})(?![a-z0-9])")
        self.names = re.compile("|".join(fnmatch.translate(name) for name in part["names"]))
        self.known = {}

    def words_of(self, identifier):
        if self.names.fullmatch(identifier):
            return ""
        return self.terms.sub("", "_".join(WORD.findall(identifier)).lower())

    def fault_of(self, name, identifier):
        """Returns what to say instead in the file of this name, or None."""
        if identifier not in self.known:
            words = self.words_of(identifier)
            self.known[identifier] = [(new, folders) for pattern, new, folders in self.rules if pattern.search(words)]
        return next((new for new, folders in self.known[identifier] if not folders or name.startswith(folders)), None)

    def in_file(self, path, text):
        """Returns the line, the identifier and what to say instead for each use; line 1 for words of the file's own path."""
        name = path.as_posix()
        uses = [(1, part) for part in pathlib.PurePath(name).with_suffix("").parts]
        if path.suffix != ".md":
            code = project.code(path, text)
            uses += [(number, found) for number, line in enumerate(code.split("\n"), 1) for found in IDENTIFIER.findall(line)]
        faults = ((line, identifier, self.fault_of(name, identifier)) for line, identifier in uses)
        return [fault for fault in faults if fault[2]]


def identifier_rules():
    return Identifiers(json.loads(RULES.read_text(encoding="utf-8"))["identifiers"])


def faults_of(root, path, all_rules, identifiers=None):
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
    if identifiers:
        faults += {(line, f"{name}:{line}: identifier '{old}': say {new}") for line, old, new in identifiers.in_file(path, text)}
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


def print_counts(root, identifiers):
    counts, replacements = collections.defaultdict(collections.Counter), {}
    for path in files(root):
        for _, identifier, new in identifiers.in_file(path, project.read(root, path)):
            counts[identifier]["/".join(path.parts[:2][:len(path.parts) - 1]) or "."] += 1
            replacements[identifier] = new
    for identifier, folders in sorted(counts.items(), key=lambda item: (replacements[item[0]], -item[1].total(), item[0])):
        places = ", ".join(f"{folder} {count}" for folder, count in sorted(folders.items()))
        print(f"{identifier} {folders.total()} ({places}): say {replacements[identifier]}")


def check(root, identifiers):
    """Returns the faults, and the number of files that words_todo.txt still lists."""
    all_rules, todo = rules(), todo_files(root)
    faults = []
    for path in files(root):
        found = faults_of(root, path, all_rules, identifiers)
        if path.as_posix() not in todo:
            faults += found
        elif not found:
            faults.append(f"{path} has no fault any more: take it out of {TODO}")
    return faults, len(todo)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=project.ROOT)
    parser.add_argument("--todo", action="store_true")
    parser.add_argument("--identifiers", action=argparse.BooleanOptionalAction)
    parser.add_argument("--count", action="store_true")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    args = parser.parse_args()
    root = args.root.resolve()
    identifiers = identifier_rules()
    if args.count:
        print_counts(root, identifiers)
        return
    if not (identifiers.is_on if args.identifiers is None else args.identifiers):
        identifiers = None
    if args.todo:
        all_rules = rules()
        for path in files(root):
            n_faults = len(faults_of(root, path, all_rules, identifiers))
            if n_faults:
                print(f"{path} {n_faults}")
        return
    if args.files:
        faults = [fault for path in args.files for fault in faults_of(root, path, rules(), identifiers)]
    else:
        faults, n_todo = check(root, identifiers)
        if n_todo:
            print(f"{n_todo} files are still to do ({TODO})")
    print("\n".join(faults), end="\n" if faults else "")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
