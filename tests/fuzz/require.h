// What a fuzz target says when a property does not hold.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace minim::fuzz {

// Ends the program, which is how a fuzzer is told of a finding.
inline void require(bool holds, const char* property) {
    if (holds) return;
    std::fprintf(stderr, "violated: %s\n", property);
    std::abort();
}

}  // namespace minim::fuzz
