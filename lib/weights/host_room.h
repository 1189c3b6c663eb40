// SPDX-License-Identifier: Apache-2.0
// Refuses weights that do not fit in host memory, before any of them is read.
#pragma once

#include <cstdint>

#include "weights/place.h"

namespace minim::weights {

// Throws out_of_memory if the part needs more bytes of host memory than are available, and says what would fit.
void check_host_room(const DeviceWeights& part, uint64_t needed, uint64_t available);

}  // namespace minim::weights
