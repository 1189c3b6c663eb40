// SPDX-License-Identifier: Apache-2.0
// Panels of ik's trellis formats: every lane runs the generator of its row. A unit takes some 200 instructions, so units are
// decoded in a loop (cpu/generic/panel_units.h). Layouts: lib/format/trellis.h.
#pragma once

#include "format/trellis.h"
#include "panel/byte_codes.h"

namespace minim::panel {

// Returns the next four outputs of the generator, as signed bytes; x is its state. Each step shifts the word left by a byte and adds
// an output in byte 0. So the first output ends in byte 3, and the bytes are reversed last.
template <class L>
MINIM_KERNEL_INLINE typename L::Int trellis_outputs(typename L::Int& x) {
    static constexpr int8_t k_ones[4] = {1, 1, 1, 1};
    const int8_t* ones = k_ones;
    auto sums = L::all(0);
    for (int i = 0; i < 4; ++i) {
        x = L::mul(x, L::all(static_cast<int32_t>(0xCBAC1FEDU)));
        const auto bytes = L::bit_and(x, L::all(0x3F3F3F3F));
        sums = L::template shift_left<8>(sums);
        L::template dot_small<1, 63, 1>(&sums, &bytes, &ones);
    }
    const auto in_order = L::template shuffle_bytes<3, 2, 1, 0>(sums);
    return L::add_bytes(in_order, L::all(static_cast<int32_t>(0x82828282U)));  // less 126
}

template <class L>
MINIM_KERNEL_FUNCTION typename L::Int trellis_state(typename L::Int index) {
    return L::add(index, L::all(4096));
}

// Looks up a scale by its code, in the first half of iq4k. The code is in byte 0; the other bytes are 0.
template <class L>
MINIM_KERNEL_FUNCTION typename L::Float iq4k_scale(typename L::Int code) {
    return L::to_float(signed_byte_of<L, 0>(L::look_up(L::table(iq4k_values()), code)));
}

// Computes eight outputs from an index: columns 8i .. 8i + 7.
template <class L>
MINIM_KERNEL_INLINE void eight_outputs(typename L::Int index, typename L::Int* code) {
    auto x = trellis_state<L>(index);
    code[0] = trellis_outputs<L>(x);
    code[1] = trellis_outputs<L>(x);
}

template <class L>
struct Iq1KtPanel {
    using Block = IQ1_KT;
    using Kind = PanelKind<Codes::wide, 128, 0, 1, false>;
    PanelBlock<L> block;
    typename L::Float d;
    MINIM_KERNEL_FUNCTION Iq1KtPanel(PanelBlock<L> header, PanelBlock<L> at) : block(at), d(header.f32(0)) {}
    template <int c>
    MINIM_KERNEL_INLINE void run(typename L::Int low, typename L::Int high, typename L::Int group,
                                 Unit<L>& unit) const {
        const auto middle = L::template shift_left<8>(bits_of<L, 8 * c, 4>(high));
        const auto top = L::template shift_left<12>(bits_of<L, 4 + c, 1>(group));
        eight_outputs<L>(L::bit_or(L::bit_or(byte_of<L, c>(low), middle), top), unit.code + 2 * c);
    }
    MINIM_KERNEL_INLINE void unpack(int u, Unit<L>& unit) const {
        const auto group = byte_from(block, Block::groups_at, u);
        const auto low = block.word(Block::low_at + 4 * u);
        const auto high = L::shift_right(block.word(Block::high_at + 4 * (u % 4)), 4 * (u / 4));
        run<0>(low, high, group, unit);
        run<1>(low, high, group, unit);
        run<2>(low, high, group, unit);
        run<3>(low, high, group, unit);
        for (auto& code : unit.code) code = L::wide(code);
        unit.scale[0] = L::mul(d, iq4k_scale<L>(bits_of<L, 0, 4>(group)));
    }
};

// Computes the outputs of unit u of IQ2_KT and IQ3_KT, from four indices of 16 bits.
template <class L>
MINIM_KERNEL_INLINE void four_runs(const PanelBlock<L>& block, int indices_at, int u, Unit<L>& unit) {
    const auto a = block.word(indices_at + 8 * u);
    const auto b = block.word(indices_at + 8 * u + 4);
    eight_outputs<L>(bits_of<L, 0, 16>(a), unit.code);
    eight_outputs<L>(L::template shift_right<16>(a), unit.code + 2);
    eight_outputs<L>(bits_of<L, 0, 16>(b), unit.code + 4);
    eight_outputs<L>(L::template shift_right<16>(b), unit.code + 6);
}

// Returns the four bits of unit u of IQ2_KT's and IQ3_KT's scales.
template <class L>
MINIM_KERNEL_FUNCTION typename L::Int scale_bits(const PanelBlock<L>& block, int scales_at, int u) {
    return bits_of<L, 0, 4>(L::shift_right(block.word(scales_at), 8 * (u % 4) + 4 * (u / 4)));
}

template <class L>
struct Iq2KtPanel {
    using Block = IQ2_KT;
    using Kind = PanelKind<Codes::wide, 128, 0, 1, false>;
    PanelBlock<L> block;
    typename L::Float d;
    MINIM_KERNEL_FUNCTION Iq2KtPanel(PanelBlock<L> header, PanelBlock<L> at) : block(at), d(header.f32(0)) {}
    MINIM_KERNEL_INLINE void unpack(int u, Unit<L>& unit) const {
        four_runs(block, Block::indices_at, u, unit);
        for (auto& code : unit.code) code = L::wide(code);
        unit.scale[0] = L::mul(d, iq4k_scale<L>(scale_bits(block, Block::scales_at, u)));
    }
};

template <class L>
struct Iq3KtPanel {
    using Block = IQ3_KT;
    using Kind = PanelKind<Codes::wide, 128, 0, 1, false>;
    PanelBlock<L> block;
    typename L::Float d;
    MINIM_KERNEL_FUNCTION Iq3KtPanel(PanelBlock<L> header, PanelBlock<L> at) : block(at), d(header.f32(0)) {}
    MINIM_KERNEL_INLINE void unpack(int u, Unit<L>& unit) const {
        four_runs(block, Block::indices_at, u, unit);
        for (int k = 0; k < 8; ++k) {
            const auto signs = L::shift_right(block.word(Block::signs_at + 4 * k), u);
            const auto negative = L::template plane_mask<0>(signs);
            unit.code[k] = L::wide(L::negate_bytes(L::abs_bytes(unit.code[k]), negative));
        }
        unit.scale[0] = L::mul(d, L::to_float(scale_bits(block, Block::scales_at, u)));
    }
};

template <class L>
struct Iq4KtPanel {
    using Block = IQ4_KT;
    using Kind = PanelKind<Codes::wide, 128, 0, 1, false>;
    PanelBlock<L> block;
    typename L::Float d;
    MINIM_KERNEL_FUNCTION Iq4KtPanel(PanelBlock<L> header, PanelBlock<L> at) : block(at), d(header.f32(0)) {}
    // Computes columns 4i .. 4i + 3, from the words of four indices' bits.
    template <int i>
    MINIM_KERNEL_INLINE void run(typename L::Int low, typename L::Int high, typename L::Int group,
                                 Unit<L>& unit) const {
        const auto middle = L::template shift_left<8>(bits_of<L, 8 * (i % 4), 4>(high));
        const auto top =
            L::bit_or(bits_of<L, 8 + 3 * i, 3>(group), L::template shift_left<3>(bits_of<L, 0, 1>(group)));
        auto x = trellis_state<L>(
            L::bit_or(L::bit_or(byte_of<L, i % 4>(low), middle), L::template shift_left<12>(top)));
        unit.code[i] = L::wide(trellis_outputs<L>(x));
    }
    // Computes columns 16 half .. 16 half + 15 of unit u.
    template <int half>
    MINIM_KERNEL_INLINE void four_runs_of(typename L::Int group, int u, Unit<L>& unit) const {
        const auto low = block.word(Block::low_at + 8 * u + 4 * half);
        const auto high = L::shift_right(block.word(Block::high_at + 8 * (u % 4) + 4 * half), 4 * (u / 4));
        run<4 * half>(low, high, group, unit);
        run<4 * half + 1>(low, high, group, unit);
        run<4 * half + 2>(low, high, group, unit);
        run<4 * half + 3>(low, high, group, unit);
    }
    MINIM_KERNEL_INLINE void unpack(int u, Unit<L>& unit) const {
        const auto group = block.word(Block::groups_at + 4 * u);
        four_runs_of<0>(group, u, unit);
        four_runs_of<1>(group, u, unit);
        unit.scale[0] = L::mul(d, L::to_float(L::sub(bits_of<L, 1, 7>(group), L::all(64))));
    }
};

template <class L>
using Trellis = PanelList<Iq1KtPanel<L>, Iq2KtPanel<L>, Iq3KtPanel<L>, Iq4KtPanel<L>>;

}  // namespace minim::panel
