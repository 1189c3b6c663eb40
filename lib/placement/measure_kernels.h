// SPDX-License-Identifier: Apache-2.0
// The speed of a device's kernels with the formats of a model: measured once and cached, beside the bandwidths of measure.h.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "backend/backend.h"
#include "base/cpu_features.h"
#include "base/log.h"
#include "placement/backends.h"
#include "placement/facts.h"
#include "weights/spec.h"

namespace minim::placement {

// Fills in the facts of a device's kernels: how long a small kernel takes, and, for the formats that have many of the weights, experts of one
// row and of many, and a dense matrix of one row. Each takes some 50 ms the first time. `open` returns the device, with fast arithmetic,
// and is called only if a figure is not cached. If the device cannot be measured, its speed stays estimated, with a line in `log`.
void measure_kernels(DeviceFacts& facts, const std::function<const backend::Backend&()>& open,
                     std::span<const weights::WeightSpec> weights, CpuLevel level, const Logger& log);

// The same for a device that is not open. `text` describes it.
void measure_kernels(DeviceFacts& facts, std::string_view text, std::span<const weights::WeightSpec> weights,
                     const Threads& threads, CpuLevel level, const Logger& log);

// The same for all open devices of a machine that have memory of their own.
void measure_kernels(Machine& machine, std::span<const weights::WeightSpec> weights, CpuLevel level,
                     const Logger& log);

}  // namespace minim::placement
