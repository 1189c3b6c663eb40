// SPDX-License-Identifier: Apache-2.0
// Machines whose device shares the host's memory (GB10, Jetson): one size and one bandwidth serve both. The device and the host have the
// same memory_bytes and bytes_per_second there, a plan adds up what both take, and nothing is offloaded: experts that the CPU computes
// would save neither memory nor bandwidth, and experts in a cache would be in memory twice.
#pragma once

#include <cstdint>

#include "placement/facts.h"
#include "placement/request.h"

namespace minim::placement {

// Returns the part of a shared memory that stays free: for the system, the driver and the page cache.
uint64_t unified_reserve_of(uint64_t memory_bytes);

// Returns the memory_bytes of the device that shares this machine's memory: the reserve, and what is available beside it. What the
// system has taken already counts as part of the reserve.
uint64_t unified_memory_of_machine(uint64_t available_bytes, uint64_t total_bytes);

// Throws unsupported, with the reason, for a unified machine with several devices, or if the request asks to keep experts of a device on
// the host or to cache them. Nothing happens on other machines.
void check_unified(const Request& request, const Machine& machine);

}  // namespace minim::placement
