// SPDX-License-Identifier: Apache-2.0
// Sums of known numbers, which show before the first request whether the ranks of a group reach one another, and how fast.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/group.h"

namespace minim::ranks {

struct SumTime {
    int64_t n_bytes = 0;
    double seconds = 0;  // the shortest of three
};

// The largest sum, in floats: groups must be made for it.
inline constexpr int64_t k_self_test_floats = 262'144;
// The first sums of some libraries take many seconds.
inline constexpr std::chrono::milliseconds k_self_test_limit{120'000};

// Sums 8 bytes, 12 KiB and 1 MiB, three times each. All ranks of the group call it, each on its own thread. Throws what a sum throws,
// or internal if a sum is wrong or if the sums take longer than the limit; the message lists what helps, and the group is abandoned.
std::vector<SumTime> test_sums(const backend::Backend& backend, backend::Scratch& scratch,
                               backend::Group& group, std::chrono::milliseconds limit = k_self_test_limit);

// The sums of a way of a link.
struct WayTimes {
    std::string_view name;
    std::vector<SumTime> times;
};
struct Ways {
    std::vector<WayTimes> all;
    size_t chosen = 0;
};

// Tests all ways of a link, and sets the one that was fastest with 12 KiB on rank 0. `group`: of the link. All ranks call it as test_sums(),
// and it throws the same.
Ways choose_way(const backend::Backend& backend, backend::Scratch& scratch, backend::Group& group,
                backend::GroupLink& link, backend::GroupChannel& channel,
                std::chrono::milliseconds limit = k_self_test_limit);

}  // namespace minim::ranks
