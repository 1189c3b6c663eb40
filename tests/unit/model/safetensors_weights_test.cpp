// SPDX-License-Identifier: Apache-2.0
// Weights bound from safetensors checkpoints, in both layouts that exist for this architecture.
#include <functional>
#include <string>
#include <vector>

#include "kv/sequence.h"
#include "model/bind.h"
#include "model/minimax_m2.h"
#include "model/weights.h"
#include "plain_forward.h"
#include "reference/reference_backend.h"
#include "runtime/forward_pass.h"
#include "runtime/placement.h"
#include "runtime/step_space.h"
#include "support.h"
#include "support/safetensors_folder.h"

using namespace minim;
using namespace minim::test;

namespace {

// Returns one expert's matrix of a stack.
Stored slice(const TinyModel& tiny, const std::string& name, int64_t e) {
    const TinyTensor& stack = tiny.tensors.at(name);
    return stored({stack.shape[1], stack.shape[2]},
                  stack.values.data() + e * stack.shape[1] * stack.shape[2]);
}

void add_shared_parts(const TinyModel& tiny, Folder& folder, const std::string& moe) {
    const auto add = [&](const std::string& name, const std::string& gguf) {
        folder[name] = stored(tiny.tensors.at(gguf).shape, tiny.values(gguf).data());
    };
    add("model.embed_tokens.weight", "token_embd.weight");
    add("model.norm.weight", "output_norm.weight");
    add("lm_head.weight", "output.weight");
    for (int64_t layer = 0; layer < tiny.shape.n_layer; ++layer) {
        const std::string to = "model.layers." + std::to_string(layer) + ".";
        const std::string from = "blk." + std::to_string(layer) + ".";
        add(to + "input_layernorm.weight", from + "attn_norm.weight");
        add(to + "self_attn.q_proj.weight", from + "attn_q.weight");
        add(to + "self_attn.k_proj.weight", from + "attn_k.weight");
        add(to + "self_attn.v_proj.weight", from + "attn_v.weight");
        add(to + "self_attn.o_proj.weight", from + "attn_output.weight");
        add(to + "self_attn.q_norm.weight", from + "attn_q_norm.weight");
        add(to + "self_attn.k_norm.weight", from + "attn_k_norm.weight");
        add(to + "post_attention_layernorm.weight", from + "ffn_norm.weight");
        add(to + moe + ".gate.weight", from + "ffn_gate_inp.weight");
        add(to + moe + ".e_score_correction_bias", from + "exp_probs_b.bias");
    }
}

// Returns the tensors in the released layout, with one tensor for each expert.
Folder released_layout(const TinyModel& tiny) {
    Folder folder;
    add_shared_parts(tiny, folder, "block_sparse_moe");
    for (int64_t layer = 0; layer < tiny.shape.n_layer; ++layer) {
        const std::string from = "blk." + std::to_string(layer) + ".ffn_";
        for (int64_t e = 0; e < tiny.shape.n_expert; ++e) {
            const std::string to = "model.layers." + std::to_string(layer) + ".block_sparse_moe.experts." +
                                   std::to_string(e) + ".";
            folder[to + "w1.weight"] = slice(tiny, from + "gate_exps.weight", e);
            folder[to + "w3.weight"] = slice(tiny, from + "up_exps.weight", e);
            folder[to + "w2.weight"] = slice(tiny, from + "down_exps.weight", e);
        }
    }
    return folder;
}

// Returns the tensors in the newer layout: all experts in one tensor, gate rows before up rows.
Folder newer_layout(const TinyModel& tiny) {
    Folder folder;
    add_shared_parts(tiny, folder, "mlp");
    for (int64_t layer = 0; layer < tiny.shape.n_layer; ++layer) {
        const std::string from = "blk." + std::to_string(layer) + ".ffn_";
        const std::string to = "model.layers." + std::to_string(layer) + ".mlp.experts.";
        Stored gate_up = {"F32", {tiny.shape.n_expert, 2 * tiny.shape.expert_ff, tiny.shape.hidden}, {}};
        for (int64_t e = 0; e < tiny.shape.n_expert; ++e) {
            for (const char* part : {"gate_exps.weight", "up_exps.weight"}) {
                const Stored rows = slice(tiny, from + part, e);
                gate_up.data.insert(gate_up.data.end(), rows.data.begin(), rows.data.end());
            }
        }
        folder[to + "gate_up_proj"] = gate_up;
        folder[to + "down_proj"] = stored(tiny.tensors.at(from + "down_exps.weight").shape,
                                          tiny.values(from + "down_exps.weight").data());
    }
    return folder;
}

TinyModel two_layers() {
    TinyShape shape;
    shape.n_layer = 2;
    return TinyModel(shape);
}

model::Config config_of(const TinyShape& shape) {
    model::Config config;
    config.n_layer = shape.n_layer;
    config.hidden = shape.hidden;
    config.n_head = shape.n_head;
    config.n_head_kv = shape.n_head_kv;
    config.head_dim = shape.head_dim;
    config.rotary_dim = shape.rotary_dim;
    config.n_expert = shape.n_expert;
    config.n_expert_used = shape.n_expert_used;
    config.expert_ff = shape.expert_ff;
    config.n_context_train = shape.n_context_train;
    config.rope_theta = shape.rope_theta;
    config.norm_eps = shape.norm_eps;
    return config;
}

using Change = std::function<void(model::Config&)>;

// A bound checkpoint, and what it needs to stay valid.
struct Bound {
    TemporaryFolder folder;
    Lines lines;
    model::Config config;
    checkpoint::Checkpoint checkpoint;
    std::shared_ptr<const backend::Backend> backend = reference::make_reference_backend();
    std::vector<weights::WeightSpec> specs;
    std::vector<weights::DeviceWeights> parts;
    std::vector<weights::PlacedWeights> placed;
    model::Weights weights;

