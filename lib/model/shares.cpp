// SPDX-License-Identifier: Apache-2.0
#include "model/shares.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "model/roles.h"

namespace minim::model {
namespace {

size_t share_with(std::span<const Share> shares, const backend::Backend& backend) {
    const auto found =
        std::ranges::find(shares, &backend, [](const Share& share) { return share.backend.get(); });
    return static_cast<size_t>(found - shares.begin());
}

}  // namespace

bool Share::has_experts_of(int64_t layer) const noexcept {
    return std::ranges::binary_search(expert_layers, layer);
}

bool Share::has(const weights::WeightSpec& weight) const noexcept {
    const auto role = static_cast<Role>(weight.role);
    if (role == Role::embedding) return has_embedding;
    if (weight.layer < 0) return has_output;
    if (weight.is_expert()) return has_experts_of(weight.layer);
    if (role == Role::experts_norm) return has_experts_of(weight.layer) && !has_layer(weight.layer);
    return has_layer(weight.layer);
}

std::vector<Share> shares_of(std::span<const runtime::Stage> stages) {
    std::vector<Share> shares;
    int64_t first = 0;
    for (const runtime::Stage& stage : stages) {
        Share& share = shares.emplace_back();
        share.backend = stage.backend;
        share.first_layer = std::exchange(first, first + stage.n_layer);
        share.n_layer = stage.n_layer;
    }
    if (shares.empty()) return shares;
    shares.front().has_embedding = true;
    shares.back().has_output = true;
    for (size_t s = 0; s < stages.size(); ++s) {
        for (int64_t i = 0; i < stages[s].n_layer; ++i) {
            const auto& backend = stages[s].experts_of(i);
            size_t at = backend == stages[s].backend ? s : share_with(shares, *backend);
            if (at == shares.size()) shares.push_back({.backend = backend});
            shares[at].expert_layers.push_back(shares[s].first_layer + i);
        }
    }
    return shares;
}

std::vector<CrossingBytes> crossing_bytes(std::span<const runtime::Stage> stages,
                                          std::span<const Share> shares, int64_t hidden,
                                          int64_t n_expert_used) {
    const uint64_t x_bytes = static_cast<uint64_t>(hidden) * sizeof(float);
    const uint64_t routing_bytes = static_cast<uint64_t>(n_expert_used) * (sizeof(float) + sizeof(int32_t));
    std::vector<CrossingBytes> all(shares.size());
    for (size_t s = 0; s < stages.size(); ++s) {
        if (s > 0) {
            all[s - 1].out += x_bytes;
            all[s].in += x_bytes;
        }
        for (int64_t i = 0; i < stages[s].n_layer; ++i) {
            if (stages[s].has_experts_of(i)) continue;
            const size_t away = share_with(shares, *stages[s].experts_of(i));
            all[s].out += x_bytes + routing_bytes;
            all[away].in += x_bytes + routing_bytes;
            all[away].out += x_bytes;
            all[s].in += x_bytes;
        }
    }
    return all;
}

std::vector<int64_t> split_layers(const LayerSizes& sizes, std::span<const double> shares) {
    double total = 0.0;
    for (const double share : shares) {
        if (!(share >= 0.0) || !std::isfinite(share))
            fail(Status::invalid, "a device's share of the layers is {}; shares are numbers from 0 on",
                 share);
        total += share;
    }
    if (!(total > 0.0) || !std::isfinite(total))
        fail(Status::invalid, "the devices' shares of the layers add up to {}", total);
    const double size = std::accumulate(sizes.layer.begin(), sizes.layer.end(), sizes.before + sizes.after);
    // Each device ends with the layer whose end is nearest to the exact end of its share. The exact end is computed
    // from the sum of all shares up to its own, so that rounding errors do not add up.
    std::vector<int64_t> counts;
    double sum = 0.0;
    double end = sizes.before;
    auto layer = sizes.layer.begin();
    for (const double share : shares) {
        sum += share;
        const double wanted = sum / total * size;
        const auto first = layer;
        while (layer != sizes.layer.end() && end + *layer - wanted <= wanted - end) end += *layer++;
        counts.push_back(layer - first);
    }
    return counts;
}

std::vector<int64_t> split_layers(int64_t n_layer, std::span<const double> shares) {
    return split_layers({.layer = std::vector<double>(n_layer, 1.0)}, shares);
}

}  // namespace minim::model
