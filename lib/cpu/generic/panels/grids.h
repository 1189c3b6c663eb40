// Panels of the grid formats IQ1_S to IQ3_S: a lane fetches the points of its row, a word of four magnitudes
// at a time. Layouts: lib/format/.
#pragma once

#include "cpu/generic/linear_panel.h"
#include "cpu/generic/panels/byte_codes.h"
#include "format/grids.h"
#include "format/iq1_m.h"
#include "format/iq1_s.h"
#include "format/iq2_s.h"
#include "format/iq2_xs.h"
#include "format/iq2_xxs.h"
#include "format/iq3_s.h"
#include "format/iq3_xxs.h"

namespace minim::cpu::generic {

// Signed magnitudes as small codes.
template <class L, int offset>
typename L::Int with_signs(typename L::Int magnitudes, typename L::Mask negative) {
    return L::add_bytes(L::negate_bytes(magnitudes, negative), L::all(offset * 0x01010101));
}

// The indices of n points of every lane, in memory long before they are looked up.
template <class L, int n>
struct PointIndices {
    alignas(64) uint32_t at[n][L::k_width];

    MINIM_KERNEL_INLINE void put(int i, typename L::Int index) {
        L::store(reinterpret_cast<std::byte*>(at[i]), index);
    }
    // Points i .. i + 3: the bytes of `low`, and above them n_top bits of `high` each, from bits first,
    // first + step and so on.
    template <int first, int step, int n_top>
    MINIM_KERNEL_INLINE void put_four(int i, typename L::Int low, typename L::Int high) {
        put(i, L::bit_or(byte_of<L, 0>(low), top<first, n_top>(high)));
        put(i + 1, L::bit_or(byte_of<L, 1>(low), top<first + step, n_top>(high)));
        put(i + 2, L::bit_or(byte_of<L, 2>(low), top<first + 2 * step, n_top>(high)));
        put(i + 3, L::bit_or(byte_of<L, 3>(low), top<first + 3 * step, n_top>(high)));
    }
    template <int first, int n_top>
    static typename L::Int top(typename L::Int high) {
        return L::template shift_left<8>(bits_of<L, first, n_top>(high));
    }
};

// Where the one-byte indices of the lanes lie that are byte i of the words `at` bytes into a block: 4 apart.
template <class L>
const uint8_t* byte_indices(const PanelBlock<L>& block, int at, int i) {
    return reinterpret_cast<const uint8_t*>(block.data + k_panel_rows * at + 4 * block.lane + i);
}

// Columns 8i .. 8i + 7 of a unit: a point of eight bytes, its signs at bits 8i .. 8i + 7.
template <class L, int i, int offset, int stride, typename Index>
MINIM_KERNEL_INLINE void unpack_point(const uint64_t* grid, const Index* at, typename L::Int signs,
                                      typename L::Int* code) {
    typename L::Int low, high;
    L::template fetch<stride>(grid, at, low, high);
    code[2 * i] = with_signs<L, offset>(low, L::template bits_mask<8 * i>(signs));
    code[2 * i + 1] = with_signs<L, offset>(high, L::template bits_mask<8 * i + 4>(signs));
}

// Four sign indices of 7 bits, one a byte, to sign bytes: bit 7 makes the number of set bits even.
template <class L>
typename L::Int even_signs(typename L::Int seven) {
    auto parity = L::bit_xor(seven, byte_bits<L, 4, 0x0F>(seven));
    parity = L::bit_xor(parity, byte_bits<L, 2, 0x3F>(parity));
    parity = L::bit_xor(parity, byte_bits<L, 1, 0x7F>(parity));
    return L::bit_or(seven, L::template shift_left<7>(byte_bits<L, 0, 1>(parity)));
}

// The four sign indices at bits 7i .. 7i + 6 of a word, spread to its bytes.
template <class L>
typename L::Int spread_sign_indices(typename L::Int word) {
    const auto low = L::bit_or(bits_of<L, 0, 7>(word), L::template shift_left<8>(bits_of<L, 7, 7>(word)));
    const auto high = L::bit_or(L::template shift_left<16>(bits_of<L, 14, 7>(word)),
                                L::template shift_left<24>(bits_of<L, 21, 7>(word)));
    return L::bit_or(low, high);
}

// d * (0.5 + number) * factor
template <class L>
typename L::Float half_step_scale(typename L::Float d, typename L::Int number, float factor) {
    return L::mul(L::mul(d, L::add(L::to_float(number), L::all(0.5F))), L::all(factor));
}

inline constexpr int k_iq2_offset = 43;  // the largest magnitude
inline constexpr int k_iq2_largest = 2 * k_iq2_offset;

template <class L>
struct Iq2XxsPanel {
    using Block = IQ2_XXS;
    using Kind = PanelKind<Codes::small, k_iq2_largest, k_iq2_offset, 1, false>;
    PanelBlock<L> block;
    typename L::Float d;
    Iq2XxsPanel(PanelBlock<L>, PanelBlock<L> at) : block(at), d(at.f16(Block::d_at)) {}
    template <int u, int i>
    MINIM_KERNEL_INLINE void point(typename L::Int signs, Unit<L>& unit) const {
        unpack_point<L, i, k_iq2_offset, 4>(iq2xxs_grid(), byte_indices(block, Block::groups_at + 8 * u, i),
                                            signs, unit.code);
    }
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        const auto group = block.word(Block::groups_at + 8 * u + 4);
        const auto signs = even_signs<L>(spread_sign_indices<L>(group));
        point<u, 0>(signs, unit);
        point<u, 1>(signs, unit);
        point<u, 2>(signs, unit);
        point<u, 3>(signs, unit);
        unit.scale[0] = half_step_scale<L>(d, L::template shift_right<28>(group), 0.25F);
    }
};

