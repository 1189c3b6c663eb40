#include "model/stage.h"

#include <cmath>

#include "base/error.h"

namespace minim::model {

std::vector<int64_t> split_layers(int64_t n_layer, std::span<const double> shares) {
    double total = 0.0;
    for (const double share : shares) {
        if (!(share >= 0.0) || !std::isfinite(share))
            fail(Status::invalid, "a device's share of the layers is {}; shares are numbers from 0 on",
                 share);
        total += share;
    }
    if (!(total > 0.0) || !std::isfinite(total))
        fail(Status::invalid, "the devices' shares of the layers add up to {}", total);
    // Each device ends where the shares up to its own end, so that roundings do not add up.
    std::vector<int64_t> counts;
    double sum = 0.0;
    int64_t done = 0;
    for (const double share : shares) {
        sum += share;
        const auto end = static_cast<int64_t>(std::llround(sum / total * static_cast<double>(n_layer)));
        counts.push_back(end - done);
        done = end;
    }
    return counts;
}

}  // namespace minim::model
