// SPDX-License-Identifier: Apache-2.0
// The layers of a model, cut into stages: consecutive layers on one device. The first stage also has the embedding,
// the last one the output head. Between two stages the residual stream is sent to the next device. The experts of a
// layer may be offloaded to another device: the residual stream is sent there and back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "weights/spec.h"

namespace minim::model {

struct Stage {
    std::shared_ptr<const backend::Backend> backend;
    int64_t n_layer = 0;
    // The backends of the experts, one for each layer; empty: `backend` has those of all its layers.
    std::vector<std::shared_ptr<const backend::Backend>> experts = {};
    // Room on `backend` for experts of layers whose experts lie with the host, which then computes those that are not there; 0: none.
    uint64_t cache_bytes = 0;

    const std::shared_ptr<const backend::Backend>& experts_of(int64_t layer_of_stage) const noexcept {
        return experts.empty() ? backend : experts[static_cast<size_t>(layer_of_stage)];
    }
    bool has_experts_of(int64_t layer_of_stage) const noexcept {
        return experts_of(layer_of_stage) == backend;
    }
    // Whether the host has the layer's experts and `backend` some of them.
    bool shares_experts_of(int64_t layer_of_stage) const noexcept {
        return cache_bytes > 0 && !backend->uses_host_memory() &&
               experts_of(layer_of_stage)->uses_host_memory();
    }
};

// The part of a model on one device.
struct Share {
    std::shared_ptr<const backend::Backend> backend;
    // Layers whose attention, norms, router and KV cache it has.
    int64_t first_layer = 0;
    int64_t n_layer = 0;
    std::vector<int64_t> expert_layers = {};  // whose experts it has, in ascending order
    bool has_embedding = false;
    bool has_output = false;

    bool has_layer(int64_t layer) const noexcept {
        return layer >= first_layer && layer < first_layer + n_layer;
    }
    bool has_experts_of(int64_t layer) const noexcept;
    bool has(const weights::WeightSpec& weight) const noexcept;
};

// Returns one share for each stage, in order, then one for each further device, in the order in which the layers name it.
std::vector<Share> shares_of(std::span<const Stage> stages);

// Bytes that a device receives and sends for each token of a step: residual stream and routing, without the token
// from the host and the logits to it.
struct CrossingBytes {
    uint64_t in = 0;
    uint64_t out = 0;
};
// One a share.
std::vector<CrossingBytes> crossing_bytes(std::span<const Stage> stages, std::span<const Share> shares,
                                          int64_t hidden, int64_t n_expert_used);

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