    Bound(const Folder& tensors, const TinyShape& shape, const Change& change)
        : config(config_of(shape)), checkpoint(opened(tensors)) {
        change(config);
        checkpoint.map();
        specs = model::bind_weights(checkpoint, config, lines.log);
        parts = model::parts_of(runtime::Placement({{backend, config.n_layer}}), specs);
        placed = weights::place(parts, std::array{weights::Storage::mapped}, {}, checkpoint, lines.log);
        weights = model::join(parts, placed, config);
    }

  private:
    checkpoint::Checkpoint opened(const Folder& tensors) {
        write(tensors, folder / "model.safetensors");
        return checkpoint::Checkpoint::open(folder / "model.safetensors", lines.log);
    }
};

void unchanged(model::Config&) {}

std::vector<float> logits_of(const Bound& bound, const std::vector<int32_t>& ids) {
    const backend::Backend& backend = *bound.backend;
    const auto n = static_cast<int64_t>(ids.size());
    const model::Config& config = bound.config;
    kv::Sequence cache =
        kv::Sequence::alone({config.n_layer, config.n_head_kv, config.head_dim, Format::f32, Format::f32}, n);
    runtime::StepSpace space(backend, model::shape_of(config), n, n);
    std::vector<runtime::StepRow> rows;
    for (int64_t i = 0; i < n; ++i) rows.push_back({ids[static_cast<size_t>(i)], {&cache.view(), i}, true});
    std::vector<float> logits(ids.size() * static_cast<size_t>(config.n_vocab));
    runtime::ForwardPass(backend, model::architecture_of(config, bound.weights))
        .step(rows, space, logits.data(), nullptr);
    return logits;
}

void expect_refusal(const Folder& tensors, Status status, std::string_view part,
                    const Change& change = unchanged) {
    expect_error(status, part, [&] { const Bound bound(tensors, TinyShape{.n_layer = 2}, change); });
}

}  // namespace

TEST_CASE("both safetensors layouts give the logits of the formulas, and the same bits") {
    TinyModel tiny = two_layers();
    const auto ids = tiny.random_ids(20);
    const auto released = logits_of(Bound(released_layout(tiny), tiny.shape, unchanged), ids);
    const auto newer = logits_of(Bound(newer_layout(tiny), tiny.shape, unchanged), ids);
    CHECK(relative_rms(released, plain_logits(tiny, ids)) < 1e-5);
    CHECK(same_bits(released, newer));
}

// Renames the tensors whose names contain `from` and for which which(name) is true: `to` takes the place of `from`.
void rename(Folder& folder, const std::string& from, const std::string& to,
            const std::function<bool(const std::string&)>& which) {
    const Folder before = folder;
    for (const auto& [name, tensor] : before) {
        const size_t at = name.find(from);
        if (at == std::string::npos || !which(name)) continue;
        std::string renamed = name;
        renamed.replace(at, from.size(), to);
        folder.erase(name);
        folder[renamed] = tensor;
    }
}

