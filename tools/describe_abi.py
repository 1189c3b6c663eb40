#!/usr/bin/env python3
"""Writes what bindings need to know of minim.h, from the header:

    bindings/abi.json               functions, structs, fields, callbacks, handles and constants, for generators of bindings
    bindings/python/minim/_tables.py the same for ctypes
    tests/capi/exports.txt          the symbols that the library exports
    tests/ffi/abi_layout.c          a program that prints how the compiler lays the structs out

    tools/describe_abi.py           writes them
    tools/describe_abi.py --check   fails, with a list, if one of them is not what would be written

Run it after every change of minim.h, and commit what it wrote.
"""

import argparse
import difflib
import json
import pathlib
import re
import sys

NOTE = "Written by tools/describe_abi.py from include/minim/minim.h; do not edit."


class HeaderError(Exception):
    pass


# ---------------------------------------------------------------------------------------------- the header


def declarations(header):
    """The header's declarations, one a string, without comments, directives and attributes."""
    text = re.sub(r"/\*.*?\*/", " ", header, flags=re.DOTALL)
    text = re.sub(r"^[ \t]*#(?:\\\n|.)*$", "", text, flags=re.MULTILINE)
    text = re.sub(r'extern "C" \{(.*)\}', r"\1", text, flags=re.DOTALL)
    text = re.sub(r"\b(MINIM_API|MINIM_MUST_CHECK)\b", " ", text)
    depth, start = 0, 0
    for at, char in enumerate(text):
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char == ";" and depth == 0:
            yield " ".join(text[start:at].split())
            start = at + 1
    if text[start:].strip():
        raise HeaderError(f"what follows the last declaration: {text[start:].strip()!r}")


def c_type(text):
    """A type with one spelling: "const char* const*"."""
    text = re.sub(r"\s*\*\s*", "*", text.strip())
    return re.sub(r"\*(?=\w)", "* ", text)


def typed_names(text):
    """[(name, type, length of the array or None)] of "uint64_t a, b" or "const char* name" or "char text[8]"."""
    head, *more = (part.strip() for part in text.split(","))
    match = re.fullmatch(r"(.*?[\s*])(\w+)(?:\[(\d+)\])?", head)
    if match is None:
        raise HeaderError(f"no type and name: {text!r}")
    kind = c_type(match[1])
    names = [(match[2], match[3])]
    for part in more:
        follower = re.fullmatch(r"(\w+)(?:\[(\d+)\])?", part)
        if follower is None or "*" in kind:
            raise HeaderError(f"no name: {part!r} in {text!r}")
        names.append((follower[1], follower[2]))
    return [(name, kind, None if length is None else int(length)) for name, length in names]


def parameters(text):
    if text.strip() in ("", "void"):
        return []
    described = []
    for part in text.split(","):
        [(name, kind, length)] = typed_names(part)
        if length is not None:
            raise HeaderError(f"an array as parameter: {part!r}")
        described.append({"name": name, "type": kind})
    return described


def constants(text):
    values, following = {}, 0
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = (piece.strip() for piece in part.partition("="))
        values[name] = int(value, 0) if value else following
        following = values[name] + 1
    return values


def fields(text):
    described = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        for name, kind, length in typed_names(part):
            described.append({"name": name, "type": kind, **({} if length is None else {"length": length})})
    return described


def describe(header):
    """The header as data; every declaration has to be of a known kind."""
    abi = {"version": [], "constants": {}, "handles": [], "callbacks": {}, "structs": {}, "functions": {}}
    for part in ("MAJOR", "MINOR", "PATCH"):
        abi["version"].append(int(re.search(rf"#define MINIM_VERSION_{part} (\d+)", header)[1]))
    for text in declarations(header):
        if match := re.fullmatch(r"enum \{(.*)\}", text):
            abi["constants"].update(constants(match[1]))
        elif match := re.fullmatch(r"typedef struct (\w+) \{(.*)\} (\w+)", text):
            abi["structs"][match[1]] = fields(match[2])
        elif match := re.fullmatch(r"typedef struct (\w+) (\w+)", text):
            abi["handles"].append(match[1])
        elif match := re.fullmatch(r"typedef (.*?)\(\*(\w+)\)\((.*)\)", text):
            abi["callbacks"][match[2]] = {"returns": c_type(match[1]), "parameters": parameters(match[3])}
        elif text == "typedef int32_t minim_status":
            pass
        elif match := re.fullmatch(r"(.*?[\s*])(minim_\w+)\((.*)\)", text):
            abi["functions"][match[2]] = {"returns": c_type(match[1]), "parameters": parameters(match[3])}
        else:
            raise HeaderError(f"a declaration of no known kind: {text!r}")
    check_types(abi)
    return abi


