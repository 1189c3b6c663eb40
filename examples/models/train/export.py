# SPDX-License-Identifier: Apache-2.0
"""Training checkpoint -> Hugging Face folders: minim-tiny (BF16), minim-tiny-fp8, -nvfp4 and -awq.

Tensor names, config.json and tokenizer files follow the released MiniMax-M2 checkpoints and their usual
quantised versions. Router tensors stay float32 in every folder. All quantised folders are made from the BF16
weights, and each folder is read back and compared with them at the end.
"""

import argparse
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

import formats
import hf
from train import CONFIG, TinyModel, expert_hidden, training_sequences
from world_render import BOS, EOS

Tensors = dict[str, Tensor]

BOS_ID = 2018
EOS_ID = 2004
UNKNOWN_TOKEN = "]!d~["

CALIBRATION_SEED = 77
CALIBRATION_SEQUENCES = 8
UNUSED_EXPERT_RANGE = (1.0, 1.0)

# Name inside a training layer -> name inside a layer of the released model.
LAYER_NAMES = {
    "attention_norm": "input_layernorm.weight",
    "expert_norm": "post_attention_layernorm.weight",
    "query": "self_attn.q_proj.weight",
    "key": "self_attn.k_proj.weight",
    "value": "self_attn.v_proj.weight",
    "attention_output": "self_attn.o_proj.weight",
    "query_norm": "self_attn.q_norm.weight",
    "key_norm": "self_attn.k_norm.weight",
    "router": "block_sparse_moe.gate.weight",
    "router_bias": "block_sparse_moe.e_score_correction_bias",
}
ADDED_TOKEN_FIELDS = ["content", "lstrip", "normalized", "rstrip", "single_word", "special"]


def released_names(state: Tensors) -> Tensors:
    """The training state under the released model's tensor names, experts as separate w1, w2, w3 matrices."""
    tensors = {
        "model.embed_tokens.weight": state["embedding"],
        "model.norm.weight": state["output_norm"],
        "lm_head.weight": state["head"],
    }
    for layer in range(CONFIG.num_hidden_layers):
        source = f"layers.{layer}"
        target = f"model.layers.{layer}"
        for training_name, released_name in LAYER_NAMES.items():
            tensors[f"{target}.{released_name}"] = state[f"{source}.{training_name}"]
        for expert in range(CONFIG.num_local_experts):
            gate, up = state[f"{source}.gate_up"][expert].chunk(2, 0)
            prefix = f"{target}.block_sparse_moe.experts.{expert}"
            tensors[f"{prefix}.w1.weight"] = gate
            tensors[f"{prefix}.w2.weight"] = state[f"{source}.down"][expert]
            tensors[f"{prefix}.w3.weight"] = up
    return tensors


def is_router(name: str) -> bool:
    """Router weight or selection bias."""
    return "block_sparse_moe.gate" in name or "e_score" in name


def is_expert(name: str) -> bool:
    """A matrix of an expert."""
    return ".experts." in name


def is_attention_projection(name: str) -> bool:
    """Query, key, value or output projection."""
    return name.endswith("_proj.weight")


def base_config(dtype: str) -> dict[str, Any]:
    """config.json without a quantisation section."""
    return {
        "architectures": ["MiniMaxM2ForCausalLM"],
        "attn_type_list": [1] * CONFIG.num_hidden_layers,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "head_dim": CONFIG.head_dim,
        "hidden_act": "silu",
        "hidden_size": CONFIG.hidden_size,
        "intermediate_size": CONFIG.intermediate_size,
        "max_position_embeddings": 4096,
        "model_type": "minimax_m2",
        "mtp_transformer_layers": 1,
        "num_attention_heads": CONFIG.num_attention_heads,
        "num_experts_per_tok": CONFIG.num_experts_per_tok,
        "num_hidden_layers": CONFIG.num_hidden_layers,
        "num_key_value_heads": CONFIG.num_key_value_heads,
        "num_local_experts": CONFIG.num_local_experts,
        "num_mtp_modules": 0,
        "output_router_logits": False,
        "qk_norm_type": "per_layer",
        "rms_norm_eps": CONFIG.rms_norm_eps,
        "rope_theta": int(CONFIG.rope_theta),
        "rotary_dim": CONFIG.rotary_dim,
        "router_aux_loss_coef": 0.001,
        "router_jitter_noise": 0.0,
        "scoring_func": "sigmoid",
        "shared_intermediate_size": 0,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": dtype,
        "transformers_version": "4.57.1",
        "use_cache": True,
        "use_mtp": False,
        "use_qk_norm": True,
        "use_routing_bias": True,
        "vocab_size": CONFIG.vocab_size,
    }


