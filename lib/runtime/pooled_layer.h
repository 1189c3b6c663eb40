// SPDX-License-Identifier: Apache-2.0
// A layer whose experts are in host memory, and how a copy of one of them lies in a device's memory: gate, up, down.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "weights/spec.h"

namespace minim::runtime {

struct PooledLayer {
    int64_t layer = 0;  // of the model
    // [n_expert] each
    std::vector<const weights::WeightSpec*> gate, up, down;
    const backend::ExpertWeights* on_host = nullptr;
};

// Returns the bytes that a matrix takes on a device, aligned for wide loads of a GPU.
uint64_t room_of(const weights::WeightSpec& weight);
// Returns the bytes of an expert of the layer on a device.
uint64_t place_bytes(const PooledLayer& layer);
// Returns the bytes of all experts of the layers on a device.
uint64_t bytes_of_all(std::span<const PooledLayer> layers);

// Returns the shapes and formats of the layer's experts on a device, without addresses. Throws unsupported for a format that the
// device does not run.
backend::ExpertWeights shapes_on(const backend::Backend& device, const PooledLayer& layer);

// Returns the entry of a device's table for an expert whose copy begins at `data`.
backend::ExpertPlace place_at(const PooledLayer& layer, int32_t expert, const std::byte* data);

}  // namespace minim::runtime
