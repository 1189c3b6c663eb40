// SPDX-License-Identifier: Apache-2.0
// What the program takes from operator new, so that a test can bound it. Not part of the support library: a test
// program that counts names allocation_count.cpp among its sources, which replaces the operators.
#pragma once

#include <cstdint>

namespace minim::test {

// Counts the allocations of its own thread, from zero until the end of its life; one at a time.
class AllocationCount {
  public:
    AllocationCount();
    ~AllocationCount();
    AllocationCount(const AllocationCount&) = delete;
    AllocationCount& operator=(const AllocationCount&) = delete;

    uint64_t total_bytes() const;    // of all blocks taken, freed or not
    uint64_t largest_bytes() const;  // of the largest block
    uint64_t blocks() const;
};

}  // namespace minim::test
