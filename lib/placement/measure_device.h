// SPDX-License-Identifier: Apache-2.0
// The bandwidths of a device of this machine, measured by copies.
#pragma once

#include <string_view>

#include "base/cpu_features.h"
#include "placement/backends.h"
#include "placement/facts.h"

namespace minim::placement {

// Fills in what is 0: the memory that is free, and the bandwidths of the device's memory and of the link to the host. They
// are measured in some 100 ms when a device is asked for the first time, and cached (facts.h). Throws invalid,
// quoting `text` with the reason, if no such device is usable here, and what a device's copies throw.
void complete_device(DeviceFacts& facts, std::string_view text, const Threads& threads, CpuLevel level);

}  // namespace minim::placement
