// SPDX-License-Identifier: Apache-2.0
// Input rows with numbers up to a million, and the errors of their products. M2.7's layer 61 has such inputs. The sum of a block
// of them exceeds the range of F16, which gave NaN for formats whose kernels stored a block's sum in F16.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "unit/cpu/support.h"

namespace minim::test {

inline constexpr float k_large = 1e6F;
inline constexpr int64_t k_kinds_of_rows = 6;

// Returns n rows whose kinds follow one another from first_kind on, and begin again after the last kind: 0: all large; 1: all
// large and of one sign, which has the largest sums; 2: one outlier among ordinary numbers; 3: from 1e-3 up to a million; 4:
// small; 5: ordinary, which large neighbours must not change.
inline std::vector<float> large_rows(int64_t n, int64_t cols, int64_t first_kind, Random& random) {
    std::vector<float> rows;
    for (int64_t i = 0; i < n; ++i) {
        std::vector<float> row = random.normal(cols);
        switch ((first_kind + i) % k_kinds_of_rows) {
            case 0:
                for (float& x : row) x = std::clamp(x * k_large / 3.0F, -k_large, k_large);
                break;
            case 1:
                for (float& x : row) x = k_large * (1.0F - 0.1F * std::min(std::abs(x), 3.0F));
                break;
            case 2:
                row[static_cast<size_t>(random.below(cols))] = -k_large;
                break;
            case 3:
                for (float& x : row)
                    x = std::copysign(std::pow(10.0F, 1.5F + std::clamp(1.5F * x, -4.5F, 4.5F)), x);
                break;
            case 4:
                for (float& x : row) x *= 1e-3F;
                break;
            default:
                break;
        }
        rows.insert(rows.end(), row.begin(), row.end());
    }
    return rows;
}

// Exact results, and the size that the error of each is compared with. For a product the size is |w| |x|. For a result computed
// from products it is the error that the result gets if each product is wrong by a small part of its size, divided by that
// part.
struct Expected {
    std::vector<double> exact;
    std::vector<double> size;

    // Returns the largest ratio of an error to its size, or infinity if a result is not finite.
    double worst(std::span<const float> results) const {
        double largest = 0.0;
        for (size_t i = 0; i < exact.size(); ++i) {
            if (!std::isfinite(results[i])) return std::numeric_limits<double>::infinity();
            largest = std::max(largest, std::abs(static_cast<double>(results[i]) - exact[i]) / size[i]);
        }
        return largest;
    }
};

inline double norm_of(std::span<const double> x) {
    double sum = 0.0;
    for (const double value : x) sum += value * value;
    return std::sqrt(sum);
}

// A matrix with its rows decoded once.
class LargeMatrix {
  public:
    LargeMatrix(Format format, int64_t rows, int64_t cols, Random& random)
        : matrix(format, rows, cols, random) {
        for (int64_t r = 0; r < rows; ++r) {
            const std::vector<float> row = matrix.decoded_row(r);
            rows_.emplace_back(row.begin(), row.end());
        }
    }

    // Returns the products with rows of inputs.
    Expected products(std::span<const float> x) const {
        const auto cols = static_cast<size_t>(matrix.view.cols);
        Expected all;
        for (size_t i = 0; i < x.size(); i += cols) {
            const std::vector<double> row(x.begin() + static_cast<std::ptrdiff_t>(i),
                                          x.begin() + static_cast<std::ptrdiff_t>(i + cols));
            const double norm = norm_of(row);
            for (const auto& weights : rows_) {
                all.exact.push_back(std::inner_product(weights.begin(), weights.end(), row.begin(), 0.0));
                all.size.push_back(norm_of(weights) * norm);
            }
        }
        return all;
    }
    // Returns the products with one row of inputs. Its errors, of these sizes, add to those of the product itself.
    Expected product(const Expected& x) const {
        Expected all;
        const double norm = norm_of(x.exact);
        for (const auto& weights : rows_) {
            all.exact.push_back(std::inner_product(weights.begin(), weights.end(), x.exact.begin(), 0.0));
            double square = 0.0;
            for (size_t k = 0; k < weights.size(); ++k)
                square += weights[k] * weights[k] * x.size[k] * x.size[k];
            all.size.push_back(norm_of(weights) * norm + std::sqrt(square));
        }
        return all;
    }

    TestMatrix matrix;

  private:
    std::vector<std::vector<double>> rows_;
};

// The experts of a layer, in one format, and the experts that each of any number of rows chooses: most rows choose the first two.
struct LargeExperts {
    static constexpr int64_t k_n_expert = 3;
    static constexpr int64_t k_n_used = 2;

    int64_t size;  // the width of a row before, between and after the matrices
    std::vector<LargeMatrix> gate, up, down;

    LargeExperts(Format format, int64_t width, Random& random) : size(width) {
        for (int64_t e = 0; e < k_n_expert; ++e)
            for (auto* stack : {&gate, &up, &down}) stack->emplace_back(format, size, size, random);
    }

    static std::vector<int32_t> ids(int64_t n) {
        std::vector<int32_t> chosen;
        for (int64_t i = 0; i < n; ++i) chosen.insert(chosen.end(), {i % 5 == 4 ? 2 : 0, 1});
        return chosen;
    }
    static std::vector<float> gates(int64_t n) {
        std::vector<float> all;
        for (int64_t i = 0; i < n; ++i) all.insert(all.end(), {0.75F, 0.25F});
        return all;
    }

    // Returns the outputs of the experts added to zeros, if products may be wrong by `part` of their size.
    Expected sums(const std::vector<float>& x, double part) const {
        const auto width = static_cast<size_t>(size);
        const size_t n = x.size() / width;
        const std::vector<int32_t> chosen = ids(static_cast<int64_t>(n));
        const std::vector<float> share = gates(static_cast<int64_t>(n));
        Expected all = {std::vector<double>(x.size()), std::vector<double>(x.size())};
        for (size_t slot = 0; slot < chosen.size(); ++slot) {
            const size_t first = slot / k_n_used * width;
            const auto e = static_cast<size_t>(chosen[slot]);
            const auto row = std::span(x).subspan(first, width);
            const Expected g = gate[e].products(row);
            const Expected u = up[e].products(row);
            Expected activated;
            for (size_t k = 0; k < width; ++k) {
                const double silu = g.exact[k] / (1.0 + std::exp(-g.exact[k]));
                activated.exact.push_back(silu * u.exact[k]);
                // The slope of SiLU is at most 1.1.
                activated.size.push_back(1.1 * g.size[k] * (std::abs(u.exact[k]) + part * u.size[k]) +
                                         std::abs(silu) * u.size[k]);
            }
            const Expected out = down[e].product(activated);
            for (size_t k = 0; k < width; ++k) {
                all.exact[first + k] += static_cast<double>(share[slot]) * out.exact[k];
                all.size[first + k] += static_cast<double>(share[slot]) * out.size[k];
            }
        }
        return all;
    }
};

}  // namespace minim::test
