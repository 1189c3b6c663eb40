// SPDX-License-Identifier: Apache-2.0
// Which device has what of a model. The layers are cut into stages: consecutive layers on one device. The first stage
// also has the embedding, the last one the output head. Between two stages the residual stream is sent to the next
// device. The experts of a layer may be on another device: the residual stream is sent there and back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/host_device.h"
#include "runtime/stream_rule.h"

namespace minim::runtime {

struct Stage {
    std::shared_ptr<const backend::Backend> backend;
    int64_t n_layer = 0;
    // The backends of the experts, one for each layer; empty: `backend` has those of all its layers.
    std::vector<std::shared_ptr<const backend::Backend>> experts = {};
    // Device memory for the expert cache. The host computes the experts that are not cached. 0: no cache.
    uint64_t cache_bytes = 0;
    // The rule by which steps copy experts to `backend` that are not there.
    StreamRule stream = {};

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
    bool operator==(const Stage&) const = default;
};

// What one of several ranks that compute the same layers has of each of them (placement/parallel.h).
struct RankShare {
    int32_t rank = 0;           // among the ranks of the layers
    int32_t tensor = 1;         // ranks that share heads and the rows of the output head
    int32_t expert_groups = 1;  // into which experts are divided
    int32_t expert_parts = 1;   // into which each expert is divided
    int32_t dense_parts = 1;  // into which dense feed-forwards and shared experts are divided: `tensor`, or 1

    int32_t n_ranks() const noexcept { return expert_groups * expert_parts; }
    bool has_expert(int64_t e) const noexcept { return e % expert_groups == rank % expert_groups; }
    int32_t expert_part() const noexcept { return rank / expert_groups; }
    bool shares_heads() const noexcept { return tensor > 1; }
    bool divides_dense() const noexcept { return dense_parts > 1; }
    bool operator==(const RankShare&) const = default;
};

// What one device has of a model: whole layers, or a share of each.
struct Shard {
    std::shared_ptr<const backend::Backend> backend;  // null: the device of another process
    RankShare share = {};
    // Layers whose attention, norms, router and KV cache it has.
    int64_t first_layer = 0;
    int64_t n_layer = 0;
    std::vector<int64_t> expert_layers = {};  // whose experts it has, in ascending order
    bool has_embedding = false;
    bool has_output = false;
    // What it receives and sends for each row of a step, without the token from the host and the logits to it.
    struct Crossings {
        uint64_t streams = 0;   // residual streams
        uint64_t routings = 0;  // chosen experts with their gates

        uint64_t bytes(int64_t hidden, int64_t n_expert_used) const noexcept {
            return streams * static_cast<uint64_t>(hidden) * sizeof(float) +
                   routings * static_cast<uint64_t>(n_expert_used) * (sizeof(float) + sizeof(int32_t));
        }
    };
    Crossings in = {}, out = {};

    bool has_layer(int64_t layer) const noexcept {
        return layer >= first_layer && layer < first_layer + n_layer;
    }
    bool has_experts_of(int64_t layer) const noexcept;
};

class Placement {
  public:
    Placement() = default;
    // Makes the placement of ranks that share layers. `shards`: those of this process. Each has all experts of its layers, of
    // which its share says what it has. n_layer: of the model.
    static Placement of_ranks(std::vector<Shard> shards, int64_t n_layer, int64_t prompt_rows);
    // Leaves out stages without layers. prompt_rows: the most rows of a prompt step for which there is room; 0:
    // k_default_step_rows.
    Placement(std::vector<Stage> stages, int64_t prompt_rows = 0);

    std::span<const Stage> stages() const noexcept { return stages_; }
    // Returns one shard for each stage, in order, then one for each further device, in the order in which the layers
    // name it.
    std::span<const Shard> shards() const noexcept { return shards_; }
    int64_t prompt_rows() const noexcept { return prompt_rows_; }
    // Returns whether each stage is a rank: with other stages or other processes it computes the same layers.
    bool has_ranks() const noexcept { return has_ranks_; }
    int64_t n_layer() const noexcept { return std::ssize(experts_); }
    // Return the indices of the shards with a layer, and with its experts.
    size_t device_of(int64_t layer) const noexcept;
    size_t experts_of(int64_t layer) const noexcept { return experts_[layer]; }

    bool operator==(const Placement& other) const {
        return stages_ == other.stages_ && prompt_rows_ == other.prompt_rows_;
    }

  private:
    size_t shard_on(const std::shared_ptr<const backend::Backend>& backend);

    std::vector<Stage> stages_;
    std::vector<Shard> shards_;
    std::vector<size_t> experts_;  // by layer: shard
    int64_t prompt_rows_ = 0;
    bool has_ranks_ = false;
};

// Returns "cuda:0 (layers 0-30), cuda:1 (layers 31-61, cache of 900 experts), cpu (experts of layers 31-61)". n_cached has, for
// each shard, the number of experts that its cache has room for. It may be shorter than the shards.
std::string to_string(const Placement& placement, std::span<const int64_t> n_cached = {});

// Returns a stage with all layers on a backend that the caller keeps.
inline Stage alone_on(const backend::Backend& backend, int64_t n_layer) {
    return {std::shared_ptr<const backend::Backend>(std::shared_ptr<void>(), &backend), n_layer};
}

}  // namespace minim::runtime
