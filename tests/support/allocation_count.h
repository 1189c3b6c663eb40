// SPDX-License-Identifier: Apache-2.0
// Counts the memory that a program takes from operator new, so that a test can bound it. It is not part of the support
// library: a test program that counts must have allocation_count.cpp, which replaces the operators, among its sources.
#pragma once

#include <cstdint>

namespace minim::test {

// Counts the allocations of the thread that creates it, for as long as it lives. A thread may have only one at a time.
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
