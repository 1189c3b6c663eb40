# SPDX-License-Identifier: Apache-2.0
"""MiniMax-M3 through the binding: a small model, and plans of the full size from headers alone."""

import pathlib
import struct
import tempfile
import unittest

from support import DATA, abi, minim

TINY = DATA / "models" / "minim-tiny-m3"
TYPES = {"F32": (0, 1, 4), "Q8_0": (8, 32, 34), "IQ4_XS": (23, 256, 136)}
LAYERS, DENSE_LAYERS, HIDDEN, HEADS, KV_HEADS, DIM, EXPERTS, FF, DENSE_FF, VOCAB = 60, 3, 6144, 64, 4, 128, 128, 3072, 12288, 200064


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key, kind, value):
    """kind: u32, f32, str, or a list of one of them or i32."""
    if isinstance(kind, list):
        codes = {"i32": 5, "str": 8}
        items = b"".join(text(v) if kind[0] == "str" else struct.pack("<i", v) for v in value)
        return text(key) + struct.pack("<IIQ", 9, codes[kind[0]], len(value)) + items
    if kind == "str":
        return text(key) + struct.pack("<I", 8) + text(value)
    return text(key) + (struct.pack("<II", 4, value) if kind == "u32" else struct.pack("<If", 6, value))


def tensors():
    yield "token_embd.weight", (VOCAB, HIDDEN), "Q8_0"
    yield "output_norm.weight", (HIDDEN,), "F32"
    yield "output.weight", (VOCAB, HIDDEN), "Q8_0"
    for layer in range(LAYERS):
        blk = f"blk.{layer}."
        for name, rows in (("q", HEADS * DIM), ("k", KV_HEADS * DIM), ("v", KV_HEADS * DIM)):
            yield f"{blk}attn_{name}.weight", (rows, HIDDEN), "Q8_0"
        yield blk + "attn_output.weight", (HIDDEN, HEADS * DIM), "Q8_0"
        for name, size in (("attn_norm", HIDDEN), ("attn_q_norm", DIM), ("attn_k_norm", DIM), ("ffn_norm", HIDDEN)):
            yield f"{blk}{name}.weight", (size,), "F32"
        matrices = (("gate", True), ("up", True), ("down", False))
        if layer < DENSE_LAYERS:
            for name, is_wide in matrices:
                yield f"{blk}ffn_{name}.weight", (DENSE_FF, HIDDEN) if is_wide else (HIDDEN, DENSE_FF), "Q8_0"
            continue
        for name, shape in (("q_proj", (KV_HEADS * DIM, HIDDEN)), ("k_proj", (DIM, HIDDEN)), ("q_norm", (DIM,)), ("k_norm", (DIM,))):
            yield f"{blk}indexer.{name}.weight", shape, "F32"
        yield blk + "ffn_gate_inp.weight", (EXPERTS, HIDDEN), "F32"
        yield blk + "exp_probs_b.bias", (EXPERTS,), "F32"
        for name, is_wide in matrices:
            shape = (FF, HIDDEN) if is_wide else (HIDDEN, FF)
            yield f"{blk}ffn_{name}_exps.weight", (EXPERTS, *shape), "IQ4_XS"
            yield f"{blk}ffn_{name}_shexp.weight", shape, "Q8_0"


