// SPDX-License-Identifier: Apache-2.0
// Packed weights: panels of 16 rows (a term of BLIS), interleaved so that one vector register has the same four bytes of every
// row. A lane is then a row: sums need no step across lanes, and a panel is one contiguous range of memory.
//
// A panel has the same bytes as its rows, in another order. A row's header and each of its blocks are cut into granules. A granule
// at byte `at` of the block is at byte 16 * place_in_panel(at) of the panel's block, followed by the same granule of the other
// 15 rows. So a panel begins at the address of its first row, and packing works in place.
//
// Rows beyond the last whole panel are not packed, nor is a matrix that is mapped from its file. Such rows are packed into
// scratch before a kernel reads them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/platform.h"
#include "format/format.h"
#include "format/q6_k.h"

namespace minim::panel {

inline constexpr int64_t k_panel_rows = 16;

// Granules of a block: two-byte numbers at the front (and one byte after them if the size is odd) and at the back, and four-byte
// words between them. A row header is one granule.
struct PanelShape {
    int32_t front_bytes;
    int32_t back_bytes;
};

PanelShape panel_shape(Format format) noexcept;

// The kernels of Q6_K decode a block in halves of 128 columns and need its last fields first. In a panel, the order is d, then the
// scales, bits 4-5 and low bits of the first half, then those of the second half, so that the block is read forward and the
// hardware prefetcher follows.
struct HalfOfQ6K {
    static constexpr int d_bytes = Q6_K::block_bytes - Q6_K::d_at;  // in front of both halves
    static constexpr int scale_bytes = (Q6_K::d_at - Q6_K::scales_at) / 2;
    static constexpr int high_bytes = (Q6_K::scales_at - Q6_K::high_at) / 2;
    static constexpr int code_bytes = (Q6_K::high_at - Q6_K::codes_at) / 2;
    static constexpr int high_at = scale_bytes;
    static constexpr int codes_at = high_at + high_bytes;
    static constexpr int bytes = codes_at + code_bytes;
};

// Returns the position of a granule in the block of a panel: the same as in the row, except for Q6_K.
MINIM_HOST_DEVICE constexpr int64_t place_in_panel(Format format, int64_t at) noexcept {
    if (format != Format::q6_k) return at;
    using Half = HalfOfQ6K;
    const auto in_half = [](int64_t i, int part_bytes, int part_at) {
        return Half::d_bytes + i / part_bytes * Half::bytes + part_at + i % part_bytes;
    };
    if (at >= Q6_K::d_at) return at - Q6_K::d_at;
    if (at >= Q6_K::scales_at) return in_half(at - Q6_K::scales_at, Half::scale_bytes, 0);
    if (at >= Q6_K::high_at) return in_half(at - Q6_K::high_at, Half::high_bytes, Half::high_at);
    return in_half(at - Q6_K::codes_at, Half::code_bytes, Half::codes_at);
}

// Writes n_rows rows of `cols` elements, row_bytes apart, as one panel; 1 <= n_rows <= 16, missing rows are
// copies of the last one. `out` has 16 * row_bytes bytes and overlaps no row.
void pack_panel(Format format, const std::byte* rows, int64_t row_bytes, int64_t n_rows, int64_t cols,
                std::byte* out) noexcept;

// Unpacks all 16 rows of a panel.
void unpack_panel(Format format, const std::byte* panel, int64_t row_bytes, int64_t cols,
                  std::byte* rows) noexcept;

}  // namespace minim::panel
