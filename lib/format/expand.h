// Weights in grid points, with a code of its own for each: the same numbers, in 1.2 to 1.6 times the bytes. A processor
// looks points up more slowly than few threads read memory; codes it takes as fast as they come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "format/format.h"

namespace minim {

// IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS and IQ3_S have one.
std::optional<Format> expanded_format(Format format) noexcept;

// The format of files that was expanded to this one; `format` itself if none was.
Format file_format(Format format) noexcept;

// Writes n_rows rows of `cols` elements, row_bytes apart, in the expanded format of theirs, which exists, one after the
// other. They decode to the same bits.
void expand_rows(Format format, const std::byte* rows, int64_t n_rows, int64_t row_bytes, int64_t cols,
                 std::byte* out) noexcept;

}  // namespace minim
