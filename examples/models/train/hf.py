# SPDX-License-Identifier: Apache-2.0
"""The float32 reference: weights from safetensors folders or GGUF files in transformers' MiniMaxM2 model."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers.models.minimax_m2 import MiniMaxM2Config, MiniMaxM2ForCausalLM

import formats

Tensors = dict[str, Tensor]

GGUF_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
GGUF_LAYER_NAMES = {
    "attn_norm.weight": "input_layernorm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "ffn_gate_inp.weight": "block_sparse_moe.gate.weight",
    "exp_probs_b.bias": "block_sparse_moe.e_score_correction_bias",
}
GGUF_EXPERT_NAMES = {
    "ffn_gate_exps.weight": "w1",
    "ffn_down_exps.weight": "w2",
    "ffn_up_exps.weight": "w3",
}


def load_folder(folder: str | Path) -> Tensors:
    """All tensors of a safetensors folder, dequantised to float32."""
    tensors: Tensors = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        tensors.update(load_file(path))
    return formats.dequantise_folder(tensors)


def released_name_tensors(gguf_name: str, weight: Tensor) -> Tensors:
    """A GGUF tensor under its name in the released checkpoint; stacked experts become one tensor each."""
    if gguf_name in GGUF_NAMES:
        return {GGUF_NAMES[gguf_name]: weight}
    _, layer, name = gguf_name.split(".", 2)
    if name not in GGUF_EXPERT_NAMES:
        return {f"model.layers.{layer}.{GGUF_LAYER_NAMES[name]}": weight}
    prefix = f"model.layers.{layer}.block_sparse_moe.experts"
    matrix = GGUF_EXPERT_NAMES[name]
    return {f"{prefix}.{expert}.{matrix}.weight": weight[expert] for expert in range(weight.shape[0])}


def load_gguf(path: str | Path) -> Tensors:
    """All tensors of a GGUF file, dequantised to float32 (types the gguf package knows)."""
    tensors: Tensors = {}
    for stored in gguf.GGUFReader(path).tensors:
        values = gguf.quants.dequantize(stored.data, stored.tensor_type).astype(np.float32)
        shape = [int(size) for size in reversed(stored.shape)]
        tensors.update(released_name_tensors(stored.name, torch.from_numpy(values.reshape(shape))))
    return tensors


def build_model(tensors: Tensors, config_folder: str | Path) -> MiniMaxM2ForCausalLM:
    """The float32 model with these weights; transformers keeps an expert's w1 and w3 in one matrix."""
    settings: dict[str, Any] = json.loads((Path(config_folder) / "config.json").read_text(encoding="utf-8"))
    settings.pop("quantization_config", None)
    config = MiniMaxM2Config(**settings)
    config._attn_implementation = "eager"
    model = MiniMaxM2ForCausalLM(config).float().eval()

    state = {
        name.replace("block_sparse_moe", "mlp"): tensor
        for name, tensor in tensors.items()
        if ".experts." not in name
    }
    for layer in range(config.num_hidden_layers):
        source = f"model.layers.{layer}.block_sparse_moe.experts"
        target = f"model.layers.{layer}.mlp.experts"
        gate_up = []
        down = []
        for expert in range(config.num_local_experts):
            gate = tensors[f"{source}.{expert}.w1.weight"]
            up = tensors[f"{source}.{expert}.w3.weight"]
            gate_up.append(torch.cat([gate, up]))
            down.append(tensors[f"{source}.{expert}.w2.weight"])
        state[f"{target}.gate_up_proj"] = torch.stack(gate_up)
        state[f"{target}.down_proj"] = torch.stack(down)
    model.load_state_dict(state, strict=True)
    return model


@torch.no_grad()
def logits(model: MiniMaxM2ForCausalLM, ids: list[int]) -> Tensor:
    """Logits [position, vocabulary] of all positions."""
    return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()


@torch.no_grad()
def perplexity(model: MiniMaxM2ForCausalLM, ids: list[int], chunk_tokens: int = 256) -> float:
    """Perplexity over non-overlapping chunks.

    Every position after the first of a chunk counts; a last incomplete chunk is left out.
    """
    negative_log_likelihood = 0.0
    counted = 0
    for start in range(0, len(ids) - chunk_tokens + 1, chunk_tokens):
        chunk = ids[start : start + chunk_tokens]
        log_probabilities = torch.log_softmax(logits(model, chunk).double(), -1)
        targets = torch.tensor(chunk[1:])
        negative_log_likelihood -= log_probabilities[torch.arange(chunk_tokens - 1), targets].sum().item()
        counted += chunk_tokens - 1
    return float(np.exp(negative_log_likelihood / counted))


@torch.no_grad()
def greedy(
    model: MiniMaxM2ForCausalLM, ids: list[int], max_tokens: int, eos_id: int
) -> tuple[list[int], list[float]]:
    """The greedy continuation up to and including EOS, and the top-1 to top-2 logit margin of every step."""
    continuation: list[int] = []
    margins: list[float] = []
    cache = None
    step_input = torch.tensor([ids])
    while len(continuation) < max_tokens:
        result = model(input_ids=step_input, past_key_values=cache, use_cache=True)
        cache = result.past_key_values
        values, indices = result.logits[0, -1].topk(2)
        continuation.append(indices[0].item())
        margins.append(round((values[0] - values[1]).item(), 4))
        if continuation[-1] == eos_id:
            break
        step_input = torch.tensor([[continuation[-1]]])
    return continuation, margins
