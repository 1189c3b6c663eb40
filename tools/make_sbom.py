#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the bill of materials as SPDX 2.3 in JSON, from the tables of THIRD_PARTY.md and what a build folder found.

    make_sbom.py [--build BUILD] [--commit ID] [--time SECONDS] FILE      `-`: to standard output

A version is the one that CMake found; without BUILD, or if the build leaves the project out, it is "NOASSERTION".
"""

import argparse
import datetime
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Sections of THIRD_PARTY.md, and how minim relates to what they list; the section of programs and tests has both kinds.
SECTIONS = {"Compiled into the library": "CONTAINS", "Stored in this repository": "CONTAINS", "Linked, if present": "OPTIONAL_DEPENDENCY_OF",
            "Programs and tests": None}
# The variable NAME_DIR of CMake's cache is the folder with the version file of a package.
PACKAGES = {"{fmt}": "fmt", "nlohmann/json": "nlohmann_json", "Eigen": "Eigen3", "CLI11": "CLI11", "Boost": "Boost", "Catch2": "Catch2",
            "Google Benchmark": "benchmark"}
# (variable of the cache that names a folder, files below it, expressions whose groups are the version)
HEADERS = {"xxHash": ("XXHASH_INCLUDE_DIR", ("xxhash.h",), tuple(rf"define XXH_VERSION_{part}\s+(\d+)" for part in ("MAJOR", "MINOR", "RELEASE"))),
           "hwloc": ("HWLOC_INCLUDE_DIR", ("hwloc/autogen/config.h", "*/hwloc/autogen/config.h"), (r'define HWLOC_VERSION "([\d.]+)',)),
           "Open MPI": ("MPI_C_HEADER_DIR", ("mpi.h",), tuple(rf"define OMPI_{part}_VERSION (\d+)" for part in ("MAJOR", "MINOR", "RELEASE"))),
           "CUDA runtime": ("CUDAToolkit_BIN_DIR", ("../version.json",), (r'"cuda" *: *\{[^}]*"version" *: *"([\d.]+)',))}
LICENSES = {"MIT", "BSD-2-Clause", "BSD-3-Clause", "MPL-2.0", "BSL-1.0", "Apache-2.0"}
OTHER_LICENSES = {"NVIDIA CUDA EULA": ("LicenseRef-NVIDIA-CUDA-EULA", "https://docs.nvidia.com/cuda/eula/")}


def third_party(text):
    """Returns (section, name, version that the table gives, address, licence, use) of each row."""
    rows, section = [], None
    for line in text.splitlines():
        if line.startswith("## "):
            section = line[3:]
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if section not in SECTIONS or len(cells) != 3 or cells[0] == "project" or set(cells[0]) == {"-"}:
            continue
        found = re.fullmatch(r"(?:\[(?P<linked>[^\]]+)\]\((?P<address>[^)]+)\)|(?P<plain>[A-Za-z][\w .]*?))(?: (?P<version>\d[\w. ]*))?(?: \([^)]*\))?", cells[0])
        if found is None:
            sys.exit(f"THIRD_PARTY.md, {section}: cannot read the project in '{cells[0]}'")
        rows.append((section, found["linked"] or found["plain"], found["version"], found["address"], cells[1], cells[2]))
    return rows


def cache_of(build):
    """Returns CMake's variables as a dict."""
    if build is None:
        return {}
    text = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    return dict(re.findall(r"^([^#/\s:][^:\n]*):[A-Z]+=(.*)$", text, re.MULTILINE))


def version_in(files, expressions):
    for path in files:
        text = path.read_text(encoding="utf-8", errors="replace")
        found = [re.search(expression, text) for expression in expressions]
        if all(found):
            return ".".join(match[1] for match in found)
    return None


def found_version(name, cache):
    """Returns the version that the build uses, or None."""
    if (name, cache.get("MINIM_CUDA")) == ("CUDA runtime", "OFF") or (name, cache.get("MINIM_MPI")) == ("Open MPI", "OFF") or \
            (name, cache.get("MINIM_HWLOC")) == ("hwloc", "OFF"):
        return None
    if name == "PCRE2":
        return cache.get("PCRE2_VERSION")
    if name in PACKAGES:
        folder = cache.get(f"{PACKAGES[name]}_DIR", "")
        files = [path for path in pathlib.Path(folder).glob("*.cmake") if re.search(r"(?i)config-?version\.cmake$", path.name)] if folder else []
        return version_in(files, (r'(?i)set ?\( ?PACKAGE_VERSION "?([\d.]+)',))
    if name in HEADERS:
        variable, patterns, expressions = HEADERS[name]
        folder = cache.get(variable, "")
        return version_in([path for pattern in patterns for path in pathlib.Path(folder).glob(pattern)], expressions) if folder else None
    return None


def license_of(name, text):
    if text in LICENSES:
        return text
    if text in OTHER_LICENSES:
        return OTHER_LICENSES[text][0]
    sys.exit(f"THIRD_PARTY.md: no SPDX identifier is known for the licence '{text}' of {name}")


def package(name, version, address, license_name, comment):
    entry = {"SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-"), "name": name, "versionInfo": version or "NOASSERTION",
             "downloadLocation": address or "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": license_name, "licenseDeclared": license_name,
             "copyrightText": "NOASSERTION"}
    return {**entry, "comment": comment} if comment else entry


def relation(own, other, kind):
    """OF: the other is the subject."""
    first, second = (other, own) if kind.endswith("_OF") else (own, other)
    return {"spdxElementId": first, "relationshipType": kind, "relatedSpdxElement": second}


def document(root, build, commit, seconds):
    version = re.search(r"^project\(minim VERSION ([\d.]+)", (root / "CMakeLists.txt").read_text(encoding="utf-8"), re.MULTILINE)[1]
    cache = cache_of(build)
    own = package("minim", version, None, "Apache-2.0", f"commit {commit}" if commit else None)
    packages = [own]
    relations = [relation("SPDXRef-DOCUMENT", own["SPDXID"], "DESCRIBES")]
    for section, name, asked, address, license_name, use in third_party((root / "THIRD_PARTY.md").read_text(encoding="utf-8")):
        exact = asked if section == "Stored in this repository" else found_version(name, cache)
        comment = use if exact or not asked else f"{use}; wanted: {asked}"
        packages.append(package(name, exact, address, license_of(name, license_name), comment))
        kind = SECTIONS[section] or ("TEST_DEPENDENCY_OF" if re.search(r"\btests?\b|benchmark", use) else "DEPENDS_ON")
        relations.append(relation(own["SPDXID"], packages[-1]["SPDXID"], kind))
    used = {entry["licenseDeclared"] for entry in packages}
    created = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"minim-{version}",
            "documentNamespace": f"https://spdx.org/spdxdocs/minim-{version}-{commit or 'unknown'}",
            "creationInfo": {"created": created, "creators": ["Tool: minim-make_sbom"]}, "packages": packages, "relationships": relations,
            "hasExtractedLicensingInfos": [{"licenseId": identifier, "name": name, "extractedText": f"See {address}", "seeAlsos": [address]}
                                           for name, (identifier, address) in OTHER_LICENSES.items() if identifier in used]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--commit")
    parser.add_argument("--time", type=int, default=0, help="of the document, in seconds since 1970")
    parser.add_argument("file")
    args = parser.parse_args()
    text = json.dumps(document(args.root, args.build, args.commit, args.time), indent=2) + "\n"
    if args.file == "-":
        sys.stdout.write(text)
    else:
        pathlib.Path(args.file).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
