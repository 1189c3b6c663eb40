// SPDX-License-Identifier: Apache-2.0
// Matrices of simulated weights, and weights of their columns, which every program makes with the same bits: what the errors of
// tests/data/format/encode_quality.json were measured on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace minim::test {

struct WeightMatrix {
    int64_t n_rows;
    int64_t n_columns;
    std::vector<float> weights;     // [n_rows, n_columns], BF16 numbers
    std::vector<float> importance;  // [n_columns]
};

// The last rows are special.
inline constexpr int64_t k_ordinary_rows = 252;
inline constexpr int64_t k_special_rows = 4;  // tiny (2^-40), one element, constant, zero

// Returns matrix "gate" (256 x 3072), "down" (256 x 1536) or "narrow" (256 x 256). Numbers are nearly normal with heavier tails; rows
// and columns differ in scale, and one column in 128 is three times larger. Of the importance, one in 64 is fifty times larger and one in
// 128 is zero.
WeightMatrix weight_matrix(const std::string& kind, uint64_t seed);

// Returns the root of the sum of squares of the differences over that of the weights, in the ordinary rows; with `weighted` each
// square counts by the importance of its column.
double relative_error(const WeightMatrix& matrix, const std::vector<float>& y, bool weighted);

// Returns the FNV-1a hash of the numbers' bytes.
uint64_t checksum(const std::vector<float>& numbers);

}  // namespace minim::test
