// SPDX-License-Identifier: Apache-2.0
// Panels of the codebook formats IQ1_S to IQ3_S: every lane looks up the codebook entries of its row. A unit takes some 300
// instructions, so units are decoded in a loop (cpu/generic/panel_units.h). Layouts: lib/format/.
#pragma once

#include "format/grids.h"
#include "format/iq1_m.h"
#include "format/iq1_s.h"
#include "format/iq2_s.h"
#include "format/iq2_xs.h"
#include "format/iq2_xxs.h"
#include "format/iq3_s.h"
#include "format/iq3_xxs.h"
#include "panel/byte_codes.h"

namespace minim::panel {

// Returns signed magnitudes as small codes.
template <class L, int offset>
MINIM_KERNEL_FUNCTION typename L::Int with_signs(typename L::Int magnitudes, typename L::Mask negative) {
    if constexpr (requires { L::template with_signs<offset>(magnitudes, negative); }) {
        return L::template with_signs<offset>(magnitudes, negative);
    } else {
        return L::add_bytes(L::negate_bytes(magnitudes, negative), L::all(offset * 0x01010101));
    }
}

// The indices of n codebook entries of every lane, stored to memory long before they are looked up. Two indices share a
// word of a lane: of four entries whose low bits are the bytes of a word, entry 0 shares with 2, and entry 1 with 3.
template <class L, int n>
struct PointIndices {
    alignas(64) uint16_t at[n / 2][L::k_width][2];

