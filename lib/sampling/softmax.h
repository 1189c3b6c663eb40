// The unnormalised softmax of a row. Infinite logits are defined here once for all: entries at +inf share the
// whole weight equally, and an entry at -inf has none (in a row that holds nothing else, all weigh the same).
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

    // The weight of a whole row, added in eight interleaved sums that are then added from the first to the
    // last: an order that vector registers can follow and that is the same on every machine.
    double total(std::span<const float> logits) const noexcept;
};

}  // namespace minim::sampling
