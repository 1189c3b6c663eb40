// SPDX-License-Identifier: Apache-2.0
// Unpacked codebooks: IQ1 to IQ3 weights with a code for each weight instead of codebook indices. The weights are the same, but
// take 1.2 to 1.6 times the bytes. On few threads, codebook lookups are slower than memory, but codes are decoded at memory
// speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "format/format.h"

namespace minim {

// Returns the unpacked format of IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS and IQ3_S; nothing for others.
std::optional<Format> unpacked_format(Format format) noexcept;

// Writes n_rows rows of `cols` elements, row_bytes apart, in their unpacked format, one after the other. They decode to the
// same bits. `format` must have an unpacked format.
void expand_rows(Format format, const std::byte* rows, int64_t n_rows, int64_t row_bytes, int64_t cols,
                 std::byte* out) noexcept;

}  // namespace minim
