# SPDX-License-Identifier: Apache-2.0
"""What the checks share: the files of the project, the words in them, and how a check reports faults."""

import argparse
import io
import pathlib
import re
import subprocess
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = {".git", "build", ".cache", "__pycache__", ".ruff_cache", ".gpu"}
C_SUFFIXES = {".c", ".cpp", ".h", ".hpp", ".inl", ".cu", ".cuh"}
HASH_NAMES = {"CMakeLists.txt"}
HASH_SUFFIXES = {".cmake", ".sh"}


def files(root, suffixes=(), names=()):
    """Returns the files of the project that end or are named so, as sorted paths relative to its root. In a git checkout these are the
    files that git does not ignore, else all but build folders."""
    found = subprocess.run(["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                           capture_output=True, check=False) if (root / ".git").exists() else None
    if found is not None and found.returncode == 0:
        paths = [pathlib.Path(name) for name in found.stdout.decode().split("\0") if name]
    else:
        paths = [path.relative_to(root) for path in root.rglob("*")
                 if not SKIPPED.intersection(path.relative_to(root).parts)]
    return sorted({path for path in paths
                   if (path.suffix in suffixes or path.name in names) and (root / path).is_file()})


def read(root, path):
    return (root / path).read_text(encoding="utf-8")


def spaces(text):
    """Returns as many spaces, with the line ends of the text."""
    return "\n".join(" " * len(line) for line in text.split("\n"))


def blank(match):
    """What a match is replaced by, so that the lines stay where they are."""
    return spaces(match.group())


C_PARTS = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<raw>[^()\s\\]*)\(.*?\)(?P=raw)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)


def c_prose(text):
    """Returns comments and string literals of C or C++, the rest blanked."""
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


def python_prose(text):
    """Returns comments and strings of Python, the rest blanked."""
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


def hash_prose(text):
    """Returns comments that begin with # and, in CMake and shell, quoted texts; the rest blanked."""
    out, end = [], 0
    for part in re.finditer(r"(?<!\S)#[^\n]*|\"[^\"\n]*\"", text):
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


def main(check, description):
    """Runs check(root) -> list of faults as a program: prints them, and exits with 1 if there are any."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="folder of the project")
    faults = check(parser.parse_args().root.resolve())
    for fault in faults:
        print(fault)
    sys.exit(1 if faults else 0)
