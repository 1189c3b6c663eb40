// SPDX-License-Identifier: Apache-2.0
// The bytes of a model by layer, and of what steps need beside it. Uses only shapes and formats; nothing is allocated.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/config.h"
#include "placement/facts.h"
#include "placement/request.h"
#include "weights/spec.h"

namespace minim::placement {

// The weights of one format among several matrices.
struct FormatPart {
    Format format = Format::f32;
    double bytes = 0.0;
    double numbers = 0.0;  // rows * cols
    double cycles = 0.0;   // in which a multiprocessor of a device decodes them (predict.h)
};

// Adds a part to that of its format.
void add_part(std::vector<FormatPart>& parts, const FormatPart& part);

struct LayerBytes {
    uint64_t dense = 0;
    uint64_t experts = 0;  // all experts
    int64_t n_experts = 0;
    // Seconds of the host for one row: the time of `dense` and of `experts` at host_rate().
    double dense_on_host = 0.0;
    double experts_on_host = 0.0;
    // The same weights by format.
    std::vector<FormatPart> dense_parts = {};
    std::vector<FormatPart> expert_parts = {};

    uint64_t one_expert() const noexcept {
        return n_experts == 0 ? 0 : experts / static_cast<uint64_t>(n_experts);
    }
};

struct ModelBytes {
    const model::Config& config;
    std::vector<LayerBytes> layers = {};
    uint64_t embedding = 0;
    uint64_t head = 0;
    uint64_t expert_norms = 0;  // copies of norms beside offloaded experts
    double head_on_host = 0.0;  // seconds
    std::vector<FormatPart> head_parts = {};
};
ModelBytes model_bytes(const model::Config& config, std::span<const weights::WeightSpec> weights,
                       const HostFacts& host);

// Returns the bytes of the KV cache of a layer, with its index keys if it has any.
uint64_t kv_bytes(const model::Config& config, const Request& request, int64_t layer, int64_t n_tokens);
// Returns the bytes of it that attention reads for the last row of n_tokens: all, or, if the layer chooses blocks, the index keys
// and the chosen blocks.
uint64_t kv_read_bytes(const model::Config& config, const Request& request, int64_t layer, int64_t n_tokens);
// Returns what kv_read_bytes() says of each layer.
std::vector<uint64_t> kv_read_bytes(const model::Config& config, const Request& request, int64_t n_tokens);

// Returns the bytes in a place that are neither weights nor KV cache: the buffers of steps of n_rows rows, staging, tables of experts,
// and what a driver takes. An open device says what it needs; for others, and for the host, it is estimated.
uint64_t work_bytes(const ModelBytes& bytes, const Machine& machine, int64_t place, bool has_cache,
                    int64_t n_rows, int64_t n_context);

// Returns the bytes of the outputs of a step's slots. A device with a cache adds them up once the host has computed its slots. They are
// part of the work of an open device.
uint64_t output_bytes(const model::Config& config, const Machine& machine, int64_t n_rows);

// Returns the part of a memory that stays free, for allocations that are not counted. Those of open devices are counted.
uint64_t reserve_of(uint64_t memory_bytes);

}  // namespace minim::placement
