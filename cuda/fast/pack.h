// SPDX-License-Identifier: Apache-2.0
// Packs weights in the order of panel/panel.h on the device.
//
// Shape: one block of threads for each panel, one byte for each thread and turn. Bytes moved: every byte once in,
// once out, and once more for the copy that it reads from. Its speed does not matter: the transfer of the bytes to
// the device takes longer.
#pragma once

#include "cuda/fast/device.h"
#include "cuda/fast/operations.h"
#include "panel/panel.h"

namespace minim::cuda::fast {

// Where a granule begins in a row and in a panel (there a 16th of it), and its bytes.
struct Granule {
    int64_t at;
    int64_t place;
    int64_t bytes;
};

// Returns the granule of byte `at` of a row.
MINIM_DEVICE Granule granule_of(const PackShape& shape, int64_t at) {
    if (at < shape.row_header_bytes) return {0, 0, shape.row_header_bytes};
    const int64_t in_block = (at - shape.row_header_bytes) % shape.block_bytes;
    const auto granule = [&](int64_t first, int64_t bytes) -> Granule {
        const int64_t begin = first + (in_block - first) / bytes * bytes;
        const int64_t block = at - in_block;
        return {block + begin, block + panel::place_in_panel(shape.format, begin), bytes};
    };
    if (in_block < shape.front_bytes / 2 * 2) return granule(0, 2);
    if (in_block < shape.front_bytes) return granule(in_block, 1);
    const int64_t back = shape.block_bytes - shape.back_bytes;
    return in_block < back ? granule(shape.front_bytes, 4) : granule(back, 2);
}

// Returns byte `at` of a row as the panel stores it.
MINIM_DEVICE uint8_t packed_byte(const PackShape& shape, const uint8_t* row, int64_t at) {
    if (shape.word_order == WordOrder::plain || at < shape.row_header_bytes) return row[at];
    const int64_t in_words = (at - shape.row_header_bytes) % shape.block_bytes - shape.words_at;
    if (in_words < 0 || in_words >= shape.word_bytes || in_words % shape.word_step >= 4) return row[at];
    const auto byte = static_cast<uint32_t>(in_words % 4);
    const uint8_t* word = row + at - byte;
    uint32_t bits = 0;
    for (uint32_t n = 0; n < 8; ++n) {
        const uint32_t from = source_bit(shape.word_order, 8 * byte + n);
        bits |= ((word[from / 8] >> (from % 8)) & 1U) << n;
    }
    return static_cast<uint8_t>(bits);
}

struct PackKernel {
    static constexpr int k_threads = 256;

    const uint8_t* rows;  // n_panels * 16 of them
    PackShape shape;
    int64_t n_panels;
    uint8_t* panels;

    Grid grid() const { return {.n_blocks = n_panels}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const int64_t panel_bytes = panel::k_panel_rows * shape.row_bytes;
        const uint8_t* from = rows + t.block() * panel_bytes;
        uint8_t* to = panels + t.block() * panel_bytes;
        for (int64_t i = t.index(); i < panel_bytes; i += k_threads) {
            const int64_t row = i / shape.row_bytes;
            const int64_t at = i % shape.row_bytes;
            const Granule granule = granule_of(shape, at);
            to[panel::k_panel_rows * granule.place + row * granule.bytes + at - granule.at] =
                packed_byte(shape, from + row * shape.row_bytes, at);
        }
    }
};

}  // namespace minim::cuda::fast
