// Weights as the packed kernels read them: in panels of 16 rows, interleaved so that one vector register
// holds the same four bytes of every row. A lane is then a row: sums need no step across lanes, and a panel
// is one unbroken stream of memory.
//
// A panel keeps the bytes of its rows, and their number, in another order. A row's header and each of its
// blocks is cut into granules; a granule that lies `at` bytes into the block lies 16 * place_in_panel(at) bytes
// into the panel's block, followed by the same granule of the other 15 rows. So a panel begins where its first
// row did, and packing works in place.
//
// Rows beyond the last whole panel stay as they are, and so does a matrix that is mapped from its file.
// Before such rows meet a kernel they are packed into scratch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/platform.h"
#include "format/format.h"
#include "format/q6_k.h"

namespace minim::panel {

inline constexpr int64_t k_panel_rows = 16;

// Granules of a block: numbers of two bytes at the front and at the back, of one byte where their size is
// odd, and words of four bytes between them. A row header is one granule.
struct PanelShape {
    int32_t front_bytes;
    int32_t back_bytes;
};

PanelShape panel_shape(Format format) noexcept;

// The kernels of Q6_K work through a block in halves of 128 columns, and need what it has last before the rest: in a panel its
// block is d, then a half's scales, its bits 4 and 5 and its low bits, then the other half's. (Processors fetch ahead by
// themselves what is read from front to back.)
struct HalfOfQ6K {
    static constexpr int d_bytes = Q6_K::block_bytes - Q6_K::d_at;  // in front of both halves
    static constexpr int scale_bytes = (Q6_K::d_at - Q6_K::scales_at) / 2;
    static constexpr int high_bytes = (Q6_K::scales_at - Q6_K::high_at) / 2;
    static constexpr int code_bytes = (Q6_K::high_at - Q6_K::codes_at) / 2;
    static constexpr int high_at = scale_bytes;
    static constexpr int codes_at = high_at + high_bytes;
    static constexpr int bytes = codes_at + code_bytes;
};

// Where a granule of a block lies in the block of a panel: where it is in the row, but for Q6_K.
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

// The opposite, for all 16 rows.
void unpack_panel(Format format, const std::byte* panel, int64_t row_bytes, int64_t cols,
                  std::byte* rows) noexcept;

}  // namespace minim::panel
