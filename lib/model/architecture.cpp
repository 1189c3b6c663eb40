// SPDX-License-Identifier: Apache-2.0
#include "model/architecture.h"

#include "model/minimax_m2.h"
#include "model/minimax_m3.h"

namespace minim::model {

backend::StepLimits shape_of(const Config& config) {
    return step_shape(config);
}

runtime::Architecture architecture_of(const Config& config, const Weights& weights,
                                      const runtime::RankShare& share) {
    return config.family == Family::m2 ? minimax_m2(config, weights, share)
                                       : minimax_m3(config, weights, share);
}

}  // namespace minim::model
