// SPDX-License-Identifier: Apache-2.0
// Chooses the architecture of a model: the only way from a configuration to its equations.
#pragma once

#include "backend/backend.h"
#include "model/config.h"
#include "model/weights.h"
#include "runtime/architecture.h"

namespace minim::model {

// Returns the sizes of a step, without its rows and context.
backend::StepLimits shape_of(const Config& config);

// `config`, `weights`: of the rank with this share. The two must outlive the result.
runtime::Architecture architecture_of(const Config& config, const Weights& weights,
                                      const runtime::RankShare& share = {});

}  // namespace minim::model
