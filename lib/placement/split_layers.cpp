// SPDX-License-Identifier: Apache-2.0
#include "placement/split_layers.h"

#include <cmath>
#include <numeric>

#include "base/error.h"

namespace minim::placement {

std::vector<int64_t> split_layers(const LayerSizes& sizes, std::span<const double> shares) {
    double total = 0.0;
    for (const double share : shares) {
        if (!(share >= 0.0) || !std::isfinite(share))
            fail(Status::invalid, "a device's share of the layers is {}; shares are numbers from 0 on",
                 share);
        total += share;
    }
    if (!(total > 0.0) || !std::isfinite(total))
        fail(Status::invalid, "the devices' shares of the layers add up to {}", total);
    const double size = std::accumulate(sizes.layer.begin(), sizes.layer.end(), sizes.before + sizes.after);
    // Each device ends with the layer whose end is nearest to the exact end of its share. The exact end is computed
    // from the sum of all shares up to its own, so that rounding errors do not add up.
    std::vector<int64_t> counts;
    double sum = 0.0;
    double end = sizes.before;
    auto layer = sizes.layer.begin();
    for (const double share : shares) {
        sum += share;
        const double wanted = sum / total * size;
        const auto first = layer;
        while (layer != sizes.layer.end() && end + *layer - wanted <= wanted - end) end += *layer++;
        counts.push_back(layer - first);
    }
    return counts;
}

std::vector<int64_t> split_layers(int64_t n_layer, std::span<const double> shares) {
    return split_layers({.layer = std::vector<double>(n_layer, 1.0)}, shares);
}

}  // namespace minim::placement
