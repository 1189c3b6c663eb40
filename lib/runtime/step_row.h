// SPDX-License-Identifier: Apache-2.0
// The rows of a step, and who observes them.
#pragma once

#include <cstdint>
#include <functional>

#include "backend/kv_view.h"

namespace minim::runtime {

// One row of a step.
struct StepRow {
    int32_t token = 0;
    backend::KvRow at;  // its sequence and position
    bool wants_logits = false;
};

// Observes the residual stream after each layer and the chosen experts; for tests and inspection.
// x: [n, hidden], ids and gates: [n, n_expert_used]. With an observer the last layer computes every row.
using LayerObserver =
    std::function<void(int64_t layer, int64_t n, const float* x, const int32_t* ids, const float* gates)>;

}  // namespace minim::runtime