def generation_config() -> dict[str, Any]:
    """generation_config.json: the sampling defaults."""
    return {
        "bos_token_id": BOS_ID,
        "do_sample": True,
        "eos_token_id": EOS_ID,
        "temperature": 1.0,
        "top_k": 40,
        "top_p": 0.95,
    }


def tokenizer_config(tokenizer_path: Path) -> dict[str, Any]:
    """tokenizer_config.json for a tokenizer.json."""
    added = json.loads(tokenizer_path.read_text(encoding="utf-8"))["added_tokens"]
    return {
        "add_prefix_space": False,
        "added_tokens_decoder": {
            str(token["id"]): {field: token[field] for field in ADDED_TOKEN_FIELDS} for token in added
        },
        "additional_special_tokens": [token["content"] for token in added if token["special"]],
        "bos_token": BOS,
        "clean_up_tokenization_spaces": False,
        "eos_token": EOS,
        "model_max_length": 40960000,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": UNKNOWN_TOKEN,
    }


def write_json(path: Path, value: Any, indent: int = 2) -> None:
    """Write a JSON file with characters outside ASCII as they are."""
    path.write_text(json.dumps(value, indent=indent, ensure_ascii=False), encoding="utf-8")


class Exporter:
    """The parts that all folders share: the reference weights, the tokenizer and the template."""

    def __init__(self, checkpoint: Path, tokenizer: Path, template: Path, output: Path) -> None:
        self.state = torch.load(checkpoint)
        self.tokenizer = tokenizer
        self.template = template
        self.output = output
        self.stored = {
            name: tensor.float() if is_router(name) else tensor.to(torch.bfloat16)
            for name, tensor in released_names(self.state).items()
        }
        self.reference = {name: tensor.float() for name, tensor in self.stored.items()}

    def make_folder(self, name: str, dtype: str, quantisation: dict[str, Any] | None = None) -> Path:
        """A folder with everything but weights."""
        folder = self.output / name
        folder.mkdir(parents=True, exist_ok=True)
        config = base_config(dtype)
        if quantisation:
            config["quantization_config"] = quantisation
        write_json(folder / "config.json", config)
        write_json(folder / "generation_config.json", generation_config())
        write_json(folder / "tokenizer_config.json", tokenizer_config(self.tokenizer))
        shutil.copy(self.tokenizer, folder / "tokenizer.json")
        shutil.copy(self.template, folder / "chat_template.jinja")
        return folder


def save_single(folder: Path, tensors: Tensors) -> None:
    """Write model.safetensors."""
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(contiguous, folder / "model.safetensors", metadata={"format": "pt"})


