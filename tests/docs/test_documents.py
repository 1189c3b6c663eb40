# SPDX-License-Identifier: Apache-2.0
"""The documents that tools/make_documents.py writes are what it would write, and a changed figure is noticed."""

import html.parser
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MINIM = pathlib.Path(os.environ["MINIM_BUILD"]) / "apps/minim/minim"


def check(root, *args):
    return subprocess.run([sys.executable, root / "tools/make_documents.py", "--check", "--minim", MINIM, *args], capture_output=True, text=True,
                          check=False)


class Reference(unittest.TestCase):
    """tools/make_reference.py: the header as a page."""

    def test_every_name_is_declared_once_and_every_link_leads_somewhere(self):
        result = subprocess.run([sys.executable, ROOT / "tools/make_reference.py", "-"], capture_output=True, text=True, check=True)
        anchors = re.findall(r' id="([^"]+)"', result.stdout)
        self.assertEqual(len(anchors), len(set(anchors)))
        functions = json.loads((ROOT / "bindings/abi.json").read_text(encoding="utf-8"))["functions"]
        self.assertEqual(set(functions) - set(anchors), set())
        self.assertEqual(set(re.findall(r'href="#([^"]+)"', result.stdout)) - set(anchors), set())

        tags = []

        class Balance(html.parser.HTMLParser):
            def handle_starttag(self, tag, attrs):
                if tag != "meta":
                    tags.append(tag)

            def handle_endtag(self, tag):
                assert tags.pop() == tag, tag

        Balance().feed(result.stdout)
        self.assertEqual(tags, [])

    def test_a_name_without_a_declaration_is_noticed(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name in ("tools", "include"):
                shutil.copytree(ROOT / name, root / name)
            (root / "bindings").mkdir()
            abi = json.loads((ROOT / "bindings/abi.json").read_text(encoding="utf-8"))
            abi["functions"]["minim_nothing"] = {}
            (root / "bindings/abi.json").write_text(json.dumps(abi), encoding="utf-8")
            result = subprocess.run([sys.executable, root / "tools/make_reference.py", "-"], capture_output=True, text=True, check=False)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn("minim_nothing", result.stderr)


class Documents(unittest.TestCase):
    def test_they_are_what_the_script_writes(self):
        result = check(ROOT)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))

    def test_a_changed_figure_and_an_incomplete_one_are_noticed(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name in ("tools", "docs", "tests/bench/results"):
                shutil.copytree(ROOT / name, root / name)
            path = root / "tests/bench/results/peers-zen4-2-threads.json"
            result = json.loads(path.read_text(encoding="utf-8"))
            result["rows"][0][1], result["rows"][0][4] = "9999", "88"
            path.write_text(json.dumps(result), encoding="utf-8")
            changed = check(root, "--page")
            self.assertEqual(changed.returncode, 1)
            self.assertIn("9999", changed.stdout)
            self.assertIn("decode.svg on disk", changed.stdout)
            path.write_text(json.dumps(result | {"command": ""}), encoding="utf-8")
            self.assertIn("every figure needs", check(root, "--page").stderr)


class Claims(unittest.TestCase):
    """What SECURITY.md, COMPATIBILITY.md and the manuals count and list is what the sources have."""

    def test_fuzz_targets_are_counted(self):
        n = len(list((ROOT / "tests/fuzz").glob("fuzz_*.cpp")))
        self.assertGreater(n, 10)
        self.assertIn(f"Fuzzing: {n} targets", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))

    def test_versions_of_files(self):
        page = (ROOT / "COMPATIBILITY.md").read_text(encoding="utf-8")
        states = (ROOT / "lib/kv/kv_file.cpp").read_text(encoding="utf-8")
        newest, without_index = (re.search(rf"uint32_t {name} = (\d+);", states)[1] for name in ("k_version", "k_version_without_index"))
        self.assertIn(f"version {without_index}, or {newest} with index keys", page)
        packed = re.search(r"k_packed_version = (\d+);", (ROOT / "lib/weights/packed_file.h").read_text(encoding="utf-8"))[1]
        self.assertIn(f"a cache, version {packed}:", page)

    def test_routes_of_the_server(self):
        routes = {(method, path.rstrip("/")) for method, path in
                  re.findall(r'Route\{"(\w+)", "([^"]+)"', (ROOT / "apps/server/service.cpp").read_text(encoding="utf-8"))}
        self.assertGreater(len(routes), 10)
        page = (ROOT / "apps/server/README.md").read_text(encoding="utf-8")
        listed, method = set(), ""
        for row in re.findall(r"^\| `(?:GET|POST) [^|]*\|", page, re.MULTILINE):
            for word in re.findall(r"`([^`]+)`", row):
                word_method, _, path = word.rpartition(" ")
                method = word_method or method
                if path.startswith("/"):
                    listed.add((method, re.sub(r"/\{.*", "", path)))
        direct = {("GET", path) for path in ("/health", "/ready", "/live", "/slots", "/metrics")}
        self.assertEqual(routes - listed, set())
        self.assertEqual(listed - routes - direct, set())

    def test_presets_and_options_of_the_build(self):
        page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
        presets = [preset["name"] for preset in json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))["configurePresets"]
                   if not preset.get("hidden")]
        sources = "".join(path.read_text(encoding="utf-8") for path in
                          [ROOT / "CMakeLists.txt", ROOT / "tests/CMakeLists.txt", *(ROOT / "cmake").glob("*.cmake")])
        options = re.findall(r"^ *option\((MINIM_\w+)|^ *set\((MINIM_\w+) [^)]*?\bCACHE\b", sources, re.MULTILINE)
        names = presets + ["".join(pair) for pair in options]
        self.assertGreater(len(names), 15)
        self.assertEqual([name for name in names if f"`{name}`" not in page], [])

    def test_memory_of_the_full_size(self):
        rows = re.findall(r"^\| (weights|KV cache|work space of a step) \| [^|]*?([\d.]+) (GB|KiB|MiB)", (ROOT / "docs/embedding.md").read_text(encoding="utf-8"),
                          re.MULTILINE)
        said = {name: float(number) * {"GB": 1e9, "KiB": 2**10, "MiB": 2**20}[unit] for name, number, unit in rows}
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "model.gguf"
            subprocess.run([sys.executable, ROOT / "tests/placement/make_headers.py", model, "--types", "_exps=IQ4_XS,.=Q8_0"], check=True, capture_output=True)
            command = [MINIM, "plan", "-m", model, "--device", "none", "--host", "256GiB,200GB/s", "-c", "32768", "-ub", "512", "--json"]
            host = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["host"]
        planned = {"weights": host["dense_bytes"] + host["expert_bytes"], "KV cache": host["kv_bytes"] / 32768, "work space of a step": host["work_bytes"]}
        self.assertEqual(set(said), set(planned))
        for name, number in planned.items():
            self.assertAlmostEqual(said[name] / number, 1, delta=0.03, msg=name)

    def test_limits_of_connections(self):
        limits = (ROOT / "apps/server/http/http_server.h").read_text(encoding="utf-8")
        within, between = (re.search(rf"\b{name}{{(\d+)}};", limits)[1] for name in ("no_progress", "idle"))
        page = " ".join((ROOT / "docs/options.md").read_text(encoding="utf-8").split())
        self.assertRegex(page, rf"`--timeout` SECONDS: [^`]* Default: {within} within a request, {between} between requests\.")

    def test_environment_variables_of_the_library(self):
        sources = "".join(path.read_text(encoding="utf-8") for folder in ("lib", "capi", "cuda", "mpi") for path in (ROOT / folder).rglob("*.cpp"))
        names = set(re.findall(r'getenv\("(\w+)"\)', sources)) | set(re.findall(r'"(MINIM_CUDA_[A-Z]+)"', sources))
        self.assertGreater(len(names), 5)
        for file in ("docs/embedding.md", "include/minim/minim.h"):
            listed = set(re.findall(r"\w+", (ROOT / file).read_text(encoding="utf-8")))
            self.assertEqual(names - listed, set(), file)


if __name__ == "__main__":
    unittest.main()
