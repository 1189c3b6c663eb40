// SPDX-License-Identifier: Apache-2.0
// A model of any shape made of random bytes in the memory of its devices: for speed, which depends on shapes and formats
// alone.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "model/config.h"
#include "model/model.h"
#include "model/weights.h"
#include "runtime/expert_pool.h"
#include "runtime/placement.h"
#include "weights/reader.h"

namespace minim::bench {

// The standard deviation of a router's weights.
inline constexpr float k_router_deviation = 0.02F;

struct SyntheticShape {
    int64_t n_layer = 2;
    int64_t hidden = 3072;
    int64_t n_head = 48;
    int64_t n_head_kv = 8;
    int64_t head_dim = 128;
    int64_t rotary_dim = 64;
    int64_t n_expert = 256;
    int64_t n_expert_used = 8;
    int64_t expert_ff = 1536;
    int64_t n_vocab = 200064;
    Format gate_format = Format::iq4_xs;
    Format up_format = Format::iq4_xs;
    Format down_format = Format::iq4_xs;
    Format dense_format = Format::q8_0;
    Format head_format = Format::q8_0;  // of the embedding too
    bool has_router_bias = false;       // all zeros at first
    // Of MiniMax-M3 alone:
    model::Family family = model::Family::m2;
    int64_t n_dense_layer = 0;  // leading layers without experts, which attend to all keys
    int64_t dense_ff = 0;
    int64_t shared_ff = 0;
    backend::SparseAttention index = {};

    bool has_experts(int64_t layer) const noexcept { return layer >= n_dense_layer; }
};

// Returns the shape of MiniMax-M3, with one leading layer without experts.
SyntheticShape m3_shape();

struct SyntheticModel {
    model::Config config;
    runtime::Placement placement;
    model::Weights weights;
    std::vector<std::unique_ptr<backend::Memory>> expert_tables;  // of devices
    std::vector<weights::WeightSpec> specs;
    std::vector<weights::PlacedWeights> placed;               // a shard
    weights::Reader reader;                                   // of pools, which need to read nothing
    std::vector<std::unique_ptr<runtime::ExpertPool>> pools;  // a stage; null: none
};

struct SyntheticOptions {
    bool packs = true;  // true: weights are packed if the device packs their format
    weights::Expand expand =
        weights::Expand::automatic;  // as those of a file; never where a device has a cache of experts
    runtime::ExpertMoves moves = runtime::ExpertMoves::reproducible;
};

// Matrices of one format and shape have the same bytes, routers apart: they are made on the host once, a piece at a time, and
// copied inside the device from then on. Throws out_of_memory or out_of_device_memory before anything is made, unsupported for a format that
// a device does not compute with, and invalid if a row is not a whole number of blocks.
std::unique_ptr<const SyntheticModel> make_synthetic(const SyntheticShape& shape,
                                                     const model::Model::Place& place,
                                                     const SyntheticOptions& options);

}  // namespace minim::bench
