// SPDX-License-Identifier: Apache-2.0
// Moves codes of less than 8 bits to bytes, for one unit of 32 columns of the lanes of a panel. The names of the layouts are
// those of lib/format/block_reader.h.
#pragma once

#include "panel/units.h"

namespace minim::panel {

// Returns the bits of `mask` of every byte of a word, shifted right by `shift`.
template <class L, int shift, int mask>
MINIM_KERNEL_FUNCTION typename L::Int byte_bits(typename L::Int word) {
    return L::bit_and(L::template shift_right<shift>(word), L::all(mask * 0x01010101));
}

// Returns byte i of every lane as a number.
template <class L, int i>
MINIM_KERNEL_FUNCTION typename L::Int byte_of(typename L::Int word) {
    const auto shifted = L::template shift_right<8 * i>(word);
    if constexpr (i == 3) return shifted;
    return L::bit_and(shifted, L::all(255));
}

// Returns a word whose lowest byte is byte at + i of the block.
template <class L>
MINIM_KERNEL_FUNCTION typename L::Int byte_from(const PanelBlock<L>& block, int at, int i) {
    return L::shift_right(block.word(at + i / 4 * 4), 8 * (i % 4));
}

// Returns a word shifted so that its bit `from` becomes bit `to`.
template <class L, int from, int to>
MINIM_KERNEL_FUNCTION typename L::Int moved(typename L::Int word) {
    if constexpr (from > to) {
        return L::template shift_right<from - to>(word);
    } else {
        return L::template shift_left<to - from>(word);
    }
}

// Returns the four nibbles of a half word, a byte each.
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

// Returns all ones in the lanes whose bit is set.
template <class L, int bit>
MINIM_KERNEL_FUNCTION typename L::Int lanes_with_bit(typename L::Int word) {
    return L::template shift_right_signed<31>(L::template shift_left<31 - bit>(word));
}

// Unpacks codes of 4 bits: 16 bytes hold 32 elements, the low nibbles the first 16.
template <class L>
MINIM_KERNEL_INLINE void code4_of_32(const PanelBlock<L>& block, int at, typename L::Int* code) {
    for (int k = 0; k < 4; ++k) {
        const auto word = block.word(at + 4 * k);
        code[k] = byte_bits<L, 0, 15>(word);
        code[k + 4] = byte_bits<L, 4, 15>(word);
    }
}

// Looks up the low nibbles of a word's bytes, and the high ones, in a table of 16.
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

// Looks up the values of the codes of code4_of_32.
template <class L>
MINIM_KERNEL_INLINE void value4_of_32(const PanelBlock<L>& block, int at, const typename L::Table& table,
                                      typename L::Int* value) {
    for (int k = 0; k < 4; ++k) {
        const auto word = block.word(at + 4 * k);
        if constexpr (requires { L::look_up_packed(table, word, value[k], value[k + 4]); }) {
            L::look_up_packed(table, word, value[k], value[k + 4]);  // on a device with its own order
        } else {
            value4<L>(table, word, value[k], value[k + 4]);
        }
    }
}

// Lanes that have registers to spare (cpu/generic/linear_panel.h).
template <class L>
concept KeepsWords = L::k_keeps_words;

// Words that several units share. They are either read at each use or, on lanes that keep them in registers, read once, in order,
// when the first of these units calls `read`. A panel type with such words has With<Other>, the same type over other lanes, so
// that a kernel can give it lanes that keep them. (Compilers may load a word at every use, and loads of a cache line that has not
// arrived delay those behind them.)
template <class L, int n>
class SharedWords {
  public:
    using Int = typename L::Int;

    MINIM_KERNEL_INLINE void read(const PanelBlock<L>& block, int at) {
        block_ = block;
        at_ = at;
    }
    MINIM_KERNEL_INLINE Int operator[](int k) const { return block_.word(at_ + 4 * k); }

  private:
    PanelBlock<L> block_;
    int at_;
};

template <KeepsWords L, int n>
class SharedWords<L, n> {
  public:
    using Int = typename L::Int;

    MINIM_KERNEL_INLINE void read(const PanelBlock<L>& block, int at) {
        for (int k = 0; k < n; ++k) {
            word_[k] = block.word(at + 4 * k);
            L::keep_in_register(word_[k]);
        }
    }
    MINIM_KERNEL_INLINE Int operator[](int k) const { return word_[k]; }

  private:
    Int word_[n];
};

// Whether unit `unit` calls `read` for words that n_sharing units share: if words are kept, only the first of these units does,
// else each of them.
template <class L, int unit, int n_sharing>
inline constexpr bool k_reads_shared = unit % n_sharing == 0 || !KeepsWords<L>;

// Unpacks codes of 4 bits: 32 bytes hold 64 elements, the low nibbles the first 32.
template <class L, int unit>
MINIM_KERNEL_INLINE void code4_of_64(const PanelBlock<L>& block, int at, SharedWords<L, 8>& words,
                                     typename L::Int* code) {
    if constexpr (k_reads_shared<L, unit, 2>) words.read(block, at + 32 * (unit / 2));
    for (int k = 0; k < 8; ++k) code[k] = byte_bits<L, 4 * (unit % 2), 15>(words[k]);
}

// Returns the codes of a unit in one word of the 32 bytes that hold 128 elements, the lowest bits the first 32. The result is
// shifted left by `to`.
template <class L, int unit, int to = 0>
MINIM_KERNEL_INLINE typename L::Int code2_of_word(typename L::Int word) {
    constexpr int k_from = 2 * (unit % 4);
    if constexpr (k_from >= to) {
        return byte_bits<L, k_from - to, 3 << to>(word);
    } else {
        return L::bit_and(L::template shift_left<to - k_from>(word), L::all((3 << to) * 0x01010101));
    }
}

template <class L, int unit, int to = 0>
MINIM_KERNEL_INLINE typename L::Int code2_of_128(const PanelBlock<L>& block, int at, int k) {
    return code2_of_word<L, unit, to>(block.word(at + 32 * (unit / 4) + 4 * k));
}

// Returns the codes of a unit in one word of the 32 bytes that hold 256 elements, bit 0 the first 32. The result is
// shifted left by `to`.
template <class L, int unit, int to>
MINIM_KERNEL_INLINE typename L::Int code1_of_word(typename L::Int word) {
    if constexpr (unit >= to) {
        return byte_bits<L, unit - to, 1 << to>(word);
    } else {
        return L::bit_and(L::template shift_left<to - unit>(word), L::all((1 << to) * 0x01010101));
    }
}

template <class L, int unit, int to>
MINIM_KERNEL_INLINE typename L::Int code1_of_256(const PanelBlock<L>& block, int at, int k) {
    return code1_of_word<L, unit, to>(block.word(at + 4 * k));
}

}  // namespace minim::panel
