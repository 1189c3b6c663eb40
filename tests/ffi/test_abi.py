"""The structures of minim_abi.py are those of minim.h."""

import ctypes
import os
import re
import subprocess
import unittest

from support import ROOT, abi, minim

STRUCTS = {
    "minim_error": abi.ErrorInfo,
    "minim_runtime_params": abi.RuntimeParams,
    "minim_tensor_info": abi.TensorInfo,
    "minim_model_params": abi.ModelParams,
    "minim_model_info": abi.ModelInfo,
    "minim_device_info": abi.DeviceInfo,
    "minim_device_memory": abi.DeviceMemory,
    "minim_layer_devices": abi.LayerDevices,
    "minim_node_memory": abi.NodeMemory,
    "minim_session_params": abi.SessionParams,
    "minim_option_info": abi.OptionInfo,
    "minim_token_probability": abi.TokenProbability,
    "minim_token": abi.Token,
    "minim_generate_result": abi.GenerateResult,
    "minim_constraint_params": abi.ConstraintParams,
    "minim_engine_params": abi.EngineParams,
    "minim_engine_state": abi.EngineState,
    "minim_request_params": abi.RequestParams,
    "minim_request_state": abi.RequestState,
}


def compiled_layout():
    """{struct: (size, [(field, offset, size)])} as the C compiler has it."""
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
        self.assertEqual(set(layout), set(STRUCTS))
        for name, struct in STRUCTS.items():
            size, fields = layout[name]
            with self.subTest(name):
                declared = [
                    (field, getattr(struct, field).offset, getattr(struct, field).size)
                    for field, _ in struct._fields_
                ]
                self.assertEqual(declared, fields)
                self.assertEqual(ctypes.sizeof(struct), size)

    def test_every_structure_of_the_header_that_starts_with_a_size_is_known(self):
        header = (ROOT / "include" / "minim" / "minim.h").read_text()
        declared = set(re.findall(r"typedef struct (minim_\w+) \{\s*uint32_t size;", header))
        self.assertEqual(declared - set(STRUCTS), {"minim_format_info"})

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


if __name__ == "__main__":
    unittest.main()

    def test_every_call_of_the_binding_is_declared_and_exported(self):
        exported = set((ROOT / "tests" / "capi" / "exports.txt").read_text().split())
        self.assertLessEqual({"minim_" + name for name in abi.DECLARED}, exported)
        source = (ROOT / "examples" / "python" / "minim.py").read_text()
        used = set(re.findall(r"(?:call|check|_get|_check|_out|_own)\(\s*(?:[\w.]+,\s*)?\"(\w+)\"", source))
        self.assertIn("model_layer_devices", used)
        self.assertLessEqual(used, abi.DECLARED)

    def test_a_call_that_is_not_declared_is_refused(self):
        with self.assertRaisesRegex(AttributeError, "minim_decoder_free has no row"):
            abi.call("decoder_free", None)
