// SPDX-License-Identifier: Apache-2.0
// IQ2_XXS, IQ2_XS and IQ2_S on a GPU, in half the instructions of lib/panel/grids.h: a codebook entry is a word of
// eight nibbles, the indices of the magnitudes; the sign is one more bit of each, and a byte permutation converts it
// to a signed number. The codebook is copied to shared memory, whose banks serve scattered lookups better than a
// cache does.
#pragma once

#include <cstdint>

#include "cuda/fast/lanes.h"
#include "cuda/fast/panel_dot.h"
#include "panel/grids.h"

namespace minim::cuda::fast {

template <size_t n_entries>
struct NibbleGrid {
    uint32_t point[n_entries];
};

// Widens the positions of codebook entries from two bits to four.
template <size_t n_entries>
MINIM_HOST_DEVICE constexpr NibbleGrid<n_entries> nibble_grid(const Table<uint16_t, n_entries>& packed) {
    NibbleGrid<n_entries> grid{};
    for (size_t i = 0; i < n_entries; ++i) {
        for (uint32_t position = 0; position < 8; ++position)
            grid.point[i] |= ((static_cast<uint32_t>(packed.data[i]) >> (2 * position)) & 3U)
                             << (4 * position);
    }
    return grid;
}

MINIM_HOST_DEVICE const uint32_t* iq2xxs_nibbles() {
    static constexpr auto k_grid = nibble_grid(codebooks::k_iq2xxs_entries);
    return k_grid.point;
}
MINIM_HOST_DEVICE const uint32_t* iq2xs_nibbles() {
    static constexpr auto k_grid = nibble_grid(codebooks::k_iq2xs_entries);
    return k_grid.point;
}
MINIM_HOST_DEVICE const uint32_t* iq2s_nibbles() {
    static constexpr auto k_grid = nibble_grid(codebooks::k_iq2s_entries);
    return k_grid.point;
}

// The bytes that the nibbles stand for: magnitude 0 .. 3, and 4 more for its negative. All three formats have the same.
inline constexpr uint32_t k_iq2_positive = 0x002B1908U;  // 8, 25, 43
inline constexpr uint32_t k_iq2_negative = 0x00D5E7F8U;
static_assert(codebooks::k_iq2xxs_magnitudes.data[0] == 8 && codebooks::k_iq2xxs_magnitudes.data[1] == 25 &&
              codebooks::k_iq2xxs_magnitudes.data[2] == 43);

// Columns 8i .. 8i + 7 of a unit from the nibbles of a point, its signs among them.
MINIM_DEVICE void put_nibbles(uint32_t nibbles, int i, Unit& unit) {
    const uint32_t positive = k_iq2_positive ^ Lanes::hidden_zero();
    unit.code[2 * i] = Lanes::permute(positive, k_iq2_negative, nibbles);
    unit.code[2 * i + 1] = Lanes::permute(positive, k_iq2_negative, nibbles >> 16);
}
// The same from a point and eight signs.
MINIM_DEVICE void put_signed(uint32_t point, uint32_t signs, int i, Unit& unit) {
    // Bits 0 .. 7 to bit 2 of eight nibbles: four to each half, two to each byte, one to each nibble.
    const uint32_t pairs = (((signs * 0x1001U) & 0x000F000FU) * 0x41U) & 0x03030303U;
    put_nibbles(point | ((pairs * 36U) & 0x44444444U), i, unit);
}

// The signs of point i, in the order of WordOrder::sign_nibbles, to bit 2 of every nibble.
MINIM_DEVICE uint32_t signs_of_point(uint32_t signs, int i) {
    return (i < 3 ? signs << (2 - i) : signs >> 1) & 0x44444444U;
}

// Byte i of the words from `at` on.
MINIM_DEVICE uint32_t byte_of_words(const PanelBlock<Lanes>& block, int at, int i) {
    return Lanes::load_u8(panel::word_bytes(block, at + i / 4 * 4) + i % 4);
}

struct Iq2XxsNibbles {
    using Block = IQ2_XXS;
    using Layout = panel::Iq2XxsLayout;
    using Kind = panel::PanelKind<Codes::wide, 128, 0, 1, false>;
    static constexpr int k_table_words = 256;
    MINIM_HOST_DEVICE static const uint32_t* table() { return iq2xxs_nibbles(); }

