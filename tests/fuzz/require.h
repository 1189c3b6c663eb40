// SPDX-License-Identifier: Apache-2.0
// Reports a property that does not hold in a fuzz target.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

#include "base/error.h"

namespace minim::fuzz {

// Aborts the program if the property does not hold: a fuzzer counts this as a finding.
inline void require(bool holds, const char* property) {
    if (holds) return;
    std::fprintf(stderr, "violated: %s\n", property);
    std::abort();
}

// Calls read(), which may fail with these statuses only.
template <typename Read>
void require_refusal(std::initializer_list<Status> statuses, const char* property, const Read& read) {
    try {
        read();
    } catch (const Error& error) {
        if (std::ranges::find(statuses, error.status()) != statuses.end()) return;
        std::fprintf(stderr, "error: %s\n", error.what());
        require(false, property);
    }
}

}  // namespace minim::fuzz
