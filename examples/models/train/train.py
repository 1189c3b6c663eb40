# SPDX-License-Identifier: Apache-2.0
"""Train minim-tiny on the synthetic world.

The learning rate follows elapsed time, so a run always ends within its budget; a new run therefore gives a
similar, not an identical, model. A run can continue from the checkpoint of an earlier one.
"""

import argparse
import dataclasses
import math
import random
import time
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn

import world
from world_texts import story

SEQUENCE_TOKENS = 384
SHORT_REMAINDER_TOKENS = 40

CPU_THREADS = 2
WARMUP_STEPS = 40
DECAY_START = 0.3
MIN_RATE_FACTOR = 0.01
BATCH_GROWTH_START = 0.6
SMALL_BATCH = 5
LARGE_BATCH = 8
BIAS_FREEZE_START = 0.8
BIAS_STEP = 1e-3
BALANCE_LOSS_WEIGHT = 0.003
MAX_GRADIENT_NORM = 1.0
WEIGHT_DECAY = 0.1
REPORT_EVERY_STEPS = 25
SAVE_EVERY_STEPS = 100


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The shape of the model; the names are those of the released model's config.json where it has them."""

    vocab_size: int = 2048
    hidden_size: int = 256
    num_hidden_layers: int = 3
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 128
    rotary_dim: int = 64
    num_local_experts: int = 8
    num_experts_per_tok: int = 2
    intermediate_size: int = 256
    rope_theta: float = 5e6
    rms_norm_eps: float = 1e-6


CONFIG = ModelConfig()


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """RMS normalisation over the last dimension."""
    return F.rms_norm(x, weight.shape, weight, CONFIG.rms_norm_eps)


def normal_parameter(*shape: int, std: float = 0.04) -> nn.Parameter:
    """A parameter drawn from a normal distribution around zero."""
    return nn.Parameter(torch.randn(*shape) * std)


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary embedding of the first 2h dimensions in pairs (i, i + h) of tables of width h; others pass."""
    half = cosine.shape[-1]
    first = x[..., :half]
    second = x[..., half : 2 * half]
    untouched = x[..., 2 * half :]
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine, untouched], -1)


def expert_hidden(tokens: Tensor, gate_up: Tensor) -> Tensor:
    """The input of an expert's down projection: silu(gate) * up."""
    gate, up = (tokens @ gate_up.T).chunk(2, -1)
    return F.silu(gate) * up


