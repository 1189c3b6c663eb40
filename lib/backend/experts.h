// SPDX-License-Identifier: Apache-2.0
// The experts of a layer in the form that operations take: all experts of the layer, or those on one device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/matrix.h"
#include "format/format.h"

namespace minim::backend {

// One matrix for each expert, all of one shape and format. `expert[e]` is the address of the rows of expert e, or null if the
// expert is not on this device.
struct ExpertStack {
    Format format = Format::f32;
    int64_t rows = 0;
    int64_t cols = 0;
    int64_t row_bytes = 0;
    std::vector<const std::byte*> expert;
    std::vector<float> scale;  // per expert; empty means 1
    bool packed = false;
    std::vector<const RowBlocks*> blocks;  // per expert, all with the same rows; empty: rows are contiguous

    int64_t n_expert() const noexcept { return static_cast<int64_t>(expert.size()); }
    float scale_of(int64_t e) const noexcept { return scale.empty() ? 1.0F : scale[e]; }
    Matrix matrix(int64_t e) const noexcept {
        const RowBlocks* in_blocks = blocks.empty() ? nullptr : blocks[e];
        return {expert[e], format, rows, cols, row_bytes, scale_of(e), packed, in_blocks};
    }
};

// The addresses of an expert in the memory of a device; the device reads this struct. gate is null if the expert is not there.
struct ExpertPlace {
    const std::byte* gate = nullptr;
    const std::byte* up = nullptr;
    const std::byte* down = nullptr;
    float gate_scale = 1.0F;
    float up_scale = 1.0F;
    float down_scale = 1.0F;
    uint32_t reserved[7] = {};
};
static_assert(sizeof(ExpertPlace) == 64);

// What stands between the products of gate and up and that of down. With a limit (MiniMax-M3):
// g = min(gate, limit), u = clamp(up, -limit, limit), g * sigmoid(alpha * g) * (u + 1). Without: silu(gate) * up.
struct Activation {
    float alpha = 1.0F;
    float limit = 0.0F;  // 0: none

    bool operator==(const Activation&) const = default;
};

struct ExpertWeights {
    ExpertStack gate, up, down;  // [ff, hidden], [ff, hidden], [hidden, ff]
    Activation activation = {};
    // The table of a device with memory of its own: [n_expert], in that memory. An operation reads from it, when it runs, which
    // experts are here and at which addresses; the stacks give only shapes and formats.
    const ExpertPlace* places = nullptr;
    // The table of a backend on host memory: [n_expert], 1 if another device has the expert; null: all experts are here.
    const uint8_t* is_on_device = nullptr;

    int64_t n_expert() const noexcept { return gate.n_expert(); }
    bool is_here(int64_t e) const noexcept { return is_on_device == nullptr || is_on_device[e] == 0; }
};

// Returns the table of the experts whose addresses are in the stacks.
std::vector<ExpertPlace> places_of(const ExpertWeights& weights);

}  // namespace minim::backend
