// SPDX-License-Identifier: Apache-2.0
// The experts of a layer as operations take them: all of them, or those that lie on one device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/matrix.h"
#include "format/format.h"

namespace minim::backend {

// One matrix an expert, all of one shape and format; `expert[e]` is where the rows of expert e start, or null if it is not here.
struct ExpertStack {
    Format format = Format::f32;
    int64_t rows = 0;
    int64_t cols = 0;
    int64_t row_bytes = 0;
    std::vector<const std::byte*> expert;
    std::vector<float> scale;  // per expert; empty means 1
    bool packed = false;
    const RowSplit* split = nullptr;     // of each expert's rows
    std::vector<const std::byte*> part;  // [n_expert][split->n_parts()]

    int64_t n_expert() const noexcept { return static_cast<int64_t>(expert.size()); }
    float scale_of(int64_t e) const noexcept { return scale.empty() ? 1.0F : scale[static_cast<size_t>(e)]; }
    Matrix matrix(int64_t e) const noexcept {
        Matrix m = {expert[static_cast<size_t>(e)], format, rows, cols, row_bytes, scale_of(e), packed};
        if (split != nullptr) {
            m.split = split;
            m.part = part.data() + e * split->n_parts();
        }
        return m;
    }
};

// Where an expert lies in the memory of a device, as the device reads it. gate is null if the expert is not there.
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

struct ExpertWeights {
    ExpertStack gate, up, down;  // [ff, hidden], [ff, hidden], [hidden, ff]
    // Of a device with memory of its own: [n_expert], in that memory. Which experts are here, and where, is read there when an
    // operation runs; the stacks give shapes and formats.
    const ExpertPlace* places = nullptr;
    // Of a backend on host memory: [n_expert], 1 where another device has the expert; null: nowhere.
    const uint8_t* elsewhere = nullptr;

    int64_t n_expert() const noexcept { return gate.n_expert(); }
    bool is_here(int64_t e) const noexcept { return elsewhere == nullptr || elsewhere[e] == 0; }
};

// The table of the experts whose addresses the stacks hold.
std::vector<ExpertPlace> places_of(const ExpertWeights& weights);

}  // namespace minim::backend
