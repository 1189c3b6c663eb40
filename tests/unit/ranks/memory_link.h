// SPDX-License-Identifier: Apache-2.0
// Links between simulated processes, which are threads of one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ranks/link.h"

namespace minim::test {

// Alters messages on their way: every byte is XORed with this, and none arrives if `drops` is set.
struct Disturbance {
    int32_t tag = -1;  // of the messages that are disturbed
    std::byte flips{};
    bool drops = false;
};

// Returns a link for each process. Messages of more than 4096 bytes are sent only once they are received, as in MPI.
std::vector<std::unique_ptr<ranks::Link>> connect_processes(int32_t n, const Disturbance& disturbance = {});

}  // namespace minim::test
