// SPDX-License-Identifier: Apache-2.0
// The entries of a codebook that are near a pattern, for encoders that do not compare all entries. A pattern has one of the codebook's
// levels at each position: 3 levels at 8 positions make 6,561 patterns.
#pragma once

#include <cstdint>

#include "format/format.h"

namespace minim::encoding {

inline constexpr int k_neighbours = 8;
inline constexpr int k_shifted_neighbours = 6;  // of these, for codebooks with shifts

struct GridNeighbours {
    // The level nearest to t is about round((t - lowest) * levels_per_unit), kept within 0 and last_level.
    float lowest;
    float levels_per_unit;
    float last_level;
    int64_t n_patterns;
    // [k_neighbours][n_patterns]: indices of entries, the nearest first. The level at position 0 is the lowest digit of a pattern's number.
    const float* entries;
};

// Returns the neighbours in the codebook of a format, which the first call finds; null: the format has no codebook. Any thread.
const GridNeighbours* neighbours_of(Format format);

}  // namespace minim::encoding
