// SPDX-License-Identifier: Apache-2.0
// What a host may have changed in the way its threads compute floats.
#pragma once

#include <string_view>

namespace minim {

// Returns the names of the bits that make the calling thread flush subnormal numbers to zero: "FTZ", "DAZ" or both on x86-64, "FZ", "FIZ"
// or both on aarch64; an empty text if none is set. Threads inherit them from the thread that starts them.
std::string_view flushing_bits() noexcept;

}  // namespace minim
