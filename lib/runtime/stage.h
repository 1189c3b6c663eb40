// SPDX-License-Identifier: Apache-2.0
// The layers of a model, cut into stages: consecutive layers on one device. The first stage also has the embedding,
// the last one the output head. Between two stages the residual stream is sent to the next device. The experts of a
// layer may be offloaded to another device: the residual stream is sent there and back.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/host_device.h"
#include "runtime/stream_rule.h"

namespace minim::runtime {

struct Stage {
    std::shared_ptr<const backend::Backend> backend;
    int64_t n_layer = 0;
    // The backends of the experts, one for each layer; empty: `backend` has those of all its layers.
    std::vector<std::shared_ptr<const backend::Backend>> experts = {};
    // Bytes on `backend` for copies of experts that lie with the host. The host computes the experts that have no copy
    // there. 0: no copies.
    uint64_t cache_bytes = 0;
    // The rule by which steps copy experts to `backend` that are not there.
    StreamRule stream = {};
    // The most rows of a prompt step for which the placement leaves room; 0: k_default_step_rows.
    int64_t prompt_rows = 0;

    const std::shared_ptr<const backend::Backend>& experts_of(int64_t layer_of_stage) const noexcept {
        return experts.empty() ? backend : experts[layer_of_stage];
    }
    bool has_experts_of(int64_t layer_of_stage) const noexcept {
        return experts_of(layer_of_stage) == backend;
    }
    // Return the backend of the stage, and that of a layer's experts, if it computes on host memory; null if it has
    // memory of its own.
    const backend::HostDevice* host() const noexcept { return backend->host(); }
    const backend::HostDevice* host_of_experts(int64_t layer_of_stage) const noexcept {
        return experts_of(layer_of_stage)->host();
    }
    bool is_on_host() const noexcept { return host() != nullptr; }
    // Returns whether the host has the layer's experts, and `backend` has copies of some of them.
    bool shares_experts_of(int64_t layer_of_stage) const noexcept {
        return cache_bytes > 0 && !is_on_host() && host_of_experts(layer_of_stage) != nullptr;
    }
};

// Returns a stage with all layers on a backend that the caller keeps.
inline Stage alone_on(const backend::Backend& backend, int64_t n_layer) {
    return {std::shared_ptr<const backend::Backend>(std::shared_ptr<void>(), &backend), n_layer};
}

}  // namespace minim::runtime
