// SPDX-License-Identifier: Apache-2.0
// Panels of the formats whose codes are indices into a table of values: IQ4_XS and ik's IQ2_K to IQ6_K, IQ2_KS to IQ5_KS,
// IQ4_KSS and IQ2_KL. Layouts: lib/format/.
//
// The shifted variant of a table is computed as the table plus a constant if that takes fewer instructions; else it is the second
// half of the table. Values that span less than 128 are small codes with an offset. The formats differ little except in their
// tables, so they are in one long file.
#pragma once

#include "format/iq2_k.h"
#include "format/iq2_kl.h"
#include "format/iq3_k.h"
#include "format/iq4_k.h"
#include "format/iq4_ks.h"
#include "format/iq4_xs.h"
#include "format/iq5_k.h"
#include "format/iq6_k.h"
#include "panel/byte_codes.h"

namespace minim::panel {

struct ValueTable {
    int8_t value[64];
};

// Returns n values from `first`, `stride` apart, each plus `offset`.
template <size_t n_all>
MINIM_HOST_DEVICE constexpr ValueTable value_table(const Table<int8_t, n_all>& values, size_t first,
                                                   size_t stride, size_t n, int offset) {
    ValueTable table{};
    for (size_t i = 0; i < n; ++i) {
        table.value[i] = static_cast<int8_t>(values.data[first + stride * i] + offset);
    }
    return table;
}

// Returns the difference between the second half of a table and the first, which must be constant.
template <size_t n>
constexpr int table_shift(const Table<int8_t, n>& values) {
    const int shift = values.data[n / 2] - values.data[0];
    for (size_t i = 0; i < n / 2; ++i) {
        if (values.data[n / 2 + i] - values.data[i] != shift) return 0;
    }
    return shift;
}
inline constexpr int k_iq4k_shift = table_shift(codebooks::k_iq4k);
inline constexpr int k_iq5k_shift = table_shift(codebooks::k_iq5k);
inline constexpr int k_iq6k_shift = table_shift(codebooks::k_iq6k);
static_assert(k_iq4k_shift != 0 && k_iq5k_shift != 0 && k_iq6k_shift != 0);

// Returns `shift` in the lanes whose word has bit `bit` set: in every byte, or in the form of Unit::shift for the codes of
// group g (of both groups if g is k_both_groups).
inline constexpr int k_both_groups = 2;
template <class L, int shift, int g, int bit>
MINIM_KERNEL_FUNCTION typename L::Int shift_of(typename L::Int word) {
    static_assert(shift == 1 || shift == 2 || shift == 4);
    constexpr int k_shift_bit = shift / 2;  // 0, 1 or 2
    if constexpr (!AddsShiftsInDots<L>) {
        return L::bit_and(lanes_with_bit<L, bit>(word), L::all(shift * 0x01010101));
    } else if constexpr (g == k_both_groups) {
        return L::bit_and(lanes_with_bit<L, bit>(word), L::all(shift * 0x00010001));
    } else {
        return L::bit_and(moved<L, bit, 16 * g + k_shift_bit>(word), L::all(shift << (16 * g)));
    }
}

template <class L>
MINIM_KERNEL_FUNCTION typename L::Int shifted(typename L::Int code, typename L::Int shift) {
    if constexpr (AddsShiftsInDots<L>) return code;
    return L::add_bytes(code, shift);
}

template <class L>
MINIM_KERNEL_INLINE void add_shift(typename L::Int shift, typename L::Int* code, int count) {
    for (int k = 0; k < count; ++k) code[k] = shifted<L>(code[k], shift);
}

// Lanes that look up among 64 bytes at once (cpu/avx512_vbmi/lanes.h), compiled for the lists of formats with tables only.
template <class L>
concept LooksUpSixBits = requires(typename L::Int index) {
    L::look_up_six_bits(L::table_64(nullptr), index);
};

// Lanes of a device that packs the codes of a unit of IQ5_K, IQ5_KS and IQ6_K in words of their own: four of nibbles, and one for
// each further bit of all codes (cuda/fast/operations.h).
template <class L>
concept PacksUnits = L::k_packs_units;

// Looks up 32 values by the nibbles (bits from .. from + 3) of every byte of `word`: in the first half, or in the second half if bit
// `bit` of the byte of `fifth` is set.
template <class L, int from, int bit>
MINIM_KERNEL_FUNCTION typename L::Int look_up_32(const int8_t* values, typename L::Int word,
                                                 typename L::Int fifth) {
    if constexpr (LooksUpSixBits<L>) {
        const auto index = L::template merge_above<4>(moved<L, from, 0>(word), moved<L, bit, 4>(fifth));
        return L::look_up_six_bits(L::wide_table_32(values), index);
    } else {
        const auto nibbles = byte_bits<L, from, 15>(word);
        const auto low = L::look_up(L::wide_table(values), nibbles);
        const auto high = L::look_up(L::wide_table(values + 16), nibbles);
        return L::template choose_by_bit<bit>(fifth, high, low);
    }
}

// The same for 64 values; bits `bit` and bit + 1 of `two` choose the quarter.
template <class L, int from, int bit>
MINIM_KERNEL_FUNCTION typename L::Int look_up_64(const int8_t* values, typename L::Int word,
                                                 typename L::Int two) {
    if constexpr (LooksUpSixBits<L>) {
        const auto index = L::template merge_above<4>(moved<L, from, 0>(word), moved<L, bit, 4>(two));
        return L::look_up_six_bits(L::wide_table_64(values), index);
    } else {
        const auto low = look_up_32<L, from, bit>(values, word, two);
        const auto high = look_up_32<L, from, bit>(values + 32, word, two);
        return L::template choose_by_bit<bit + 1>(two, high, low);
    }
}

// Common to IQ5_K and IQ5_KS: computes the values of columns 4 first .. 4 first + 4 count - 1 of unit u.
template <class L, int u>
MINIM_KERNEL_INLINE void iq5k_codes(const PanelBlock<L>& block, int codes_at, int fifth_at,
                                    typename L::Int shift, int first, int count, typename L::Int* code) {
    for (int k = first; k < first + count; ++k) {
        typename L::Int value;
        if constexpr (PacksUnits<L>) {
            const auto word = block.word(codes_at + 16 * u + 4 * (k % 4));
            value = L::look_up_unit_32(iq5k_values(), word, block.word(fifth_at + 4 * u), k);
        } else {
            const auto word = block.word(codes_at + 32 * (u / 2) + 4 * k);
            value = look_up_32<L, 4 * (u % 2), u>(iq5k_values(), word, block.word(fifth_at + 4 * k));
        }
        code[k] = L::settled(shifted<L>(value, shift));
    }
}

// Eight scales, d * (number - 32): the low four bits of the numbers in a word, the upper two of all of them in 16 bits.
template <class L>
struct ScalesLess32 {
    typename L::Float d, less;   // less: -32 d
    typename L::Int numbers[2];  // 0, 2, 4, 6 and 1, 3, 5, 7, in a byte each
    MINIM_KERNEL_FUNCTION ScalesLess32(typename L::Float scale, typename L::Int low,
                                       typename L::Int upper_two)
        : d(scale), less(L::mul(scale, L::all(-32.0F))) {
        const auto high = spread_nibbles<L>(upper_two);
        const auto upper = L::all(0x30303030);
        numbers[0] = L::bit_or(byte_bits<L, 0, 15>(low), L::bit_and(L::template shift_left<4>(high), upper));
        numbers[1] = L::bit_or(byte_bits<L, 4, 15>(low), L::bit_and(L::template shift_left<2>(high), upper));
    }
    template <int i>
    MINIM_KERNEL_FUNCTION typename L::Float of() const {
        return L::fma(d, L::to_float(byte_of<L, i / 2>(numbers[i % 2])), less);
    }
};

template <class L>
struct Iq4XsPanel {
    using Block = IQ4_XS;
    using Kind = PanelKind<Codes::wide, 128, 0, 1, false>;
    PanelBlock<L> block;
    ScalesLess32<L> scales;
    MINIM_KERNEL_FUNCTION Iq4XsPanel(PanelBlock<L>, PanelBlock<L> at)
        : block(at), scales(at.f16(Block::d_at), at.word(Block::low_at), at.half(Block::high_at)) {}
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        value4_of_32<L>(block, Block::codes_at + 16 * u, L::wide_table(iq4nl_values()), unit.code);
        unit.scale[0] = scales.template of<u>();
    }
};

