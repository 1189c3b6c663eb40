// Weights that stay in their mapped files.
#pragma once

#include <span>
#include <vector>

#include "backend/backend.h"
#include "checkpoint/load_counter.h"
#include "model/stage.h"
#include "model/weights.h"

namespace minim::model {

// The mapped bytes of the weights of all devices that compute on host memory: few blocks, what lies between two matrices
// of a file included.
std::vector<std::span<const std::byte>> mapped_blocks(std::span<const Share> shares, const Weights& weights);

// Brings the blocks into memory, on all threads of the backend, and keeps them there where its memory is locked. Throws
// out_of_memory where they do not fit or may not be locked, io and cancelled.
void make_present(std::span<const std::span<const std::byte>> blocks, const backend::Backend& backend,
                  const checkpoint::Progress& progress, const CancelToken* cancel);

}  // namespace minim::model
