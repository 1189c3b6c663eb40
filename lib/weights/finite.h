// SPDX-License-Identifier: Apache-2.0
// Finds numbers in a checkpoint that are none: NaN and infinity. Files that were cut, damaged or converted wrongly have them.
#pragma once

#include <cstdint>
#include <string>

#include "weights/reader.h"
#include "weights/spec.h"

namespace minim::weights {

// Returns where rows [first, first + count) of a weight hold NaN or infinity, as a sentence for an error message; empty if all
// numbers are finite. Decodes the rows. Throws what reading throws.
std::string why_not_finite(const Reader& reader, const WeightSpec& weight, int64_t first, int64_t count);
// The same for all rows and the factor of the whole matrix.
std::string why_not_finite(const Reader& reader, const WeightSpec& weight);

}  // namespace minim::weights
