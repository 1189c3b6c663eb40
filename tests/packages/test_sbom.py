# SPDX-License-Identifier: Apache-2.0
"""tools/make_sbom.py: the bill of materials names everything of THIRD_PARTY.md, and says what it does not know."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools/make_sbom.py"


def make(*arguments):
    return subprocess.run([sys.executable, TOOL, *map(str, arguments), "-"], capture_output=True, text=True, check=False)


class BillOfMaterials(unittest.TestCase):
    def test_it_names_every_project_of_the_tables_once(self):
        made = json.loads(make("--commit", "0123abc", "--time", "1700000000").stdout)
        names = [entry["name"] for entry in made["packages"]]
        self.assertEqual(len(names), len(set(names)))
        text = (ROOT / "THIRD_PARTY.md").read_text(encoding="utf-8").split("## Data")[0]
        rows = [line for line in text.splitlines() if line.startswith("|") and not line.startswith(("| project", "|---"))]
        self.assertGreater(len(rows), 10)
        self.assertEqual(len(names), 1 + len(rows))
        for name, row in zip(names[1:], rows, strict=True):
            self.assertIn(name, row)
        self.assertEqual(made["creationInfo"]["created"], "2023-11-14T22:13:20Z")

    def test_identifiers_are_whole(self):
        made = json.loads(make().stdout)
        self.assertEqual((made["spdxVersion"], made["dataLicense"], made["SPDXID"]), ("SPDX-2.3", "CC0-1.0", "SPDXRef-DOCUMENT"))
        identifiers = [entry["SPDXID"] for entry in made["packages"]]
        self.assertEqual(len(identifiers), len(set(identifiers)))
        for identifier in identifiers:
            self.assertRegex(identifier, r"^SPDXRef-[A-Za-z0-9.-]+$")
        related = {name for entry in made["relationships"] for name in (entry["spdxElementId"], entry["relatedSpdxElement"])}
        self.assertEqual(related, {*identifiers, "SPDXRef-DOCUMENT"})
        own_licenses = {entry["licenseId"] for entry in made["hasExtractedLicensingInfos"]}
        used = {entry["licenseDeclared"] for entry in made["packages"]}
        self.assertEqual({name for name in used if name.startswith("LicenseRef-")}, own_licenses)

    @unittest.skipUnless("MINIM_BUILD" in os.environ, "no build folder is named")
    def test_versions_are_those_of_the_build(self):
        without, found = (json.loads(make(*options).stdout)["packages"] for options in ([], ["--build", os.environ["MINIM_BUILD"]]))
        versions = {entry["name"]: entry["versionInfo"] for entry in found}
        for name in ("{fmt}", "xxHash", "nlohmann/json", "Eigen"):
            self.assertRegex(versions[name], r"^\d+\.\d+\.\d+$", name)
        for entry in without[1:]:
            if entry["name"] not in ("marked", "highlight.js"):
                self.assertEqual(entry["versionInfo"], "NOASSERTION", entry["name"])

    def test_a_licence_without_an_identifier_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            text = (ROOT / "THIRD_PARTY.md").read_text(encoding="utf-8")
            (root / "CMakeLists.txt").write_text("project(minim VERSION 0.1.0)\n", encoding="utf-8")
            (root / "THIRD_PARTY.md").write_text(re.sub(r"\| MPL-2\.0 \|", "| Mozilla |", text), encoding="utf-8")
            done = make("--root", root)
            self.assertEqual(done.returncode, 1)
            self.assertIn("the licence 'Mozilla' of Eigen", done.stderr)


if __name__ == "__main__":
    unittest.main()
