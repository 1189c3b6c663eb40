// SPDX-License-Identifier: Apache-2.0
#include "model/minimax_m2.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace minim::model {
namespace {

using backend::LinearTask;
using runtime::Activations;

// q, k, v = projections of the normalised x; o = attention. Ranks that share heads first add their sums of squares, if the norms
// are over all heads together.
void attend(const Config& config, const LayerWeights& layer, std::span<const float> rope_frequency,
            int64_t kv_layer, const runtime::RankShare& share, const Activations& a) {
    a.backend.norm(a.scratch, a.x, a.n, layer.attn_norm, config.norm_eps, a.h);
    const LinearTask qkv[] = {{&layer.wq, a.q, false}, {&layer.wk, a.k, false}, {&layer.wv, a.v, false}};
    a.backend.linear(a.scratch, a.h, a.n, qkv);
    backend::AttendArgs args = attend_args(config, layer, rope_frequency, kv_layer, a);
    if (share.shares_heads() && layer.q_norm.size > config.head_dim) {
        args.n_head_all = config.n_head * share.tensor;
        args.n_head_kv_all = config.n_head_kv * share.tensor;
        args.squares = a.squares;
        a.backend.head_squares(a.scratch, args, a.squares);
        a.group->sum(a.scratch, a.squares, 2 * a.n);
    }
    a.backend.attend(a.scratch, args);
}

// x += wo o. Of ranks that share heads, the first one adds its part to x, and the sum over the ranks adds the others' parts.
void add_attention(const LayerWeights& layer, const runtime::RankShare& share, const Activations& a) {
    const LinearTask output = {&layer.wo, a.x, !share.shares_heads() || share.rank == 0};
    a.backend.linear(a.scratch, a.o, a.n, {&output, 1});
    if (share.shares_heads()) a.group->sum(a.scratch, a.x, a.n * layer.wo.rows);
}

// h = normalised x; ids and gates = the experts of each row and their weights.
void choose_experts(const Config& config, const LayerWeights& layer, const Activations& a) {
    const int64_t n_used = config.n_expert_used;
    a.backend.norm(a.scratch, a.x, a.n, layer.ffn_norm, config.norm_eps, a.h);
    a.backend.route(a.scratch, a.h, a.n, layer.router, layer.router_bias, n_used, a.ids, a.gates);
    if (config.expert_weights_scale != 1.0F)
        a.backend.scale(a.scratch, a.gates, a.n * n_used, config.expert_weights_scale);
}

}  // namespace

std::vector<float> rope_frequencies(const Config& config) {
    std::vector<float> frequency(config.rotary_dim / 2);
    for (size_t i = 0; i < frequency.size(); ++i) {
        const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(config.rotary_dim);
        frequency[i] = static_cast<float>(std::pow(config.rope_theta, exponent));
    }
    return frequency;
}

backend::StepLimits step_shape(const Config& config) {
    return {.hidden = config.hidden,
            .n_head = config.n_head,
            .n_head_kv = config.n_head_kv,
            .head_dim = config.head_dim,
            .n_expert = config.n_expert,
            .n_expert_used = config.n_expert_used,
            .expert_ff = config.expert_ff,
            .dense_ff = std::max(config.dense_ff, config.shared_ff),
            .n_vocab = config.n_vocab,
            .index = config.sparse_attention,
            .first_sparse_layer = config.first_sparse_layer};
}

backend::AttendArgs attend_args(const Config& config, const LayerWeights& layer,
                                std::span<const float> rope_frequency, int64_t kv_layer,
                                const Activations& a) {
    backend::AttendArgs args;
    args.n = a.n;
    args.q = a.q;
    args.k = a.k;
    args.v = a.v;
    args.o = a.o;
    args.rows = a.places;
    args.layer = kv_layer;
    args.n_head = config.n_head;
    args.n_head_kv = config.n_head_kv;
    args.head_dim = config.head_dim;
    args.q_norm = layer.q_norm;
    args.k_norm = layer.k_norm;
    args.norm_eps = config.norm_eps;
    args.rope_frequency = rope_frequency;
    return args;
}

runtime::Architecture minimax_m2(const Config& config, const Weights& weights,
                                 const runtime::RankShare& share) {
    const auto layer_at = [&weights](int64_t layer) -> const LayerWeights& { return weights.layers[layer]; };
    runtime::Architecture m2;
    m2.shape = step_shape(config);
    m2.n_layer = config.n_layer;
    m2.embed = [&weights](const Activations& a, std::span<const int32_t> tokens) {
        a.backend.embed(a.scratch, weights.embedding, tokens, a.x);
    };
    m2.attend = [&config, layer_at, share, rope_frequency = rope_frequencies(config)](
                    const Activations& a, int64_t layer, int64_t kv_layer) {
        attend(config, layer_at(layer), rope_frequency, kv_layer, share, a);
    };
    m2.add_attention = [layer_at, share](const Activations& a, int64_t layer) {
        add_attention(layer_at(layer), share, a);
    };
    m2.choose_experts = [&config, layer_at](const Activations& a, int64_t layer) {
        choose_experts(config, layer_at(layer), a);
    };
    m2.normalise_on_another_stage = [&config, layer_at](const backend::Backend& device,
                                                        backend::Scratch& scratch, const float* x, int64_t n,
                                                        int64_t layer, float* h) {
        device.norm(scratch, x, n, layer_at(layer).experts_norm, config.norm_eps, h);
    };
    m2.experts = [layer_at](int64_t layer) -> const backend::ExpertWeights& {
        return layer_at(layer).experts;
    };
    m2.normalise_output = [&config, &weights](const Activations& a) {
        a.backend.norm(a.scratch, a.x, a.n, weights.output_norm, config.norm_eps, a.h);
    };
    m2.project = [&weights](const backend::Backend& device, backend::Scratch& scratch, const float* h,
                            int64_t n, float* logits) {
        const LinearTask head = {&weights.output, logits, false};
        device.linear(scratch, h, n, {&head, 1});
    };
    return m2;
}

}  // namespace minim::model
