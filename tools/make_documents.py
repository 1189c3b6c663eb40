#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the documents that are made from data.

    docs/performance.md    the first table of each group of tests/bench/results/*.json
    docs/history.md        the other tables, and the list of older runs
    docs/decode.svg        the chart of README.md: decode beside peers, from tests/bench/results
    docs/options.md        from the table of options, which `minim options --json` prints
    docs/recipes.md        from deployments of tests/placement/seeds.json, with what `minim plan` says of each
    README.md              its tables between `<!-- generated: NAME -->` and `<!-- end -->`: peers, from tests/bench/results; fit, from what
                           `minim plan` says of full-size headers; gpu, from tests/bench/results

    tools/make_documents.py [--minim PROGRAM]   writes them
    tools/make_documents.py --check             exits with 1, and says what differs, if they are not what would be written

A results file is one table: title, machine, date, command, columns, rows, and a description of the figures (about, note). Older runs are
in tests/bench/results/history/, with the text that was written then.
"""

import argparse
import difflib
import itertools
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import xml.sax.saxutils

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "tests/bench/results"
PERFORMANCE = ROOT / "docs/performance.md"
HISTORY = ROOT / "docs/history.md"
CHART = ROOT / "docs/decode.svg"
RECIPES = ROOT / "docs/recipes.md"
OPTIONS = ROOT / "docs/options.md"
FIELDS = {"order", "group", "title", "about", "machine", "date", "command", "columns", "rows", "note"}
REQUIRED = ("title", "machine", "date", "command")
PEERS = "peers-zen4-2-threads"
README_ROWS = ("Q8_0", "Q4_K", "IQ4_XS", "IQ5_K", "IQ3_S", "IQ2_XXS")  # the rows of its table; docs/performance.md has all formats
GPU_ROWS = [  # results file, row, columns of decode and prompt; model, where its weights are, tokens of the prompt
    ("h200-decode", "IQ2_S", 2, 3, "62 layers, IQ2_S", "all on the GPU", "2,048"),
    ("h200-offload", "half of the experts in a cache, all used alike (47 % hits)", 1, 4, "8 layers, IQ4_XS", "half of the experts on the GPU, the others in RAM",
     "8,192"),
    ("h200-offload", "the CPU alone", 1, 2, "8 layers, IQ4_XS", "all in RAM, without the GPU", "512"),
]

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

FOLDERS = ("fp8", "nvfp4", "awq")  # safetensors; the other mixes are GGUF files
IQ5_K, NVFP4, REAP = "MiniMax-M2.5-IQ5_K.gguf", "MiniMax-M2.5-NVFP4", "MiniMax-M2.5-REAP-139B-NVFP4"
DEPLOYMENTS = [  # the case's name in seeds.json, heading, model, the server's options but for model and context, what to know about it
    ("EPYC 9175F + PRO 6000, IQ5_K, all experts in RAM", "One 96 GB GPU and fast RAM, all experts in RAM", IQ5_K,
     "--device cuda:0 --cpu-moe", "The GPU has attention, routers and a long KV cache; the CPU computes the experts."),
    ("EPYC 9175F + PRO 6000, IQ5_K, experts wherever they fit", "The same machine with a cache of experts", IQ5_K,
     "--device cuda:0", "The default: what the context leaves free on the GPU becomes a cache of experts, and CPU and GPU compute at the same time."),
    ("EPYC 9175F + PRO 6000, IQ5_K, all experts in RAM, 131,072 tokens", "The same machine with a context of 131,072 tokens", IQ5_K,
     "--device cuda:0 --cpu-moe", "The KV cache takes 248 KiB a token."),
    ("4 x RTX 3090, IQ2_M in two files, Q8_0 KV", "Four 24 GB GPUs, everything on them", "MiniMax-M2.5-IQ2_M-00001-of-00002.gguf",
     "--device cuda:0,cuda:1,cuda:2,cuda:3 -tp 4 --kv q8_0",
     "Each GPU has a part of every layer; a KV cache in Q8_0 makes room for the context."),
    ("1 x PRO 6000, REAP-139B NVFP4, Q8_0 KV", "One 96 GB GPU with a pruned model", REAP, "--device cuda:0 --kv q8_0",
     "REAP removes 102 of the 256 experts of each layer."),
    ("2 x PRO 6000, NVFP4", "Two 96 GB GPUs, NVFP4", NVFP4, "--device cuda:0,cuda:1 -tp 2", "The published folder as it is."),
    ("4 x PRO 6000, FP8", "Four 96 GB GPUs, the original FP8 weights", "MiniMax-M2.5", "--device cuda:0,cuda:1,cuda:2,cuda:3 -tp 4",
     "The model as MiniMax publishes it."),
    ("96 + 16 + 16 GiB, NVFP4, layers 40, 11, 11", "GPUs of different sizes", NVFP4, "--device cuda:0,cuda:1,cuda:2 --tensor-split 40,11,11",
     "Shares that add up to the number of layers are counts of layers."),
    ("4 x RTX 3090 and 64 GiB, Q5_K_XL, F16 KV: killed for want of memory", "A file that is too large", "MiniMax-M2.5-Q5_K_XL.gguf",
     "--device cuda:0,cuda:1,cuda:2,cuda:3", "The plan says before anything is downloaded that it does not fit, and what would."),
    ("GB10", "DGX Spark", "MiniMax-M2.5-IQ3_S.gguf", "--device cuda:0 --kv q8_0",
     "GPU and CPU share 121.6 GiB, so nothing is offloaded, and larger files do not fit. At 2,048 tokens, where others report 24 to 26 tokens/s, the plan\n"
     "says 28. On aarch64 minim has run under an emulator only."),
    ("Graviton 4", "Graviton 4, no GPU", "MiniMax-M2.5-IQ4_XS.gguf", "--device none",
     "96 Neoverse V2 cores with twelve channels of DDR5-5600. The prediction takes the memory's speed for the limit. On aarch64 minim has run under an\n"
     "emulator only."),
]
OWN_CASES = {  # deployments without published bytes in seeds.json
    "GB10": {"model": {"mix": "iq3_s"}, "devices": ["cuda:0=121.6GiB,273GB/s,unified"], "host": None, "context": 32768, "kv": ["Q8_0", "Q8_0"],
             "overrides": None, "split": None, "published": {"decode": "24 to 26"}},
    "Graviton 4": {"model": {"mix": "iq4_xs"}, "devices": [], "host": "768GiB,537GB/s", "context": 8192, "kv": ["F16", "F16"], "overrides": None,
                   "split": None},
}


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


MADE_FROM_RESULTS = "<!-- Written by tools/make_documents.py from tests/bench/results/*.json; do not edit. -->\n"


def anchor(heading):
    """Returns the anchor that Markdown gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def result_groups():
    """Returns the names of the groups and their results, in order."""
    results = sorted((read_result(path) for path in RESULTS.glob("*.json")), key=lambda result: result["order"])
    return [(group, list(members)) for group, members in itertools.groupby(results, key=lambda result: result["group"])]


def result_section(result):
    about, note = (f"{text}\n\n" if text else "" for text in (result["about"], result["note"]))
    rows = table(result["columns"], result["rows"])
    return (f"### {result['title']}\n\n{about}{rows}\n{note}Machine: {result['machine']}. Date: {result['date']}. Command:\n\n"
            f"```text\n{result['command']}\n```\n")


def performance_page():
    page = [f"# Performance\n\n{MADE_FROM_RESULTS}",
            "Compare figures within a table; between tables the machine differs, or what its memory gave. [Benchmarks](../tests/bench/README.md) says how to\n"
            "measure, [notes](notes/README.md) what was tried without gain. [All other measurements](history.md) are a page of their own.\n"]
    for group, results in result_groups():
        others = "\n".join(f"- [{result['title']}](history.md#{anchor(result['title'])})" for result in results[1:])
        page += [f"## {group}\n", result_section(results[0]), f"Also measured:\n\n{others}\n" if others else ""]
    return "\n".join(page).rstrip("\n") + "\n"


def history_page():
    page = [f"# Measurements\n\n{MADE_FROM_RESULTS}",
            "The tables that [performance.md](performance.md) leaves out, and older runs. Compare figures within a table.\n"]
    for group, results in result_groups():
        if results[1:]:
            page += [f"## {group}\n", *(result_section(result) for result in results[1:])]
    page.append("## Older runs\n")
    page.append("With their text as it was written then.\n")
    rows = []
    for path in sorted((RESULTS / "history").glob("*.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        rows.append([run["date"], f"[{run['title']}](../tests/bench/results/history/{path.name})", run["machine"]])
    page.append(table(["date", "run", "machine"], rows))
    return "\n".join(page)


CHART_HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-labelledby="title about">
<!-- SPDX-License-Identifier: Apache-2.0. Written by tools/make_documents.py from tests/bench/results/{peers}.json; do not edit. -->
<title id="title">Decode, tokens/s</title>
<desc id="about">{about}</desc>
<style>
text {{ font: 12px system-ui, sans-serif; fill: #1f2328; text-anchor: middle; }}
.left {{ text-anchor: start; }}
.small {{ font-size: 10px; }}
.page {{ fill: #ffffff; }}
.line {{ stroke: #d0d7de; }}
.minim {{ fill: #0969da; }}
.ik {{ fill: #bc6c25; }}
.llama {{ fill: #8c959f; }}
@media (prefers-color-scheme: dark) {{
  text {{ fill: #e6edf3; }}
  .page {{ fill: #0d1117; }}
  .line {{ stroke: #30363d; }}
  .minim {{ fill: #58a6ff; }}
  .ik {{ fill: #e0a060; }}
  .llama {{ fill: #6e7681; }}
}}
</style>
<rect class="page" width="{width}" height="{height}" rx="6"/>
"""
CHART_SERIES = (("minim", "minim"), ("ik", "ik_llama.cpp"), ("llama", "llama.cpp"))


def decode_speeds(result):
    """Returns for each row of the table beside peers: its experts, whether it has a dagger, and tokens/s of minim, ik_llama.cpp, llama.cpp (or None)."""
    speeds = []
    for experts, _, _, _, decode, to_ik, to_llama, _ in result["rows"]:
        ratios = [float(ratio.rstrip("† ")) if ratio else None for ratio in (to_ik, to_llama)]
        speeds.append((experts, "†" in to_ik + to_llama, [float(decode), *(float(decode) / ratio if ratio else None for ratio in ratios)]))
    return speeds


def decode_chart():
    result = read_result(RESULTS / f"{PEERS}.json")
    rows = decode_speeds(result)
    bar, gap, plot, top, left = 24, 22, 180, 58, 24
    group = 3 * bar + gap
    width, height = 2 * left + len(rows) * group - gap, top + plot + 62
    scale = plot / max(speed for _, _, speeds in rows for speed in speeds if speed)
    about = "; ".join(f"{experts}: " + ", ".join(f"{name} {speed:.0f}" for (_, name), speed in zip(CHART_SERIES, speeds) if speed)
                      for experts, _, speeds in rows)
    svg = [CHART_HEAD.format(width=width, height=height, peers=PEERS, about=about),
           f'<text class="left" x="{left}" y="24">Decode, tokens/s, by the format of the experts; 2 threads</text>\n']
    for (style, name), from_right in zip(CHART_SERIES, (250, 175, 72)):
        x = width - left - from_right
        svg.append(f'<rect class="{style}" x="{x}" y="14" width="12" height="12"/><text class="left" x="{x + 17}" y="24">{name}</text>\n')
    for i, (experts, has_dagger, speeds) in enumerate(rows):
        start = left + i * group
        shown = [(style, speed) for (style, _), speed in zip(CHART_SERIES, speeds) if speed]
        first = start + (3 - len(shown)) * bar / 2
        for j, (style, speed) in enumerate(shown):
            x, size = first + j * bar, speed * scale
            svg.append(f'<rect class="{style}" x="{x + 1:g}" y="{top + plot - size:.1f}" width="{bar - 2}" height="{size:.1f}"/>'
                       f'<text class="small" x="{x + bar / 2:g}" y="{top + plot - size - 4:.1f}">{speed:.0f}</text>\n')
        svg.append(f'<text x="{start + 1.5 * bar:g}" y="{top + plot + 18}">{experts}{" †" if has_dagger else ""}</text>\n')
    svg.append(f'<line class="line" x1="{left}" y1="{top + plot}" x2="{width - left}" y2="{top + plot}"/>\n')
    machine = xml.sax.saxutils.escape(f"{re.sub(r', family [0-9]+', '', result['machine']).split(',')[0]}, {result['date']}.")
    note = "† The memory doubled its speed between the two programs." if any(has_dagger for _, has_dagger, _ in rows) else ""
    svg.append(f'<text class="left small" x="{left}" y="{top + plot + 42}">Two-layer slices of the model, AVX-512. {machine} {note}</text>\n</svg>\n')
    return "".join(svg)


def gpu_table():
    rows = []
    for name, row_name, decode, prompt, model, weights, n_prompt in GPU_ROWS:
        row = next((row for row in read_result(RESULTS / f"{name}.json")["rows"] if row[0] == row_name), None)
        if row is None:
            sys.exit(f"{name}.json has no row '{row_name}'")
        rows.append([model, weights, row[decode], f"{row[prompt]} ({n_prompt})"])
    return table(["model", "weights", "decode", "prompt (its tokens)"], rows)


def peers_table():
    result = read_result(RESULTS / f"{PEERS}.json")
    rows = []
    for experts, prompt, prompt_ik, prompt_llama, decode, decode_ik, decode_llama, _ in result["rows"]:
        if experts not in README_ROWS:
            continue
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


def model_of(case, folder):
    """Writes the headers of a deployment's checkpoint and returns its path."""
    model, path = case["model"], folder / ("model" if case["model"]["mix"] in FOLDERS else "model.gguf")
    command = [sys.executable, ROOT / "tests/placement/make_headers.py", path, "--mix", model["mix"]]
    for option in ("parts", "experts"):
        command += [f"--{option}", str(model[option])] if option in model else []
    subprocess.run(command, check=True, capture_output=True)
    return path if path.exists() else next(folder.glob("model-00001-of-*.gguf"))


def plan_options(case):
    """Returns the options of `minim plan` for a deployment, but for the model."""
    options = [word for device in case["devices"] for word in ("--device", f"'{device}'")] or ["--device", "none"]
    options += ["--host", f"'{case['host']}'"] if case["host"] else []
    options += ["-c", str(case["context"])]
    options += [word for option, kv in zip(("-ctk", "-ctv"), case["kv"]) if kv != "F16" for word in (option, kv)]
    options += ["-ot", f"'{case['overrides']}'"] if case["overrides"] else []
    return options + (["-ts", case["split"]] if case["split"] else [])


def recipe(minim, case, deployment):
    """Returns the section of a deployment, and its row of the first table."""
    name, heading, model, server_options, text = deployment
    options = plan_options(case) + re.findall(r"-tp|(?<=-tp )\d+", server_options)
    with tempfile.TemporaryDirectory() as folder:
        command = [minim, "plan", "-m", model_of(case, pathlib.Path(folder)), *(word.strip("'") for word in options)]
        plan = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        facts = json.loads(subprocess.run([*command, "--json"], check=True, capture_output=True, text=True).stdout)
    n_device_words = 2 * max(1, len(case["devices"]))
    devices = " ".join(options[:n_device_words])
    rest = " ".join(options[n_device_words:])
    server = f"minim-server -m {model} -c {case['context']} {server_options}\n" if facts["fits"] else ""
    section = (f"## {heading}\n\n{text}\n\n<!-- not run: needs the weights and the machine -->\n```sh\n"
               f"minim plan -m {model} \\\n    {devices} \\\n    {rest}\n{server}```\n\n```text\n{plan.rstrip()}\n```\n")
    figures = case.get("published", {})
    with_context = figures.get(f"decode_{case['context']}")
    published = f"{with_context} at this context" if with_context else figures.get("decode", "-")
    speed = f"{facts['decode_tokens_per_second']:.0f}" if facts["fits"] else "does not fit"
    return section, [f"[{heading}](#{anchor(heading)})", model, f"{case['context']:,}", speed, published]


def recipes_page(minim):
    cases = {case["name"]: case for case in json.loads((ROOT / "tests/placement/seeds.json").read_text(encoding="utf-8"))["cases"]} | OWN_CASES
    recipes = [recipe(minim, cases[deployment[0]], deployment) for deployment in DEPLOYMENTS]
    columns = ["deployment", "model", "context", "predicted", "published"]
    return "\n".join(["# Recipes\n\n<!-- Written by tools/make_documents.py from what `minim plan` says; do not edit. -->\n",
                      "Deployments that people have published for MiniMax-M2 models, with the command for minim and the plan that it makes. The plans are\n"
                      "predictions from the headers of such files: none of these machines has run minim yet. [Devices](devices.md) explains the options.\n",
                      "Predicted: tokens/s of one sequence whose context is full. Published: tokens/s that others report for other programs on such a\n"
                      "machine. Unless the table says otherwise, these are at short contexts of up to 11,000 tokens, where attention reads less.\n",
                      table(columns, [row for _, row in recipes]), *(section for section, _ in recipes)])


def wrapped(text):
    """Returns a paragraph in lines of at most 140 characters."""
    return "\n".join(textwrap.wrap(text, 140, break_long_words=False, break_on_hyphens=False))


def option_text(row):
    names = ", ".join(f"`{name}`" for name in row["names"] + row["opposite"])
    value = f" {row['value']}" if row["value"] else ""
    default = f" Default: {row['default']}." if row["default"] else ""
    commands = ", ".join(command.removeprefix("minim ") for command in row["commands"])
    return wrapped(f"- {names}{value}: {row['help']}.{default} Of {commands}.")


def options_page(minim):
    made = json.loads(subprocess.run([minim, "options", "--json"], check=True, capture_output=True, text=True).stdout)
    page = ["# Options\n\n<!-- Written by tools/make_documents.py from what `minim options` says; do not edit. -->\n",
            "The options of `minim`, its commands, and `minim-server`. An option is understood, or refused by its name, or the log says that it has no\n"
            "effect and why. Names are not abbreviated; underscores in long names count as hyphens. `--option=` is an option with an empty value.\n",
            "Each option may also be an environment variable or a line of a file. `--ctx-size` is `MINIM_CTX_SIZE`; an empty variable counts as not set,\n"
            "and the log names a variable that is nearly an option. `--config FILE` (`MINIM_CONFIG`) reads lines `ctx-size = 65536` or `c = 65536`;\n"
            "`#` begins a comment, `[minim]`, `[minim-server]` or `[chat]` a part for one program or command, `[*]` one for all, and `[\"a\", \"b\"]`\n"
            "are several values. The command line counts before the environment, the environment before the file.\n",
            "Counts of tokens may end in k (1000), K (1024), m, M, g or G, as in vLLM: `130k`. Sizes are 4GiB, 512M (of 1024) or 4GB (of 1000).\n"]
    for section in dict.fromkeys(row["section"] for row in made["options"]):
        rows = [row for row in made["options"] if row["section"] == section]
        page += [f"## {section}\n", "\n".join(option_text(row) for row in rows) + "\n"]
    for refused, heading in ((False, "Options of other programs without effect"), (True, "Options of other programs that are refused")):
        reasons = {}
        for row in made["of_others"]:
            if row["refused"] == refused:
                reasons.setdefault(row["reason"], []).extend(row["names"])
        page += [f"## {heading}\n", "Of llama.cpp, ik_llama.cpp, vLLM and SGLang.\n" if not refused else
                 "With the values 0, -1, none, off or false they ask for nothing, and have no effect.\n",
                 *(wrapped(f"{reason[0].upper()}{reason[1:]}: " + ", ".join(f"`{name}`" for name in names)) + "\n" for reason, names in reasons.items())]
    return "\n".join(page)


def with_tables(text, tables):
    for name, made in tables.items():
        pattern = re.compile(rf"(<!-- generated: {name} -->\n).*?(<!-- end -->\n)", re.DOTALL)
        if not pattern.search(text):
            sys.exit(f"README.md has no place for the table '{name}'")
        text = pattern.sub(lambda place, made=made: place[1] + "\n" + made + "\n" + place[2], text)
    return text


def documents_of_results():
    return {PERFORMANCE: performance_page(), HISTORY: history_page(), CHART: decode_chart()}


def documents(minim):
    readme = ROOT / "README.md"
    tables = {"fit": fit_table(minim), "peers": peers_table(), "gpu": gpu_table()}
    return {**documents_of_results(), RECIPES: recipes_page(minim), OPTIONS: options_page(minim),
            readme: with_tables(readme.read_text(encoding="utf-8"), tables)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minim", type=pathlib.Path, default=ROOT / "build/release/apps/minim/minim")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--page", action="store_true", help="only what is made from tests/bench/results alone: performance.md, history.md, decode.svg")
    args = parser.parse_args()
    differs = False
    made_documents = documents_of_results() if args.page else documents(args.minim)
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
