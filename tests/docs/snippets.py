# SPDX-License-Identifier: Apache-2.0
"""The code blocks of Markdown pages, and how each language is run.

An HTML comment right before a fence says how:
    <!-- not run: REASON -->       a block that cannot run here; the options of the project's programs in it are checked with --help
    <!-- calls: EXPRESSION -->     C or C++ without main(): EXPRESSION is what main(argc, argv) returns
    <!-- part of: FILE -->         lines of a file that a test runs; they may be indented less
    <!-- launched by: COMMAND -->  Python that COMMAND starts, as mpirun does

A line of a shell block that starts minim-server is run in the background; the lines after it are what one types in another terminal.
"""

import dataclasses
import pathlib
import re
import shlex

FENCE = re.compile(r"(?:^<!-- (?P<mark>not run|calls|part of|launched by): (?P<text>.+?) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
# Output and drawings are no code. tests/server/test_proxy.py runs nginx; Caddy is not in the tests.
LANGUAGES = {"c", "cpp", "python", "sh", "json", "toml", "cmake", "text", "rust", "nginx", "caddy"}
INDENTED = re.compile(r"(?:^|\n)\n {4,}(?![-*|\d ])\S[^\n]*")


@dataclasses.dataclass
class Block:
    page: pathlib.Path
    line: int
    language: str
    code: str
    mark: str = ""  # "not run", "calls", "part of", "launched by" or nothing
    text: str = ""  # the text of the mark

    def __str__(self):
        return f"{self.page}:{self.line}"


def blocks(page, text):
    """Returns the code blocks of a page."""
    return [Block(page, text.count("\n", 0, match.start("code")), match["language"], match["code"], match["mark"] or "", match["text"] or "")
            for match in FENCE.finditer(text)]


def faults(page, text):
    """Returns what is wrong with the page's blocks as such: a language that nobody runs, an indented block, a mark without a block."""
    found = [f"{block}: code in '{block.language}' is not run (there are: {', '.join(sorted(LANGUAGES))})"
             for block in blocks(page, text) if block.language not in LANGUAGES]
    rest = FENCE.sub(lambda match: re.sub(r"[^\n]", "", match.group()), text)
    found += [f"{page}:{rest.count(chr(10), 0, match.end()) + 1}: an indented code block; use a fence, so that it is run"
              for match in INDENTED.finditer(rest)]
    found += [f"{page}: '{match.group()}' stands before no code block" for match in re.finditer(r"<!-- (not run|calls|part of|launched by): [^\n]*", rest)]
    return found


def is_part(code, text):
    """Returns whether the lines of a block follow each other in a text, whatever their indentation."""
    lines, whole = ([line.strip() for line in part.strip().split("\n")] for part in (code, text))
    return any(whole[i:i + len(lines)] == lines for i in range(len(whole)))


def commands(code):
    """Returns the words of each command of a shell block, without comments, joined over line ends."""
    found = []
    for line in re.sub(r"\\\n", " ", code).split("\n"):
        for part in re.split(r"&&|;|\|", re.sub(r"(^|\s)#.*", "", line)) if "'" not in line else [re.sub(r"(^|\s)# .*", "", line)]:
            words = shlex.split(part)
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                words.pop(0)
            if words:
                found.append(words)
    return found


def with_server(code, port, wait):
    """Returns a shell block whose minim-server runs in the background at a port, from when `wait` has ended until the block's end. The server
    must then end with 0. A block without a server is returned as it is."""
    lines, is_started = [], False
    for line in code.split("\n"):
        if not is_started and re.match(r"(\S*/)?minim-server (?!.*--help)", line):
            command = re.sub(r"\s# .*", "", line)
            lines += [f"{command} --port {port} 2> server.log &", "server=$!", 'trap \'kill "$server" 2> /dev/null; cat server.log >&2\' EXIT', wait]
            is_started = True
        else:
            lines.append(line.replace("127.0.0.1:8080", f"127.0.0.1:{port}"))
    if is_started:
        lines += ["trap - EXIT", 'kill "$server"', 'wait "$server"']
    return "\n".join(lines)


def unknown_options(words, help_text):
    """Returns the options among a command's words that a program's help does not have. Negative numbers are values."""
    options = [word.split("=")[0] for word in words if re.match(r"--?[A-Za-z]", word) and " " not in word]
    known = set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", help_text))
    return [option for option in options if option not in known]
