// SPDX-License-Identifier: Apache-2.0
// Reads the rows of a matrix in the checkpoint's order, also if host memory has them packed.
#pragma once

#include <cstddef>
#include <span>

#include "backend/matrix.h"
#include "weights/reader.h"
#include "weights/spec.h"

namespace minim::weights {

// Writes the weight's rows to `out`, weight.bytes() long: from `stored`, the copy of a backend on the host, or from the checkpoint
// if that copy has another format. Any thread. Throws as Reader::read().
void read_stored_rows(const WeightSpec& weight, const backend::Matrix& stored, const Reader& reader,
                      std::span<std::byte> out);

}  // namespace minim::weights