// Common to IQ4_K and IQ5_K: 6-bit scales less 32, and a bit for each group that selects the shifted values.
template <class L, class Format>
struct GroupScalesPanel {
    PanelBlock<L> block;
    typename L::Int extra;
    ScalesLess32<L> first, second;  // of groups 0 to 7 and 8 to 15
    MINIM_KERNEL_FUNCTION GroupScalesPanel(PanelBlock<L>, PanelBlock<L> at)
        : GroupScalesPanel(at, at.f16(Format::d_at), at.word(Format::high_at)) {}
    template <int g>
    MINIM_KERNEL_FUNCTION typename L::Float scale() const {
        return (g < 8 ? first : second).template of<g % 8>();
    }

  private:
    MINIM_KERNEL_FUNCTION GroupScalesPanel(PanelBlock<L> at, typename L::Float d, typename L::Int high)
        : block(at),
          extra(at.half(Format::extra_at)),
          first(d, at.word(Format::low_at), L::bit_and(high, L::all(0xFFFF))),
          second(d, at.word(Format::low_at + 4), L::template shift_right<16>(high)) {}
};

template <class L>
struct Iq4KPanel : GroupScalesPanel<L, IQ4_K> {
    using Block = IQ4_K;
    using Kind = PanelKind<Codes::wide, 128, 0, 2, false, AddsShiftsInDots<L>>;
    template <class Other>
    using AddingShifts = Iq4KPanel<Other>;
    using GroupScalesPanel<L, IQ4_K>::GroupScalesPanel;
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        value4_of_32<L>(this->block, Block::codes_at + 16 * u, L::wide_table(iq4k_values()), unit.code);
        unit.shift[0] = shift_of<L, k_iq4k_shift, 0, 2 * u>(this->extra);
        unit.shift[1] = shift_of<L, k_iq4k_shift, 1, 2 * u + 1>(this->extra);
        add_shift<L>(unit.shift[0], unit.code, 4);
        add_shift<L>(unit.shift[1], unit.code + 4, 4);
        unit.scale[0] = this->template scale<2 * u>();
        unit.scale[1] = this->template scale<2 * u + 1>();
    }
};

