// SPDX-License-Identifier: Apache-2.0
// Copies of activations from one device to another, in the middle of a step.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/backend.h"

namespace minim::runtime {

// One side of a transfer.
struct Side {
    const backend::Backend& backend;
    backend::Scratch& scratch;
    bool is_on_host = backend.uses_host_memory();
};

// Returns the bytes of floats. Throws out_of_memory if they are more than a number of bytes can say.
uint64_t float_bytes(int64_t rows, int64_t row_floats);

// Copies `count` floats: directly if both devices can or one of them works on host memory, else through `passing` on
// the host. A later host-side write must be ordered after this copy: in the same stream, or after wait().
void pass(const Side& from, const float* data, const Side& to, float* place, int64_t count,
          std::byte* passing);

// Blocks until `to` may compute with what was passed to it: a device on host memory does not wait for transfers.
void wait_for_passed(const Side& from, const Side& to);

}  // namespace minim::runtime
