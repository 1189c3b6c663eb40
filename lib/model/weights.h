// SPDX-License-Identifier: Apache-2.0
// The weights of the model as operations use them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/config.h"
#include "runtime/placement.h"
#include "weights/place.h"

namespace minim::model {

struct LayerWeights {
    backend::Vector attn_norm;       // [hidden]
    backend::Matrix wq, wk, wv;      // [n_head * head_dim, hidden], [n_head_kv * head_dim, hidden] twice
    backend::Vector q_norm, k_norm;  // [n_head * head_dim], [n_head_kv * head_dim], or [head_dim] twice
    // Of layers with block-sparse attention: [index heads * index dim, hidden], [index dim, hidden], [index dim] twice.
    backend::Matrix index_q, index_k;
    backend::Vector index_q_norm, index_k_norm;
    backend::Matrix wo;              // [hidden, n_head * head_dim]
    backend::Vector ffn_norm;        // [hidden]
    backend::Matrix router;          // [n_expert, hidden]; none in a dense layer
    backend::Vector router_bias;     // [n_expert] or empty
    backend::ExpertWeights experts;  // none in a dense layer
    // The feed-forward that every row takes, as one expert: a dense layer's, or the shared expert. None in M2.
    backend::ExpertWeights dense;
    backend::Vector experts_norm;  // ffn_norm on the device that has the experts
};

struct Weights {
    backend::Matrix embedding;  // [n_vocab, hidden]
    std::vector<LayerWeights> layers;
    backend::Vector output_norm;  // [hidden]
    backend::Matrix output;       // [n_vocab, hidden]
};

// Returns whether a shard has a weight, or a part of it.
bool has(const runtime::Shard& shard, const weights::WeightSpec& weight);

// Returns the weights of each shard.
std::vector<weights::DeviceWeights> parts_of(const runtime::Placement& placement,
                                             std::span<const weights::WeightSpec> weights);
weights::DeviceWeights part_of(const runtime::Shard& shard, std::span<const weights::WeightSpec> weights);

// Returns a hash that identifies the part of the model in a shard.
uint64_t hash_of(const runtime::Shard& shard);

// Joins the parts, which must outlive the result. Together they have every weight, or those of a rank: then the layers and
// experts that the rank does not have are empty.
Weights join(std::span<const weights::DeviceWeights> parts, std::span<const weights::PlacedWeights> placed,
             const Config& config);

}  // namespace minim::model