template <class L>
struct Iq5KPanel : GroupScalesPanel<L, IQ5_K> {
    using Block = IQ5_K;
    using Kind = PanelKind<Codes::wide, 128, 0, 2, false, AddsShiftsInDots<L>>;
    template <class Other>
    using AddingShifts = Iq5KPanel<Other>;
    using GroupScalesPanel<L, IQ5_K>::GroupScalesPanel;
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        unit.shift[0] = shift_of<L, k_iq5k_shift, 0, 2 * u>(this->extra);
        unit.shift[1] = shift_of<L, k_iq5k_shift, 1, 2 * u + 1>(this->extra);
        iq5k_codes<L, u>(this->block, Block::codes_at, Block::fifth_at, unit.shift[0], 0, 4, unit.code);
        iq5k_codes<L, u>(this->block, Block::codes_at, Block::fifth_at, unit.shift[1], 4, 4, unit.code);
        unit.scale[0] = this->template scale<2 * u>();
        unit.scale[1] = this->template scale<2 * u + 1>();
    }
};

template <class L>
struct Iq6KPanel {
    using Block = IQ6_K;
    using Kind = PanelKind<Codes::wide, 128, 0, 2, false, AddsShiftsInDots<L>>;
    template <class Other>
    using AddingShifts = Iq6KPanel<Other>;
    PanelBlock<L> block;
    typename L::Float d;
    typename L::Int extra;
    MINIM_KERNEL_FUNCTION Iq6KPanel(PanelBlock<L>, PanelBlock<L> at)
        : block(at), d(at.f16(Block::d_at)), extra(at.half(Block::extra_at)) {}
    template <int u, int g>
    MINIM_KERNEL_INLINE void unpack_group(Unit<L>& unit) const {
        constexpr int k_bit = 2 * (u % 4);
        unit.shift[g] = shift_of<L, k_iq6k_shift, g, 2 * u + g>(extra);
        for (int k = 4 * g; k < 4 * g + 4; ++k) {
            typename L::Int value;
            if constexpr (PacksUnits<L>) {
                value = L::look_up_unit_64(iq6k_values(), block.word(Block::codes_at + 16 * u + 4 * (k % 4)),
                                           block.word(Block::high_at + 8 * u),
                                           block.word(Block::high_at + 8 * u + 4), k);
            } else {
                const auto word = block.word(Block::codes_at + 32 * (u / 2) + 4 * k);
                const auto two = block.word(Block::high_at + 32 * (u / 4) + 4 * k);
                value = look_up_64<L, 4 * (u % 2), k_bit>(iq6k_values(), word, two);
            }
            unit.code[k] = L::settled(shifted<L>(value, unit.shift[g]));
        }
        const auto scales = block.word(Block::scales_at + u / 2 * 4);
        unit.scale[g] = L::mul(d, L::to_float(signed_byte_of<L, u % 2 * 2 + g>(scales)));
    }
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        unpack_group<u, 0>(unit);
        unpack_group<u, 1>(unit);
    }
};

