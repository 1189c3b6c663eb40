// SPDX-License-Identifier: Apache-2.0
// The equations of MiniMax-M3's language model, as the runtime drives them.
#pragma once

#include "model/config.h"
#include "model/weights.h"
#include "runtime/architecture.h"
#include "runtime/placement.h"

namespace minim::model {

// `config`, `weights`: of the rank with this share. The two must outlive the result.
runtime::Architecture minimax_m3(const Config& config, const Weights& weights,
                                 const runtime::RankShare& share);

}  // namespace minim::model
