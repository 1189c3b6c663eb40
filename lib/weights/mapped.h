// SPDX-License-Identifier: Apache-2.0
// Weights in mapped files: the checkpoint's (not packed), or a packed file.
#pragma once

#include <span>
#include <vector>

#include "backend/host_device.h"
#include "checkpoint/load_counter.h"
#include "weights/spec.h"

namespace minim::weights {

using Block = std::span<const std::byte>;

// Returns the bytes of the matrices (not of vectors) as few blocks. A block includes the small gaps between its
// matrices.
std::vector<Block> mapped_blocks(std::span<const WeightSpec* const> weights,
                                 std::span<const backend::Matrix> matrices);

// Prefaults the blocks on all threads of the host, and locks them if its memory is locked. Throws out_of_memory if they
// do not fit or may not be locked; also io and cancelled.
void prefault(std::span<const Block> blocks, const backend::HostDevice& host,
              checkpoint::LoadCounter& counter);

}  // namespace minim::weights
