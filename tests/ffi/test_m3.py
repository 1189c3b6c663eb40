# SPDX-License-Identifier: Apache-2.0
"""MiniMax-M3 through the binding: a small model, and plans of the full size from headers alone."""

import pathlib
import sys
import tempfile
import unittest

from support import DATA, ROOT, abi, minim

sys.path.insert(0, str(ROOT / "tests" / "placement"))
from make_headers import F32, I32, STR, U32, Tensor, gguf_bytes, vocabulary, write_gguf_file  # noqa: E402

TINY = DATA / "models" / "minim-tiny-m3"
LAYERS, DENSE_LAYERS, HIDDEN, HEADS, KV_HEADS, DIM, EXPERTS, FF, DENSE_FF, VOCAB = 60, 3, 6144, 64, 4, 128, 128, 3072, 12288, 200064


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
    tokens, kinds = vocabulary(VOCAB)
    keys = {
        "block_count": LAYERS, "context_length": 1048576, "embedding_length": HIDDEN, "feed_forward_length": DENSE_FF,
        "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS, "attention.key_length": DIM, "attention.value_length": DIM,
        "rope.dimension_count": 64, "expert_count": EXPERTS, "expert_used_count": 4, "expert_feed_forward_length": FF,
        "expert_shared_count": 1, "expert_gating_func": 2, "leading_dense_block_count": DENSE_LAYERS,
        "attention.indexer.head_count": KV_HEADS, "attention.indexer.key_length": DIM, "attention.indexer.top_k": 16,
        "attention.indexer.block_size": 128, "attention.indexer.local_blocks": 1,
    }  # fmt: skip
    entries = [("general.architecture", STR, "minimax-m3"), *(("minimax-m3." + key, U32, value) for key, value in keys.items()),
               ("minimax-m3.rope.freq_base", F32, 5e6), ("minimax-m3.attention.layer_norm_rms_epsilon", F32, 1e-6),
               ("minimax-m3.expert_weights_scale", F32, 2.0), ("tokenizer.ggml.model", STR, "gpt2"), ("tokenizer.ggml.pre", STR, "minimax-m2"),
               ("tokenizer.ggml.tokens", STR, tokens), ("tokenizer.ggml.merges", STR, []), ("tokenizer.ggml.token_type", I32, kinds),
               ("tokenizer.ggml.bos_token_id", U32, 200019), ("tokenizer.ggml.eos_token_id", U32, 200020)]  # fmt: skip
    all_tensors = [Tensor(name, kind, shape, gguf_bytes(kind, shape)) for name, shape, kind in tensors()]
    write_gguf_file(path, all_tensors, entries)
    sizes = {"experts": 0, "dense": 0}
    for tensor in all_tensors:
        sizes["experts" if "_exps" in tensor.name else "dense"] += tensor.bytes
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