// (byte & 254) - 127
template <class L>
MINIM_KERNEL_FUNCTION typename L::Int ks_scales(typename L::Int byte) {
    return L::sub(L::bit_and(byte, L::all(254)), L::all(127));
}

template <class L>
struct Iq4KsPanel {
    using Block = IQ4_KS;
    using Kind = PanelKind<Codes::wide, 128, 0, 1, false, AddsShiftsInDots<L>>;
    template <class Other>
    using AddingShifts = Iq4KsPanel<Other>;
    PanelBlock<L> block;
    typename L::Float d;
    MINIM_KERNEL_FUNCTION Iq4KsPanel(PanelBlock<L> header, PanelBlock<L> at) : block(at), d(header.f32(0)) {}
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        const auto byte = byte_of<L, u % 4>(block.word(Block::scales_at + u / 4 * 4));
        value4_of_32<L>(block, Block::codes_at + 16 * u, L::wide_table(iq4k_values()), unit.code);
        unit.shift[0] = shift_of<L, k_iq4k_shift, k_both_groups, 0>(byte);
        add_shift<L>(unit.shift[0], unit.code, 8);
        unit.scale[0] = L::mul(d, L::to_float(ks_scales<L>(byte)));
    }
};

template <class L>
struct Iq4KssPanel {
    using Block = IQ4_KSS;
    using Kind = PanelKind<Codes::wide, 128, 0, 1, false, AddsShiftsInDots<L>>;
    template <class Other>
    using AddingShifts = Iq4KssPanel<Other>;
    PanelBlock<L> block;
    typename L::Float d;
    MINIM_KERNEL_FUNCTION Iq4KssPanel(PanelBlock<L> header, PanelBlock<L> at) : block(at), d(header.f32(0)) {}