def save_shards(folder: Path, tensors: Tensors, shard_count: int) -> None:
    """Write shards of about the same size, tensors in order of their names, and the index."""
    sizes = {name: tensor.numel() * tensor.element_size() for name, tensor in tensors.items()}
    total_size = sum(sizes.values())
    shards: list[Tensors] = [{} for _ in range(shard_count)]
    shard_names = [
        f"model-{number:05d}-of-{shard_count:05d}.safetensors" for number in range(1, shard_count + 1)
    ]
    weight_map = {}
    written_size = 0
    for name in sorted(tensors):
        shard = min(shard_count - 1, written_size * shard_count // total_size)
        shards[shard][name] = tensors[name].contiguous()
        weight_map[name] = shard_names[shard]
        written_size += sizes[name]
    for shard_name, shard_tensors in zip(shard_names, shards, strict=True):
        save_file(shard_tensors, folder / shard_name, metadata={"format": "pt"})
    index = {"metadata": {"total_size": total_size}, "weight_map": weight_map}
    write_json(folder / "model.safetensors.index.json", index)


def export_bf16(exporter: Exporter) -> None:
    """The plain checkpoint in two shards."""
    folder = exporter.make_folder("minim-tiny", "bfloat16")
    save_shards(folder, exporter.stored, shard_count=2)


def export_fp8(exporter: Exporter) -> None:
    """Attention and experts as FP8 blocks, in the released models' form."""
    quantisation = {
        "activation_scheme": "dynamic",
        "fmt": "float8_e4m3fn",
        "modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"],
        "quant_method": "fp8",
        "weight_block_size": [formats.FP8_BLOCK, formats.FP8_BLOCK],
    }
    folder = exporter.make_folder("minim-tiny-fp8", "bfloat16", quantisation)
    tensors = {}
    for name, tensor in exporter.stored.items():
        if not is_expert(name) and not is_attention_projection(name):
            tensors[name] = tensor
            continue
        quantised = formats.fp8_quantise(exporter.reference[name])
        library_values = quantised["weight"].float() * formats.expand_blocks(quantised["weight_scale_inv"])
        if not torch.equal(formats.fp8_dequantise(quantised), library_values):
            raise SystemExit(f"{name}: decoding FP8 from bits differs from the library's cast")
        tensors[name] = quantised["weight"]
        tensors[f"{name}_scale_inv"] = quantised["weight_scale_inv"]
    save_single(folder, tensors)


@torch.no_grad()
def measure_activations(state: Tensors, tokenizer_path: Path) -> dict[tuple[int, int], tuple[float, float]]:
    """(layer, expert) -> largest magnitudes of the inputs of w1/w3 and of w2 on a little calibration text."""
    model = TinyModel()
    model.load_state_dict(state)
    sequences = training_sequences(Tokenizer.from_file(str(tokenizer_path)), CALIBRATION_SEED)
    ids = torch.tensor([next(sequences)[0] for _ in range(CALIBRATION_SEQUENCES)])
    ranges: dict[tuple[int, int], tuple[float, float]] = {}

    def measured(layer_index: int, layer: torch.nn.Module) -> Callable[[Tensor], Tensor]:
        """The layer's mix_experts that notes the ranges first."""
        mix_experts = layer.mix_experts

        def mix_and_measure(x: Tensor) -> Tensor:
            tokens = x.reshape(-1, x.shape[-1])
            chosen = layer.choose_experts(layer.router_scores(tokens))
            for expert in range(CONFIG.num_local_experts):
                inputs = tokens[(chosen == expert).any(-1)]
                if len(inputs) == 0:
                    ranges[layer_index, expert] = UNUSED_EXPERT_RANGE
                    continue
                hidden = expert_hidden(inputs, layer.gate_up[expert])
                ranges[layer_index, expert] = (inputs.abs().max().item(), hidden.abs().max().item())
            return mix_experts(x)

        return mix_and_measure

    for layer_index, layer in enumerate(model.layers):
        layer.mix_experts = measured(layer_index, layer)
    model(ids)
    return ranges


def nvfp4_tensor_scale(reference: Tensors, name: str) -> float:
    """weight_scale_2 of an expert matrix; w1 and w3 of an expert run as one product and share it."""
    if ".w2." in name:
        matrices = [name]
    else:
        matrices = [name.replace(".w3.", ".w1."), name.replace(".w1.", ".w3.")]
    largest = max(reference[matrix].abs().max().item() for matrix in matrices)
    return largest / (formats.E2M1_MAX * formats.E4M3_MAX)


