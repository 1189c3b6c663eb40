// SPDX-License-Identifier: Apache-2.0
#include "backend/experts.h"

namespace minim::backend {

std::vector<ExpertPlace> places_of(const ExpertWeights& weights) {
    std::vector<ExpertPlace> places(weights.n_expert());
    for (size_t e = 0; e < places.size(); ++e) {
        const auto expert = static_cast<int64_t>(e);
        places[e].gate = weights.gate.expert[e];
        places[e].up = weights.up.expert[e];
        places[e].down = weights.down.expert[e];
        places[e].gate_scale = weights.gate.scale_of(expert);
        places[e].up_scale = weights.up.scale_of(expert);
        places[e].down_scale = weights.down.scale_of(expert);
    }
    return places;
}

}  // namespace minim::backend
