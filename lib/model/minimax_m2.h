// SPDX-License-Identifier: Apache-2.0
// The equations of MiniMax-M2, as the runtime drives them.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/config.h"
#include "model/weights.h"
#include "runtime/architecture.h"
#include "runtime/placement.h"

namespace minim::model {

// Returns the rotary frequencies theta^(-2i / rotary_dim), i < rotary_dim / 2.
std::vector<float> rope_frequencies(const Config& config);

// Returns the sizes of a step, without its rows and context.
backend::StepLimits step_shape(const Config& config);

// Returns the arguments of a layer's attention over q, k and v.
backend::AttendArgs attend_args(const Config& config, const LayerWeights& layer,
                                std::span<const float> rope_frequency, int64_t kv_layer,
                                const runtime::Activations& a);

// `config`, `weights`: of the rank with this share. The two must outlive the result.
runtime::Architecture minimax_m2(const Config& config, const Weights& weights,
                                 const runtime::RankShare& share);

}  // namespace minim::model