template <class L>
struct Iq2XsPanel {
    using Block = IQ2_XS;
    using Kind = PanelKind<Codes::small, k_iq2_largest, k_iq2_offset, 2, false>;
    PanelBlock<L> block;
    typename L::Float d;
    PointIndices<L, 32> index;
    MINIM_KERNEL_INLINE Iq2XsPanel(PanelBlock<L>, PanelBlock<L> at) : block(at), d(at.f16(Block::d_at)) {
        for (int i = 0; i < 16; ++i) {
            const auto two = block.word(Block::points_at + 4 * i);
            index.put(2 * i, bits_of<L, 0, 9>(two));
            index.put(2 * i + 1, bits_of<L, 16, 9>(two));
        }
    }
    template <int u, int i>
    MINIM_KERNEL_INLINE void point(typename L::Int signs, Unit<L>& unit) const {
        unpack_point<L, i, k_iq2_offset, 1>(iq2xs_grid(), index.at[4 * u + i], signs, unit.code);
    }
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        const auto a = block.word(Block::points_at + 8 * u);
        const auto b = block.word(Block::points_at + 8 * u + 4);
        const auto low = L::bit_or(bits_of<L, 9, 7>(a), L::template shift_left<8>(bits_of<L, 25, 7>(a)));
        const auto high = L::bit_or(L::template shift_left<16>(bits_of<L, 9, 7>(b)),
                                    L::template shift_left<24>(bits_of<L, 25, 7>(b)));
        const auto signs = even_signs<L>(L::bit_or(low, high));
        point<u, 0>(signs, unit);
        point<u, 1>(signs, unit);
        point<u, 2>(signs, unit);
        point<u, 3>(signs, unit);
        const auto scales = block.word(Block::scales_at + u / 4 * 4);
        unit.scale[0] = half_step_scale<L>(d, bits_of<L, 8 * (u % 4), 4>(scales), 0.25F);
        unit.scale[1] = half_step_scale<L>(d, bits_of<L, 8 * (u % 4) + 4, 4>(scales), 0.25F);
    }
};

template <class L>
struct Iq2SPanel {
    using Block = IQ2_S;
    using Kind = PanelKind<Codes::small, k_iq2_largest, k_iq2_offset, 2, false>;
    PanelBlock<L> block;
    typename L::Float d;
    PointIndices<L, 32> index;
    MINIM_KERNEL_INLINE Iq2SPanel(PanelBlock<L>, PanelBlock<L> at) : block(at), d(at.f16(Block::d_at)) {
        put_half<0>();
        put_half<1>();
    }
    template <int half>
    MINIM_KERNEL_INLINE void put_half() {
        const auto high = block.word(Block::high_at + 4 * half);
        put_unit<half, 0>(high);
        put_unit<half, 1>(high);
        put_unit<half, 2>(high);
        put_unit<half, 3>(high);
    }
    template <int half, int u>
    MINIM_KERNEL_INLINE void put_unit(typename L::Int high) {
        constexpr int k_point = 16 * half + 4 * u;
        index.template put_four<8 * u, 2, 2>(k_point, block.word(Block::low_at + k_point), high);
    }
    template <int u, int i>
    MINIM_KERNEL_INLINE void point(typename L::Int signs, Unit<L>& unit) const {
        unpack_point<L, i, k_iq2_offset, 1>(iq2s_grid(), index.at[4 * u + i], signs, unit.code);
    }
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        const auto signs = block.word(Block::signs_at + 4 * u);
        point<u, 0>(signs, unit);
        point<u, 1>(signs, unit);
        point<u, 2>(signs, unit);
        point<u, 3>(signs, unit);
        const auto scales = block.word(Block::scales_at + u / 4 * 4);
        unit.scale[0] = half_step_scale<L>(d, bits_of<L, 8 * (u % 4), 4>(scales), 0.25F);
        unit.scale[1] = half_step_scale<L>(d, bits_of<L, 8 * (u % 4) + 4, 4>(scales), 0.25F);
    }
};

