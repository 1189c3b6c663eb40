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

// Returns the number of words of a block that have an order of their own.
MINIM_HOST_DEVICE constexpr int ordered_words(const PackShape& shape) {
    return static_cast<int>((shape.word_bytes + shape.word_step - 1) / shape.word_step);
}

// Returns `count` bits of a word in the order of panels, from bit `first` on, the first one at bit 0. byte_of(word, byte) is a byte of
// a word of the file.
template <class ByteOf>
MINIM_DEVICE uint32_t ordered_bits(WordOrder order, uint32_t word, uint32_t first, uint32_t count,
                                   const ByteOf& byte_of) {
    uint32_t bits = 0;
    for (uint32_t n = 0; n < count; ++n) {
        const BitPlace from = source_of(order, word, first + n);
        bits |= ((byte_of(from.word, from.bit / 8) >> (from.bit % 8)) & 1U) << n;
    }
    return bits;
}

// Returns byte `at` of a row as the panel stores it.
MINIM_DEVICE uint8_t packed_byte(const PackShape& shape, const uint8_t* row, int64_t at) {
    if (shape.word_order == WordOrder::plain || at < shape.row_header_bytes) return row[at];
    const int64_t in_words = (at - shape.row_header_bytes) % shape.block_bytes - shape.words_at;
    if (in_words < 0 || in_words >= shape.word_bytes || in_words % shape.word_step >= 4) return row[at];
    const auto byte = static_cast<uint32_t>(in_words % 4);
    const uint8_t* words = row + at - in_words;
    const auto byte_of = [&](uint32_t word, uint32_t i) -> uint32_t {
        return words[word * shape.word_step + i];
    };
    const auto word = static_cast<uint32_t>(in_words / shape.word_step);
    return static_cast<uint8_t>(ordered_bits(shape.word_order, word, 8 * byte, 8, byte_of));
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
// bits in some words. A block of threads takes the words of one block of 16 rows at a time to shared memory, and writes them
// from there.
struct ReorderKernel {
    static constexpr int k_threads = 256;
    static constexpr int k_rows = static_cast<int>(panel::k_panel_rows);

    PackShape shape;
    int64_t n_panels;
    uint8_t* panels;

    Grid grid() const {
        return {.n_blocks = n_panels, .shared_bytes = int64_t{ordered_words(shape)} * k_rows * 4};
    }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        uint8_t* panel = panels + t.block() * panel::k_panel_rows * shape.row_bytes;
        const int n_words = ordered_words(shape) * k_rows;
        auto* words = reinterpret_cast<uint8_t*>(t.shared());  // [word][row], as in the panel
        MINIM_DEVICE_LOOP
        for (int64_t block = shape.row_header_bytes; block < shape.row_bytes; block += shape.block_bytes) {
            const auto place_of = [&](int i) {
                const int64_t at = shape.words_at + i / k_rows * shape.word_step;
                return reinterpret_cast<uint32_t*>(
                    panel + panel::k_panel_rows * (block + panel::place_in_panel(shape.format, at)) +
                    i % k_rows * 4);
            };
            for (int i = t.index(); i < n_words; i += k_threads)
                reinterpret_cast<uint32_t*>(words)[i] = *place_of(i);
            t.sync();
            for (int i = t.index(); i < n_words; i += k_threads) {
                const auto byte_of = [&](uint32_t word, uint32_t byte) -> uint32_t {
                    return words[(word * k_rows + i % k_rows) * 4 + byte];
                };
                *place_of(i) =
                    ordered_bits(shape.word_order, static_cast<uint32_t>(i / k_rows), 0, 32, byte_of);
            }
            t.sync();
        }
    }
};

}  // namespace minim::cuda::fast
