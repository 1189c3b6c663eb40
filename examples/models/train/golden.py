# SPDX-License-Identifier: Apache-2.0
"""Write the goldens the tests compare with.

They are prompt logits, greedy continuations, logits and perplexity of every format, tokenizer cases and
chat-template cases.

Two disjoint sets of the same format are written, so that one can be kept for a check nobody tuned against.
README.md describes the files. GGUF types of ik_llama.cpp are covered only when IK_LLAMA_CPP names its built
source tree: its llama-quantize expands them to float32 files the gguf package can read.
"""

import argparse
import json
import os
import random
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers.models.minimax_m2 import MiniMaxM2ForCausalLM

import hf
from golden_prompts import PROMPT_SETS
from golden_strings import tokenizer_strings
from golden_templates import load_template, render_cases
from world_conversations import Conversation
from world_texts import fact_text, story

EOS_ID = 2004
MAX_GREEDY_TOKENS = 64
CPU_THREADS = 2
PERPLEXITY_SEED = 1000
PERPLEXITY_TEXTS = 110
STRINGS_SEED = 31
# The prompt whose layer-wise values are written, by position.
LAYERS_PROMPT = 1
GREEDY_FORMATS = ("q8_0", "q4_k_m", "fp8", "nvfp4", "awq")
FOLDER_FORMATS = ("fp8", "nvfp4", "awq")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file in ASCII."""
    path.write_text(json.dumps(value, indent=1, ensure_ascii=True), encoding="ascii")


def perplexity_text(set_number: int) -> str:
    """Stories and facts, one a line."""
    rng = random.Random(PERPLEXITY_SEED + set_number)
    lines = [story(rng) if rng.random() < 0.7 else fact_text(rng) for _ in range(PERPLEXITY_TEXTS)]
    return "\n".join(lines)


def without_added_tokens(tokenizer_path: Path) -> Tokenizer:
    """The tokenizer that takes the text of added tokens for ordinary text."""
    description = json.loads(tokenizer_path.read_text(encoding="utf-8"))
    description["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(description))


def tokenizer_cases(tokenizer: Tokenizer, bare_tokenizer: Tokenizer, set_number: int) -> list[dict[str, Any]]:
    """Strings with their ids; refuses to write a string that does not survive the round trip."""
    cases = []
    for text in tokenizer_strings(STRINGS_SEED + set_number):
        ids = tokenizer.encode(text).ids
        if tokenizer.decode(ids, skip_special_tokens=False) != text:
            raise SystemExit(f"the tokenizer does not decode {text!r} to itself")
        cases.append({"text": text, "ids": ids, "ids_no_added_tokens": bare_tokenizer.encode(text).ids})
    return cases


def needs_ik_llama(format_name: str) -> bool:
    """Returns whether the format has types that only ik_llama.cpp knows: iq2_k ... iq6_k and their mix."""
    return format_name == "mix-ik" or (format_name.startswith("iq") and format_name.endswith("_k"))


def load_with_ik_llama(path: Path, ik_llama: str) -> hf.Tensors:
    """The tensors of a GGUF file, expanded to float32 by ik_llama.cpp."""
    with tempfile.TemporaryDirectory() as folder:
        unpacked = Path(folder) / "expanded.gguf"
        program = f"{ik_llama}/build/bin/llama-quantize"
        subprocess.run(
            [program, "--allow-requantize", str(path), str(unpacked), "F32", "1"],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return hf.load_gguf(unpacked)


def quantised_models(checkpoint: Path, gguf_folder: Path) -> Iterator[tuple[str, MiniMaxM2ForCausalLM]]:
    """(format name, float32 model on the exactly dequantised weights) for every GGUF file and folder."""
    ik_llama = os.environ.get("IK_LLAMA_CPP")
    for path in sorted(gguf_folder.glob("minim-tiny-*.gguf")):
        format_name = path.stem.removeprefix("minim-tiny-")
        if not needs_ik_llama(format_name):
            yield format_name, hf.build_model(hf.load_gguf(path), checkpoint)
        elif ik_llama:
            yield format_name, hf.build_model(load_with_ik_llama(path, ik_llama), checkpoint)
    for format_name in FOLDER_FORMATS:
        folder = checkpoint.with_name(f"{checkpoint.name}-{format_name}")
        yield format_name, hf.build_model(hf.load_folder(folder), checkpoint)


def write_layer_values(model: MiniMaxM2ForCausalLM, ids: list[int], target: Path) -> None:
    """Write the residual stream after each layer, the chosen experts and their weights.

    `target` is the path without its ending; experts are written in ascending order.
    """
    residuals: list[Tensor] = []
    routings: list[tuple[Tensor, ...]] = []

    def note_residual(module, inputs, output) -> None:
        """Hook of a layer."""
        residuals.append(output[0] if output.dim() == 3 else output)

    def note_routing(module, inputs, output) -> None:
        """Hook of a router."""
        routings.append(output)

    hooks = []
    for layer in model.model.layers:
        hooks.append(layer.register_forward_hook(note_residual))
        hooks.append(layer.mlp.gate.register_forward_hook(note_routing))
    hf.logits(model, ids)
    for hook in hooks:
        hook.remove()

    experts = []
    weights = []
    for _, chosen_weights, chosen_experts in routings:
        ascending, order = chosen_experts.sort(-1)
        experts.append(ascending)
        weights.append(chosen_weights.gather(1, order))
    np.save(f"{target}.layers.npy", torch.stack(residuals).numpy())
    np.save(f"{target}.experts.npy", torch.stack(experts).numpy().astype(np.int32))
    np.save(f"{target}.expert_weights.npy", torch.stack(weights).numpy())


class GoldenSet:
    """One set while it is written: its folder, the prompts with their reference values, the growing index."""

    def __init__(self, set_number: int, folder: Path, tokenizer: Tokenizer) -> None:
        self.set_number = set_number
        self.folder = folder
        self.tokenizer = tokenizer
        self.prompt_ids: dict[str, list[int]] = {}
        self.last_logits: dict[str, Tensor] = {}
        self.perplexity_ids: list[int] = []
        self.index: dict[str, Any] = {"prompts": [], "layers_of": None, "formats": {}}
        (folder / "prompts").mkdir(parents=True, exist_ok=True)
        (folder / "quant").mkdir(parents=True, exist_ok=True)

    def write_texts(self, template: jinja2.Template, bare_tokenizer: Tokenizer) -> None:
        """Write everything that needs no model: perplexity text, tokenizer and template cases."""
        text = perplexity_text(self.set_number)
        (self.folder / "perplexity.txt").write_text(text, encoding="utf-8")
        self.perplexity_ids = self.tokenizer.encode(text).ids
        cases = tokenizer_cases(self.tokenizer, bare_tokenizer, self.set_number)
        write_json(self.folder / "tokenizer.json", cases)
        write_json(self.folder / "chat_template.json", render_cases(template, self.set_number))

    def write_prompt(
        self,
        name: str,
        prompt: str | Conversation,
        template: jinja2.Template,
        reference: MiniMaxM2ForCausalLM,
    ) -> None:
        """Write a prompt with its logits and its greedy continuation."""
        golden: dict[str, Any] = {"name": name}
        if isinstance(prompt, str):
            golden["text"] = prompt
        else:
            golden["messages"] = prompt.messages
            golden["tools"] = prompt.tools
            golden["text"] = template.render(
                messages=prompt.messages, tools=prompt.tools, add_generation_prompt=True
            )
        ids = self.tokenizer.encode(golden["text"]).ids
        logits = hf.logits(reference, ids)
        greedy_ids, margins = hf.greedy(reference, ids, MAX_GREEDY_TOKENS, EOS_ID)
        golden["ids"] = ids
        golden["greedy_ids"] = greedy_ids
        golden["greedy_margins"] = margins
        golden["greedy_text"] = self.tokenizer.decode(greedy_ids, skip_special_tokens=False)
        golden["stopped"] = greedy_ids[-1] == EOS_ID
        golden["logits_file"] = f"prompts/{name}.npy"
        np.save(self.folder / golden["logits_file"], logits.numpy())
        write_json(self.folder / "prompts" / f"{name}.json", golden)
        self.prompt_ids[name] = ids
        self.last_logits[name] = logits[-1]
        print(f"{self.folder} {name}: {len(ids)} tokens, {golden['greedy_text']!r}, margin {min(margins)}")

    def write_prompts(self, template: jinja2.Template, reference: MiniMaxM2ForCausalLM) -> None:
        """Write all prompts, and the layer-wise values of one."""
        for name, prompt in PROMPT_SETS[self.set_number].items():
            self.write_prompt(name, prompt, template, reference)
        names = list(self.prompt_ids)
        layers_of = names[LAYERS_PROMPT]
        write_layer_values(reference, self.prompt_ids[layers_of], self.folder / "prompts" / layers_of)
        self.index["prompts"] = names
        self.index["layers_of"] = layers_of

    def mean_divergence(self, logits: Tensor) -> float:
        """Mean KL(reference || format) of the prompts' last positions; `logits` is [prompt, vocabulary]."""
        divergences = []
        for format_logits, reference_logits in zip(logits, self.last_logits.values(), strict=True):
            divergence = torch.nn.functional.kl_div(
                torch.log_softmax(format_logits, -1),
                torch.log_softmax(reference_logits, -1),
                log_target=True,
                reduction="sum",
            )
            divergences.append(divergence.item())
        return sum(divergences) / len(divergences)

    def write_format(self, format_name: str, model: MiniMaxM2ForCausalLM) -> None:
        """Write what one format gives and add it to the index."""
        logits_file = f"quant/{format_name}.npy"
        logits = torch.stack([hf.logits(model, ids)[-1] for ids in self.prompt_ids.values()])
        np.save(self.folder / logits_file, logits.numpy())
        entry: dict[str, Any] = {
            "logits_file": logits_file,
            "perplexity": round(hf.perplexity(model, self.perplexity_ids), 5),
            "mean_kl_to_reference": round(self.mean_divergence(logits), 6),
        }
        if format_name in GREEDY_FORMATS:
            entry["greedy_ids"] = [
                hf.greedy(model, ids, MAX_GREEDY_TOKENS, EOS_ID)[0] for ids in self.prompt_ids.values()
            ]
        self.index["formats"][format_name] = entry
        write_json(self.folder / "index.json", self.index)
        print(
            f"{self.folder} {format_name}: perplexity {entry['perplexity']}, "
            f"KL {entry['mean_kl_to_reference']}",
            flush=True,
        )


def main() -> None:
    """Write the sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, help="directory with the minim-tiny folders")
    parser.add_argument("ggufs", type=Path, help="directory with the GGUF files")
    parser.add_argument("outputs", type=Path, nargs="+", help="one or two directories, one for each set")
    arguments = parser.parse_args()
    if len(arguments.outputs) > len(PROMPT_SETS):
        parser.error(f"there are only {len(PROMPT_SETS)} sets")
    torch.set_num_threads(CPU_THREADS)

    checkpoint = arguments.models / "minim-tiny"
    tokenizer_path = checkpoint / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(tokenizer_path))
    bare_tokenizer = without_added_tokens(tokenizer_path)
    template = load_template(checkpoint / "chat_template.jinja")
    reference = hf.build_model(hf.load_folder(checkpoint), checkpoint)

    sets = [GoldenSet(number, folder, tokenizer) for number, folder in enumerate(arguments.outputs)]
    for golden_set in sets:
        golden_set.write_texts(template, bare_tokenizer)
        golden_set.write_prompts(template, reference)
        golden_set.write_format("reference", reference)
    for format_name, model in quantised_models(checkpoint, arguments.ggufs):
        for golden_set in sets:
            golden_set.write_format(format_name, model)


if __name__ == "__main__":
    main()
