// SPDX-License-Identifier: Apache-2.0
// Divides layers among devices.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace minim::placement {

// The sizes to split among devices, in any unit: consecutive layers, with additions for the first and the last device.
struct LayerSizes {
    double before = 0.0;
    std::vector<double> layer = {};
    double after = 0.0;
};
// Returns the number of layers of each share, in proportion. The counts add up to all layers; a share of 0 gets none.
// Throws invalid unless the shares are finite, not negative and have a positive sum.
std::vector<int64_t> split_layers(const LayerSizes& sizes, std::span<const double> shares);
// The same for layers of one size.
std::vector<int64_t> split_layers(int64_t n_layer, std::span<const double> shares);

}  // namespace minim::placement
