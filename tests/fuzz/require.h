// SPDX-License-Identifier: Apache-2.0
// What a fuzz target says when a property does not hold.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

#include "base/error.h"

namespace minim::fuzz {

// Ends the program, which is how a fuzzer is told of a finding.
inline void require(bool holds, const char* property) {
    if (holds) return;
    std::fprintf(stderr, "violated: %s\n", property);
    std::abort();
}

// Runs what may fail with these statuses and no other.
template <typename Read>
void require_refusal(std::initializer_list<Status> statuses, const char* property, const Read& read) {
    try {
        read();
    } catch (const Error& error) {
        require(std::ranges::find(statuses, error.status()) != statuses.end(), property);
    }
}

}  // namespace minim::fuzz
