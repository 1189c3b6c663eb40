// SPDX-License-Identifier: Apache-2.0
// Sizes in the sentences of plans.
#pragma once

#include <cstdint>
#include <string>

#include "base/format_text.h"

namespace minim::placement {

inline std::string size_text(uint64_t bytes) {
    return format_text("{:.1f} GiB", static_cast<double>(bytes) / 1073741824.0);
}

// Returns the largest context below n_context, in steps of 256 tokens, that fits; 0: none. A shorter one never fits worse.
template <typename Fits>
int64_t largest_context(int64_t n_context, Fits fits) {
    constexpr int64_t k_step = 256;
    int64_t low = 0;
    int64_t high = n_context / k_step;
    while (low < high) {
        const int64_t middle = (low + high + 1) / 2;
        if (fits(middle * k_step)) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low * k_step;
}

}  // namespace minim::placement
