# SPDX-License-Identifier: Apache-2.0
"""MiniMax-M3 through the binding: a small model, and plans of the full size from headers alone."""

import json
import pathlib
import sys
import tempfile
import unittest

from support import DATA, ROOT, minim, np

sys.path.insert(0, str(ROOT / "tests" / "placement"))
from make_headers import F32, I32, STR, U32, Tensor, gguf_bytes, vocabulary, write_gguf_file  # noqa: E402

TINY = DATA / "models" / "minim-tiny-m3"
LAYERS, DENSE_LAYERS, HIDDEN, HEADS, KV_HEADS, DIM, EXPERTS, FF, DENSE_FF, VOCAB = 60, 3, 6144, 64, 4, 128, 128, 3072, 12288, 200064


PARAMETERS = 426174572928  # of the text model
GREEDY = json.loads((DATA / "golden" / "m3" / "greedy.json").read_text())


def golden_ids(name):
    return [int(token) for token in np.load(DATA / "golden" / "m3" / f"{name}.ids.npy")]


def tensors(dense="Q8_0", experts="IQ4_XS"):
    yield "token_embd.weight", (VOCAB, HIDDEN), dense
    yield "output_norm.weight", (HIDDEN,), "F32"
    yield "output.weight", (VOCAB, HIDDEN), dense
    for layer in range(LAYERS):
        blk = f"blk.{layer}."
        for name, rows in (("q", HEADS * DIM), ("k", KV_HEADS * DIM), ("v", KV_HEADS * DIM)):
            yield f"{blk}attn_{name}.weight", (rows, HIDDEN), dense
        yield blk + "attn_output.weight", (HIDDEN, HEADS * DIM), dense
        for name, size in (("attn_norm", HIDDEN), ("attn_q_norm", DIM), ("attn_k_norm", DIM), ("ffn_norm", HIDDEN)):
            yield f"{blk}{name}.weight", (size,), "F32"
        matrices = (("gate", True), ("up", True), ("down", False))
        if layer < DENSE_LAYERS:
            for name, is_wide in matrices:
                yield f"{blk}ffn_{name}.weight", (DENSE_FF, HIDDEN) if is_wide else (HIDDEN, DENSE_FF), dense
            continue
        for name, shape in (("q_proj", (KV_HEADS * DIM, HIDDEN)), ("k_proj", (DIM, HIDDEN)), ("q_norm", (DIM,)), ("k_norm", (DIM,))):
            yield f"{blk}indexer.{name}.weight", shape, "F32"
        yield blk + "ffn_gate_inp.weight", (EXPERTS, HIDDEN), "F32"
        yield blk + "exp_probs_b.bias", (EXPERTS,), "F32"
        for name, is_wide in matrices:
            shape = (FF, HIDDEN) if is_wide else (HIDDEN, FF)
            yield f"{blk}ffn_{name}_exps.weight", (EXPERTS, *shape), experts
            yield f"{blk}ffn_{name}_shexp.weight", shape, dense


def write_headers(path, dense="Q8_0", experts="IQ4_XS"):
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
    all_tensors = [Tensor(name, kind, shape, gguf_bytes(kind, shape)) for name, shape, kind in tensors(dense, experts)]
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

    def test_the_scores_of_blocks_count_as_work(self):
        rows = 512
        for place, scored in (("devices", rows), ("host", 256)):
            work = []
            for context in (65536, 131072):
                devices = ["cuda:0=640GiB,1790GB/s"] if place == "devices" else []
                plan = self.plan(devices=devices, host="768GiB,576GB/s", context=context, ubatch=rows)
                work.append((plan["devices"][0] if devices else plan["host"])["work_bytes"])
            pages, blocks = 65536 // 64, 65536 // 128
            self.assertEqual(work[1] - work[0], rows * pages * 8 + scored * KV_HEADS * blocks * 4)

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


