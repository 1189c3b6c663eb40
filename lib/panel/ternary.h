// SPDX-License-Identifier: Apache-2.0
// Panels of the formats of one and two bits without a table: TQ1_0, TQ2_0, Q1_0, Q2_0. Layouts: lib/format/.
#pragma once

#include "format/q1_0.h"
#include "format/tq1_0.h"
#include "format/tq2_0.h"
#include "panel/byte_codes.h"

namespace minim::panel {

template <class L>
struct Tq1Panel {
    using Block = TQ1_0;
    using Kind = PanelKind<Codes::small, 2, 1, 1, false>;
    PanelBlock<L> block;
    typename L::Float d;
    MINIM_KERNEL_FUNCTION Tq1Panel(PanelBlock<L>, PanelBlock<L> at) : block(at), d(at.f16(Block::d_at)) {}

    // Returns ternary digit n of two bytes of a lane, 16 bits each: 3 * (b * 3^n mod 256) / 256.
    MINIM_KERNEL_FUNCTION static typename L::Int digits_of_pair(typename L::Int pair, int power) {
        const auto fraction = L::bit_and(L::mul(pair, L::all(power)), L::all(0x00FF00FF));
        return L::bit_and(L::template shift_right<8>(L::mul(fraction, L::all(3))), L::all(0x00030003));
    }
    MINIM_KERNEL_FUNCTION static typename L::Int digits(typename L::Int word, int n) {
        constexpr int k_powers[5] = {1, 3, 9, 27, 81};
        const auto even = digits_of_pair(L::bit_and(word, L::all(0x00FF00FF)), k_powers[n]);
        const auto odd =
            digits_of_pair(L::bit_and(L::template shift_right<8>(word), L::all(0x00FF00FF)), k_powers[n]);
        return L::bit_or(even, L::template shift_left<8>(odd));
    }
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        for (int k = 0; k < 8; ++k) {
            if constexpr (u < 5) {
                unit.code[k] = digits(block.word(Block::codes_at + 4 * k), u);
            } else {
                // From column 160 on, each digit of 16 bytes gives 16 columns. The tail gives the last 16 columns.
                const int digit = 2 * (u - 5) + k / 4;
                unit.code[k] = digit < 5 ? digits(block.word(Block::codes_at + 32 + 4 * (k % 4)), digit)
                                         : digits(block.word(Block::tail_at), k - 4);
            }
        }
        unit.scale[0] = d;
    }
};

template <class L>
struct Tq2Panel {
    using Block = TQ2_0;
    using Kind = PanelKind<Codes::small, 3, 1, 1, false>;
    PanelBlock<L> block;
    typename L::Float d;
    MINIM_KERNEL_FUNCTION Tq2Panel(PanelBlock<L>, PanelBlock<L> at) : block(at), d(at.f16(Block::d_at)) {}
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        for (int k = 0; k < 8; ++k) unit.code[k] = code2_of_128<L, u>(block, Block::codes_at, k);
        unit.scale[0] = d;
    }
};

template <class L>
struct Q1_0Panel {
    using Block = Q1_0;
    using Kind = PanelKind<Codes::small, 2, 1, 1, false>;
    PanelBlock<L> block;
    MINIM_KERNEL_FUNCTION Q1_0Panel(PanelBlock<L>, PanelBlock<L> at) : block(at) {}
    template <int u, int k>
    MINIM_KERNEL_FUNCTION typename L::Int doubled_bits() const {
        const auto word = block.word(Block::codes_at + 4 * u);
        return L::or_bytes(L::all(0), L::template bits_mask<4 * k>(word), 2);
    }
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        unit.code[0] = doubled_bits<u, 0>();
        unit.code[1] = doubled_bits<u, 1>();
        unit.code[2] = doubled_bits<u, 2>();
        unit.code[3] = doubled_bits<u, 3>();
        unit.code[4] = doubled_bits<u, 4>();
        unit.code[5] = doubled_bits<u, 5>();
        unit.code[6] = doubled_bits<u, 6>();
        unit.code[7] = doubled_bits<u, 7>();
        unit.scale[0] = block.f16(Block::d_at);
    }
};

template <class L>
struct Q2_0Panel {
    using Block = Q2_0;
    using Kind = PanelKind<Codes::small, 3, 1, 1, false>;
    PanelBlock<L> block;
    MINIM_KERNEL_FUNCTION Q2_0Panel(PanelBlock<L>, PanelBlock<L> at) : block(at) {}
    // Spreads the four codes of a byte, lowest first, to four bytes.
    MINIM_KERNEL_FUNCTION static typename L::Int spread(typename L::Int byte) {
        const auto low = L::bit_or(byte, L::template shift_left<6>(byte));
        const auto high = L::bit_or(L::template shift_left<12>(byte), L::template shift_left<18>(byte));
        return L::bit_and(L::bit_or(low, high), L::all(0x03030303));
    }
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        for (int h = 0; h < 2; ++h) {
            const auto word = block.word(Block::codes_at + 8 * u + 4 * h);
            unit.code[4 * h] = spread(byte_of<L, 0>(word));
            unit.code[4 * h + 1] = spread(byte_of<L, 1>(word));
            unit.code[4 * h + 2] = spread(byte_of<L, 2>(word));
            unit.code[4 * h + 3] = spread(byte_of<L, 3>(word));
        }
        unit.scale[0] = block.f16(Block::d_at);
    }
};

template <class L>
using Ternary = PanelList<Tq1Panel<L>, Tq2Panel<L>, Q1_0Panel<L>, Q2_0Panel<L>>;

}  // namespace minim::panel
