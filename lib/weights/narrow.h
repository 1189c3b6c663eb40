// SPDX-License-Identifier: Apache-2.0
// Parts of weights: some rows of a matrix, or some of its columns. Ranks that share a layer have such parts (placement/parallel.h).
// A part is a weight like any other. Its rows are contiguous in the source; its columns are cut out of whole rows while these are
// read, so that a part of columns cannot be mapped. The factor of the whole matrix, and the scale in the header of a row, are
// those of each part too.
#pragma once

#include <cstdint>

#include "weights/spec.h"

namespace minim::weights {

struct Range {
    int64_t first = 0;
    int64_t count = 0;
};

// Returns these rows of a matrix, or these elements of a vector. The range must be inside the weight.
WeightSpec rows_of(const WeightSpec& whole, Range range);

// Returns these columns of a matrix: whole blocks of its format.
WeightSpec columns_of(const WeightSpec& whole, Range range);

}  // namespace minim::weights