TEST_CASE("single experts have the names of any tool, in any mixture") {
    TinyModel tiny = two_layers();
    const auto ids = tiny.random_ids(9);
    const Folder released = released_layout(tiny);
    const auto expected = logits_of(Bound(released, tiny.shape, unchanged), ids);
    const auto all = [](const std::string&) { return true; };
    const auto in_layer_1 = [](const std::string& name) {
        return name.find("layers.1.") != std::string::npos;
    };
    const auto odd_experts = [](const std::string& name) {
        const size_t at = name.find("experts.") + 8;
        return (name.at(at) - '0') % 2 == 1;
    };
    struct Tool {
        std::function<bool(const std::string&)> parts, mixture;
        const char* bias;
    };
    for (const Tool& tool :
         {Tool{all, all, "mlp.e_score_correction_bias"},
          Tool{all, in_layer_1, "mlp.gate.e_score_correction_bias"},
          Tool{odd_experts, in_layer_1, "block_sparse_moe.gate.e_score_correction_bias"}}) {
        Folder folder = released;
        rename(folder, ".w1.", ".gate_proj.", tool.parts);
        rename(folder, ".w3.", ".up_proj.", tool.parts);
        rename(folder, ".w2.", ".down_proj.", tool.parts);
        rename(folder, "block_sparse_moe.e_score_correction_bias", tool.bias, all);
        rename(folder, ".block_sparse_moe.experts.", ".mlp.experts.", tool.mixture);
        REQUIRE(folder.size() == released.size());
        CHECK(same_bits(logits_of(Bound(folder, tiny.shape, unchanged), ids), expected));
    }
    Folder stacked = newer_layout(tiny);
    rename(stacked, ".mlp.experts.", ".block_sparse_moe.experts.", in_layer_1);
    CHECK(same_bits(logits_of(Bound(stacked, tiny.shape, unchanged), ids), expected));
}

TEST_CASE("scales of activations, K and V change nothing") {
    TinyModel tiny = two_layers();
    Folder folder = released_layout(tiny);
    const auto ids = tiny.random_ids(5);
    const auto expected = logits_of(Bound(folder, tiny.shape, unchanged), ids);
    const float scale = 0.5F;
    for (const char* name : {"self_attn.q_scale", "self_attn.k_proj.output_scale", "self_attn.v_proj.v_scale",
                             "self_attn.attn.k_scale", "self_attn.o_proj.input_scale",
                             "block_sparse_moe.experts.2.w1.input_scale"})
        folder[std::string("model.layers.1.") + name] = stored({1}, &scale);
    CHECK(same_bits(logits_of(Bound(folder, tiny.shape, unchanged), ids), expected));
    folder["model.layers.1.self_attn.q_proj.weight_shift"] = stored({1}, &scale);
    expect_refusal(folder, Status::unsupported, "weight_shift");
}

TEST_CASE("tensors tell of a quantisation that is not read") {
    struct Other {
        const char* from;
        const char* to;
        const char* what;
    };
    for (const Other& other :
         {Other{"1.self_attn.q_proj.weight", "1.self_attn.q_proj.trellis", "EXL3"},
          Other{"1.self_attn.k_proj.weight", "1.self_attn.k_proj.W_q", "HQQ"},
          Other{"0.self_attn.v_proj.weight", "0.self_attn.v_proj.weight.absmax", "bitsandbytes"},
          Other{"1.block_sparse_moe.experts.0.w1.weight", "1.block_sparse_moe.switch_mlp.gate_proj.weight",
                "MLX"}}) {
        Folder folder = released_layout(two_layers());
        rename(folder, other.from, other.to, [](const std::string&) { return true; });
        expect_refusal(folder, Status::unsupported, std::string("a folder quantised by ") + other.what);
    }
    Folder folder = released_layout(two_layers());
    folder["model.layers.0.self_attn.q_proj.biases"] = folder.at("model.norm.weight");
    expect_refusal(folder, Status::unsupported, "a folder quantised by MLX");
}

TEST_CASE("a missing safetensors tensor is named as safetensors has it") {
    for (const char* name :
         {"model.embed_tokens.weight", "lm_head.weight", "model.layers.1.self_attn.k_proj.weight",
          "model.layers.0.post_attention_layernorm.weight", "model.layers.1.block_sparse_moe.gate.weight",
          "model.layers.1.block_sparse_moe.experts.6.w2.weight"}) {
        Folder folder = released_layout(two_layers());
        REQUIRE(folder.erase(name) == 1);
        expect_refusal(folder, Status::format, std::string("tensor ") + name + " is missing");
    }
}

TEST_CASE("a declared correction bias must be there") {
    Folder folder = released_layout(two_layers());
    for (const char* layer : {"0", "1"}) {
        folder.erase(std::string("model.layers.") + layer + ".block_sparse_moe.e_score_correction_bias");
    }
    CHECK_NOTHROW(Bound(folder, TinyShape{.n_layer = 2}, unchanged));
    expect_refusal(folder, Status::format,
                   "model.layers.0.block_sparse_moe.e_score_correction_bias is missing",
                   [](model::Config& config) { config.needs_router_bias = true; });
}

