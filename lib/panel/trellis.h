// SPDX-License-Identifier: Apache-2.0
// Panels of ik's trellis formats: every lane runs the generator of its row. Layouts: lib/format/trellis.h.
#pragma once

#include "format/trellis.h"
#include "panel/byte_codes.h"

namespace minim::panel {

// Returns the next four outputs of the generator, as signed bytes; x is its state.
template <class L>
MINIM_KERNEL_INLINE typename L::Int trellis_outputs(typename L::Int& x) {
    static constexpr int8_t k_ones[4] = {1, 1, 1, 1};
    const int8_t* ones = k_ones;
    typename L::Int sums[4];
    for (auto& sum : sums) {
        x = L::mul(x, L::all(static_cast<int32_t>(0xCBAC1FEDU)));
        const auto bytes = L::bit_and(x, L::all(0x3F3F3F3F));
        sum = L::all(0);
        L::template dot_small<1, 63, 1>(&sum, &bytes, &ones);
    }
    const auto low = L::bit_or(sums[0], L::template shift_left<8>(sums[1]));
    const auto high = L::bit_or(L::template shift_left<16>(sums[2]), L::template shift_left<24>(sums[3]));
    return L::add_bytes(L::bit_or(low, high), L::all(static_cast<int32_t>(0x82828282U)));  // less 126
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
    template <int u, int c>
    MINIM_KERNEL_INLINE void run(typename L::Int group, Unit<L>& unit) const {
        const auto low = byte_of<L, c>(block.word(Block::low_at + 4 * u));
        const auto high = bits_of<L, 8 * c + 4 * (u / 4), 4>(block.word(Block::high_at + 4 * (u % 4)));
        const auto top = bits_of<L, 4 + c, 1>(group);
        const auto index =
            L::bit_or(L::bit_or(low, L::template shift_left<8>(high)), L::template shift_left<12>(top));
        eight_outputs<L>(index, unit.code + 2 * c);
    }
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        const auto group = byte_of<L, u % 4>(block.word(Block::groups_at + u / 4 * 4));
        run<u, 0>(group, unit);
        run<u, 1>(group, unit);
        run<u, 2>(group, unit);
        run<u, 3>(group, unit);
        for (auto& code : unit.code) code = L::wide(code);
        unit.scale[0] = L::mul(d, iq4k_scale<L>(bits_of<L, 0, 4>(group)));
    }
};

// Computes the outputs of unit u of IQ2_KT and IQ3_KT, from four indices of 16 bits.
template <class L, int u>
MINIM_KERNEL_INLINE void four_runs(const PanelBlock<L>& block, int indices_at, Unit<L>& unit) {
    const auto a = block.word(indices_at + 8 * u);
    const auto b = block.word(indices_at + 8 * u + 4);
    eight_outputs<L>(bits_of<L, 0, 16>(a), unit.code);
    eight_outputs<L>(L::template shift_right<16>(a), unit.code + 2);
    eight_outputs<L>(bits_of<L, 0, 16>(b), unit.code + 4);
    eight_outputs<L>(L::template shift_right<16>(b), unit.code + 6);
}

template <class L>
struct Iq2KtPanel {
    using Block = IQ2_KT;
    using Kind = PanelKind<Codes::wide, 128, 0, 1, false>;
    PanelBlock<L> block;
    typename L::Float d;
    MINIM_KERNEL_FUNCTION Iq2KtPanel(PanelBlock<L> header, PanelBlock<L> at) : block(at), d(header.f32(0)) {}
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        four_runs<L, u>(block, Block::indices_at, unit);
        for (auto& code : unit.code) code = L::wide(code);
        const auto code = bits_of<L, 8 * (u % 4) + 4 * (u / 4), 4>(block.word(Block::scales_at));
        unit.scale[0] = L::mul(d, iq4k_scale<L>(code));
    }
};

template <class L>
struct Iq3KtPanel {
    using Block = IQ3_KT;
    using Kind = PanelKind<Codes::wide, 128, 0, 1, false>;
    PanelBlock<L> block;
    typename L::Float d;
    MINIM_KERNEL_FUNCTION Iq3KtPanel(PanelBlock<L> header, PanelBlock<L> at) : block(at), d(header.f32(0)) {}
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        four_runs<L, u>(block, Block::indices_at, unit);
        for (int k = 0; k < 8; ++k) {
            const auto negative = L::template plane_mask<u>(block.word(Block::signs_at + 4 * k));
            unit.code[k] = L::wide(L::negate_bytes(L::abs_bytes(unit.code[k]), negative));
        }
        const auto number = bits_of<L, 8 * (u % 4) + 4 * (u / 4), 4>(block.word(Block::scales_at));
        unit.scale[0] = L::mul(d, L::to_float(number));
    }
};

template <class L>
struct Iq4KtPanel {
    using Block = IQ4_KT;
    using Kind = PanelKind<Codes::wide, 128, 0, 1, false>;
    PanelBlock<L> block;
    typename L::Float d;
    MINIM_KERNEL_FUNCTION Iq4KtPanel(PanelBlock<L> header, PanelBlock<L> at) : block(at), d(header.f32(0)) {}
    // Computes columns 4i .. 4i + 3.
    template <int u, int i>
    MINIM_KERNEL_INLINE void run(typename L::Int group, Unit<L>& unit) const {
        const auto low = byte_of<L, i % 4>(block.word(Block::low_at + 8 * u + i / 4 * 4));
        constexpr int k_high = Block::high_at + 8 * (u % 4) + i / 4 * 4;
        const auto high = bits_of<L, 8 * (i % 4) + 4 * (u / 4), 4>(block.word(k_high));
        const auto top =
            L::bit_or(bits_of<L, 8 + 3 * i, 3>(group), L::template shift_left<3>(bits_of<L, 0, 1>(group)));
        auto x = trellis_state<L>(
            L::bit_or(L::bit_or(low, L::template shift_left<8>(high)), L::template shift_left<12>(top)));
        unit.code[i] = L::wide(trellis_outputs<L>(x));
    }
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        const auto group = block.word(Block::groups_at + 4 * u);
        run<u, 0>(group, unit);
        run<u, 1>(group, unit);
        run<u, 2>(group, unit);
        run<u, 3>(group, unit);
        run<u, 4>(group, unit);
        run<u, 5>(group, unit);
        run<u, 6>(group, unit);
        run<u, 7>(group, unit);
        unit.scale[0] = L::mul(d, L::to_float(L::sub(bits_of<L, 1, 7>(group), L::all(64))));
    }
};

template <class L>
using Trellis = PanelList<Iq1KtPanel<L>, Iq2KtPanel<L>, Iq3KtPanel<L>, Iq4KtPanel<L>>;

}  // namespace minim::panel
