// Codes of less than 8 bits, brought into bytes: the ways in which the formats spread them (the names are
// those of lib/format/block_reader.h), for one unit of 32 columns of the lanes of a panel.
#pragma once

#include "panel/units.h"

namespace minim::panel {

// The bits of `mask` of every byte of a word, from bit `shift` on.
template <class L, int shift, int mask>
MINIM_KERNEL_FUNCTION typename L::Int byte_bits(typename L::Int word) {
    return L::bit_and(L::template shift_right<shift>(word), L::all(mask * 0x01010101));
}

// Byte i of every lane as a number.
template <class L, int i>
MINIM_KERNEL_FUNCTION typename L::Int byte_of(typename L::Int word) {
    const auto shifted = L::template shift_right<8 * i>(word);
    if constexpr (i == 3) return shifted;
    return L::bit_and(shifted, L::all(255));
}

// A word shifted so that its bit `from` becomes bit `to`.
template <class L, int from, int to>
MINIM_KERNEL_FUNCTION typename L::Int moved(typename L::Int word) {
    if constexpr (from > to) {
        return L::template shift_right<from - to>(word);
    } else {
        return L::template shift_left<to - from>(word);
    }
}

// The four nibbles of a half word, a byte each.
template <class L>
MINIM_KERNEL_FUNCTION typename L::Int spread_nibbles(typename L::Int half) {
    const auto bytes = L::bit_and(L::bit_or(half, L::template shift_left<8>(half)), L::all(0x00FF00FF));
    return L::bit_and(L::bit_or(bytes, L::template shift_left<4>(bytes)), L::all(0x0F0F0F0F));
}

template <class L, int i>
MINIM_KERNEL_FUNCTION typename L::Int signed_byte_of(typename L::Int word) {
    return L::template shift_right_signed<24>(L::template shift_left<24 - 8 * i>(word));
}

template <class L, int shift, int n_bits>
MINIM_KERNEL_FUNCTION typename L::Int bits_of(typename L::Int word) {
    return L::bit_and(L::template shift_right<shift>(word), L::all((1 << n_bits) - 1));
}

// All ones in the lanes whose bit is set.
template <class L, int bit>
MINIM_KERNEL_FUNCTION typename L::Int lanes_with_bit(typename L::Int word) {
    return L::template shift_right_signed<31>(L::template shift_left<31 - bit>(word));
}

// 16 bytes hold 32 elements, low nibbles the first 16.
template <class L>
MINIM_KERNEL_INLINE void code4_of_32(const PanelBlock<L>& block, int at, typename L::Int* code) {
    for (int k = 0; k < 4; ++k) {
        const auto word = block.word(at + 4 * k);
        code[k] = byte_bits<L, 0, 15>(word);
        code[k + 4] = byte_bits<L, 4, 15>(word);
    }
}

// What the low nibbles of a word's bytes, and the high ones, are in a table of 16.
template <class L>
MINIM_KERNEL_INLINE void value4(const typename L::Table& table, typename L::Int word, typename L::Int& low,
                                typename L::Int& high) {
    if constexpr (requires { L::look_up_nibbles(table, word, low, high); }) {
        L::look_up_nibbles(table, word, low, high);
    } else {
        low = L::look_up(table, byte_bits<L, 0, 15>(word));
        high = L::look_up(table, byte_bits<L, 4, 15>(word));
    }
}

// The values of code4_of_32.
template <class L>
MINIM_KERNEL_INLINE void value4_of_32(const PanelBlock<L>& block, int at, const typename L::Table& table,
                                      typename L::Int* value) {
    for (int k = 0; k < 4; ++k) value4<L>(table, block.word(at + 4 * k), value[k], value[k + 4]);
}

// 32 bytes hold 64 elements, low nibbles the first 32.
template <class L, int unit>
MINIM_KERNEL_INLINE void code4_of_64(const PanelBlock<L>& block, int at, typename L::Int* code) {
    for (int k = 0; k < 8; ++k) {
        code[k] = byte_bits<L, 4 * (unit % 2), 15>(block.word(at + 32 * (unit / 2) + 4 * k));
    }
}

// 32 bytes hold 128 elements, the lowest bits the first 32. The result is shifted left by `to`.
template <class L, int unit, int to = 0>
MINIM_KERNEL_INLINE typename L::Int code2_of_128(const PanelBlock<L>& block, int at, int k) {
    constexpr int k_from = 2 * (unit % 4);
    const auto word = block.word(at + 32 * (unit / 4) + 4 * k);
    if constexpr (k_from >= to) {
        return byte_bits<L, k_from - to, 3 << to>(word);
    } else {
        return L::bit_and(L::template shift_left<to - k_from>(word), L::all((3 << to) * 0x01010101));
    }
}

// 32 bytes hold 256 elements, bit 0 the first 32. The result is shifted left by `to`.
template <class L, int unit, int to>
MINIM_KERNEL_INLINE typename L::Int code1_of_256(const PanelBlock<L>& block, int at, int k) {
    const auto word = block.word(at + 4 * k);
    if constexpr (unit >= to) {
        return byte_bits<L, unit - to, 1 << to>(word);
    } else {
        return L::bit_and(L::template shift_left<to - unit>(word), L::all((1 << to) * 0x01010101));
    }
}

// 5-bit codes: four bits as above, the fifth in a plane of its own.
template <class L, int unit>
MINIM_KERNEL_INLINE void code5_of_64(const PanelBlock<L>& block, int codes_at, int fifth_at,
                                     typename L::Int* code) {
    code4_of_64<L, unit>(block, codes_at, code);
    for (int k = 0; k < 8; ++k) code[k] = L::bit_or(code[k], code1_of_256<L, unit, 4>(block, fifth_at, k));
}

}  // namespace minim::panel