TEST_CASE("an expert beyond the router's rows is refused by name") {
    Folder folder = released_layout(two_layers());
    const std::string name = "model.layers.1.block_sparse_moe.experts.7.w1.weight";
    folder[name] = folder.at("model.layers.1.block_sparse_moe.experts.6.w1.weight");
    expect_refusal(folder, Status::unsupported, name);
}

TEST_CASE("experts of different types in one layer are refused by name") {
    Folder folder = released_layout(two_layers());
    const std::string name = "model.layers.1.block_sparse_moe.experts.3.w1.weight";
    Stored& expert = folder.at(name);
    expert.type = "BF16";
    expert.data.resize(expert.data.size() / 2);
    expect_refusal(folder, Status::unsupported, "tensor " + name + " is of type BF16, expert 0 of type F32");
}

TEST_CASE("FP8 weights without their scales are refused by name") {
    Folder folder = released_layout(two_layers());
    Stored& weight = folder.at("model.layers.0.self_attn.q_proj.weight");
    weight.type = "F8_E4M3";
    weight.data.resize(weight.data.size() / 4);
    expect_refusal(folder, Status::format, "tensor model.layers.0.self_attn.q_proj.weight_scale is missing");
}

TEST_CASE("a norm or an embedding of eight bits is refused with tensor and type") {
    for (const char* name : {"model.norm.weight", "model.embed_tokens.weight"}) {
        Folder folder = released_layout(two_layers());
        Stored& weight = folder.at(name);
        weight.type = "F8_E4M3";
        weight.data.resize(weight.data.size() / 4);
        expect_refusal(folder, Status::unsupported, std::string("tensor ") + name + " is of type F8_E4M3");
    }
}

TEST_CASE("a scale that a float weight has no use for is refused by name") {
    Folder folder = released_layout(two_layers());
    const float one = 1.0F;
    folder["model.layers.0.self_attn.q_proj.weight_scale_inv"] = stored({1, 1}, &one);
    expect_refusal(folder, Status::unsupported, "model.layers.0.self_attn.q_proj.weight_scale_inv");
}

TEST_CASE("precomputed rotary frequencies and multi-token prediction are skipped, the latter with a line") {
    TinyModel tiny = two_layers();
    const auto ids = tiny.random_ids(12);
    Folder folder = released_layout(tiny);
    const auto expected = logits_of(Bound(folder, tiny.shape, unchanged), ids);
    const float values[] = {1, 2};
    folder["model.layers.0.self_attn.rotary_emb.inv_freq"] = stored({2}, values);
    folder["model.layers.2.self_attn.q_proj.weight"] = stored({2}, values);
    folder["model.layers.4.eh_proj.weight"] = stored({2}, values);
    folder["mtp.norm.weight"] = stored({2}, values);
    const Bound bound(folder, tiny.shape, [](model::Config& config) { config.n_mtp_layer = 3; });
    CHECK(bound.lines.holding("3 tensors of multi-token-prediction layers skipped") == 1);
    CHECK(bound.config.n_layer == 2);
    CHECK(same_bits(logits_of(bound, ids), expected));

    // Without a word in config.json, the names show what a layer is.
    Folder marked = released_layout(tiny);
    marked["model.layers.2.eh_proj.weight"] = stored({2}, values);
    marked["model.layers.2.enorm.weight"] = stored({2}, values);
    marked["model.layers.2.embed_tokens.weight"] = stored({2}, values);
    CHECK(same_bits(logits_of(Bound(marked, tiny.shape, unchanged), ids), expected));

    // A layer beyond the declared ones is not taken for multi-token prediction.
    folder["model.layers.5.self_attn.q_proj.weight"] = stored({2}, values);
    expect_refusal(folder, Status::unsupported, "model.layers.5.",
                   [](model::Config& config) { config.n_mtp_layer = 3; });
}

TEST_CASE("declared multi-token-prediction layers need not be there") {
    CHECK_NOTHROW(Bound(released_layout(two_layers()), TinyShape{.n_layer = 2},
                        [](model::Config& config) { config.n_mtp_layer = 3; }));
}

TEST_CASE("a tensor without a name stands for no missing one") {
    Folder folder = released_layout(two_layers());
    folder[""] = folder.at("lm_head.weight");
    folder.erase("lm_head.weight");
    // Whether the container allows the name or not, it must not become the output matrix.
    CHECK(error_of([&] { const Bound bound(folder, TinyShape{.n_layer = 2}, unchanged); }).value().status() ==
          Status::format);
}
