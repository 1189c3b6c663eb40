// SPDX-License-Identifier: Apache-2.0
// The tags of messages between processes.
#pragma once

#include <cstdint>

#include "ranks/link.h"

namespace minim::ranks {

inline constexpr int32_t k_control_tag = 0;
inline constexpr int32_t k_notice_tag = 1;  // that a process leaves, or has abandoned the work
inline constexpr int32_t k_max_devices = 64;

// Returns the tag of messages from one device's rank to another's.
constexpr int32_t rank_tag(int32_t from_device, int32_t to_device) {
    return 2 + from_device * k_max_devices + to_device;
}
static_assert(rank_tag(k_max_devices - 1, k_max_devices - 1) <= k_max_tag);

}  // namespace minim::ranks
