# SPDX-License-Identifier: Apache-2.0
"""Compare the goldens with llama.cpp: tokenization, greedy text and perplexity.

LLAMA_CPP must name a built source tree. Formats of ik_llama.cpp are left out.
"""

import argparse
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

EOS = "[e~["
GREEDY_TOKENS = 64
GREEDY_FORMATS = ("bf16", "q8_0")
PERPLEXITY_CHUNK = 256
THREADS = 2
# llama-perplexity sometimes exits before its last line is written.
PERPLEXITY_ATTEMPTS = 5
NOT_FOR_LLAMA = re.compile(r"imatrix|iq\d_k\.|mix-ik")


def run(*command: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a program and capture its output."""
    return subprocess.run([str(word) for word in command], capture_output=True, check=False)


def check_tokenizer(programs: Path, model: Path, golden: Path, scratch: Path) -> None:
    """Print the strings llama-tokenize splits differently; it cannot take empty strings and zero bytes."""
    cases = json.loads((golden / "tokenizer.json").read_text(encoding="utf-8"))
    different = []
    for case in cases:
        text = case["text"]
        if not text or "\0" in text:
            continue
        scratch.write_bytes(text.encode())
        options = ["--ids", "--no-bos", "--no-escape", "--log-disable"]
        output = run(programs / "llama-tokenize", "-m", model, "-f", scratch, *options).stdout.decode()
        if json.loads(output[output.rindex("[") :]) != case["ids"]:
            different.append(ascii(text)[:70])
    print(f"{golden} tokenizer: {len(different)} of {len(cases)} differ {different}")


def clean(text: str) -> str:
    """Greedy text without the end marks the tool adds."""
    return text.replace("[end of text]", "").replace(EOS, "").strip()


def check_greedy(programs: Path, ggufs: Path, golden: Path, scratch: Path) -> None:
    """Print for every prompt whether llama.cpp continues it alike."""
    for path in sorted((golden / "prompts").glob("*.json")):
        prompt = json.loads(path.read_text(encoding="utf-8"))
        scratch.write_bytes(prompt["text"].encode())
        verdicts = []
        for format_name in GREEDY_FORMATS:
            model = ggufs / f"minim-tiny-{format_name}.gguf"
            output = run(
                *(programs / "llama-completion", "-m", model, "-f", scratch),
                *("-n", GREEDY_TOKENS, "--temp", 0, "-t", THREADS),
                *("-no-cnv", "--no-display-prompt", "--special", "--no-escape", "--simple-io", "--no-warmup"),
            )
            text = clean(output.stdout.decode(errors="replace"))
            verdicts.append("same" if text == clean(prompt["greedy_text"]) else text[-120:])
        print(prompt["name"], verdicts, flush=True)


def measure_perplexity(program: Path, model: Path, text: Path) -> str | None:
    """The tool's final estimate."""
    for _ in range(PERPLEXITY_ATTEMPTS):
        result = run(program, "-m", model, "-f", text, "-c", PERPLEXITY_CHUNK, "-t", THREADS)
        output = (result.stderr + result.stdout).decode(errors="replace")
        estimate = re.search(r"Final estimate: PPL = ([\d.]+)", output)
        if estimate:
            return estimate[1]
    return None


def check_perplexity(programs: Path, ggufs: Path, golden: Path) -> None:
    """Print llama-perplexity's figure for every file it can read."""
    for model in sorted(ggufs.glob("*.gguf")):
        if NOT_FOR_LLAMA.search(model.name):
            continue
        estimate = measure_perplexity(programs / "llama-perplexity", model, golden / "perplexity.txt")
        print(f"{model.name} llama-perplexity -c {PERPLEXITY_CHUNK}: {estimate}", flush=True)


def main() -> None:
    """Check all given sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ggufs", type=Path, help="directory with the GGUF files")
    parser.add_argument("goldens", type=Path, nargs="+", help="golden sets")
    arguments = parser.parse_args()
    if "LLAMA_CPP" not in os.environ:
        parser.error("LLAMA_CPP must name a built source tree of llama.cpp")
    programs = Path(os.environ["LLAMA_CPP"]) / "build/bin"
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder) / "text"
        for golden in arguments.goldens:
            check_tokenizer(programs, arguments.ggufs / "minim-tiny-bf16.gguf", golden, scratch)
            check_greedy(programs, arguments.ggufs, golden, scratch)
            check_perplexity(programs, arguments.ggufs, golden)


if __name__ == "__main__":
    main()
