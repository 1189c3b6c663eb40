// SPDX-License-Identifier: Apache-2.0
// The weights of square errors that encoders work with, made from the importance of columns; checks of what they are given.
#pragma once

#include <cstdint>
#include <vector>

namespace minim::encoding {

// Throws invalid if a number of x [n_rows, n_columns] or of importance [n_columns] or null is not finite, or if one of importance is
// negative. The message names row and column.
void check_numbers(const float* x, int64_t n_rows, int64_t n_columns, const float* importance);

// Returns the importance divided by its mean, raised to `least` times its mean in each block, so that no block is without weight.
// Without importance, ones.
std::vector<float> column_weights(const float* importance, int64_t n_columns, int64_t block, double least);

inline constexpr double k_min_weight = 1e-4;

// Writes to `raised` the weights of a row's elements: those of their columns, but no less than what an outlier has. An element has at
// least `outlier` times its share of the sum of squares of its group of 32, as a multiple of the group's mean weight. So an outlier
// is not cut off because its column counts little. An element that is nearly all of its group has four times as much still, without
// importance too: codebooks have no zero, and the smallest square error would be that of a much smaller element among smaller
// neighbours.
void raise_outliers(const float* x, const std::vector<float>& u, double outlier, std::vector<float>& raised);

inline constexpr double k_outlier_weight = 0.25;

}  // namespace minim::encoding
