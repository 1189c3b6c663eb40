// SPDX-License-Identifier: Apache-2.0
// The unnormalised softmax of a row. It defines the weights of infinite logits: entries at +inf share the whole weight
// equally, and an entry at -inf has none (if all entries are -inf, all weigh the same).
#pragma once

#include <span>

#include "sampling/portable_math.h"

namespace minim::sampling {

struct Softmax {
    float highest;               // the row's highest logit
    double inverse_temperature;  // above 0

    // exp((logit - highest) / temperature): 1 at the top, never NaN.
    double weight(float logit) const noexcept {
        if (logit == highest) return 1.0;
        return portable_exp((static_cast<double>(logit) - static_cast<double>(highest)) *
                            inverse_temperature);
    }

    // Returns the weight of a whole row: eight interleaved sums, then added from the first to the last. Vector registers can
    // use this order, and it is the same on every machine.
    double total(std::span<const float> logits) const noexcept;
};

}  // namespace minim::sampling
