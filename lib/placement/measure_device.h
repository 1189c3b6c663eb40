// SPDX-License-Identifier: Apache-2.0
// The bandwidths of a device of this machine, measured by copies.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "backend/backend.h"
#include "base/cpu_features.h"
#include "base/log.h"
#include "placement/backends.h"
#include "placement/facts.h"

namespace minim::placement {

// Fills in the facts that are 0: the free memory, and the bandwidths of the device's memory and of the link to the host. The
// bandwidths of a device are measured in some 100 ms the first time, and cached (facts.h). Throws invalid,
// quoting `text` with the reason, if no such device is usable here, and what a device's copies throw.
void complete_device(DeviceFacts& facts, std::string_view text, const Threads& threads, CpuLevel level);

// Returns the bandwidths of open devices of this machine, of their links, and of the host read by n_threads threads. They are
// measured once and cached, so that a model is placed alike, and a prompt computed alike, in every run. Returns nothing, with a
// line in `log`, if a device cannot be measured.
std::optional<MachineRates> measured_rates(std::span<const std::shared_ptr<const backend::Backend>> devices,
                                           int32_t n_threads, CpuLevel level, const Logger& log);

}  // namespace minim::placement
