#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the documents that are made from data.

    docs/performance.md    from tests/bench/results/*.json
    README.md              its tables between `<!-- generated: NAME -->` and `<!-- end -->`: peers, from tests/bench/results; fit, from what
                           `minim plan` says of full-size headers

    tools/make_documents.py [--minim PROGRAM]   writes them
    tools/make_documents.py --check             exits with 1, and says what differs, if they are not what would be written

A results file is one table: title, machine, date, command, columns, rows, and what the figures are (about, note). Older runs, with their text as it was
written then, are in tests/bench/results/history/.
"""

import argparse
import difflib
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "tests/bench/results"
PERFORMANCE = ROOT / "docs/performance.md"
FIELDS = {"order", "group", "title", "about", "machine", "date", "command", "columns", "rows", "note"}
REQUIRED = ("title", "machine", "date", "command")
PEERS = "peers-zen4-2-threads"

CONTEXT = 8192
MACHINES = [  # heading, host, devices
    ("128 GiB, 80 GB/s", "128GiB,80GB/s", []),
    ("256 GiB, 200 GB/s", "256GiB,200GB/s", []),
    ("768 GiB, 460 GB/s", "768GiB,460GB/s", []),
    ("24 GiB GPU + 192 GiB, 80 GB/s", "192GiB,80GB/s", ["cuda:0=24GiB,1000GB/s,pcie=25GB/s"]),
    ("96 GiB GPU + 256 GiB, 200 GB/s", "256GiB,200GB/s", ["cuda:0=96GiB,1790GB/s,pcie=50GB/s"]),
]
WEIGHTS = [  # name, types by tensor (tests/placement/make_headers.py)
    ("Q8_0", ".=Q8_0"),
    ("Q6_K", ".=Q6_K"),
    ("IQ5_K (down IQ6_K, dense Q8_0)", "ffn_down_exps=IQ6_K,_exps=IQ5_K,.=Q8_0"),
    ("IQ4_XS (dense Q8_0)", "_exps=IQ4_XS,.=Q8_0"),
    ("IQ3_S (down IQ4_XS, dense Q8_0)", "ffn_down_exps=IQ4_XS,_exps=IQ3_S,.=Q8_0"),
    ("IQ2_S (down IQ3_XXS, dense Q5_K)", "ffn_down_exps=IQ3_XXS,_exps=IQ2_S,output=Q6_K,.=Q5_K"),
]


def table(columns, rows):
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(str(cell) for cell in line)} |\n" for line in lines)


def read_result(path):
    result = json.loads(path.read_text(encoding="utf-8"))
    if set(result) != FIELDS:
        sys.exit(f"{path}: the fields are {', '.join(sorted(FIELDS))}; missing or unknown: {', '.join(sorted(set(result) ^ FIELDS))}")
    if not all(result[field] for field in REQUIRED) or not re.fullmatch(r"\d{4}-\d\d-\d\d", result["date"]):
        sys.exit(f"{path}: every figure needs {', '.join(REQUIRED)}, and its date as YYYY-MM-DD")
    if any(len(row) != len(result["columns"]) for row in result["rows"]):
        sys.exit(f"{path}: every row needs {len(result['columns'])} cells")
    return result


def performance_page():
    results = sorted((read_result(path) for path in RESULTS.glob("*.json")), key=lambda result: result["order"])
    page = ["# Performance\n\n<!-- Written by tools/make_documents.py from tests/bench/results/*.json; do not edit. -->\n",
            "Compare figures within a table; between tables the machine differs, or what its memory gave. [Benchmarks](../tests/bench/README.md) says how to\n"
            "measure, [notes](notes/README.md) what was tried without gain.\n"]
    group = None
    for result in results:
        if result["group"] != group:
            group = result["group"]
            page.append(f"## {group}\n")
        page.append(f"### {result['title']}\n")
        if result["about"]:
            page.append(result["about"] + "\n")
        page.append(table(result["columns"], result["rows"]))
        if result["note"]:
            page.append(result["note"] + "\n")
        page.append(f"Machine: {result['machine']}. Date: {result['date']}. Command:\n")
        page.append(f"```text\n{result['command']}\n```\n")
    page.append("## Older runs\n")
    page.append("With their text as it was written then.\n")
    rows = []
    for path in sorted((RESULTS / "history").glob("*.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        rows.append([run["date"], f"[{run['title']}](../tests/bench/results/history/{path.name})", run["machine"]])
    page.append(table(["date", "run", "machine"], rows))
    return "\n".join(page)


def peers_table():
    result = read_result(RESULTS / f"{PEERS}.json")
    rows = []
    for experts, prompt, prompt_ik, prompt_llama, decode, decode_ik, decode_llama, _ in result["rows"]:
        rows.append([experts, prompt, prompt_ik, prompt_llama or "-", decode, decode_ik, decode_llama or "-"])
    columns = ["experts", "prompt of 512", "/ ik_llama.cpp", "/ llama.cpp", "decode", "/ ik_llama.cpp", "/ llama.cpp"]
    return table(columns, rows) + "\n" + result["note"] + "\n"


def speed_of(minim, model, host, devices):
    """Returns the predicted tokens/s, rounded as a prediction deserves, or a dash if the plan does not fit."""
    command = [minim, "plan", "-m", model, "--host", host, "-c", str(CONTEXT), "--json"]
    for device in devices:
        command += ["--device", device]
    plan = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    speed = plan["decode_tokens_per_second"]
    return "-" if not plan["fits"] else f"{speed:.0f}" if speed >= 10 else f"{speed:.1f}"


def fit_table(minim):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, types in WEIGHTS:
            model = pathlib.Path(folder) / "model.gguf"
            subprocess.run([sys.executable, ROOT / "tests/placement/make_headers.py", model, "--types", types], check=True, capture_output=True)
            size = f"{model.stat().st_size / 1e9:.0f} GB"
            rows.append([name, size, *(speed_of(minim, model, host, devices) for _, host, devices in MACHINES)])
            model.unlink()
    return table(["experts", "size", *(heading for heading, _, _ in MACHINES)], rows)


def with_tables(text, tables):
    for name, made in tables.items():
        pattern = re.compile(rf"(<!-- generated: {name} -->\n).*?(<!-- end -->\n)", re.DOTALL)
        if not pattern.search(text):
            sys.exit(f"README.md has no place for the table '{name}'")
        text = pattern.sub(lambda place, made=made: place[1] + "\n" + made + "\n" + place[2], text)
    return text


def documents(minim):
    readme = ROOT / "README.md"
    tables = {"fit": fit_table(minim), "peers": peers_table()}
    return {PERFORMANCE: performance_page(), readme: with_tables(readme.read_text(encoding="utf-8"), tables)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minim", type=pathlib.Path, default=ROOT / "build/release/examples/minim/minim")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--page", action="store_true", help="docs/performance.md alone")
    args = parser.parse_args()
    differs = False
    made_documents = {PERFORMANCE: performance_page()} if args.page else documents(args.minim)
    for path, made in made_documents.items():
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        if args.check:
            diff = list(difflib.unified_diff(old.splitlines(), made.splitlines(), f"{path} on disk", "as it would be written", lineterm="", n=0))
            differs |= bool(diff)
            print("\n".join(diff), end="\n" if diff else "")
        elif old != made:
            path.write_text(made, encoding="utf-8")
    if differs:
        sys.exit("run tools/make_documents.py")


if __name__ == "__main__":
    main()