template <class L>
struct Iq3XxsPanel {
    using Block = IQ3_XXS;
    using Kind = PanelKind<Codes::small, 2 * 62, 62, 1, false>;
    PanelBlock<L> block;
    typename L::Float d;
    Iq3XxsPanel(PanelBlock<L>, PanelBlock<L> at) : block(at), d(at.f16(Block::d_at)) {}
    // Columns 4i .. 4i + 3.
    template <int u, int i>
    MINIM_KERNEL_INLINE void point(typename L::Int signs, Unit<L>& unit) const {
        const auto* at = byte_indices(block, Block::points_at + 8 * u + i / 4 * 4, i % 4);
        unit.code[i] =
            with_signs<L, 62>(L::template fetch<4>(iq3xxs_grid(), at), L::template bits_mask<4 * i>(signs));
    }
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        const auto group = block.word(Block::groups_at + 4 * u);
        const auto signs = even_signs<L>(spread_sign_indices<L>(group));
        point<u, 0>(signs, unit);
        point<u, 1>(signs, unit);
        point<u, 2>(signs, unit);
        point<u, 3>(signs, unit);
        point<u, 4>(signs, unit);
        point<u, 5>(signs, unit);
        point<u, 6>(signs, unit);
        point<u, 7>(signs, unit);
        unit.scale[0] = half_step_scale<L>(d, L::template shift_right<28>(group), 0.5F);
    }
};

template <class L>
struct Iq3SPanel {
    using Block = IQ3_S;
    using Kind = PanelKind<Codes::small, 2 * 15, 15, 1, false>;
    PanelBlock<L> block;
    typename L::Float d;
    PointIndices<L, 64> index;
    MINIM_KERNEL_INLINE Iq3SPanel(PanelBlock<L>, PanelBlock<L> at) : block(at), d(at.f16(Block::d_at)) {
        put_half<0>();
        put_half<1>();
    }
    template <int half>
    MINIM_KERNEL_INLINE void put_half() {
        const auto high = block.word(Block::high_at + 4 * half);
        put_four<half, 0>(high);
        put_four<half, 1>(high);
        put_four<half, 2>(high);
        put_four<half, 3>(high);
        put_four<half, 4>(high);
        put_four<half, 5>(high);
        put_four<half, 6>(high);
        put_four<half, 7>(high);
    }
    template <int half, int four>
    MINIM_KERNEL_INLINE void put_four(typename L::Int high) {
        constexpr int k_point = 32 * half + 4 * four;
        index.template put_four<4 * four, 1, 1>(k_point, block.word(Block::low_at + k_point), high);
    }
    // Columns 4i .. 4i + 3.
    template <int u, int i>
    MINIM_KERNEL_INLINE void point(typename L::Int signs, Unit<L>& unit) const {
        unit.code[i] = with_signs<L, 15>(L::template fetch<1>(iq3s_grid(), index.at[8 * u + i]),
                                         L::template bits_mask<4 * i>(signs));
    }
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        const auto signs = block.word(Block::signs_at + 4 * u);
        point<u, 0>(signs, unit);
        point<u, 1>(signs, unit);
        point<u, 2>(signs, unit);
        point<u, 3>(signs, unit);
        point<u, 4>(signs, unit);
        point<u, 5>(signs, unit);
        point<u, 6>(signs, unit);
        point<u, 7>(signs, unit);
        const auto scale = bits_of<L, 4 * u, 4>(block.word(Block::scales_at));
        const auto number = L::add(L::template shift_left<1>(scale), L::all(1));
        unit.scale[0] = L::mul(d, L::to_float(number));
    }
};

// (value + shift) / 1 with shift = +-1/8, in eighths: 8 * value +- 1, which lies in -9 .. 9.
inline constexpr int k_iq1_offset = 9;