    MINIM_DEVICE static void unpack(const PanelBlock<Lanes>& block, int u, const uint32_t* grid, Unit& unit) {
        const uint32_t index = block.word(Layout::entries_at(u));
        const uint32_t group = block.word(Layout::signs_at(u));  // WordOrder::seven_sign_nibbles
        // The eighth sign makes the number of negative signs even: it is the sum of seven nibbles without carries, for
        // four points at once.
        const uint32_t seven = group & 0x0FFFFFFFU;
        uint32_t eighth = seven ^ (seven >> 16);
        eighth ^= eighth >> 8;
        eighth ^= eighth >> 4;
        const uint32_t signs = seven | eighth << 28;
        for (int i = 0; i < 4; ++i)
            put_nibbles(grid[(index >> (8 * i)) & 255U] | signs_of_point(signs, i), i, unit);
        unit.scale[0] =
            panel::HalfStepScale<Lanes>(block.f16(Block::d_at), Layout::k_scale_factor).of(group >> 28);
    }
};

struct Iq2XsNibbles {
    using Block = IQ2_XS;
    using Layout = panel::Iq2XsLayout;
    using Kind = panel::PanelKind<Codes::wide, 128, 0, 2, false>;
    static constexpr int k_table_words = 512;
    MINIM_HOST_DEVICE static const uint32_t* table() { return iq2xs_nibbles(); }

    MINIM_DEVICE static void unpack(const PanelBlock<Lanes>& block, int u, const uint32_t* grid, Unit& unit) {
        // Two codebook entries a word, each with 9 bits of index and 7 of signs.
        const uint32_t a = block.word(Layout::entries_at(u, 0));
        const uint32_t b = block.word(Layout::entries_at(u, 1));
        const uint32_t seven =
            ((a >> 9) & 127U) | ((a >> 25) << 8) | ((b << 7) & 0x7F0000U) | ((b >> 25) << 24);
        const uint32_t signs = panel::even_signs<Lanes>(seven);
        put_signed(grid[a & 511U], signs & 255U, 0, unit);
        put_signed(grid[(a >> 16) & 511U], (signs >> 8) & 255U, 1, unit);
        put_signed(grid[b & 511U], (signs >> 16) & 255U, 2, unit);
        put_signed(grid[(b >> 16) & 511U], signs >> 24, 3, unit);
        panel::HalfStepScale<Lanes>(block.f16(Block::d_at), Layout::k_scale_factor)
            .put_two(byte_of_words(block, Block::scales_at, u), unit.scale);
    }
};

struct Iq2SNibbles {
    using Block = IQ2_S;
    using Layout = panel::Iq2SLayout;
    using Kind = panel::PanelKind<Codes::wide, 128, 0, 2, false>;
    static constexpr int k_table_words = 1024;
    MINIM_HOST_DEVICE static const uint32_t* table() { return iq2s_nibbles(); }

    MINIM_DEVICE static void unpack(const PanelBlock<Lanes>& block, int u, const uint32_t* grid, Unit& unit) {
        const uint32_t low = block.word(Layout::low_at(u));
        const uint32_t high = byte_of_words(block, Block::high_at, u);
        const uint32_t signs = block.word(Layout::signs_at(u));  // WordOrder::sign_nibbles
        for (int i = 0; i < 4; ++i) {
            const uint32_t index = ((low >> (8 * i)) & 255U) | ((high << (8 - 2 * i)) & 0x300U);
            put_nibbles(grid[index] | signs_of_point(signs, i), i, unit);
        }
        panel::HalfStepScale<Lanes>(block.f16(Block::d_at), Layout::k_scale_factor)
            .put_two(byte_of_words(block, Block::scales_at, u), unit.scale);
    }
};

// Decodes as in lib/panel/grids.h, but with lookups in shared memory.
struct Iq3XxsEntries {
    using Block = IQ3_XXS;
    using Kind = panel::Iq3XxsPanel<Lanes>::Kind;
    static constexpr int k_table_words = 256;
    MINIM_HOST_DEVICE static const uint32_t* table() { return iq3xxs_grid(); }

