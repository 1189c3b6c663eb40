// SPDX-License-Identifier: Apache-2.0
// Weights that stay in mapped files (not packed).
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "backend/host_device.h"
#include "checkpoint/load_counter.h"
#include "weights/layout.h"
#include "weights/reader.h"

namespace minim::weights {

using Block = std::span<const std::byte>;

// Points each weight into its mapped file. Vectors that are not stored as float are widened into `widened`, whose elements
// keep their addresses. No matrix may be assembled.
PlacedMatrices map_weights(std::span<const WeightSpec* const> weights, const Reader& reader,
                           std::deque<std::vector<float>>& widened);

// Returns the bytes of the matrices (not of vectors) as few blocks. A block includes the small gaps between its
// matrices.
std::vector<Block> mapped_blocks(std::span<const WeightSpec* const> weights,
                                 std::span<const backend::Matrix> matrices);

// Throws out_of_memory if the blocks do not fit into the available memory.
void check_room(std::span<const Block> blocks);

// Prefaults the blocks on all threads of the host, and locks them if its memory is locked. Throws out_of_memory if they
// do not fit or may not be locked; also io and cancelled.
void prefault(std::span<const Block> blocks, const backend::HostDevice& host,
              checkpoint::LoadCounter& counter);

// Asks the system to read the weights ahead of their use. Throws cancelled.
void read_ahead(std::span<const WeightSpec* const> weights, const Reader& reader,
                checkpoint::LoadCounter& counter);

}  // namespace minim::weights