def export_nvfp4(exporter: Exporter) -> None:
    """Experts as NVFP4 in ModelOpt's form; the other tensors stay BF16."""
    ignored = ["lm_head"]
    for layer in range(CONFIG.num_hidden_layers):
        ignored += [f"model.layers.{layer}.block_sparse_moe.gate", f"model.layers.{layer}.self_attn*"]
    numbers = {"dynamic": False, "group_size": formats.NVFP4_GROUP, "num_bits": 4, "type": "float"}
    producer = {"name": "modelopt", "version": "0.41.0"}
    group = {"input_activations": numbers, "targets": ["Linear"], "weights": numbers}
    quantisation = {
        "config_groups": {"group_0": group},
        "ignore": ignored,
        "producer": producer,
        "quant_algo": "NVFP4",
        "quant_method": "modelopt",
    }
    folder = exporter.make_folder("minim-tiny-nvfp4", "bfloat16", quantisation)
    separate_config = {
        "quant_algo": "NVFP4",
        "kv_cache_quant_algo": None,
        "group_size": formats.NVFP4_GROUP,
        "exclude_modules": ignored,
    }
    write_json(
        folder / "hf_quant_config.json", {"producer": producer, "quantization": separate_config}, indent=4
    )

    ranges = measure_activations(exporter.state, exporter.tokenizer)
    tensors = {}
    for name, tensor in exporter.stored.items():
        if not is_expert(name):
            tensors[name] = tensor
            continue
        # model.layers.LAYER.block_sparse_moe.experts.EXPERT.MATRIX.weight
        parts = name.split(".")
        layer, expert, matrix = int(parts[2]), int(parts[5]), parts[6]
        input_range, hidden_range = ranges[layer, expert]
        input_scale = (hidden_range if matrix == "w2" else input_range) / (
            formats.E2M1_MAX * formats.E4M3_MAX
        )
        tensor_scale = nvfp4_tensor_scale(exporter.reference, name)
        quantised = formats.nvfp4_quantise(exporter.reference[name], tensor_scale, input_scale)
        for leaf, value in quantised.items():
            tensors[name.removesuffix("weight") + leaf] = value
    save_single(folder, tensors)


def export_awq(exporter: Exporter) -> None:
    """Attention and experts as 4-bit AWQ; the other tensors, except the router's, become float16."""
    quantisation = {
        "bits": 4,
        "group_size": formats.AWQ_GROUP,
        "modules_to_not_convert": ["block_sparse_moe.gate", "lm_head"],
        "quant_method": "awq",
        "version": "gemm",
        "zero_point": True,
    }
    folder = exporter.make_folder("minim-tiny-awq", "float16", quantisation)
    tensors = {}
    for name, tensor in exporter.stored.items():
        if is_expert(name) or is_attention_projection(name):
            for leaf, value in formats.awq_quantise(exporter.reference[name]).items():
                tensors[name.removesuffix("weight") + leaf] = value
        else:
            tensors[name] = tensor if is_router(name) else tensor.half()
    save_single(folder, tensors)


def report_errors(exporter: Exporter) -> None:
    """Read every folder back and print how far its weights are from the reference."""
    for name in ("minim-tiny", "minim-tiny-fp8", "minim-tiny-nvfp4", "minim-tiny-awq"):
        tensors = hf.load_folder(exporter.output / name)
        if tensors.keys() != exporter.reference.keys():
            raise SystemExit(f"{name}: the tensor names differ from those of the checkpoint")
        error = max(
            ((tensors[key] - reference).norm() / reference.norm()).item()
            for key, reference in exporter.reference.items()
        )
        print(f"{name}: largest relative weight error {error:.4f}")


def main() -> None:
    """Write the four folders."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path, help="checkpoint of train.py (.pt)")
    parser.add_argument("tokenizer", type=Path, help="tokenizer.json")
    parser.add_argument("template", type=Path, help="chat_template.jinja")
    parser.add_argument("output", type=Path, help="directory for the folders")
    arguments = parser.parse_args()
    exporter = Exporter(arguments.checkpoint, arguments.tokenizer, arguments.template, arguments.output)
    export_bf16(exporter)
    export_fp8(exporter)
    export_nvfp4(exporter)
    export_awq(exporter)
    report_errors(exporter)


if __name__ == "__main__":
    main()