    // Bit 0 of the two halves of word k are bits 2k and 2k + 1 of the scale byte.
    template <int k>
    MINIM_KERNEL_FUNCTION typename L::Int scale_bits(typename L::Int word) const {
        return L::bit_or(L::template shift_left<2 * k>(bits_of<L, 0, 1>(word)),
                         L::template shift_left<2 * k + 1>(bits_of<L, 16, 1>(word)));
    }
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        typename L::Int word[4];
        for (int k = 0; k < 4; ++k) word[k] = block.word(16 * u + 4 * k);
        const auto byte = L::bit_or(L::bit_or(scale_bits<0>(word[0]), scale_bits<1>(word[1])),
                                    L::bit_or(scale_bits<2>(word[2]), scale_bits<3>(word[3])));
        for (int k = 0; k < 4; ++k) {
            const auto even = L::bit_and(word[k], L::all(static_cast<int32_t>(0xFFFEFFFEU)));
            const auto codes = L::bit_xor(even, L::template shift_right<1>(even));
            value4<L>(L::wide_table(iq4k_values()), codes, unit.code[k], unit.code[k + 4]);
        }
        unit.shift[0] = shift_of<L, k_iq4k_shift, k_both_groups, 0>(byte);
        add_shift<L>(unit.shift[0], unit.code, 8);
        unit.scale[0] = L::mul(d, L::to_float(ks_scales<L>(byte)));
    }
};

template <class L>
struct Iq5KsPanel {
    using Block = IQ5_KS;
    using Kind = PanelKind<Codes::wide, 128, 0, 1, false, AddsShiftsInDots<L>>;
    template <class Other>
    using AddingShifts = Iq5KsPanel<Other>;
    PanelBlock<L> block;
    typename L::Float d;
    MINIM_KERNEL_FUNCTION Iq5KsPanel(PanelBlock<L> header, PanelBlock<L> at) : block(at), d(header.f32(0)) {}
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        const auto byte = byte_of<L, u % 4>(block.word(Block::scales_at + u / 4 * 4));
        unit.shift[0] = shift_of<L, k_iq5k_shift, k_both_groups, 0>(byte);
        iq5k_codes<L, u>(block, Block::codes_at, Block::fifth_at, unit.shift[0], 0, 8, unit.code);
        unit.scale[0] = L::mul(d, L::to_float(ks_scales<L>(byte)));
    }
};

// Tables of small codes: the values plus the offset. (Functions: see format/table.h.)
inline constexpr int k_iq2k_offset = 31;
MINIM_HOST_DEVICE const int8_t* iq2k_codes() {
    static constexpr ValueTable k_table = value_table(codebooks::k_iq2k, 0, 1, 8, k_iq2k_offset);
    return k_table.value;
}
inline constexpr int k_iq3k_offset = 63;
MINIM_HOST_DEVICE const int8_t* iq3k_codes() {
    static constexpr ValueTable k_table = value_table(codebooks::k_iq3k, 0, 1, 16, k_iq3k_offset);
    return k_table.value;
}

// Replaces codes by their values. In the lanes whose values are shifted, bit `n_bits` of the codes is set first, which selects
// the second half of the table.
template <class L, int n_bits>
MINIM_KERNEL_INLINE void look_up_halves(const int8_t* values, typename L::Int shifted_lanes,
                                        typename L::Int* code, int count) {
    const auto table = L::table(values);
    const auto half = L::bit_and(shifted_lanes, L::all((1 << n_bits) * 0x01010101));
    for (int k = 0; k < count; ++k) code[k] = L::look_up(table, L::bit_or(code[k], half));
}

template <class L>
struct Iq2KPanel {
    using Block = IQ2_K;
    using Kind = PanelKind<Codes::small, 53, k_iq2k_offset, 2, false>;
    PanelBlock<L> block;
    typename L::Float d;
    typename L::Int extra;
    MINIM_KERNEL_FUNCTION Iq2KPanel(PanelBlock<L>, PanelBlock<L> at)
        : block(at), d(at.f16(Block::d_at)), extra(at.half(Block::extra_at)) {}
    template <int u, int g>
    MINIM_KERNEL_INLINE void unpack_group(Unit<L>& unit) const {
        look_up_halves<L, 2>(iq2k_codes(), lanes_with_bit<L, 2 * u + g>(extra), unit.code + 4 * g, 4);
        const auto scales = block.word(Block::scales_at + u / 4 * 4);
        const auto number = L::sub(bits_of<L, 8 * (u % 4) + 4 * g, 4>(scales), L::all(8));
        unit.scale[g] = L::mul(d, L::to_float(number));
    }
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        for (int k = 0; k < 8; ++k) unit.code[k] = code2_of_128<L, u>(block, Block::codes_at, k);
        unpack_group<u, 0>(unit);
        unpack_group<u, 1>(unit);
    }
};