class Layer(nn.Module):
    """One decoder layer: grouped-query attention with QK-norm, then a mixture of experts.

    `load` (share of the assignments each expert got) and `balance_loss` describe the last forward pass.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        hidden = config.hidden_size
        query_size = config.num_attention_heads * config.head_dim
        key_size = config.num_key_value_heads * config.head_dim
        experts = config.num_local_experts
        width = config.intermediate_size
        depth_scale = math.sqrt(2 * config.num_hidden_layers)

        self.config = config
        self.attention_norm = nn.Parameter(torch.ones(hidden))
        self.expert_norm = nn.Parameter(torch.ones(hidden))
        self.query = normal_parameter(query_size, hidden)
        self.key = normal_parameter(key_size, hidden)
        self.value = normal_parameter(key_size, hidden)
        self.attention_output = normal_parameter(hidden, query_size, std=0.03 / depth_scale)
        self.query_norm = nn.Parameter(torch.ones(query_size))
        self.key_norm = nn.Parameter(torch.ones(key_size))
        self.router = normal_parameter(experts, hidden)
        self.gate_up = normal_parameter(experts, 2 * width, hidden)
        self.down = normal_parameter(experts, hidden, width, std=0.04 / depth_scale)
        self.register_buffer("router_bias", (torch.rand(experts) - 0.5) * 0.3)
        self.load: Tensor | None = None
        self.balance_loss: Tensor | None = None

    def split_heads(self, x: Tensor, heads: int) -> Tensor:
        """[batch, position, heads * head_dim] -> [batch, heads, position, head_dim]."""
        batch, positions, _ = x.shape
        return x.view(batch, positions, heads, -1).transpose(1, 2)

    def attend(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """Causal self-attention; each KV head serves a group of query heads."""
        config = self.config
        batch, positions, _ = x.shape
        query = self.split_heads(rms_norm(x @ self.query.T, self.query_norm), config.num_attention_heads)
        key = self.split_heads(rms_norm(x @ self.key.T, self.key_norm), config.num_key_value_heads)
        value = self.split_heads(x @ self.value.T, config.num_key_value_heads)
        group = config.num_attention_heads // config.num_key_value_heads
        mixed = F.scaled_dot_product_attention(
            rotate(query, cosine, sine),
            rotate(key, cosine, sine).repeat_interleave(group, 1),
            value.repeat_interleave(group, 1),
            is_causal=True,
        )
        return mixed.transpose(1, 2).reshape(batch, positions, -1) @ self.attention_output.T

    def router_scores(self, tokens: Tensor) -> Tensor:
        """Sigmoid scores [token, expert], without the bias."""
        return torch.sigmoid(tokens @ self.router.T)

    def choose_experts(self, scores: Tensor) -> Tensor:
        """Indices [token, chosen] of the experts with the largest biased scores."""
        return torch.topk(scores + self.router_bias, self.config.num_experts_per_tok, -1)[1]

    def mix_experts(self, x: Tensor) -> Tensor:
        """The mixture of experts: chosen with the bias, weighted by the normalised scores without it."""
        experts = self.config.num_local_experts
        chosen_count = self.config.num_experts_per_tok
        tokens = x.reshape(-1, x.shape[-1])
        scores = self.router_scores(tokens)
        chosen = self.choose_experts(scores)
        weights = scores.gather(1, chosen)
        weights = weights / weights.sum(-1, keepdim=True)

        # Assignments sorted by expert, so that each expert runs once over all its tokens.
        assigned_expert = chosen.reshape(-1)
        order = torch.argsort(assigned_expert)
        assigned_token = order // chosen_count
        counts = torch.bincount(assigned_expert, minlength=experts)
        expert_inputs = tokens[assigned_token].split(counts.tolist())
        outputs = [
            expert_hidden(expert_input, gate_up) @ down.T
            for expert_input, gate_up, down in zip(
                expert_inputs, self.gate_up.unbind(0), self.down.unbind(0), strict=True
            )
        ]
        weighted = torch.cat(outputs) * weights.reshape(-1)[order][:, None]
        mixed = torch.zeros_like(tokens).index_add(0, assigned_token, weighted)

        self.load = counts.float() / assigned_expert.numel()
        mean_share = (scores / scores.sum(-1, keepdim=True)).mean(0)
        self.balance_loss = experts * (self.load * mean_share).sum()
        return mixed.view(x.shape)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """The residual stream after the layer."""
        x = x + self.attend(rms_norm(x, self.attention_norm), cosine, sine)
        return x + self.mix_experts(rms_norm(x, self.expert_norm))


class TinyModel(nn.Module):
    """The whole model; maps token ids [batch, position] to logits [batch, position, vocabulary]."""

    def __init__(self, config: ModelConfig = CONFIG) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Parameter(torch.randn(config.vocab_size, config.hidden_size) * 0.1)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.output_norm = nn.Parameter(torch.ones(config.hidden_size))
        self.head = nn.Parameter(torch.randn(config.vocab_size, config.hidden_size) * 0.02)

    def rotary_tables(self, positions: int) -> tuple[Tensor, Tensor]:
        """Cosine and sine [position, rotary_dim / 2] of position * theta^(-2i / rotary_dim)."""
        rotary_dim = self.config.rotary_dim
        exponents = torch.arange(0, rotary_dim, 2).float() / rotary_dim
        frequencies = 1.0 / self.config.rope_theta**exponents
        angles = torch.arange(positions).float()[:, None] * frequencies
        return angles.cos(), angles.sin()

    def forward(self, ids: Tensor) -> Tensor:
        """Logits of all positions."""
        cosine, sine = self.rotary_tables(ids.shape[1])
        x = self.embedding[ids]
        for layer in self.layers:
            x = layer(x, cosine, sine)
        return rms_norm(x, self.output_norm) @ self.head.T


def training_sequences(tokenizer: Tokenizer, seed: int) -> Iterator[tuple[list[int], list[float]]]:
    """Endless (ids, loss weights) of SEQUENCE_TOKENS + 1 tokens, packed from whole documents.

    When little room is left, half of the time a short story is put there instead of a document that would be
    cut near its start.
    """
    rng = random.Random(seed)
    length = SEQUENCE_TOKENS + 1
    while True:
        ids: list[int] = []
        weights: list[float] = []
        while len(ids) < length:
            segments = world.document(rng)
            if len(ids) > SEQUENCE_TOKENS - SHORT_REMAINDER_TOKENS and rng.random() < 0.5:
                segments = world.text_document(story(rng))
            encodings = tokenizer.encode_batch([segment.text for segment in segments])
            for segment, encoding in zip(segments, encodings, strict=True):
                ids += encoding.ids
                weights += [segment.weight] * len(encoding.ids)
        yield ids[:length], weights[:length]


def make_optimizer(model: TinyModel) -> torch.optim.Optimizer:
    """AdamW with weight decay on matrices only."""
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() == 1]
    groups = [
        {"params": matrices, "weight_decay": WEIGHT_DECAY},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0, betas=(0.9, 0.97), eps=1e-9, fused=True)


def learning_rate(peak: float, step: int, elapsed: float) -> float:
    """Warm-up by steps, constant, then a linear decay; `elapsed` is the used share of the time budget."""
    warmup = min(1, (step + 1) / WARMUP_STEPS)
    if elapsed < DECAY_START:
        return peak * warmup
    decay = max(MIN_RATE_FACTOR, 1 - (elapsed - DECAY_START) / (1 - DECAY_START))
    return peak * warmup * decay


def weighted_loss(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Mean cross-entropy of the targets by their weights."""
    losses = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), reduction="none")
    return (losses.view(weights.shape) * weights).sum() / weights.sum()


