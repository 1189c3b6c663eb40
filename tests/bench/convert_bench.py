#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Quantises a model with matrices of the real size: speed, use of the threads, and peak memory.

    convert_bench.py build/release FOLDER [--gigabytes 6] [--types Q4_K_M,IQ4_XS,nvfp4] [--effort full] [--threads 2] [--rounds 1]

FOLDER gets a BF16 folder of one layer with as many experts of 3 x 1536 x 3072 weights as fit into the size; a later run takes it again. It
must have room for the source and one output, which is deleted. The vocabulary is that of minim-tiny. The columns:

    GB/s     of the source
    busy     CPU time of the process over wall time times threads
    waiting  the same of the time in which threads could run and had no processor, because of other processes
    work     both together: how much of the time the threads had something to do; the goal is 95 %. Those that read and write count too.
    memory   VmHWM; the goal with the default --memory is 2.2 GiB
"""

import argparse
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import time

import numpy as np

HIDDEN, FF, HEAD, HEADS, KV_HEADS = 3072, 1536, 128, 48, 8
EXPERT_BYTES = 3 * HIDDEN * FF * 2
SHARD_BYTES = 2_000_000_000


def tensors_of(n_expert, vocab):
    """Returns the name, type and shape of each tensor, in the order of the files."""
    layer = "model.layers.0."
    moe, attention = layer + "block_sparse_moe.", layer + "self_attn."
    yield "model.embed_tokens.weight", "BF16", (vocab, HIDDEN)
    yield layer + "input_layernorm.weight", "BF16", (HIDDEN,)
    yield layer + "post_attention_layernorm.weight", "BF16", (HIDDEN,)
    for name, rows, columns in (("q", HEADS * HEAD, HIDDEN), ("k", KV_HEADS * HEAD, HIDDEN), ("v", KV_HEADS * HEAD, HIDDEN), ("o", HIDDEN, HEADS * HEAD)):
        yield f"{attention}{name}_proj.weight", "BF16", (rows, columns)
    yield attention + "q_norm.weight", "BF16", (HEADS * HEAD,)
    yield attention + "k_norm.weight", "BF16", (KV_HEADS * HEAD,)
    yield moe + "gate.weight", "F32", (n_expert, HIDDEN)
    yield moe + "e_score_correction_bias", "F32", (n_expert,)
    for expert in range(n_expert):
        for name, shape in (("w1", (FF, HIDDEN)), ("w2", (HIDDEN, FF)), ("w3", (FF, HIDDEN))):
            yield f"{moe}experts.{expert}.{name}.weight", "BF16", shape
    yield "model.norm.weight", "BF16", (HIDDEN,)
    yield "lm_head.weight", "BF16", (vocab, HIDDEN)


def bytes_of(kind, shape):
    return int(np.prod(shape)) * (4 if kind == "F32" else 2)


class Numbers:
    """Slices of one long run of normal numbers: as good as new ones for encoders, and made at the speed of the disk."""

    def __init__(self):
        rng = np.random.default_rng(1)
        values = rng.standard_normal(1 << 25, dtype=np.float32) * np.float32(0.02)
        self.f32, self.bf16, self.at = values, (values.view(np.uint32) >> 16).astype(np.uint16), 0

    def bytes(self, name, kind, shape):
        count = int(np.prod(shape))
        if name.endswith("norm.weight"):
            return np.full(count, 0x3F80, np.uint16).tobytes()
        pool = self.f32 if kind == "F32" else self.bf16
        self.at = (self.at + 7919 * 4096) % (len(pool) - count)
        return pool[self.at : self.at + count].tobytes()


def make_source(folder, tiny, gigabytes):
    n_expert = max(8, int(gigabytes * 1e9 / EXPERT_BYTES))
    config = json.loads((tiny / "config.json").read_text())
    config |= {"hidden_size": HIDDEN, "intermediate_size": FF, "num_hidden_layers": 1, "num_local_experts": n_expert, "num_experts_per_tok": 8,
               "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "attn_type_list": [1]}  # fmt: skip
    shards, size = [[]], 0
    for tensor in tensors_of(n_expert, config["vocab_size"]):
        if size + bytes_of(*tensor[1:]) > SHARD_BYTES:
            shards, size = [*shards, []], 0
        shards[-1].append(tensor)
        size += bytes_of(*tensor[1:])
    made = folder.with_name(folder.name + ".part")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    numbers, total, weight_map = Numbers(), 0, {}
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        header, at = {}, 0
        for tensor, kind, shape in shard:
            header[tensor] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + bytes_of(kind, shape)]}
            at += bytes_of(kind, shape)
            weight_map[tensor] = name
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with (made / name).open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for tensor in shard:
                file.write(numbers.bytes(*tensor))
        total += at
    (made / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}))
    (made / "config.json").write_text(json.dumps(config, indent=2))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"):
        shutil.copy(tiny / name, made)
    made.rename(folder)


def source_bytes(folder):
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


class Watched:
    """A process, the peak of its memory, and the time in which its threads waited for a processor."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.folder, self.waited, self.peak = pathlib.Path("/proc", str(self.process.pid)), {}, 0

    def look(self):
        try:
            for thread in (self.folder / "task").iterdir():
                self.waited[thread.name] = int((thread / "schedstat").read_text().split()[1])
            status = (self.folder / "status").read_text()
            self.peak = max([self.peak, *(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))])
        except (FileNotFoundError, ProcessLookupError, IndexError):
            pass  # it has just ended