template <class L>
struct Iq2KsPanel {
    using Block = IQ2_KS;
    using Kind = PanelKind<Codes::small, 53, k_iq2k_offset, 1, false>;
    PanelBlock<L> block;
    typename L::Float d;
    typename L::Int extra, scales;
    MINIM_KERNEL_FUNCTION Iq2KsPanel(PanelBlock<L> header, PanelBlock<L> at)
        : block(at), d(header.f16(0)), extra(at.half(Block::extra_at)), scales(at.word(Block::scales_at)) {}
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        for (int k = 0; k < 8; ++k) unit.code[k] = code2_of_128<L, u>(block, Block::codes_at, k);
        look_up_halves<L, 2>(iq2k_codes(), lanes_with_bit<L, u>(extra), unit.code, 8);
        const auto number =
            L::bit_or(bits_of<L, 4 * u, 4>(scales), L::template shift_left<4>(bits_of<L, 8 + u, 1>(extra)));
        unit.scale[0] = L::mul(d, L::to_float(L::sub(number, L::all(16))));
    }
};

template <class L>
struct Iq3KPanel {
    using Block = IQ3_K;
    using Kind = PanelKind<Codes::small, 114, k_iq3k_offset, 2, false>;
    PanelBlock<L> block;
    typename L::Float d;
    typename L::Int extra, signs;
    MINIM_KERNEL_FUNCTION Iq3KPanel(PanelBlock<L>, PanelBlock<L> at)
        : block(at),
          d(at.f16(Block::d_at)),
          extra(at.half(Block::extra_at)),
          signs(at.half(Block::signs_at)) {}
    template <int u, int g>
    MINIM_KERNEL_INLINE void unpack_group(Unit<L>& unit) const {
        look_up_halves<L, 3>(iq3k_codes(), lanes_with_bit<L, 2 * u + g>(extra), unit.code + 4 * g, 4);
        const auto scales = scale_bits<2 * u + g>();
        const auto magnitude = L::add(L::template shift_left<1>(scales), L::all(1));
        const auto negative = lanes_with_bit<L, 2 * u + g>(signs);
        unit.scale[g] = L::mul(d, L::to_float(L::sub(L::bit_xor(magnitude, negative), negative)));
    }
    template <int g>
    MINIM_KERNEL_FUNCTION typename L::Int scale_bits() const {
        return bits_of<L, 4 * (g % 8), 4>(block.word(Block::scales_at + g / 8 * 4));
    }
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        for (int k = 0; k < 8; ++k) {
            unit.code[k] = L::bit_or(code2_of_128<L, u>(block, Block::codes_at, k),
                                     code1_of_256<L, u, 2>(block, Block::high_at, k));
        }
        unpack_group<u, 0>(unit);
        unpack_group<u, 1>(unit);
    }
};

template <class L>
struct Iq3KsPanel {
    using Block = IQ3_KS;
    using Kind = PanelKind<Codes::small, 114, k_iq3k_offset, 1, false>;
    PanelBlock<L> block;
    typename L::Float d;
    typename L::Int extra, scales;
    MINIM_KERNEL_FUNCTION Iq3KsPanel(PanelBlock<L> header, PanelBlock<L> at)
        : block(at), d(header.f16(0)), extra(at.half(Block::extra_at)), scales(at.word(Block::scales_at)) {}
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        for (int k = 0; k < 8; ++k) {
            unit.code[k] = L::bit_or(code2_of_128<L, u>(block, Block::codes_at, k),
                                     code1_of_256<L, u, 2>(block, Block::high_at, k));
        }
        look_up_halves<L, 3>(iq3k_codes(), lanes_with_bit<L, 8 + u>(extra), unit.code, 8);
        const auto number = L::bit_or(bits_of<L, 8 * (u % 4) + 4 * (u / 4), 4>(scales),
                                      L::template shift_left<4>(bits_of<L, u, 1>(extra)));
        unit.scale[0] = L::mul(d, L::to_float(L::sub(number, L::all(16))));
    }
};