    template <int... i>
    MINIM_DEVICE static void put(uint32_t entries, uint32_t signs, const uint32_t* grid, Unit& unit) {
        (panel::put_code<Lanes, i, panel::k_iq3xxs_offset>(grid[(entries >> (8 * (i % 4))) & 255U], signs,
                                                           unit.code),
         ...);
    }
    MINIM_DEVICE static void unpack(const PanelBlock<Lanes>& block, int u, const uint32_t* grid, Unit& unit) {
        const uint32_t group = block.word(Block::groups_at + 4 * u);
        const uint32_t signs = panel::even_signs<Lanes>(panel::spread_sign_indices<Lanes>(group));
        put<0, 1, 2, 3>(block.word(Block::entries_at + 8 * u), signs, grid, unit);
        put<4, 5, 6, 7>(block.word(Block::entries_at + 8 * u + 4), signs, grid, unit);
        unit.scale[0] = panel::HalfStepScale<Lanes>(block.f16(Block::d_at), 0.5F).of(group >> 28);
    }
};

// The codebook entries of IQ3_S, with k_iq3s_offset added to each magnitude, as in its code. The sums are even numbers
// below 32, so inverting bits 1 .. 4 gives 30 minus the number: the code of the negative.
struct Iq3SCodes {
    uint32_t point[512];
};
MINIM_HOST_DEVICE const uint32_t* iq3s_codes() {
    static constexpr Iq3SCodes k_codes = [] {
        Iq3SCodes codes{};
        for (int i = 0; i < 512; ++i)
            codes.point[i] = codebooks::k_iq3s.data[i] + uint32_t{panel::k_iq3s_offset} * 0x01010101U;
        return codes;
    }();
    return k_codes.point;
}
inline constexpr uint32_t k_iq3s_turned = 2 * panel::k_iq3s_offset * 0x01010101U;
static_assert(k_iq3s_turned == 0x1E1E1E1EU);

struct Iq3SEntries {
    using Block = IQ3_S;
    using Layout = panel::Iq3SLayout;
    using Kind = panel::Iq3SPanel<Lanes>::Kind;
    static constexpr int k_table_words = 512;
    MINIM_HOST_DEVICE static const uint32_t* table() { return iq3s_codes(); }

    // `high`: bit i is the top bit of point i's index. `signs`: WordOrder::sign_bytes.
    template <int... i>
    MINIM_DEVICE static void put(uint32_t low, uint32_t high, uint32_t signs, const uint32_t* grid,
                                 Unit& unit) {
        ((unit.code[i] = grid[((low >> (8 * (i % 4))) & 255U) | ((high << (8 - i)) & 256U)] ^
                         (Lanes::plane_mask<i>(signs) & k_iq3s_turned)),
         ...);
    }
    MINIM_DEVICE static void unpack(const PanelBlock<Lanes>& block, int u, const uint32_t* grid, Unit& unit) {
        const uint32_t high = byte_of_words(block, Block::high_at, u);
        const uint32_t signs = block.word(Layout::signs_at(u));
        put<0, 1, 2, 3>(block.word(Layout::low_at(u, 0)), high, signs, grid, unit);
        put<4, 5, 6, 7>(block.word(Layout::low_at(u, 1)), high, signs, grid, unit);
        const uint32_t number = (block.word(Block::scales_at) >> (4 * u)) & 15U;
        unit.scale[0] =
            panel::HalfStepScale<Lanes>(block.f16(Block::d_at), Layout::k_scale_factor).of(number);
    }
};

// panel::Grids with the decoders of this file in place of its own.
using GridPanels = panel::PanelList<panel::Iq1SPanel<Lanes>, panel::Iq1MPanel<Lanes>, Iq2XxsNibbles,
                                    Iq2XsNibbles, Iq2SNibbles, Iq3XxsEntries, Iq3SEntries>;

}  // namespace minim::cuda::fast
