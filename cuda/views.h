// Matrices of the backend interface as the kernels take them.
#pragma once

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

inline exact::Experts experts_of(const backend::ExpertStack& stack) {
    exact::Experts experts = {stack.format, stack.rows, stack.cols, stack.row_bytes, {}, {}};
    for (int64_t e = 0; e < stack.n_expert(); ++e) {
        const backend::Matrix matrix = stack.matrix(e);
        experts.data[e] = reinterpret_cast<const uint8_t*>(matrix.data);
        experts.scale[e] = matrix.scale;
    }
    return experts;
}

}  // namespace minim::cuda