def check_types(abi):
    scalars = "void char int32_t uint32_t int64_t uint64_t size_t float double minim_status".split()
    known = {*scalars, *abi["handles"], *abi["callbacks"], *abi["structs"]}
    used = [entry["type"] for struct in abi["structs"].values() for entry in struct]
    for call in (*abi["functions"].values(), *abi["callbacks"].values()):
        used += [call["returns"], *(entry["type"] for entry in call["parameters"])]
    for kind in used:
        if kind.replace("const ", "").replace(" const", "").rstrip("*") not in known:
            raise HeaderError(f"a type that is not known: {kind!r}")


# -------------------------------------------------------------------------------------------- what is written


def as_json(abi):
    return json.dumps({"note": NOTE, **abi}, indent=1) + "\n"


def as_python(abi):
    structs = {
        name: [(f["name"], f["type"], *([f["length"]] if "length" in f else [])) for f in struct]
        for name, struct in abi["structs"].items()
    }

    def calls(table):
        return {
            name: (call["returns"], [p["type"] for p in call["parameters"]]) for name, call in table.items()
        }

    lines = [f'"""The types and calls of minim.h. {NOTE}"""', "", "# fmt: off", f"VERSION = {tuple(abi['version'])}"]
    for name, table in (
        ("CONSTANTS", abi["constants"]),
        ("CALLBACKS", calls(abi["callbacks"])),
        ("STRUCTS", structs),
        ("FUNCTIONS", calls(abi["functions"])),
    ):
        rows = [f"    {json.dumps(key)}: {value!r}," for key, value in table.items()]
        lines += ["", f"{name} = {{", *rows, "}"]
    return "\n".join(lines) + "\n"


def as_exports(abi):
    return "\n".join(sorted(abi["functions"])) + "\n"


def as_layout(abi):
    lines = [
        f"/* {NOTE}",
        ' * Prints what the compiler makes of minim.h: "STRUCT FIELD OFFSET SIZE" a line, and "STRUCT - 0 SIZE" for the whole. */',
        "#include <stdio.h>",
        "",
        '#include "minim/minim.h"',
        "",
        '#define STRUCT(type) printf("%s - 0 %zu\\n", #type, sizeof(type))',
        "#define FIELD(type, field) \\",
        '    printf("%s %s %zu %zu\\n", #type, #field, offsetof(type, field), sizeof(((type*)NULL)->field))',
        "",
        "/* clang-format off */",
        "int main(void) {",
    ]
    for name, struct in abi["structs"].items():
        lines.append(f"    STRUCT({name});")
        lines += [f"    FIELD({name}, {field['name']});" for field in struct]
    return "\n".join([*lines, "    return 0;", "}"]) + "\n"


OUTPUTS = {
    "bindings/abi.json": as_json,
    "bindings/python/minim/_tables.py": as_python,
    "tests/capi/exports.txt": as_exports,
    "tests/ffi/abi_layout.c": as_layout,
}


def differences(path, written, wanted):
    lines = difflib.unified_diff(written.splitlines(), wanted.splitlines(), f"{path} (committed)", f"{path} (minim.h)", n=0, lineterm="")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if something would change")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1])
    arguments = parser.parse_args()
    try:
        abi = describe((arguments.root / "include" / "minim" / "minim.h").read_text(encoding="utf-8"))
    except HeaderError as error:
        sys.exit(f"minim.h: {error}")
    stale = []
    for name, write in OUTPUTS.items():
        path, wanted = arguments.root / name, write(abi)
        written = path.read_text(encoding="utf-8") if path.exists() else ""
        if written == wanted:
            continue
        stale.append(name)
        if arguments.check:
            print(differences(name, written, wanted))
        else:
            path.write_text(wanted, encoding="utf-8")
            print(f"wrote {name}")
    if arguments.check and stale:
        sys.exit(f"not as minim.h has it: {', '.join(stale)}; run tools/describe_abi.py")


if __name__ == "__main__":
    main()
