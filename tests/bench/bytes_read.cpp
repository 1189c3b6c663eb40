#include "bytes_read.h"

#include <cmath>

namespace minim::bench {
namespace {

double bytes_of(const backend::Matrix& m) {
    return static_cast<double>(m.rows * m.row_bytes);
}

double bytes_of_attention(const model::LayerWeights& w) {
    return bytes_of(w.wq) + bytes_of(w.wk) + bytes_of(w.wv) + bytes_of(w.wo);
}

// Of one expert.
double bytes_of_expert(const model::LayerWeights& w) {
    double total = 0.0;
    for (const backend::ExpertStack* s : {&w.experts.gate, &w.experts.up, &w.experts.down})
        total += static_cast<double>(s->rows * s->row_bytes);
    return total;
}

// Experts of a layer that at least one of n_rows tokens chooses, on average, where chance chooses.
double experts_read(const model::Config& config, int64_t n_rows) {
    const auto n_expert = static_cast<double>(config.n_expert);
    const double spared = 1.0 - static_cast<double>(config.n_expert_used) / n_expert;
    return n_expert * (1.0 - std::pow(spared, static_cast<double>(n_rows)));
}

}  // namespace

double active_bytes(const model::Config& config, const model::Weights& weights, int64_t n_rows) {
    const double n_experts = experts_read(config, n_rows);
    double total = bytes_of(weights.output) + static_cast<double>(n_rows * weights.embedding.row_bytes);
    for (const model::LayerWeights& w : weights.layers)
        total += bytes_of_attention(w) + bytes_of(w.router) + n_experts * bytes_of_expert(w);
    return total;
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
