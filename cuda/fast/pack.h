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

// Returns bits [first, first + count) of a word in the order of panels, the first one at bit 0.
MINIM_DEVICE uint32_t ordered_bits(WordOrder order, const uint8_t* word, uint32_t first, uint32_t count) {
    uint32_t bits = 0;
    for (uint32_t n = 0; n < count; ++n) {
        const uint32_t from = source_bit(order, first + n);
        bits |= ((word[from / 8] >> (from % 8)) & 1U) << n;
    }
    return bits;
}

// Returns byte `at` of a row as the panel stores it.
MINIM_DEVICE uint8_t packed_byte(const PackShape& shape, const uint8_t* row, int64_t at) {
    if (shape.word_order == WordOrder::plain || at < shape.row_header_bytes) return row[at];
    const int64_t in_words = (at - shape.row_header_bytes) % shape.block_bytes - shape.words_at;
    if (in_words < 0 || in_words >= shape.word_bytes || in_words % shape.word_step >= 4) return row[at];
    const auto byte = static_cast<uint32_t>(in_words % 4);
    return static_cast<uint8_t>(ordered_bits(shape.word_order, row + at - byte, 8 * byte, 8));
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

// Changes the words of panels that the host has packed, in place: they differ from those of a device only in the order of
// bits in some words. A thread takes one word at a time.
struct ReorderKernel {
    static constexpr int k_threads = 256;

    PackShape shape;
    int64_t n_panels;
    uint8_t* panels;

    Grid grid() const { return {.n_blocks = n_panels}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        constexpr int k_rows = static_cast<int>(panel::k_panel_rows);
        uint8_t* panel = panels + t.block() * panel::k_panel_rows * shape.row_bytes;
        const int words_a_block =
            static_cast<int>((shape.word_bytes + shape.word_step - 1) / shape.word_step);
        const int n_blocks = static_cast<int>((shape.row_bytes - shape.row_header_bytes) / shape.block_bytes);
        const int n_words = n_blocks * words_a_block * k_rows;
        for (int i = t.index(); i < n_words; i += k_threads) {
            const int64_t at = shape.words_at + i / k_rows % words_a_block * shape.word_step;
            const int64_t block = shape.row_header_bytes + i / k_rows / words_a_block * shape.block_bytes;
            uint8_t* word = panel + panel::k_panel_rows * (block + panel::place_in_panel(shape.format, at)) +
                            i % k_rows * 4;
            const uint32_t ordered = ordered_bits(shape.word_order, word, 0, 32);
            for (uint32_t byte = 0; byte < 4; ++byte)
                word[byte] = static_cast<uint8_t>(ordered >> (8 * byte));
        }
    }
};

}  // namespace minim::cuda::fast
