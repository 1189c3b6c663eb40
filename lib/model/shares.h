// SPDX-License-Identifier: Apache-2.0
// The weights of a model that each device has, given the stages of its layers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "runtime/stage.h"
#include "weights/spec.h"

namespace minim::model {

// The part of a model on one device.
struct Share {
    std::shared_ptr<const backend::Backend> backend;
    // Layers whose attention, norms, router and KV cache it has.
    int64_t first_layer = 0;
    int64_t n_layer = 0;
    std::vector<int64_t> expert_layers = {};  // layers whose experts the device has, in ascending order
    bool has_embedding = false;
    bool has_output = false;

    bool has_layer(int64_t layer) const noexcept {
        return layer >= first_layer && layer < first_layer + n_layer;
    }
    bool has_experts_of(int64_t layer) const noexcept;
    bool has(const weights::WeightSpec& weight) const noexcept;
};

// Returns one share for each stage, in order, then one for each further device, in the order in which the layers name it.
std::vector<Share> shares_of(std::span<const runtime::Stage> stages);

// Bytes that a device receives and sends for each token of a step: residual stream and routing, without the token
// from the host and the logits to it.
struct CrossingBytes {
    uint64_t in = 0;
    uint64_t out = 0;
};
// Returns the bytes of each share.
std::vector<CrossingBytes> crossing_bytes(std::span<const runtime::Stage> stages,
                                          std::span<const Share> shares, int64_t hidden,
                                          int64_t n_expert_used);

// The sizes to split among devices, in any unit: consecutive layers, with additions for the first and the last device.
struct LayerSizes {
    double before = 0.0;
    std::vector<double> layer = {};
    double after = 0.0;
};
// Returns the number of layers of each share, in proportion. The counts add up to all layers; a share of 0 gets none.
// Throws invalid unless the shares are finite, not negative and have a positive sum.
std::vector<int64_t> split_layers(const LayerSizes& sizes, std::span<const double> shares);
// The same for layers of one size.
std::vector<int64_t> split_layers(int64_t n_layer, std::span<const double> shares);

}  // namespace minim::model