    MINIM_KERNEL_FUNCTION const uint16_t* pair(int p) const { return at[p][0]; }
    MINIM_KERNEL_INLINE void put(int pair, typename L::Int indices) {
        L::store(reinterpret_cast<std::byte*>(at[pair]), indices);
    }
    // Stores the indices of entries i .. i + 3. The low 8 bits of index i + j are byte j of `low`; the n_top bits above them are
    // those of `high` from bit first[j] on.
    template <int n_top, int... first>
    MINIM_KERNEL_INLINE void put_four(int i, typename L::Int low, typename L::Int high) {
        constexpr int k_first[4] = {first...};
        const auto even = L::bit_and(low, L::all(0x00FF00FF));
        const auto odd = L::bit_and(L::template shift_right<8>(low), L::all(0x00FF00FF));
        put(i / 2, L::bit_or(even, tops<n_top, k_first[0], k_first[2]>(high)));
        put(i / 2 + 1, L::bit_or(odd, tops<n_top, k_first[1], k_first[3]>(high)));
    }
    // Moves n_top bits of `high` from bit a to bit 8, and those from bit b to bit 24.
    template <int n_top, int a, int b>
    MINIM_KERNEL_FUNCTION static typename L::Int tops(typename L::Int high) {
        constexpr int k_top = ((1 << n_top) - 1) << 8;
        return L::bit_or(L::bit_and(moved<L, a, 8>(high), L::all(k_top)),
                         L::bit_and(moved<L, b, 24>(high), L::all(k_top << 16)));
    }
    MINIM_KERNEL_INLINE void finish() { L::keep_in_memory(at); }
};

// Returns the four bytes of a lane's word, `at` bytes into a block.
template <class L>
MINIM_KERNEL_FUNCTION const std::byte* word_bytes(const PanelBlock<L>& block, int at) {
    return block.data + k_panel_rows * at + 4 * block.lane;
}
// Returns the address of one-byte indices that are the words `at` bytes into a block.
template <class L>
MINIM_KERNEL_FUNCTION const uint8_t* byte_indices(const PanelBlock<L>& block, int at) {
    return reinterpret_cast<const uint8_t*>(word_bytes(block, at));
}

// Writes columns 4i .. 4i + 3 of a unit, from magnitudes and their signs at bits 4i .. 4i + 3.
template <class L, int i, int offset>
MINIM_KERNEL_INLINE void put_code(typename L::Int magnitudes, typename L::Int signs, typename L::Int* code) {
    code[i] = L::settled(with_signs<L, offset>(magnitudes, L::template bits_mask<4 * i>(signs)));
}
// Writes columns 8i .. 8i + 7, from the halves of an entry of eight magnitudes.
template <class L, int i, int offset>
MINIM_KERNEL_INLINE void put_codes(const typename L::Int* half, typename L::Int signs,
                                   typename L::Int* code) {
    put_code<L, 2 * i, offset>(half[0], signs, code);
    put_code<L, 2 * i + 1, offset>(half[1], signs, code);
}

// Maps four sign indices of 7 bits, one per byte, to sign bytes: bit 7 makes the number of set bits even.
template <class L>
MINIM_KERNEL_FUNCTION typename L::Int even_signs(typename L::Int seven) {
    static constexpr int8_t k_odd[16] = {0,    -128, -128, 0,    -128, 0,    0,    -128,
                                         -128, 0,    0,    -128, 0,    -128, -128, 0};
    const auto odd = L::table(k_odd);
    const auto parity = L::bit_xor(L::look_up(odd, seven), L::look_up(odd, byte_bits<L, 4, 7>(seven)));
    return L::bit_or(seven, parity);
}

// Spreads the four sign indices at bits 7i .. 7i + 6 of a word to its bytes.
template <class L>
MINIM_KERNEL_FUNCTION typename L::Int spread_sign_indices(typename L::Int word) {
    const auto low = L::bit_or(bits_of<L, 0, 7>(word), L::template shift_left<8>(bits_of<L, 7, 7>(word)));
    const auto high = L::bit_or(L::template shift_left<16>(bits_of<L, 14, 7>(word)),
                                L::template shift_left<24>(bits_of<L, 21, 7>(word)));
    return L::bit_or(low, high);
}

// Returns d * (0.5 + number) * factor, exactly: factor is a power of two, d and number are short.
template <class L>
struct HalfStepScale {
    typename L::Float step;
    typename L::Float half;
    MINIM_KERNEL_INLINE HalfStepScale(typename L::Float d, float factor)
        : step(L::mul(d, L::all(factor))), half(L::mul(d, L::all(0.5F * factor))) {}
    MINIM_KERNEL_FUNCTION typename L::Float of(typename L::Int number) const {
        return L::fma(L::to_float(number), step, half);
    }
    // The same for the numbers in the two nibbles of a byte, the lower first.
    MINIM_KERNEL_INLINE void put_two(typename L::Int byte, typename L::Float* scale) const {
        scale[0] = of(bits_of<L, 0, 4>(byte));
        scale[1] = of(bits_of<L, 4, 4>(byte));
    }
};

// The positions of the words of unit u in a block and the unit of its scales, for all readers of these panels:
// cpu/avx512_vbmi/grid_panels.h and cuda/fast/grid_panels.h have decoders of their own. IQ3_XXS does not use it: nvcc 13 would
// generate other code for its kernels.

// A unit of IQ2_XXS: a word of four indices, and a word of four sign indices with the scale above them.
struct Iq2XxsLayout {
    using Block = IQ2_XXS;
    static constexpr float k_scale_factor = 0.25F;
    MINIM_HOST_DEVICE static constexpr int entries_at(int u) { return Block::groups_at + 8 * u; }
    MINIM_HOST_DEVICE static constexpr int signs_at(int u) { return Block::groups_at + 8 * u + 4; }
};

// A unit of IQ2_XS: two words of two entries each.
struct Iq2XsLayout {
    using Block = IQ2_XS;
    static constexpr float k_scale_factor = 0.25F;
    MINIM_HOST_DEVICE static constexpr int entries_at(int u, int i) {
        return Block::entries_at + 8 * u + 4 * i;
    }
};

// A unit of IQ2_S: a word of the low bits of four indices, and a word of 32 signs.
struct Iq2SLayout {
    using Block = IQ2_S;
    static constexpr float k_scale_factor = 0.25F;
    MINIM_HOST_DEVICE static constexpr int low_at(int u) { return Block::low_at + 4 * u; }
    MINIM_HOST_DEVICE static constexpr int signs_at(int u) { return Block::signs_at + 4 * u; }
};

// A unit of IQ3_S: two words of the low bits of four indices each, and a word of 32 signs.
struct Iq3SLayout {
    using Block = IQ3_S;
    static constexpr float k_scale_factor = 2.0F;
    MINIM_HOST_DEVICE static constexpr int low_at(int u, int i) { return Block::low_at + 8 * u + 4 * i; }
    MINIM_HOST_DEVICE static constexpr int signs_at(int u) { return Block::signs_at + 4 * u; }
};

inline constexpr int k_iq2_offset = 43;  // the largest magnitude
inline constexpr int k_iq2_largest = 2 * k_iq2_offset;

template <class L>
struct Iq2XxsPanel {
    using Block = IQ2_XXS;
    using Layout = Iq2XxsLayout;
    using Kind = PanelKind<Codes::small, k_iq2_largest, k_iq2_offset, 1, false>;
    PanelBlock<L> block;
    HalfStepScale<L> scale;
    MINIM_KERNEL_FUNCTION Iq2XxsPanel(PanelBlock<L>, PanelBlock<L> at)
        : block(at), scale(at.f16(Block::d_at), Layout::k_scale_factor) {}
    MINIM_KERNEL_INLINE void unpack(int u, Unit<L>& unit) const {
        const auto group = block.word(Layout::signs_at(u));
        const auto signs = even_signs<L>(spread_sign_indices<L>(group));
        typename L::Int half[8];
        L::fetch(iq2xxs_grid(), byte_indices(block, Layout::entries_at(u)), half);
        put_codes<L, 0, k_iq2_offset>(half, signs, unit.code);
        put_codes<L, 1, k_iq2_offset>(half + 2, signs, unit.code);
        put_codes<L, 2, k_iq2_offset>(half + 4, signs, unit.code);
        put_codes<L, 3, k_iq2_offset>(half + 6, signs, unit.code);
        unit.scale[0] = scale.of(L::template shift_right<28>(group));
    }
};

template <class L>
struct Iq2XsPanel {
    using Block = IQ2_XS;
    using Layout = Iq2XsLayout;
    using Kind = PanelKind<Codes::small, k_iq2_largest, k_iq2_offset, 2, false>;
    PanelBlock<L> block;
    HalfStepScale<L> scale;
    PointIndices<L, 32> index;
    MINIM_KERNEL_INLINE Iq2XsPanel(PanelBlock<L>, PanelBlock<L> at)
        : block(at), scale(at.f16(Block::d_at), Layout::k_scale_factor) {
        for (int i = 0; i < 16; ++i) {
            index.put(i, L::bit_and(block.word(Block::entries_at + 4 * i), L::all(0x01FF01FF)));
        }
        index.finish();
    }
    MINIM_KERNEL_INLINE void unpack(int u, Unit<L>& unit) const {
        const auto a = block.word(Layout::entries_at(u, 0));
        const auto b = block.word(Layout::entries_at(u, 1));
        const auto low = L::bit_or(bits_of<L, 9, 7>(a), L::template shift_left<8>(bits_of<L, 25, 7>(a)));
        const auto high = L::bit_or(L::template shift_left<16>(bits_of<L, 9, 7>(b)),
                                    L::template shift_left<24>(bits_of<L, 25, 7>(b)));
        const auto signs = even_signs<L>(L::bit_or(low, high));
        typename L::Int half[4];
        L::fetch(iq2xs_grid(), index.pair(2 * u), half);
        put_codes<L, 0, k_iq2_offset>(half, signs, unit.code);
        put_codes<L, 1, k_iq2_offset>(half + 2, signs, unit.code);
        L::fetch(iq2xs_grid(), index.pair(2 * u + 1), half);
        put_codes<L, 2, k_iq2_offset>(half, signs, unit.code);
        put_codes<L, 3, k_iq2_offset>(half + 2, signs, unit.code);
        scale.put_two(byte_from(block, Block::scales_at, u), unit.scale);
    }
};

template <class L>
struct Iq2SPanel {
    using Block = IQ2_S;
    using Layout = Iq2SLayout;
    using Kind = PanelKind<Codes::small, k_iq2_largest, k_iq2_offset, 2, false>;
    PanelBlock<L> block;
    HalfStepScale<L> scale;
    PointIndices<L, 32> index;
    MINIM_KERNEL_INLINE Iq2SPanel(PanelBlock<L>, PanelBlock<L> at)
        : block(at), scale(at.f16(Block::d_at), Layout::k_scale_factor) {
        for (int u = 0; u < 8; ++u) {
            const auto high = byte_from(block, Block::high_at, u);
            index.template put_four<2, 0, 2, 4, 6>(4 * u, block.word(Layout::low_at(u)), high);
        }
        index.finish();
    }
    MINIM_KERNEL_INLINE void unpack(int u, Unit<L>& unit) const {
        const auto signs = block.word(Layout::signs_at(u));
        typename L::Int half[4];
        L::fetch(iq2s_grid(), index.pair(2 * u), half);
        put_codes<L, 0, k_iq2_offset>(half, signs, unit.code);
        put_codes<L, 2, k_iq2_offset>(half + 2, signs, unit.code);
        L::fetch(iq2s_grid(), index.pair(2 * u + 1), half);
        put_codes<L, 1, k_iq2_offset>(half, signs, unit.code);
        put_codes<L, 3, k_iq2_offset>(half + 2, signs, unit.code);
        scale.put_two(byte_from(block, Block::scales_at, u), unit.scale);
    }
};

inline constexpr int k_iq3xxs_offset = 62;
inline constexpr int k_iq3s_offset = 15;

template <class L>
struct Iq3XxsPanel {
    using Block = IQ3_XXS;
    using Kind = PanelKind<Codes::small, 2 * k_iq3xxs_offset, k_iq3xxs_offset, 1, false>;
    PanelBlock<L> block;
    HalfStepScale<L> scale;
    MINIM_KERNEL_FUNCTION Iq3XxsPanel(PanelBlock<L>, PanelBlock<L> at)
        : block(at), scale(at.f16(Block::d_at), 0.5F) {}
    MINIM_KERNEL_INLINE void unpack(int u, Unit<L>& unit) const {
        const auto group = block.word(Block::groups_at + 4 * u);
        const auto signs = even_signs<L>(spread_sign_indices<L>(group));
        typename L::Int point[4];
        L::fetch(iq3xxs_grid(), byte_indices(block, Block::entries_at + 8 * u), point);
        put_code<L, 0, k_iq3xxs_offset>(point[0], signs, unit.code);
        put_code<L, 1, k_iq3xxs_offset>(point[1], signs, unit.code);
        put_code<L, 2, k_iq3xxs_offset>(point[2], signs, unit.code);
        put_code<L, 3, k_iq3xxs_offset>(point[3], signs, unit.code);
        L::fetch(iq3xxs_grid(), byte_indices(block, Block::entries_at + 8 * u + 4), point);
        put_code<L, 4, k_iq3xxs_offset>(point[0], signs, unit.code);
        put_code<L, 5, k_iq3xxs_offset>(point[1], signs, unit.code);
        put_code<L, 6, k_iq3xxs_offset>(point[2], signs, unit.code);
        put_code<L, 7, k_iq3xxs_offset>(point[3], signs, unit.code);
        unit.scale[0] = scale.of(L::template shift_right<28>(group));
    }
};

template <class L>
struct Iq3SPanel {
    using Block = IQ3_S;
    using Layout = Iq3SLayout;
    using Kind = PanelKind<Codes::small, 2 * k_iq3s_offset, k_iq3s_offset, 1, false>;
    PanelBlock<L> block;
    HalfStepScale<L> scale;
    PointIndices<L, 64> index;
    MINIM_KERNEL_INLINE Iq3SPanel(PanelBlock<L>, PanelBlock<L> at)
        : block(at), scale(at.f16(Block::d_at), Layout::k_scale_factor) {
        for (int u = 0; u < 8; ++u) {
            const auto high = byte_from(block, Block::high_at, u);
            index.template put_four<1, 0, 1, 2, 3>(8 * u, block.word(Layout::low_at(u, 0)), high);
            index.template put_four<1, 4, 5, 6, 7>(8 * u + 4, block.word(Layout::low_at(u, 1)), high);
        }
        index.finish();
    }
    template <int i>
    MINIM_KERNEL_INLINE void put_two(int u, typename L::Int signs, Unit<L>& unit) const {
        typename L::Int point[2];
        L::fetch(iq3s_grid(), index.pair(4 * u + i / 4 * 2 + i % 4), point);
        put_code<L, i, k_iq3s_offset>(point[0], signs, unit.code);
        put_code<L, i + 2, k_iq3s_offset>(point[1], signs, unit.code);
    }
    MINIM_KERNEL_INLINE void unpack(int u, Unit<L>& unit) const {
        const auto signs = block.word(Layout::signs_at(u));
        put_two<0>(u, signs, unit);
        put_two<1>(u, signs, unit);
        put_two<4>(u, signs, unit);
        put_two<5>(u, signs, unit);
        unit.scale[0] = scale.of(bits_of<L, 0, 4>(L::shift_right(block.word(Block::scales_at), 4 * u)));
    }
};

// value + shift with shift = +-1/8, in eighths: 8 * value +- 1, which is in -9 .. 9.
inline constexpr int k_iq1_offset = 9;

// Writes columns 8i .. 8i + 7 of a unit, from the halves of an entry and the lanes whose shift is downwards.
template <class L, int i>
MINIM_KERNEL_INLINE void put_eighths(const typename L::Int* half, typename L::Int down_lanes,
                                     typename L::Int* code) {
    const auto up = L::sub(L::all(0x02020202), L::bit_and(down_lanes, L::all(0x02020202)));
    for (int h = 0; h < 2; ++h) {
        const auto plus_one = L::add_bytes(half[h], L::all(0x01010101));
        code[2 * i + h] = L::add_bytes(L::template shift_left<3>(plus_one), up);
    }
}

template <class L>
struct Iq1SPanel {
    using Block = IQ1_S;
    using Kind = PanelKind<Codes::small, 2 * k_iq1_offset, k_iq1_offset, 1, false>;
    PanelBlock<L> block;
    HalfStepScale<L> scale;
    PointIndices<L, 32> index;
    MINIM_KERNEL_INLINE Iq1SPanel(PanelBlock<L>, PanelBlock<L> at)
        : block(at), scale(at.f16(Block::d_at), 0.25F) {
        for (int u = 0; u < 8; ++u) {
            index.template put_four<3, 0, 3, 6, 9>(4 * u, block.word(Block::low_at + 4 * u), group(u));
        }
        index.finish();
    }
    // Returns the unit's 16 bits in bits 0 .. 15; the bits above must be ignored.
    MINIM_KERNEL_FUNCTION typename L::Int group(int u) const {
        return byte_from(block, Block::groups_at, 2 * u);
    }
    MINIM_KERNEL_INLINE void unpack(int u, Unit<L>& unit) const {
        const auto down = lanes_with_bit<L, 15>(group(u));
        typename L::Int half[4];
        L::fetch(iq1s_grid(), index.pair(2 * u), half);
        put_eighths<L, 0>(half, down, unit.code);
        put_eighths<L, 2>(half + 2, down, unit.code);
        L::fetch(iq1s_grid(), index.pair(2 * u + 1), half);
        put_eighths<L, 1>(half, down, unit.code);
        put_eighths<L, 3>(half + 2, down, unit.code);
        unit.scale[0] = scale.of(bits_of<L, 12, 3>(group(u)));
    }
};

template <class L>
struct Iq1MPanel {
    using Block = IQ1_M;
    using Kind = PanelKind<Codes::small, 2 * k_iq1_offset, k_iq1_offset, 2, false>;
    PanelBlock<L> block;
    HalfStepScale<L> scale;
    PointIndices<L, 32> index;
    MINIM_KERNEL_INLINE Iq1MPanel(PanelBlock<L>, PanelBlock<L> at)
        : block(at), scale(hidden_scale(at), 0.25F) {
        for (int u = 0; u < 8; ++u) {
            index.template put_four<3, 0, 4, 8, 12>(4 * u, block.word(Block::low_at + 4 * u), high(u));
        }
        index.finish();
    }
    // Returns the unit's 16 bits in bits 0 .. 15; the bits above must be ignored.
    MINIM_KERNEL_FUNCTION typename L::Int high(int u) const {
        return byte_from(block, Block::high_at, 2 * u);
    }