class Converted(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def check_texts(self, path, backend, least):
        """Compares greedy texts up to the first token with a margin below `least`, which rounding may change."""
        with minim.Model(str(path), backend=backend, threads=2) as model:
            for name, want in GREEDY.items():
                n = min(next((i for i, margin in enumerate(want["margins"]) if margin < least), 12), 12)
                ids = golden_ids(name)
                # Not by generate(), which leaves out rows of the vocabulary without a token.
                with model.session(context=len(ids) + 16, kv="f32") as session:
                    got = [int(np.argmax(session.eval(ids)))]
                    while len(got) < n:
                        got.append(int(np.argmax(session.eval(got[-1:]))))
                self.assertEqual(got[:n], want["ids"][:n], name)

    def logits(self, path):
        with minim.Model(str(path), backend="reference", threads=2) as model, model.session(context=64, kv="f32") as session:
            return np.array(session.eval(golden_ids("b128-40"), all_logits=True))

    def test_files_and_folders_give_the_golden_texts(self):
        file = self.folder / "m3.gguf"
        minim.convert(str(TINY), file)
        self.check_texts(file, "reference", 0.03)
        self.check_texts(file, "cpu", 1.0)
        minim.convert(file, self.folder / "copy.gguf")
        self.assertEqual((self.folder / "copy.gguf").read_bytes(), file.read_bytes())
        minim.convert(file, self.folder / "f", layout="bf16")
        self.check_texts(self.folder / "f", "reference", 0.03)

    def test_quantised_outputs_are_near_the_source(self):
        wanted = self.logits(TINY)
        for kind, options, most in (("mxfp8", {"layout": "mxfp8"}, 0.15), ("nvfp4", {"layout": "nvfp4"}, 0.3), ("q8_0.gguf", {"recipe": "Q8_0"}, 0.05)):
            with self.subTest(kind):
                minim.convert(str(TINY), self.folder / kind, **options)
                got = self.logits(self.folder / kind)
                error = float(np.median(np.sqrt(((got - wanted) ** 2).mean(-1) / (wanted**2).mean(-1))))
                self.assertTrue(most / 30 < error < most, error)

    def test_importance_data_have_all_matrices(self):
        ids = golden_ids("b128-300")
        collected = []
        for backend in ("cpu", "reference"):
            with minim.Model(str(TINY), backend=backend, threads=2) as model, model.session(context=320, kv="f32") as session:
                expected = session.eval(ids)
                with model.importance(chunk_size=300) as importance:
                    importance.attach(session)
                    session.truncate(0)
                    self.assertTrue(np.array_equal(session.eval(ids), expected))
                    collected.append({tensor["name"]: tensor for tensor in importance.describe()["tensors"]})
                    importance.save(self.folder / f"{backend}.gguf")
        own, reference = collected
        attention = ["attn_k", "attn_q", "attn_v", "attn_output"]
        ff = ["ffn_gate", "ffn_up", "ffn_down"]
        names = [f"blk.0.{name}.weight" for name in (*attention, *ff)]
        for layer in (1, 2, 3):
            stems = [*attention, "indexer.k_proj", "indexer.q_proj", *(name + end for name in ff for end in ("_exps", "_shexp"))]
            names += [f"blk.{layer}.{name}.weight" for name in stems]
        self.assertEqual(sorted(own), sorted(names))
        for name, tensor in own.items():
            # Inputs rounded to BF16 may change a row's experts, which are few rows each.
            tolerance = 0.2 if "_exps" in name else 0.02
            self.assertLess(abs(tensor["mean"] / reference[name]["mean"] - 1), tolerance, name)
            self.assertEqual(tensor["matrices"], 8 if "_exps" in name else 1)
            if "_exps" not in name:
                self.assertEqual(tensor["rows"]["most"], 300, name)
        plan = minim.convert(str(TINY), self.folder / "q.gguf", "Q4_0", imatrix=self.folder / "cpu.gguf", dry_run=True)
        self.assertEqual(plan["without_importance"], ["output.weight", "token_embd.weight"])

    def test_plans_of_the_full_size_are_exact(self):
        path = self.folder / "m3.gguf"
        write_headers(path, "BF16", "BF16")
        copy = minim.convert(path, self.folder / "x.gguf", dry_run=True)
        self.assertEqual([file["bytes"] for file in copy["files"]], [path.stat().st_size])
        plan = minim.convert(path, self.folder / "x.gguf", "Q4_K_M", dry_run=True)
        kinds = {tensor["name"]: tensor["to"] for tensor in plan["tensors"]}
        self.assertEqual({kind for name, kind in kinds.items() if "indexer" in name or "gate_inp" in name}, {"F32"})
        # More bits for the first and the last eighth, and for every third layer between.
        for layer, kind in ((0, "Q6_K"), (7, "Q4_K"), (9, "Q6_K"), (59, "Q6_K")):
            downs = ("ffn_down",) if layer < DENSE_LAYERS else ("ffn_down_exps", "ffn_down_shexp")
            for name in ("attn_v", *downs):
                self.assertEqual(kinds[f"blk.{layer}.{name}.weight"], kind, (layer, name))
        self.assertEqual({kinds[f"blk.0.{name}.weight"] for name in ("ffn_gate", "ffn_up", "attn_q", "attn_output")}, {"Q4_K"})
        for tensor in plan["tensors"]:
            self.assertEqual(tensor["bytes"], gguf_bytes(tensor["to"], tensor["shape"]), tensor["name"])

    def test_plans_of_folders_of_the_full_size_are_exact(self):
        path = self.folder / "m3.gguf"
        write_headers(path, "BF16", "BF16")
        plan = minim.convert(path, self.folder / "f", layout="bf16", dry_run=True)
        routers = (LAYERS - DENSE_LAYERS) * EXPERTS * (HIDDEN + 1)  # in F32
        self.assertEqual(plan["tensor_bytes"], 2 * PARAMETERS + 2 * routers)
        plan = minim.convert(path, self.folder / "f", layout="mxfp8", dry_run=True)
        vectors = sum(shape[0] for _, shape, _ in tensors() if len(shape) == 1) - (LAYERS - DENSE_LAYERS) * EXPERTS
        plain = 2 * VOCAB * HIDDEN + vectors
        coded = PARAMETERS - plain - routers
        self.assertEqual(plan["tensor_bytes"], coded * 33 // 32 + 2 * plain + 4 * routers)


if __name__ == "__main__":
    unittest.main()
