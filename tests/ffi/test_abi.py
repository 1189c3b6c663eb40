# SPDX-License-Identifier: Apache-2.0
"""minim.h, its description, the tables of the binding and the exported symbols agree."""

import ctypes
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from support import ROOT, abi, minim

TOOL = ROOT / "tools" / "describe_abi.py"


def compiled_layout():
    """Returns {struct: (size, [(field, offset, size)])} as the C compiler lays the structs out."""
    output = subprocess.run(
        [os.environ["MINIM_ABI_LAYOUT"]], check=True, capture_output=True, text=True
    ).stdout
    layout = {}
    for line in output.splitlines():
        struct, field, offset, size = line.split()
        if field == "-":
            layout[struct] = (int(size), [])
        else:
            layout[struct][1].append((field, int(offset), int(size)))
    return layout


class Abi(unittest.TestCase):
    def test_every_structure_has_the_compiler_s_offsets_and_sizes(self):
        layout = compiled_layout()
        self.assertEqual(set(layout), set(abi.STRUCTURES))
        for name, struct in abi.STRUCTURES.items():
            size, fields = layout[name]
            with self.subTest(name):
                declared = [
                    (field, getattr(struct, field).offset, getattr(struct, field).size)
                    for field, _ in struct._fields_
                ]
                self.assertEqual(declared, fields)
                self.assertEqual(ctypes.sizeof(struct), size)

    def test_every_struct_and_call_of_the_header_is_described(self):
        header = (ROOT / "include" / "minim" / "minim.h").read_text()
        structs = set(re.findall(r"^\} (minim_\w+);", header, re.MULTILINE))
        self.assertEqual(structs, set(abi.STRUCTURES))
        calls = set(re.findall(r"^(?:MINIM_API|minim_)[^;#]*?\b(minim_\w+)\(", header, re.MULTILINE))
        self.assertEqual(calls, set(abi.tables.FUNCTIONS))

    def test_statuses_reasons_and_finishes_have_the_header_s_numbers(self):
        header = (ROOT / "include" / "minim" / "minim.h").read_text()
        numbers = {name: int(value) for name, value in re.findall(r"(MINIM_\w+) = (\d+)", header)}
        for kind, prefix in (
            (minim.Status, "MINIM_E_"),
            (minim.Reason, "MINIM_REASON_"),
            (minim.FinishReason, "MINIM_FINISH_"),
        ):
            for member in kind:
                name = "MINIM_OK" if member == "ok" else prefix + member.name
                with self.subTest(name):
                    self.assertEqual(int(member), numbers[name])
                    self.assertEqual(member.name.lower(), str(member))

    def test_the_library_has_the_header_s_version(self):
        header = (ROOT / "include" / "minim" / "minim.h").read_text()
        version = [
            re.search(rf"MINIM_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH")
        ]
        self.assertEqual(minim.version(), ".".join(version))
        self.assertIn(minim.version(), minim.build_info())
        self.assertTrue(minim.has_feature("gguf"))
        self.assertFalse(minim.has_feature("time travel"))

    def test_every_call_of_the_binding_is_declared(self):
        source = (ROOT / "bindings" / "python" / "minim" / "__init__.py").read_text()
        used = set(re.findall(r"(?:call|check|_get|_check|_out|_own)\(\s*(?:[\w.]+,\s*)?\"(\w+)\"", source))
        self.assertIn("model_layer_devices", used)
        self.assertLessEqual(used, abi.DECLARED)

    def test_a_call_that_is_not_declared_is_refused(self):
        with self.assertRaisesRegex(AttributeError, "minim_time_travel is not a call"):
            abi.call("time_travel", None)


class Description(unittest.TestCase):
    """Runs tools/describe_abi.py --check on the tree, and on copies with a planted difference."""

    FILES = ("include/minim/minim.h", "bindings/abi.json", "bindings/python/minim/_tables.py")
    FILES += ("bindings/rust/minim-sys/src/bindings.rs", "tests/capi/exports.txt", "tests/ffi/abi_layout.c")

    def check(self, root):
        done = subprocess.run(
            [sys.executable, TOOL, "--check", "--root", root], capture_output=True, text=True, timeout=60
        )
        return done.returncode, done.stdout + done.stderr

    def test_header_description_tables_and_exports_agree(self):
        self.assertEqual(self.check(ROOT), (0, ""))

    def test_a_planted_difference_in_any_of_them_is_found(self):
        planted = (
            ("include/minim/minim.h", "int32_t n_ubatch;", "int64_t n_ubatch;", "n_ubatch"),
            ("include/minim/minim.h", "MINIM_KV_Q4_0 = 5", "MINIM_KV_Q4_0 = 6", "MINIM_KV_Q4_0"),
            ("include/minim/minim.h", "minim_session_fork(", "minim_session_split(", "minim_session_split"),
            ("include/minim/minim.h", "typedef int32_t (*minim_token_fn)", "typedef void (*minim_token_fn)", "minim_token_fn"),
            ("include/minim/minim.h", "int32_t skip_special, minim_text** out", "minim_text** out", "minim_detokenize"),
            ("include/minim/minim.h", "uint64_t seed;", "uint64_t seed, nonce;", "nonce"),
            ("include/minim/minim.h", "uint64_t seed;", "struct { int a; } seed;", "a type that is not known"),
            ("include/minim/minim.h", "uint64_t seed;", "uint128_t seed;", "a type that is not known: 'uint128_t'"),
            ("bindings/abi.json", '"minim_request_free"', '"minim_request_drop"', "abi.json"),
            ("bindings/python/minim/_tables.py", "'int64_t'", "'int32_t'", "_tables.py"),
            ("bindings/rust/minim-sys/src/bindings.rs", "pub n_ubatch: i32", "pub n_ubatch: i64", "bindings.rs"),
            ("bindings/rust/minim-sys/src/bindings.rs", "MINIM_KV_Q8_0: minim_kv_format = 4", "MINIM_KV_Q8_0: minim_kv_format = 5", "bindings.rs"),
            ("tests/capi/exports.txt", "minim_version\n", "", "exports.txt"),
            ("tests/ffi/abi_layout.c", "    FIELD(minim_token, id);\n", "", "abi_layout.c"),
        )
        for name, before, after, named in planted:
            with self.subTest((name, after)), tempfile.TemporaryDirectory() as folder:
                for file in self.FILES:
                    path = pathlib.Path(folder) / file
                    path.parent.mkdir(parents=True, exist_ok=True)
                    text = (ROOT / file).read_text(encoding="utf-8")
                    if file == name:
                        self.assertIn(before, text)
                        text = text.replace(before, after, 1)
                    path.write_text(text, encoding="utf-8")
                status, output = self.check(folder)
                self.assertEqual(status, 1)
                self.assertIn(named, output)


if __name__ == "__main__":
    unittest.main()