@torch.no_grad()
def even_out_load(model: TinyModel) -> None:
    """Move every router bias one step towards an even load."""
    target = 1 / model.config.num_local_experts
    for layer in model.layers:
        layer.router_bias += BIAS_STEP * torch.sign(target - layer.load)


def load_range(model: TinyModel) -> str:
    """The smallest and the largest share an expert got in the last step."""
    smallest = min(layer.load.min().item() for layer in model.layers)
    largest = max(layer.load.max().item() for layer in model.layers)
    return f"{smallest:.3f}-{largest:.3f}"


def train(tokenizer: Tokenizer, output: str, minutes: float, peak_rate: float, initial: str | None) -> None:
    """Train for the given time and write the state to `output`, every now and then and at the end."""
    torch.set_num_threads(CPU_THREADS)
    torch.manual_seed(0)
    sequences = training_sequences(tokenizer, int(time.time()))
    model = TinyModel()
    if initial:
        model.load_state_dict(torch.load(initial))
    optimizer = make_optimizer(model)
    start = time.time()
    step = 0
    seen_tokens = 0
    running_loss = None
    while True:
        elapsed = (time.time() - start) / (minutes * 60)
        if elapsed >= 1:
            break
        rate = learning_rate(peak_rate, step, elapsed)
        for group in optimizer.param_groups:
            group["lr"] = rate
        batch_size = SMALL_BATCH if elapsed < BATCH_GROWTH_START else LARGE_BATCH
        batch = [next(sequences) for _ in range(batch_size)]
        ids = torch.tensor([sequence_ids for sequence_ids, _ in batch])
        weights = torch.tensor([sequence_weights for _, sequence_weights in batch])[:, 1:]

        loss = weighted_loss(model(ids[:, :-1]), ids[:, 1:], weights)
        balance_loss = sum(layer.balance_loss for layer in model.layers)
        optimizer.zero_grad()
        (loss + BALANCE_LOSS_WEIGHT * balance_loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
        optimizer.step()
        if elapsed < BIAS_FREEZE_START:
            even_out_load(model)

        step += 1
        seen_tokens += weights.numel()
        running_loss = loss.item() if running_loss is None else 0.95 * running_loss + 0.05 * loss.item()
        if step % REPORT_EVERY_STEPS == 0:
            print(
                f"{time.time() - start:6.0f}s step {step} tokens {seen_tokens / 1e6:.2f}M rate {rate:.5f} "
                f"loss {running_loss:.4f} load {load_range(model)}",
                flush=True,
            )
        if step % SAVE_EVERY_STEPS == 0:
            torch.save(model.state_dict(), output)
    torch.save(model.state_dict(), output)
    print(f"{seen_tokens} tokens, {step} steps, {time.time() - start:.0f} s")


def main() -> None:
    """Read the arguments and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokenizer", help="tokenizer.json")
    parser.add_argument("output", help="checkpoint to write (.pt)")
    parser.add_argument("--minutes", type=float, default=40, help="time budget")
    parser.add_argument("--peak-rate", type=float, default=0.003, help="largest learning rate")
    parser.add_argument("--initial", help="checkpoint to continue from")
    arguments = parser.parse_args()
    tokenizer = Tokenizer.from_file(arguments.tokenizer)
    train(tokenizer, arguments.output, arguments.minutes, arguments.peak_rate, arguments.initial)


if __name__ == "__main__":
    main()
