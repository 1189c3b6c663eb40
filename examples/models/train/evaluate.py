# SPDX-License-Identifier: Apache-2.0
"""Greedy accuracy per category on questions never seen in training, with the float32 reference model.

An answer counts when the text after `</think>` is exactly the expected one.
"""

import argparse
import random
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer
from transformers.models.minimax_m2 import MiniMaxM2ForCausalLM

import hf
from world_conversations import PERSONAL_FACTS, Message, memory_conversation, tool_messages, user_message
from world_questions import SKILLS, Exchange, draw_exchange
from world_render import EOS, OUTPUT_WEIGHT, render
from world_tools import TOOL_SKILLS, TOOLS, ask_without_tool

EOS_ID = 2004
PADDING_ID = 0
CASES_SEED = 99
MAX_NEW_TOKENS = 90
CPU_THREADS = 2
THINK_START = "<think>\n"


class Case(NamedTuple):
    """A prompt that ends with THINK_START and what should follow it."""

    prompt: str
    expected: str


Cases = dict[str, list[Case]]


def prompt_text(messages: list[Message], tools: list[dict[str, Any]] | None = None) -> str:
    """The prompt for the next assistant message."""
    segments = render(messages, tools, add_generation_prompt=True)
    return "".join(segment.text for segment in segments)


def expected_text(thought: str, answer: str) -> str:
    """Returns the text after THINK_START."""
    return f"{thought}\n</think>\n\n{answer}"


def exchange_case(exchange: Exchange) -> Case:
    """A case from a single question."""
    prompt = prompt_text([user_message(exchange.question)])
    return Case(prompt, expected_text(exchange.thought, exchange.answer))


def memory_case(rng: random.Random) -> Case:
    """A personal fact told some questions ago."""
    fact = rng.randrange(len(PERSONAL_FACTS))
    messages = memory_conversation(rng, only_fact=fact).messages
    question = max(index for index, message in enumerate(messages) if message["role"] == "user")
    answer = messages[question + 1]
    return Case(
        prompt_text(messages[: question + 1]), expected_text(answer["reasoning_content"], answer["content"])
    )


def add_tool_cases(rng: random.Random, tool_name: str, cases: Cases) -> None:
    """The call and the answer of one tool exchange, with up to two other tools offered in random order."""
    exchange = rng.choice(TOOL_SKILLS[tool_name])(rng)
    other_names = rng.sample(list(TOOLS), rng.randint(0, 2))
    names = sorted({tool_name, *other_names})
    rng.shuffle(names)
    tools = [TOOLS[name] for name in names]
    messages = tool_messages(exchange)

    written = [segment.text for segment in render(messages[:2], tools) if segment.weight == OUTPUT_WEIGHT]
    call = "".join(written).replace(THINK_START, "", 1).replace(EOS, "")
    cases.setdefault(f"tool_call:{exchange.category}", []).append(
        Case(prompt_text(messages[:1], tools), call)
    )
    answer = expected_text(exchange.answer_thought, exchange.answer)
    cases.setdefault(f"tool_answer:{exchange.category}", []).append(
        Case(prompt_text(messages[:-1], tools), answer)
    )


def make_cases(count: int) -> Cases:
    """`count` held-out cases a category (tool categories share theirs)."""
    rng = random.Random(CASES_SEED)
    cases: Cases = {}
    for skill, _ in SKILLS:
        for _ in range(count):
            exchange = draw_exchange(rng, held_out=True, skill=skill)
            cases.setdefault(exchange.category, []).append(exchange_case(exchange))
    for _ in range(count):
        cases.setdefault("memory", []).append(memory_case(rng))
        cases.setdefault("no_tool", []).append(exchange_case(ask_without_tool(rng)))
        for tool_name in TOOL_SKILLS:
            add_tool_cases(rng, tool_name, cases)
    return cases


@torch.no_grad()
def generate(model: MiniMaxM2ForCausalLM, prompts: list[list[int]]) -> list[list[int]]:
    """Greedy continuations of all prompts as one batch, padded on the left; EOS is left out."""
    length = max(len(prompt) for prompt in prompts)
    padding = [length - len(prompt) for prompt in prompts]
    step_input = torch.tensor(
        [[PADDING_ID] * pad + prompt for pad, prompt in zip(padding, prompts, strict=True)]
    )
    mask = torch.tensor([[0] * pad + [1] * len(prompt) for pad, prompt in zip(padding, prompts, strict=True)])
    outputs: list[list[int]] = [[] for _ in prompts]
    finished = [False] * len(prompts)
    cache = None
    for _ in range(MAX_NEW_TOKENS):
        positions = (mask.cumsum(1) - 1).clamp_min(0)[:, -step_input.shape[1] :]
        result = model(
            input_ids=step_input,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        cache = result.past_key_values
        next_ids = result.logits[:, -1].argmax(-1)
        for index, next_id in enumerate(next_ids.tolist()):
            if finished[index]:
                continue
            finished[index] = next_id == EOS_ID
            if not finished[index]:
                outputs[index].append(next_id)
        if all(finished):
            break
        step_input = next_ids[:, None]
        mask = torch.cat([mask, torch.ones(len(prompts), 1, dtype=mask.dtype)], 1)
    return outputs


def final_answer(text: str) -> str:
    """The text after the thought."""
    return text.split("</think>")[-1].strip()


def evaluate(folder: Path, count: int) -> None:
    """Print the accuracy of every category with an example of a wrong answer."""
    torch.set_num_threads(CPU_THREADS)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    model = hf.build_model(hf.load_folder(folder), folder)
    model.config._attn_implementation = "sdpa"
    correct_total = 0
    total = 0
    for category, cases in make_cases(count).items():
        outputs = generate(model, [tokenizer.encode(case.prompt).ids for case in cases])
        texts = [tokenizer.decode(output, skip_special_tokens=False) for output in outputs]
        wrong = [
            f"{text!r}, expected {final_answer(case.expected)!r}"
            for text, case in zip(texts, cases, strict=True)
            if final_answer(text) != final_answer(case.expected)
        ]
        correct = len(cases) - len(wrong)
        correct_total += correct
        total += len(cases)
        example = f"   e.g. {wrong[0]}" if wrong else ""
        print(f"{category:28s} {correct:3d}/{len(cases)}{example}", flush=True)
    print(f"{'total':28s} {correct_total}/{total}")


def main() -> None:
    """Read the arguments and evaluate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="a checkpoint folder, quantised or not")
    parser.add_argument("--count", type=int, default=40, help="questions a category")
    arguments = parser.parse_args()
    evaluate(arguments.folder, arguments.count)


if __name__ == "__main__":
    main()