def measure(program, source, output, kind, effort, n_threads):
    command = [program, "quantize", source, output, kind, "--effort", effort, "-t", n_threads, "--without-importance", "--progress", "none", "--overwrite"]
    before, start = resource_times(), time.monotonic()
    watched = Watched([str(word) for word in command])
    while watched.process.poll() is None:
        watched.look()
        time.sleep(0.1)
    wall, used = time.monotonic() - start, resource_times() - before
    if watched.process.returncode != 0:
        sys.exit(watched.process.stderr.read())
    waiting = sum(watched.waited.values()) / 1e9 / (wall * n_threads)
    busy = used / (wall * n_threads)
    return {"wall": wall, "speed": source_bytes(source) / 1e9 / wall, "busy": busy, "waiting": waiting, "work": busy + waiting,
            "memory": watched.peak * 1024 / 2**30}  # fmt: skip


def resource_times():
    import resource

    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build", type=pathlib.Path, help="a build folder, with its test models")
    p.add_argument("folder", type=pathlib.Path, help="where the source and the outputs go")
    p.add_argument("--gigabytes", type=float, default=6)
    p.add_argument("--types", default="Q4_K_M,IQ4_XS,nvfp4")
    p.add_argument("--effort", default="full")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=1)
    a = p.parse_args()
    source = a.folder / f"source-{a.gigabytes:g}"
    if not source.exists():
        make_source(source, a.build / "tests" / "models" / "minim-tiny", a.gigabytes)
    print(f"{source_bytes(source) / 1e9:.2f} GB of BF16, {a.threads} threads, effort {a.effort}")
    print(f"{'type':<10} {'s':>7} {'GB/s':>7} {'busy':>7} {'waiting':>8} {'work':>7} {'memory':>10}", flush=True)
    for kind in a.types.split(",") * a.rounds:
        output = a.folder / ("output" if kind.lower().startswith(("nvfp4", "fp8", "int")) else "output.gguf")
        m = measure(a.build / "apps" / "minim" / "minim", source, output, kind, a.effort, a.threads)
        print(f"{kind:<10} {m['wall']:>7.1f} {m['speed']:>7.3f} {m['busy']:>7.1%} {m['waiting']:>8.1%} {m['work']:>7.1%} {m['memory']:>6.2f} GiB", flush=True)
        shutil.rmtree(output) if output.is_dir() else output.unlink()


if __name__ == "__main__":
    main()
