// How many bytes the program has taken from operator new, so that a test can bound what a parser allocates.
#pragma once

#include <cstdint>

namespace minim::checkpoint::testing {

// Starts counting at zero and counts until the end of its life; one at a time.
class AllocationCount {
  public:
    AllocationCount();
    ~AllocationCount();
    AllocationCount(const AllocationCount&) = delete;
    AllocationCount& operator=(const AllocationCount&) = delete;

    uint64_t total_bytes() const;    // of all blocks taken, freed or not
    uint64_t largest_bytes() const;  // of the largest block
};

}  // namespace minim::checkpoint::testing
