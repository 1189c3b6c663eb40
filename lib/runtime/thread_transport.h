// SPDX-License-Identifier: Apache-2.0
// Messages between the ranks of one process, each on a thread of its own: the receiver copies from the sender's buffer.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/transport.h"

namespace minim::runtime {

// Returns one end for each rank. They share what connects them, and may end in any order.
std::vector<std::unique_ptr<Transport>> connect_threads(int32_t n_ranks);

}  // namespace minim::runtime