// Columns 8i .. 8i + 7 of a unit, from a point and the lanes whose shift is downwards.
template <class L, int i>
MINIM_KERNEL_INLINE void unpack_eighths(const uint32_t* at, typename L::Int down_lanes,
                                        typename L::Int* code) {
    typename L::Int half[2];
    L::template fetch<1>(iq1s_grid(), at, half[0], half[1]);
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
    typename L::Float d;
    PointIndices<L, 32> index;
    MINIM_KERNEL_INLINE Iq1SPanel(PanelBlock<L>, PanelBlock<L> at) : block(at), d(at.f16(Block::d_at)) {
        for (int i = 0; i < 32; i += 8) {
            const auto high = block.word(Block::groups_at + i / 2);
            index.template put_four<0, 3, 3>(i, block.word(Block::low_at + i), high);
            index.template put_four<16, 3, 3>(i + 4, block.word(Block::low_at + i + 4), high);
        }
    }
    template <int u, int i>
    MINIM_KERNEL_INLINE void point(typename L::Int group, Unit<L>& unit) const {
        const auto down = lanes_with_bit<L, 16 * (u % 2) + 15>(group);
        unpack_eighths<L, i>(index.at[4 * u + i], down, unit.code);
    }
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        const auto group = block.word(Block::groups_at + u / 2 * 4);
        point<u, 0>(group, unit);
        point<u, 1>(group, unit);
        point<u, 2>(group, unit);
        point<u, 3>(group, unit);
        const auto scale = bits_of<L, 16 * (u % 2) + 12, 3>(group);
        const auto number = L::add(L::template shift_left<1>(scale), L::all(1));
        unit.scale[0] = L::mul(L::mul(d, L::to_float(number)), L::all(0.125F));
    }
};

template <class L>
struct Iq1MPanel {
    using Block = IQ1_M;
    using Kind = PanelKind<Codes::small, 2 * k_iq1_offset, k_iq1_offset, 2, false>;
    PanelBlock<L> block;
    typename L::Float d;
    PointIndices<L, 32> index;
    MINIM_KERNEL_INLINE Iq1MPanel(PanelBlock<L>, PanelBlock<L> at) : block(at), d(hidden_scale(at)) {
        for (int i = 0; i < 32; i += 8) {
            const auto high = block.word(Block::high_at + i / 2);
            index.template put_four<0, 4, 3>(i, block.word(Block::low_at + i), high);
            index.template put_four<16, 4, 3>(i + 4, block.word(Block::low_at + i + 4), high);
        }
    }

    // The top nibbles of the four scale words, lowest first, are an f16.
    static typename L::Float hidden_scale(const PanelBlock<L>& at) {
        const auto a = at.word(Block::scales_at);
        const auto b = at.word(Block::scales_at + 4);
        const auto low = L::bit_or(bits_of<L, 12, 4>(a), L::template shift_left<4>(bits_of<L, 28, 4>(a)));
        const auto high = L::bit_or(bits_of<L, 12, 4>(b), L::template shift_left<4>(bits_of<L, 28, 4>(b)));
        return L::f16_of(L::bit_or(low, L::template shift_left<8>(high)));
    }
    template <int u, int i>
    MINIM_KERNEL_INLINE void point(Unit<L>& unit) const {
        constexpr int k_point = 4 * u + i;
        const auto down =
            lanes_with_bit<L, 4 * (k_point % 8) + 3>(block.word(Block::high_at + k_point / 8 * 4));
        unpack_eighths<L, i>(index.at[k_point], down, unit.code);
    }
    template <int g>
    typename L::Float scale() const {
        const auto word = block.word(Block::scales_at + g / 8 * 4);
        const auto number = bits_of<L, 16 * (g % 8 / 4) + 3 * (g % 4), 3>(word);
        const auto odd = L::add(L::template shift_left<1>(number), L::all(1));
        return L::mul(L::mul(d, L::to_float(odd)), L::all(0.125F));
    }
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        point<u, 0>(unit);
        point<u, 1>(unit);
        point<u, 2>(unit);
        point<u, 3>(unit);
        unit.scale[0] = scale<2 * u>();
        unit.scale[1] = scale<2 * u + 1>();
    }
};

template <class L>
constexpr LinearKernels grids_kernels() {
    return panel_kernels<L, Iq1SPanel<L>, Iq1MPanel<L>, Iq2XxsPanel<L>, Iq2XsPanel<L>, Iq2SPanel<L>,
                         Iq3XxsPanel<L>, Iq3SPanel<L>>();
}

}  // namespace minim::cpu::generic
