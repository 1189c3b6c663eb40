// SPDX-License-Identifier: Apache-2.0
// The speed of this machine's kernels, by format.
#pragma once

#include <span>

#include "base/cpu_features.h"
#include "base/log.h"
#include "placement/backends.h"
#include "placement/facts.h"
#include "weights/spec.h"

namespace minim::placement {

// Fills in the rates of the formats that many weights have, because with few threads arithmetic may take longer than reading.
// Each rate is measured in some 50 ms the first time, and cached (facts.h). Throws out_of_memory.
void measure_rates(HostFacts& host, std::span<const weights::WeightSpec> weights, const Threads& threads,
                   CpuLevel level, const Logger& log);

}  // namespace minim::placement