def write_headers(path):
    """Writes a model of the full size without its data. Returns the bytes of experts and of all else."""
    names = {200019: "]~b]", 200020: "[e~["}
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    tokens = [names.get(i, f"<{i}>") for i in range(VOCAB)]
    for byte in range(256):  # the byte tokens that a byte-level vocabulary must have
        tokens[byte] = chr(byte) if byte in shown else chr(256 + sum(b not in shown for b in range(byte)))
    keys = {
        "block_count": LAYERS, "context_length": 1048576, "embedding_length": HIDDEN, "feed_forward_length": DENSE_FF,
        "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS, "attention.key_length": DIM, "attention.value_length": DIM,
        "rope.dimension_count": 64, "expert_count": EXPERTS, "expert_used_count": 4, "expert_feed_forward_length": FF,
        "expert_shared_count": 1, "expert_gating_func": 2, "leading_dense_block_count": DENSE_LAYERS,
        "attention.indexer.head_count": KV_HEADS, "attention.indexer.key_length": DIM, "attention.indexer.top_k": 16,
        "attention.indexer.block_size": 128, "attention.indexer.local_blocks": 1,
    }  # fmt: skip
    entries = [entry("general.architecture", "str", "minimax-m3"), *(entry("minimax-m3." + k, "u32", v) for k, v in keys.items())]
    entries += [entry("minimax-m3." + k, "f32", v) for k, v in (
        ("rope.freq_base", 5e6), ("attention.layer_norm_rms_epsilon", 1e-6), ("expert_weights_scale", 2.0))]  # fmt: skip
    entries += [entry("tokenizer.ggml.model", "str", "gpt2"), entry("tokenizer.ggml.pre", "str", "minimax-m2"),
                entry("tokenizer.ggml.tokens", ["str"], tokens), entry("tokenizer.ggml.merges", ["str"], []),
                entry("tokenizer.ggml.token_type", ["i32"], [1 if i < 200000 else 3 if i in names else 5 for i in range(VOCAB)]),
                entry("tokenizer.ggml.bos_token_id", "u32", 200019), entry("tokenizer.ggml.eos_token_id", "u32", 200020)]  # fmt: skip
    records, at, sizes = b"", 0, {"experts": 0, "dense": 0}
    n_tensors = 0
    for name, shape, kind in tensors():
        code, block, size = TYPES[kind]
        count = 1
        for extent in shape:
            count *= extent
        records += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", d) for d in reversed(shape))
        records += struct.pack("<IQ", code, at)
        at += -(-(count // block * size) // 32) * 32
        sizes["experts" if "_exps" in name else "dense"] += count // block * size
        n_tensors += 1
    head = b"GGUF" + struct.pack("<IQQ", 3, n_tensors, len(entries)) + b"".join(entries) + records
    head += bytes(-len(head) % 32)
    with open(path, "wb") as file:
        file.write(head)
        file.truncate(len(head) + at)
    return sizes


class FullSize(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name) / "m3.gguf"
        cls.sizes = write_headers(cls.path)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def plan(self, **options):
        return minim.plan(str(self.path), **options)

    def test_the_plan_has_the_bytes_of_the_file(self):
        plan = self.plan(devices=[], host="768GiB,576GB/s", context=65536)
        self.assertEqual(plan["host"]["expert_bytes"], self.sizes["experts"])
        self.assertLess(abs(plan["host"]["dense_bytes"] / self.sizes["dense"] - 1), 1e-4)

    def test_the_cache_has_index_keys(self):
        for kv, bytes_of_token in (("f16", 137472), ("q8_0", 79872), ("f32", 274944)):
            plan = self.plan(devices=[], host="768GiB,576GB/s", context=65536, kv=kv)
            self.assertEqual(plan["host"]["kv_bytes"], 65536 * bytes_of_token)

    def test_dense_layers_and_shared_experts_are_on_the_device(self):
        plan = self.plan(devices=["cuda:0=96GiB,1790GB/s,pcie=50GB/s"], host="768GiB,576GB/s", context=65536, overrides="exps=CPU")
        self.assertEqual(plan["host"]["expert_bytes"], self.sizes["experts"])
        self.assertEqual(plan["host"]["dense_bytes"], 0)
        self.assertEqual(plan["devices"][0]["n_layers"], LAYERS)

    def test_long_contexts_cost_little(self):
        near, far = (self.plan(devices=["cuda:0=512GiB,1790GB/s"], host="64GiB,50GB/s", context=n) for n in (4096, 131072))
        ratio = near["decode_tokens_per_second"] / far["decode_tokens_per_second"]
        self.assertTrue(1 < ratio < 1.5, ratio)


class Tiny(unittest.TestCase):
    def test_it_generates_the_same_tokens_on_both_backends(self):
        answers = []
        for backend in ("reference", "cpu"):
            session = minim.Model(str(TINY), backend=backend, threads=2).session(context=128, kv="f32")
            answers.append([token.id for token in session.generate([3, 200, 17, 1999, 4], max_tokens=3, temperature=0.0)])
        self.assertEqual(answers[0], answers[1])
        self.assertEqual(len(answers[0]), 3)

    def test_it_is_not_converted(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaises(abi.Error) as raised:
            minim.convert(str(TINY), f"{folder}/out.gguf", "q8_0")
        self.assertIn("models of MiniMax-M3 are not converted", str(raised.exception))


if __name__ == "__main__":
    unittest.main()
