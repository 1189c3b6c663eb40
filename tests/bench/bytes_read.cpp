// SPDX-License-Identifier: Apache-2.0
#include "bytes_read.h"

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

double bytes_of_attention(const model::LayerWeights& w) {
    return bytes_of(w.wq) + bytes_of(w.wk) + bytes_of(w.wv) + bytes_of(w.wo);
}

// Returns the bytes of one expert.
double bytes_of_expert(const model::LayerWeights& w) {
    double total = 0.0;
    for (const backend::ExpertStack* s : {&w.experts.gate, &w.experts.up, &w.experts.down})
        total += static_cast<double>(s->rows) * row_bytes_of(s->format, s->cols);
    return total;
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
        total += bytes_of_attention(w) + bytes_of(w.router);
    }
    for (const int64_t i : shard.expert_layers)
        total += n_experts * bytes_of_expert(weights.layers[static_cast<size_t>(i)]);
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
        total += bytes_of_attention(w) + bytes_of(w.router) + n_experts * bytes_of_expert(w);
    }
    return total;
}

}  // namespace minim::bench
