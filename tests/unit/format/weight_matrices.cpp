// SPDX-License-Identifier: Apache-2.0
#include "weight_matrices.h"

#include <cmath>
#include <stdexcept>

#include "base/half.h"

namespace minim::test {
namespace {

// The output function of SplitMix64.
uint64_t mixed(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
}

struct NumberStream {
    uint64_t start;

    NumberStream(uint64_t seed, uint64_t purpose)
        : start(seed * 0x9E3779B97F4A7C15 + purpose * 0xD1B54A32D192ED03) {}
    uint64_t hash(int64_t index) const {
        return mixed(start + (static_cast<uint64_t>(index) + 1) * 0x9E3779B97F4A7C15);
    }
    // The sum of twelve 16-bit pieces of three hashes: nearly normal, variance 1, a multiple of 2^-16.
    double normal(int64_t index) const {
        int64_t total = 0;
        for (int word = 0; word < 3; ++word) {
            for (int shift = 0; shift < 64; shift += 16)
                total += static_cast<int64_t>((hash(3 * index + word) >> shift) & 0xFFFF);
        }
        return static_cast<double>(total - 393210) / 65536.0;
    }
};

double positive(double n, double slope, double curve) {
    return 1.0 + slope * n + curve * n * n;
}

}  // namespace

WeightMatrix weight_matrix(const std::string& kind, uint64_t seed) {
    const std::vector<std::string> kinds = {"gate", "down", "narrow"};
    const std::vector<int64_t> columns = {3072, 1536, 256};
    size_t which = 0;
    while (which < kinds.size() && kinds[which] != kind) ++which;
    if (which == kinds.size()) throw std::invalid_argument(kind);
    WeightMatrix matrix{k_ordinary_rows + k_special_rows, columns[which], {}, {}};
    const int64_t n_columns = matrix.n_columns;
    const uint64_t purpose = 16 * (1 + which);
    const NumberStream elements(seed, purpose);
    const NumberStream rows(seed, purpose + 1);
    const NumberStream column_scales(seed, purpose + 2);
    const NumberStream loud(seed, purpose + 3);
    matrix.weights.resize(static_cast<size_t>(matrix.n_rows * n_columns));
    for (int64_t row = 0; row < matrix.n_rows; ++row) {
        const double row_scale = positive(rows.normal(row), 0.3, 0.045);
        for (int64_t column = 0; column < n_columns; ++column) {
            const double n = elements.normal(row * n_columns + column);
            double w = n * (1.0 + 0.04 * (n * n));
            w = w * row_scale;
            w = w * positive(column_scales.normal(column), 0.2, 0.03);
            if (loud.hash(column) % 128 == 0) w = 3.0 * w;
            w = w * 0.015625;
            if (row == 252) w *= 0x1p-40;
            if (row == 253) w = column == n_columns / 3 ? 0.25 : 0.0;
            if (row == 254) w = 0.03125;
            if (row == 255) w = 0.0;
            matrix.weights[static_cast<size_t>(row * n_columns + column)] =
                bf16_to_float(float_to_bf16(static_cast<float>(w)));
        }
    }
    const NumberStream squares(seed, purpose + 4);
    const NumberStream scales(seed, purpose + 5);
    const NumberStream picks(seed, purpose + 6);
    for (int64_t column = 0; column < n_columns; ++column) {
        const double n = squares.normal(column);
        double v = (0.2 + n * n) * positive(scales.normal(column), 0.3, 0.045);
        if (picks.hash(column) % 64 == 1) v = 50.0 * v;
        if (picks.hash(column) % 128 == 2) v = 0.0;
        matrix.importance.push_back(static_cast<float>(v));
    }
    return matrix;
}

double relative_error(const WeightMatrix& matrix, const std::vector<float>& y, bool weighted) {
    double difference = 0.0;
    double power = 0.0;
    for (int64_t i = 0; i < k_ordinary_rows * matrix.n_columns; ++i) {
        const double u = weighted ? static_cast<double>(matrix.importance[i % matrix.n_columns]) : 1.0;
        const auto x = static_cast<double>(matrix.weights[i]);
        const double d = x - static_cast<double>(y[i]);
        difference += u * d * d;
        power += u * x * x;
    }
    return std::sqrt(difference / power);
}

uint64_t checksum(const std::vector<float>& numbers) {
    uint64_t hash = 0xCBF29CE484222325;
    for (const float number : numbers) {
        const uint32_t bits = float_to_bits(number);
        for (int shift = 0; shift < 32; shift += 8) hash = (hash ^ (bits >> shift & 255U)) * 0x100000001B3;
    }
    return hash;
}

}  // namespace minim::test
