// SPDX-License-Identifier: Apache-2.0
// M3 computes what M2 computes, except for:
//   - attention, whose layers from first_sparse_layer on choose blocks of keys (backend/sparse_attention.h);
//   - a feed-forward that every row takes: alone in the leading layers, which have no experts, and as the shared expert, with
//     weight 1, beside the chosen experts of the others;
//   - the activation of all feed-forwards, which is one of the weights (backend/experts.h).
#include "model/minimax_m3.h"

#include <span>
#include <utility>
#include <vector>

#include "model/minimax_m2.h"

namespace minim::model {
namespace {

using backend::LinearTask;
using runtime::Activations;

// q, k, v, index queries and index keys = projections of the normalised x, in one call, so that a device quantises x once;
// o = attention.
void attend_in_blocks(const Config& config, const LayerWeights& layer, std::span<const float> rope_frequency,
                      int64_t kv_layer, const Activations& a) {
    a.backend.norm(a.scratch, a.x, a.n, layer.attn_norm, config.norm_eps, a.h);
    const LinearTask tasks[] = {{&layer.wq, a.q, false},
                                {&layer.wk, a.k, false},
                                {&layer.wv, a.v, false},
                                {&layer.index_q, a.index_q, false},
                                {&layer.index_k, a.index_k, false}};
    a.backend.linear(a.scratch, a.h, a.n, tasks);
    const backend::IndexArgs index = {.shape = config.sparse_attention,
                                      .q = a.index_q,
                                      .k = a.index_k,
                                      .q_norm = layer.index_q_norm,
                                      .k_norm = layer.index_k_norm};
    backend::AttendArgs args = attend_args(config, layer, rope_frequency, kv_layer, a);
    args.index = &index;
    a.backend.attend(a.scratch, args);
}

}  // namespace

runtime::Architecture minimax_m3(const Config& config, const Weights& weights,
                                 const runtime::RankShare& share) {
    runtime::Architecture m3 = minimax_m2(config, weights, share);
    m3.attend = [&config, &weights, attend_to_all = std::move(m3.attend),
                 rope_frequency = rope_frequencies(config)](const Activations& a, int64_t layer,
                                                            int64_t kv_layer) {
        if (!config.is_sparse(layer)) return attend_to_all(a, layer, kv_layer);
        attend_in_blocks(config, weights.layers[layer], rope_frequency, kv_layer, a);
    };
    m3.has_experts = [&config](int64_t layer) { return config.has_experts(layer); };
    m3.dense = [&weights](int64_t layer) -> const backend::ExpertWeights& {
        return weights.layers[layer].dense;
    };
    m3.normalise_dense = [&config, &weights](const Activations& a, int64_t layer) {
        a.backend.norm(a.scratch, a.x, a.n, weights.layers[layer].ffn_norm, config.norm_eps, a.h);
    };
    return m3;
}

}  // namespace minim::model
