#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes descriptions of minim.h that bindings and tests need, from the header:

    bindings/abi.json               functions, structs, fields, callbacks, handles, constants and enums, for generators of bindings
    bindings/python/minim/_tables.py the same for ctypes
    bindings/rust/minim-sys/src/bindings.rs  the same for Rust
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
    """Returns the header's declarations, one in each string, without comments, directives and attributes."""
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
    """Returns a type in its only spelling: "const char* const*"."""
    text = re.sub(r"\s*\*\s*", "*", re.sub(r"\bstruct\s+(?=\w)", "", text.strip()))
    return re.sub(r"\*(?=\w)", "* ", text)


def typed_names(text):
    """Returns [(name, type, length of the array or None)] for "uint64_t a, b" or "const char* name" or "char text[8]"."""
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
    """Returns the header as data; every declaration must be of a known kind."""
    abi = {"version": [], "constants": {}, "enums": {}, "handles": [], "callbacks": {}, "structs": {}, "functions": {}}
    for part in ("MAJOR", "MINOR", "PATCH"):
        abi["version"].append(int(re.search(rf"#define MINIM_VERSION_{part} (\d+)", header)[1]))
    for text in declarations(header):
        if match := re.fullmatch(r"enum (\w+) \{(.*)\}", text):
            values = constants(match[2])
            abi["constants"].update(values)
            abi["enums"][match[1]] = list(values)
        elif match := re.fullmatch(r"typedef struct (\w+) \{(.*)\} (\w+)", text):
            abi["structs"][match[1]] = fields(match[2])
        elif match := re.fullmatch(r"typedef struct (\w+) (\w+)", text):
            abi["handles"].append(match[1])
        elif match := re.fullmatch(r"typedef (.*?)\(\*(\w+)\)\((.*)\)", text):
            abi["callbacks"][match[2]] = {"returns": c_type(match[1]), "parameters": parameters(match[3])}
        elif text == "typedef int32_t minim_status" or re.fullmatch(r"struct \w+", text):  # a struct that is defined further down
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

    lines = ["# SPDX-License-Identifier: Apache-2.0", f'"""The types and calls of minim.h. {NOTE}"""', "", "# fmt: off", f"VERSION = {tuple(abi['version'])}"]
    for name, table in (
        ("CONSTANTS", abi["constants"]),
        ("CALLBACKS", calls(abi["callbacks"])),
        ("STRUCTS", structs),
        ("FUNCTIONS", calls(abi["functions"])),
    ):
        rows = [f"    {json.dumps(key)}: {value!r}," for key, value in table.items()]
        lines += ["", f"{name} = {{", *rows, "}"]
    return "\n".join(lines) + "\n"


RUST_SCALARS = {
    "void": "c_void",
    "char": "c_char",
    "int32_t": "i32",
    "uint32_t": "u32",
    "int64_t": "i64",
    "uint64_t": "u64",
    "size_t": "usize",
    "float": "f32",
    "double": "f64",
}


RUST_KEYWORDS = {"type", "match", "move", "ref", "use", "in", "loop"}


def rust_name(name):
    return f"r#{name}" if name in RUST_KEYWORDS else name


def rust_type(kind):
    """Returns a type of the header in Rust: "const char* const*" is "*const *const c_char"."""
    if not kind.endswith("*"):
        name = kind.removeprefix("const ").removesuffix(" const")
        return RUST_SCALARS.get(name, name)
    pointed = kind[:-1]
    is_const = pointed.endswith(" const") if "*" in pointed else pointed.startswith("const ")
    return f"*{'const' if is_const else 'mut'} {rust_type(pointed.removesuffix(' const'))}"


def rust_call(call):
    names = ", ".join(f"{rust_name(p['name'])}: {rust_type(p['type'])}" for p in call["parameters"])
    returns = "" if call["returns"] == "void" else f" -> {rust_type(call['returns'])}"
    return f"({names}){returns}"


def layout(struct):
    """Returns [(field, offset)] and the size of a struct; every number lies at a multiple of its own size."""
    sizes = {"char": 1, "int32_t": 4, "uint32_t": 4, "float": 4}
    at, widest, offsets = 0, 1, []
    for field in struct:
        size = sizes.get(field["type"], 8)
        at = (at + size - 1) // size * size
        offsets.append((field["name"], at))
        at += size * field.get("length", 1)
        widest = max(widest, size)
    return offsets, (at + widest - 1) // widest * widest


def rust_struct(name, struct):
    offsets, size = layout(struct)
    lines = ["#[repr(C)]", "#[derive(Clone, Copy)]", f"pub struct {name} {{"]
    for field in struct:
        kind = rust_type(field["type"])
        whole = f"[{kind}; {field['length']}]" if "length" in field else kind
        lines.append(f"    pub {rust_name(field['name'])}: {whole},")
    lines += ["}", f"const _: () = assert!(core::mem::size_of::<{name}>() == {size});"]
    if struct[0]["name"] == "size":
        lines += [
            f"impl Default for {name} {{",
            "    /// All zero, which is the default of every field, and the size.",
            "    fn default() -> Self {",
            "        let zeros = unsafe { core::mem::zeroed::<Self>() };",
            f"        Self {{ size: {size}, ..zeros }}",
            "    }",
            "}",
        ]
    rows = ", ".join(f'("{field}", {at})' for field, at in offsets)
    return lines, f'    ("{name}", {size}, &[{rows}]),'


def as_rust(abi):
    lines = ["// SPDX-License-Identifier: Apache-2.0", f"// The types and calls of minim.h. {NOTE}", "// On machines of 64 bits.", ""]
    enum_of = {constant: enum for enum, names in abi["enums"].items() for constant in names}
    lines += [f"pub type {name} = i32;" for name in abi["enums"]] + [""]
    lines += [f"pub const {name}: {enum_of[name]} = {value};" for name, value in abi["constants"].items()]
    lines += ["", "pub type minim_status = i32;"]
    for name in abi["handles"]:
        lines += ["", "#[repr(C)]", f"pub struct {name} {{", "    _private: [u8; 0],", "}"]
    for name, call in abi["callbacks"].items():
        lines += ["", f'pub type {name} = Option<unsafe extern "C" fn{rust_call(call)}>;']
    layouts = []
    for name, struct in abi["structs"].items():
        written, row = rust_struct(name, struct)
        lines += ["", *written]
        layouts.append(row)
    lines += ["", "/// Structs, their sizes, and their fields' offsets, as C has them.", "pub const LAYOUTS: &[(&str, usize, &[(&str, usize)])] = &["]
    lines += [*layouts, "];", "", 'extern "C" {']
    lines += [f"    pub fn {name}{rust_call(call)};" for name, call in abi["functions"].items()]
    return "\n".join([*lines, "}"]) + "\n"


def as_exports(abi):
    return "\n".join(sorted(abi["functions"])) + "\n"


def as_layout(abi):
    lines = [
        "/* SPDX-License-Identifier: Apache-2.0 */",
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
    "bindings/rust/minim-sys/src/bindings.rs": as_rust,
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
