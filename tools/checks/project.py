# SPDX-License-Identifier: Apache-2.0
"""Helpers for the checks: the files of the project, the files that a change touches, the words in files, reports of faults.

    project.py touches FOLDER ...    exits with 0 if the change touches a file in one of these folders, or if git cannot tell, else with 1
"""

import argparse
import concurrent.futures
import io
import json
import math
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time
import tokenize

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = {".git", "build", "dist", "target", ".cache", "__pycache__", ".ruff_cache", ".gpu"}
C_SUFFIXES = {".c", ".cpp", ".h", ".hpp", ".inl", ".cu", ".cuh"}
HASH_NAMES = {"CMakeLists.txt"}
HASH_SUFFIXES = {".cmake", ".sh"}


def files(root, suffixes=(), names=()):
    """Returns the files of the project with these suffixes or names, as sorted paths relative to its root. In a git checkout these are the
    files that git does not ignore; elsewhere, and where git is missing, all but build folders."""
    has_git = (root / ".git").exists() and shutil.which("git")
    found = subprocess.run(["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                           capture_output=True, check=False) if has_git else None
    if found is not None and found.returncode == 0:
        paths = [pathlib.Path(name) for name in found.stdout.decode().split("\0") if name]
    else:
        paths = [path.relative_to(root) for path in root.rglob("*")
                 if not SKIPPED.intersection(path.relative_to(root).parts)]
    return sorted({path for path in paths
                   if (path.suffix in suffixes or path.name in names) and (root / path).is_file()})


def skip(reason):
    """Ends a check that cannot run here."""
    print(f"skipped: {reason}")
    sys.exit(77)


def git(root, *args):
    """Returns the words that git prints; none if it fails or is missing."""
    try:
        result = subprocess.run(["git", "-C", str(root), *args], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return []
    return result.stdout.split() if result.returncode == 0 else []


def base_of(root):
    """Returns the revision that the change starts from: where it left the main branch or, on the main branch itself, the parent of the
    last commit. Returns None if that revision is not in the clone."""
    head = git(root, "rev-parse", "HEAD")
    for branch in ("origin/main", "main"):
        base = git(root, "merge-base", "HEAD", branch)
        if base and base != head:
            return base[0]
    parent = git(root, "rev-parse", "--verify", "--quiet", "HEAD~1")
    return parent[0] if parent else None


def changed(root, base):
    """Returns the files that the change adds or edits, committed or not. Ends the check if git cannot tell."""
    base = base or base_of(root)
    if base is None:
        skip("git is missing, or the clone has no commit before this one")
    names = set(git(root, "diff", "--name-only", "--diff-filter=d", base, "--"))
    names |= set(git(root, "ls-files", "--others", "--exclude-standard"))
    return sorted(pathlib.Path(name) for name in names)


INCLUDED = re.compile(r'^#include "([^"]+)"$', re.MULTILINE)


def commands(root, build):
    """Returns the compile command of each C and C++ file, by its path below the root. The first one, if a file is compiled several times.
    A file of a unity build has the command of the generated file that includes it."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        file = pathlib.Path(entry["file"])
        is_unity = file.is_relative_to(build) and file.name.startswith("unity_")
        for path in map(pathlib.Path, INCLUDED.findall(file.read_text(encoding="utf-8"))) if is_unity else [file]:
            if path.is_relative_to(root) and not path.is_relative_to(build):
                found.setdefault(path.relative_to(root), entry["command"])
    return found


# Options of GCC alone: its precompiled headers, its passes, and warnings that clang does not have.
GCC_OPTIONS = ("-Winvalid-pch", "-Wno-error=", "-Werror", "-MD", "-fno-tree-", "--param=")
WITH_ARGUMENT = ("-include", "-o", "-c", "-MF", "-MT")


def clang_options(command):
    """Returns the options of GCC's compile command that clang needs."""
    words = iter(shlex.split(command))
    kept, is_option = [], False
    for word in words:
        is_option = is_option or word.startswith("-")
        if word in WITH_ARGUMENT:
            next(words)
        elif is_option and not word.startswith(GCC_OPTIONS):
            kept.append(word)
    return kept


def sources_of(root, paths, compiled):
    """Returns the files to compile so that these are checked: the files themselves; for a header, the source of the same name or one that
    includes the header."""
    sources = set()
    for path in paths:
        if path in compiled:
            sources.add(path)
        elif path.suffix in {".h", ".hpp", ".inl"}:
            twin = path.with_suffix(".cpp")
            name = re.compile(rf'#include ["<]([^">]*/)?{re.escape(path.name)}[">]')
            others = (file for file in sorted(compiled) if name.search(read(root, file)))
            source = twin if twin in compiled else next(others, None)
            sources |= {source} if source else set()
    return sorted(sources)


def run_each(paths, run, seconds):
    """Calls run(path), on every CPU, until the time is up. Returns pairs of path and result, and the paths that there was no time for."""
    end = time.monotonic() + seconds
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(zip(paths, pool.map(lambda path: run(path) if time.monotonic() < end else None, paths)))
    return [pair for pair in results if pair[1] is not None], [path for path, result in results if result is None]


def compiler_main(description, program, run, seconds):
    """Runs run(root, build, path, command) -> lines of faults as a program, on the files that a change touches."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    parser.add_argument("--build", type=pathlib.Path, help="folder with compile_commands.json (default: build/release)")
    parser.add_argument("--base", help="revision that the change starts from")
    parser.add_argument("--seconds", type=float, default=seconds, help="start no file after this time (default: %(default)s)")
    parser.add_argument("--all", action="store_true", help="check every file, without a limit of time")
    parser.add_argument("files", nargs="*", type=pathlib.Path, help="check these files instead")
    args = parser.parse_args()
    root = args.root.resolve()
    build = (args.build or root / "build/release").resolve()
    if shutil.which(program) is None or not (build / "compile_commands.json").is_file():
        skip(f"{program} or a configured build folder is missing")
    compiled = commands(root, build)
    wanted = args.files or (sorted(compiled) if args.all else changed(root, args.base))
    paths = sources_of(root, wanted, compiled)
    results, left_out = run_each(paths, lambda path: run(root, build, path, compiled[path]), math.inf if args.all else args.seconds)
    faults = [line for _, lines in results for line in lines]
    print("\n".join(faults), end="\n" if faults else "")
    if left_out:
        print(f"no time for {len(left_out)} of {len(paths)} files: {' '.join(map(str, left_out))}")
    sys.exit(1 if faults else 0)


def read(root, path):
    return (root / path).read_text(encoding="utf-8")


def spaces(text):
    """Returns as many spaces, with the line ends of the text."""
    return "\n".join(" " * len(line) for line in text.split("\n"))


def blank(match):
    """Returns the blanks that replace a match, so that line numbers do not change."""
    return spaces(match.group())


C_PARTS = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<raw>[^()\s\\]*)\(.*?\)(?P=raw)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)


def c_prose(text):
    """Returns the text of a C or C++ file with everything but comments and string literals blanked."""
    out, end = [], 0
    for part in C_PARTS.finditer(text):
        out.append(spaces(text[end:part.start()]))
        line_start = text.rfind("\n", 0, part.start()) + 1
        is_include = text[line_start:part.start()].lstrip().startswith("#include")
        is_prose = not part.group().startswith("'") and not is_include
        out.append(re.sub(r'\\[nt]|\\"', "  ", part.group()) if is_prose else blank(part))
        end = part.end()
    out.append(spaces(text[end:]))
    return "".join(out)


def python_code(text):
    """Returns the names in a Python file, each in its line."""
    lines = [""] * (text.count("\n") + 1)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            lines[token.start[0] - 1] += f" {token.string}"
    return "\n".join(lines)


def python_prose(text):
    """Returns the text of a Python file with everything but comments and strings blanked."""
    lines = [" " * len(line) for line in text.split("\n")]
    source = text.split("\n")

    def keep(start, end):
        for row in range(start[0] - 1, end[0]):
            first = start[1] if row == start[0] - 1 else 0
            last = end[1] if row == end[0] - 1 else len(source[row])
            lines[row] = lines[row][:first] + source[row][first:last] + lines[row][last:]

    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            keep(token.start, token.end)
    return "\n".join(lines)


HASH_PARTS = re.compile(r"(?<!\S)#[^\n]*|\"[^\"\n]*\"")


def hash_prose(text):
    """Returns the text with everything blanked but comments that begin with # and, in CMake and shell, quoted texts."""
    out, end = [], 0
    for part in HASH_PARTS.finditer(text):
        out += [spaces(text[end:part.start()]), part.group()]
        end = part.end()
    return "".join(out) + spaces(text[end:])


FENCE = re.compile(r"^ {0,3}(```+|~~~+).*?^ {0,3}\1[^\n]*$", re.DOTALL | re.MULTILINE)


def markdown_text(text):
    """Returns Markdown without code blocks, HTML comments and inline code, which are blanked."""
    text = FENCE.sub(blank, text)
    text = re.sub(r"<!--.*?-->", blank, text, flags=re.DOTALL)
    return re.sub(r"`[^`\n]+`", blank, text)


def prose(path, text):
    """Returns the comments, messages, help texts and sentences of a file, line by line where they were."""
    if path.suffix == ".md":
        return markdown_text(text)
    if path.suffix in C_SUFFIXES or path.suffix == ".rs":
        return re.sub(r"`[^`\n]+`", blank, c_prose(text))
    if path.suffix == ".py":
        return re.sub(r"`[^`\n]+`", blank, python_prose(text))
    return hash_prose(text)


def code(path, text):
    """Returns a file of code without comments, texts and included paths, line by line where it was."""
    if path.suffix == ".py":
        return python_code(text)
    if path.suffix in C_SUFFIXES or path.suffix == ".rs":
        return C_PARTS.sub(blank, re.sub(r"(?m)^\s*#\s*include [^\n]*", blank, text))
    return HASH_PARTS.sub(blank, text)


def main(check, description):
    """Runs check(root) -> list of faults as a program: prints them, and exits with 1 if there are any."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="folder of the project")
    faults = check(parser.parse_args().root.resolve())
    for fault in faults:
        print(fault)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    if sys.argv[1:2] != ["touches"]:
        sys.exit(__doc__)
    # changed() ends with 77 if git cannot tell: it may touch everything then.
    if base_of(ROOT) is None:
        sys.exit(0)
    sys.exit(0 if any(path.is_relative_to(folder) for path in changed(ROOT, None) for folder in sys.argv[2:]) else 1)
