// SPDX-License-Identifier: Apache-2.0
#include "bytes_read.h"

#include <algorithm>
#include <cmath>

#include "support/file_format.h"

namespace minim::bench {
namespace {

// Returns the bytes of a row in the format of the file: the additional bytes of unpacked codebooks do not count.
double row_bytes_of(Format format, int64_t cols) {
    return static_cast<double>(row_bytes(file_format(format), cols));
}

double bytes_of(const backend::Matrix& m) {
    return static_cast<double>(m.rows) * row_bytes_of(m.format, m.cols);
}

// Returns the bytes of one expert.
double bytes_of_expert(const backend::ExpertWeights& experts) {
    double total = 0.0;
    for (const backend::ExpertStack* s : {&experts.gate, &experts.up, &experts.down})
        total += static_cast<double>(s->rows) * row_bytes_of(s->format, s->cols);
    return total;
}

// Returns the bytes of what every row reads: attention, with an index if there is one, the router, and a dense feed-forward.
double bytes_of_all_rows(const model::LayerWeights& w) {
    return bytes_of(w.wq) + bytes_of(w.wk) + bytes_of(w.wv) + bytes_of(w.index_q) + bytes_of(w.index_k) +
           bytes_of(w.wo) + bytes_of(w.router) + bytes_of_expert(w.dense);
}

// Returns the mean number of experts of a layer that at least one of n_rows tokens chooses, if choices are random.
double experts_read(const model::Config& config, int64_t n_rows) {
    const auto n_expert = static_cast<double>(config.n_expert);
    const double spared = 1.0 - static_cast<double>(config.n_expert_used) / n_expert;
    return n_expert * (1.0 - std::pow(spared, static_cast<double>(n_rows)));
}

}  // namespace

double active_bytes(const model::Config& config, const model::Weights& weights, int64_t n_rows,
                    const runtime::Shard& shard) {
    const double n_experts = experts_read(config, n_rows);
    double total = 0.0;
    if (shard.has_output) total += bytes_of(weights.output);
    if (shard.has_embedding) total += static_cast<double>(n_rows * weights.embedding.row_bytes);
    for (int64_t i = shard.first_layer; i < shard.first_layer + shard.n_layer; ++i) {
        const model::LayerWeights& w = weights.layers[static_cast<size_t>(i)];
        total += bytes_of_all_rows(w);
    }
    for (const int64_t i : shard.expert_layers)
        total += n_experts * bytes_of_expert(weights.layers[static_cast<size_t>(i)].experts);
    return total;
}

double active_bytes(const model::Config& config, const model::Weights& weights, int64_t n_rows) {
    const runtime::Placement all({{nullptr, config.n_layer}});
    return active_bytes(config, weights, n_rows, all.shards().front());
}

double weight_bytes(const model::Weights& weights) {
    double total = bytes_of(weights.output) + bytes_of(weights.embedding);
    for (const model::LayerWeights& w : weights.layers) {
        const auto n_experts = static_cast<double>(w.experts.gate.n_expert());
        total += bytes_of_all_rows(w) + n_experts * bytes_of_expert(w.experts);
    }
    return total;
}

double kv_bytes(const backend::KvLayout& layout, const backend::SparseAttention& index, int64_t n_layer,
                int64_t n_positions) {
    const auto n_attended = static_cast<double>(std::min(n_positions, index.top * index.block));
    const auto n_all = static_cast<double>(n_positions);
    constexpr auto k_page = static_cast<double>(backend::k_kv_page_tokens);
    double total = 0.0;
    for (int64_t layer = 0; layer < n_layer; ++layer) {
        const double all = static_cast<double>(layout.layer_bytes(layer)) / k_page;
        if (!layout.has_index(layer)) {
            total += all * n_all;
            continue;
        }
        // Up to as many blocks as are chosen, no block is scored.
        const auto own = static_cast<double>(layout.index_token_bytes());
        total += (all - own) * n_attended + (n_attended < n_all ? own * n_all : 0.0);
    }
    return total;
}

}  // namespace minim::bench