inline constexpr int k_iq2kl_offset = 63;
MINIM_HOST_DEVICE const int8_t* iq2kl_even() {
    static constexpr ValueTable k_table = value_table(codebooks::k_iq2kl, 0, 2, 32, k_iq2kl_offset);
    return k_table.value;
}
MINIM_HOST_DEVICE const int8_t* iq2kl_odd() {
    static constexpr ValueTable k_table = value_table(codebooks::k_iq2kl, 1, 2, 32, k_iq2kl_offset);
    return k_table.value;
}

template <class L>
MINIM_KERNEL_FUNCTION typename L::Int look_up_pairs(const int8_t* values, typename L::Int pair) {
    if constexpr (LooksUpSixBits<L>) {
        return L::look_up_six_bits(L::table_32(values), pair);
    } else {
        return L::template choose_by_bit<4>(pair, L::look_up(L::table(values + 16), pair),
                                            L::look_up(L::table(values), pair));
    }
}

template <class L>
struct Iq2KlPanel {
    using Block = IQ2_KL;
    using Kind = PanelKind<Codes::small, 110, k_iq2kl_offset, 1, false>;
    PanelBlock<L> block;
    typename L::Float d;
    typename L::Int high, low;
    MINIM_KERNEL_FUNCTION Iq2KlPanel(PanelBlock<L> header, PanelBlock<L> at)
        : block(at), d(header.f16(0)), high(at.half(Block::high_at)), low(at.word(Block::low_at)) {}

    // Looks up both values of each pair, from the pair's code in two neighbouring bytes.
    MINIM_KERNEL_FUNCTION static typename L::Int values(typename L::Int pair) {
        const auto even = look_up_pairs<L>(iq2kl_even(), pair);
        const auto odd = look_up_pairs<L>(iq2kl_odd(), pair);
        return L::bit_or(L::bit_and(even, L::all(0x00FF00FF)),
                         L::bit_and(odd, L::all(static_cast<int32_t>(0xFF00FF00U))));
    }
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        for (int k = 0; k < 4; ++k) {
            const auto nibbles =
                byte_bits<L, 4 * (u % 2), 15>(block.word(Block::codes_at + 16 * (u / 2) + 4 * k));
            const auto pairs = L::bit_or(nibbles, code1_of_256<L, u, 4>(block, Block::fifth_at, k));
            unit.code[2 * k] = values(L::template shuffle_bytes<0, 0, 1, 1>(pairs));
            unit.code[2 * k + 1] = values(L::template shuffle_bytes<2, 2, 3, 3>(pairs));
        }
        const auto number = L::bit_or(bits_of<L, 8 * (u % 4) + 4 * (u / 4), 4>(low),
                                      L::template shift_left<4>(bits_of<L, 2 * u, 2>(high)));
        unit.scale[0] = L::mul(d, L::to_float(L::sub(number, L::all(32))));
    }
};

// The formats with tables of more than 16 values, or whose codes are the nibbles of a byte.
template <class L>
using ValueTablesOfNibbles = PanelList<Iq4XsPanel<L>, Iq4KPanel<L>, Iq5KPanel<L>, Iq6KPanel<L>, Iq4KsPanel<L>,
                                       Iq4KssPanel<L>, Iq5KsPanel<L>, Iq2KlPanel<L>>;

template <class L>
using ValueTables = decltype(joined(PanelList<Iq2KPanel<L>, Iq2KsPanel<L>, Iq3KPanel<L>, Iq3KsPanel<L>>(),
                                    ValueTablesOfNibbles<L>()));

}  // namespace minim::panel
