// SPDX-License-Identifier: Apache-2.0
// The rows of a matrix as the checkpoint has them, out of host memory where they lie there in another order.
#pragma once

#include <cstddef>
#include <span>

#include "backend/matrix.h"
#include "weights/reader.h"
#include "weights/spec.h"

namespace minim::weights {

// Writes the weight's rows to `out`, weight.bytes() long. `held` is where a backend of the host has them; they come from the
// checkpoint if it holds them in another format. Any thread. Throws as Reader::read().
void read_stored_rows(const WeightSpec& weight, const backend::Matrix& held, const Reader& reader,
                      std::span<std::byte> out);

}  // namespace minim::weights
