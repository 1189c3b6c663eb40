// SPDX-License-Identifier: Apache-2.0
#include "format/encode/grid_neighbours.h"

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "format/encode/grid_search.h"

namespace minim::encoding {
namespace {

// Returns the numbers of the entries nearest to a pattern; of equally near ones the first.
template <int n, int dims>
std::array<int32_t, k_neighbours> nearest_entries(const Columns<n, dims>& columns, const float* pattern) {
    // Levels are whole numbers below 64, so that distance and number fit 32 bits together.
    std::array<int32_t, n> key;
    for (int32_t entry = 0; entry < n; ++entry) key[entry] = entry;
    for (int i = 0; i < dims; ++i) {
        for (int entry = 0; entry < n; ++entry) {
            const auto difference = static_cast<int32_t>(columns.value[i][entry] - pattern[i]);
            key[entry] += difference * difference * n;
        }
    }
    std::array<int32_t, k_neighbours> nearest;
    std::partial_sort_copy(key.begin(), key.end(), nearest.begin(), nearest.end());
    for (int32_t& entry : nearest) entry %= n;
    return nearest;
}

// `table` holds the entries.
template <int n, int dims>
GridNeighbours find_neighbours(const Columns<n, dims>& columns, std::vector<float>& table) {
    std::set<float> distinct;
    for (const auto& column : columns.value) distinct.insert(column, column + n);
    const std::vector<float> levels(distinct.begin(), distinct.end());
    const auto n_levels = std::ssize(levels);
    int64_t n_patterns = 1;
    for (int i = 0; i < dims; ++i) n_patterns *= n_levels;
    table.resize(k_neighbours * n_patterns);
    for (int64_t number = 0; number < n_patterns; ++number) {
        float pattern[dims];
        int64_t rest = number;
        for (float& value : pattern) {
            value = levels[rest % n_levels];
            rest /= n_levels;
        }
        const std::array<int32_t, k_neighbours> nearest = nearest_entries(columns, pattern);
        for (int k = 0; k < k_neighbours; ++k)
            table[k * n_patterns + number] = static_cast<float>(nearest[k]);
    }
    const auto last_level = static_cast<float>(n_levels - 1);
    return {levels.front(), last_level / (levels.back() - levels.front()), last_level, n_patterns,
            table.data()};
}

template <const auto& columns>
const GridNeighbours* neighbours_in() {
    static std::vector<float> table;
    static const GridNeighbours near = find_neighbours(columns, table);
    return &near;
}

}  // namespace

const GridNeighbours* neighbours_of(Format format) {
    switch (format) {
        case Format::iq2_xxs:
            return neighbours_in<k_iq2xxs_columns>();
        case Format::iq2_xs:
            return neighbours_in<k_iq2xs_columns>();
        case Format::iq2_s:
            return neighbours_in<k_iq2s_columns>();
        case Format::iq3_xxs:
            return neighbours_in<k_iq3xxs_columns>();
        case Format::iq3_s:
            return neighbours_in<k_iq3s_columns>();
        case Format::iq1_s:
        case Format::iq1_m:
            return neighbours_in<k_iq1s_columns>();
        default:
            return nullptr;
    }
}

}  // namespace minim::encoding
