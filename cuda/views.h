// SPDX-License-Identifier: Apache-2.0
// Converts matrices of the backend interface to the kernels' arguments.
#pragma once

#include <cstddef>

#include "backend/backend.h"
#include "cuda/exact/operations.h"

namespace minim::cuda {

inline exact::Weight weight_of(const backend::Matrix& matrix) {
    return {reinterpret_cast<const uint8_t*>(matrix.data),
            matrix.format,
            matrix.rows,
            matrix.cols,
            matrix.row_bytes,
            matrix.scale};
}

// The three matrices of a layer's experts. The table says which experts are here, and where.
struct ExpertViews {
    exact::Experts gate, up, down;
    bool gate_is_packed, up_is_packed, down_is_packed;
    int64_t n_expert;

    explicit ExpertViews(const backend::ExpertWeights& weights)
        : gate_is_packed(weights.gate.packed),
          up_is_packed(weights.up.packed),
          down_is_packed(weights.down.packed),
          n_expert(weights.n_expert()) {
        using backend::ExpertPlace;
        const auto view = [&](const backend::ExpertStack& stack, size_t data_at, size_t scale_at) {
            return exact::Experts{.format = stack.format,
                                  .rows = stack.rows,
                                  .cols = stack.cols,
                                  .row_bytes = stack.row_bytes,
                                  .first_row = 0,
                                  .places = weights.places,
                                  .data_at = static_cast<uint32_t>(data_at),
                                  .scale_at = static_cast<uint32_t>(scale_at),
                                  .activation = weights.activation};
        };
        gate = view(weights.gate, offsetof(ExpertPlace, gate), offsetof(ExpertPlace, gate_scale));
        up = view(weights.up, offsetof(ExpertPlace, up), offsetof(ExpertPlace, up_scale));
        down = view(weights.down, offsetof(ExpertPlace, down), offsetof(ExpertPlace, down_scale));
    }
};

}  // namespace minim::cuda