    // The top nibbles of the four scale words, lowest first, are an f16.
    MINIM_KERNEL_FUNCTION static typename L::Float hidden_scale(const PanelBlock<L>& at) {
        const auto a = at.word(Block::scales_at);
        const auto b = at.word(Block::scales_at + 4);
        const auto low = L::bit_or(bits_of<L, 12, 4>(a), L::template shift_left<4>(bits_of<L, 28, 4>(a)));
        const auto high = L::bit_or(bits_of<L, 12, 4>(b), L::template shift_left<4>(bits_of<L, 28, 4>(b)));
        return L::f16_of(L::bit_or(low, L::template shift_left<8>(high)));
    }
    MINIM_KERNEL_INLINE void unpack(int u, Unit<L>& unit) const {
        const auto shifts = high(u);
        typename L::Int half[4];
        L::fetch(iq1s_grid(), index.pair(2 * u), half);
        put_eighths<L, 0>(half, lanes_with_bit<L, 3>(shifts), unit.code);
        put_eighths<L, 2>(half + 2, lanes_with_bit<L, 11>(shifts), unit.code);
        L::fetch(iq1s_grid(), index.pair(2 * u + 1), half);
        put_eighths<L, 1>(half, lanes_with_bit<L, 7>(shifts), unit.code);
        put_eighths<L, 3>(half + 2, lanes_with_bit<L, 15>(shifts), unit.code);
        // Three bits for each 16 columns, a half word for two units.
        const auto two =
            L::shift_right(block.word(Block::scales_at + u / 4 * 4), 16 * (u % 4 / 2) + 6 * (u % 2));
        unit.scale[0] = scale.of(bits_of<L, 0, 3>(two));
        unit.scale[1] = scale.of(bits_of<L, 3, 3>(two));
    }
};

template <class L>
using Grids = PanelList<Iq1SPanel<L>, Iq1MPanel<L>, Iq2XxsPanel<L>, Iq2XsPanel<L>, Iq2SPanel<L>,
                        Iq3XxsPanel<L>, Iq3SPanel<L>>;

}  // namespace minim::panel
