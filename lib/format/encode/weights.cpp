// SPDX-License-Identifier: Apache-2.0
#include "format/encode/weights.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace minim::encoding {

void check_numbers(const float* x, int64_t n_rows, int64_t n_columns, const float* importance) {
    for (int64_t row = 0; row < n_rows; ++row) {
        for (int64_t column = 0; column < n_columns; ++column) {
            const float weight = x[row * n_columns + column];
            if (!std::isfinite(weight)) {
                fail(Status::invalid, "the weight of row {}, column {} is {}", row, column, weight);
            }
        }
    }
    if (importance == nullptr) return;
    for (int64_t column = 0; column < n_columns; ++column) {
        const float u = importance[column];
        if (!std::isfinite(u) || u < 0.0F)
            fail(Status::invalid, "the importance of column {} is {}", column, u);
    }
}

std::vector<float> column_weights(const float* importance, int64_t n_columns, int64_t block, double least) {
    std::vector<float> u(static_cast<size_t>(n_columns), 1.0F);
    if (importance == nullptr) return u;
    double total = 0.0;
    for (int64_t i = 0; i < n_columns; ++i) total += static_cast<double>(importance[i]);
    if (total == 0.0) return u;
    const double mean = total / static_cast<double>(n_columns);
    for (int64_t start = 0; start < n_columns; start += block) {
        const int64_t end = std::min(start + block, n_columns);
        double sum = 0.0;
        for (int64_t i = start; i < end; ++i) sum += static_cast<double>(importance[i]) / mean;
        // A block without any importance has small weights, but not such as would vanish when they are multiplied.
        const double floor = std::max(least * sum / static_cast<double>(end - start), 1e-8);
        for (int64_t i = start; i < end; ++i)
            u[static_cast<size_t>(i)] =
                static_cast<float>(std::max(static_cast<double>(importance[i]) / mean, floor));
    }
    return u;
}

void raise_outliers(const float* x, const std::vector<float>& u, double outlier, std::vector<float>& raised) {
    constexpr size_t k_group = 32;
    constexpr double k_weight_of_spikes = 4.0;
    for (size_t start = 0; start < u.size(); start += k_group) {
        const size_t end = std::min(start + k_group, u.size());
        double sum_u = 0.0;
        double sum_xx = 0.0;
        for (size_t i = start; i < end; ++i) {
            sum_u += static_cast<double>(u[i]);
            sum_xx += static_cast<double>(x[i]) * static_cast<double>(x[i]);
        }
        const double mean_u = sum_u / static_cast<double>(end - start);
        const double inverse = sum_xx > 0.0 ? 1.0 / sum_xx : 0.0;
        for (size_t i = start; i < end; ++i) {
            const double share = static_cast<double>(x[i]) * static_cast<double>(x[i]) * inverse;
            const double square = share * share;
            const double least = mean_u * (outlier * share + k_weight_of_spikes * square * square);
            raised[i] = std::max(u[i], static_cast<float>(least));
        }
    }
}

}  // namespace minim::encoding
