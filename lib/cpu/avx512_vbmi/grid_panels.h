// SPDX-License-Identifier: Apache-2.0
// IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS and IQ3_S with byte permutations across a register (AVX-512 VBMI and GFNI) instead of lookups
// in memory.
//
// A codebook is two planes of bytes, each with a share of an entry's four or eight magnitudes. One permutation looks up 64 entries
// among 128; a blend selects between such parts of a plane. vpmultishiftqb moves each field of a plane's byte into a byte of its
// own, with other bits above it; another one adds the sign bit. A last permutation, which uses six bits, maps the result to the
// code.
//
// Nanoseconds for 16 rows of 32 columns with weights in the second-level cache, Zen 4 at 3.6 GHz; in parentheses with one load
// for each entry (panel/grids.h):
//
//     IQ2_XXS 10.5 (20.1)  IQ2_XS 14.7 (21.6)  IQ2_S 17.4 (18.9)  IQ3_XXS 13.1 (32.1)  IQ3_S 17.2 (31.9)
//
// The kernels are bound by the number of instructions, two per cycle. Looking up a whole block in advance takes longer.
#pragma once

#include <utility>

#include "cpu/avx512_vbmi/lanes.h"
#include "panel/grids.h"

namespace minim::cpu::avx512_vbmi {

using Int = Lanes::Int;
using Mask = Lanes::Mask;
using PanelBlock = panel::PanelBlock<Lanes>;
using HalfStepScale = panel::HalfStepScale<Lanes>;
using Unit = panel::Unit<Lanes>;

struct alignas(64) Bytes64 {
    int8_t byte[64];
};

// Returns eight bits of `word` in every byte: byte i of a lane gets the bits from bit first + step * i of the lane on. Bits
// beyond the lane are those of the other lane of its pair. A field of fewer than eight bits has other bits above it.
template <int first, int step>
MINIM_KERNEL_FUNCTION Int fields(Int word) {
    constexpr uint64_t k_from = [] {
        uint64_t from = 0;
        for (int i = 0; i < 8; ++i)
            from |= static_cast<uint64_t>((32 * (i / 4) + first + step * (i % 4)) & 63) << (8 * i);
        return from;
    }();
    return {_mm512_multishift_epi64_epi8(_mm512_set1_epi64(static_cast<int64_t>(k_from)), word.v)};
}

// ---- grids ----

template <size_t n_entries>
struct alignas(64) BytePlanes {
    uint8_t plane[2][n_entries];
};

// Planes of entries of eight: two bits for each magnitude, four magnitudes a byte, as they are packed.
template <size_t n_entries>
constexpr BytePlanes<n_entries> planes_of_8(const Table<uint16_t, n_entries>& packed) {
    BytePlanes<n_entries> grid{};
    for (size_t i = 0; i < n_entries; ++i) {
        grid.plane[0][i] = static_cast<uint8_t>(packed.data[i]);
        grid.plane[1][i] = static_cast<uint8_t>(packed.data[i] >> 8);
    }
    return grid;
}

// Planes of entries of four: one with the two low bits of each magnitude's index, one with the third at bits 0, 2, 4 and 6.
template <size_t n_entries>
constexpr BytePlanes<n_entries> planes_of_4(const Table<uint16_t, n_entries>& packed) {
    BytePlanes<n_entries> grid{};
    for (size_t i = 0; i < n_entries; ++i) {
        for (int position = 0; position < 4; ++position) {
            const int index = (packed.data[i] >> (3 * position)) & 7;
            grid.plane[0][i] = static_cast<uint8_t>(grid.plane[0][i] | (index & 3) << (2 * position));
            grid.plane[1][i] = static_cast<uint8_t>(grid.plane[1][i] | (index >> 2) << (2 * position));
        }
    }
    return grid;
}

inline constexpr auto k_iq2xxs_planes = planes_of_8(codebooks::k_iq2xxs_entries);
inline constexpr auto k_iq2xs_planes = planes_of_8(codebooks::k_iq2xs_entries);
inline constexpr auto k_iq2s_planes = planes_of_8(codebooks::k_iq2s_entries);
inline constexpr auto k_iq3xxs_planes = planes_of_4(codebooks::k_iq3xxs_entries);
inline constexpr auto k_iq3s_planes = planes_of_4(codebooks::k_iq3s_entries);

// Indices into a plane: bits 0 .. 7 of an index are a byte of `low`, the bits above are masks.
struct PointIndex {
    Int low;
    Mask bit_8 = {};
    Mask bit_9 = {};
};

template <int n_entries>
MINIM_KERNEL_INLINE Int look_up_entries(const uint8_t* plane, const PointIndex& index, Mask bit_7) {
    if constexpr (n_entries == 128) {
        return {
            _mm512_permutex2var_epi8(_mm512_load_si512(plane), index.low.v, _mm512_load_si512(plane + 64))};
    } else {
        constexpr int k_half = n_entries / 2;
        const Int lower = look_up_entries<k_half>(plane, index, bit_7);
        const Int upper = look_up_entries<k_half>(plane + k_half, index, bit_7);
        const Mask bit = n_entries == 256 ? bit_7 : n_entries == 512 ? index.bit_8 : index.bit_9;
        return Lanes::choose_bytes(bit, upper, lower);
    }
}

// The bytes of both planes for 64 entries.
struct Entries {
    Int plane[2];
    template <size_t n_entries>
    MINIM_KERNEL_INLINE Entries(const BytePlanes<n_entries>& grid, const PointIndex& index) {
        const Mask bit_7 = {_mm512_movepi8_mask(index.low.v)};
        for (int p = 0; p < 2; ++p)
            plane[p] = look_up_entries<static_cast<int>(n_entries)>(grid.plane[p], index, bit_7);
    }
};

// Returns for each byte the seven bits from `first` on, and in bit 7 their parity, so that the number of set bits is even.
template <int first>
MINIM_KERNEL_FUNCTION Int even_signs(Int bytes) {
    constexpr uint64_t k_rows = [] {
        uint64_t rows = uint64_t{0x7F} << first;  // bit 7 of the result; bit i has byte 7 - i
        for (int i = 0; i < 7; ++i) rows |= uint64_t{1} << (first + i) << (8 * (7 - i));
        return rows;
    }();
    return {_mm512_gf2p8affine_epi64_epi8(bytes.v, _mm512_set1_epi64(static_cast<int64_t>(k_rows)), 0)};
}

// ---- codes of a unit ----

// A table of offset +- magnitude for every value of six bits: the magnitude in n_bits, the sign above.
template <int n_bits, int offset, size_t n>
constexpr Bytes64 signed_codes(const Table<int8_t, n>& magnitudes) {
    Bytes64 codes{};
    for (size_t i = 0; i < 64; ++i) {
        const size_t index = i % (size_t{1} << n_bits);
        const int magnitude = index < n ? magnitudes.data[index] : 0;
        codes.byte[i] = static_cast<int8_t>((i >> n_bits) % 2 != 0 ? offset - magnitude : offset + magnitude);
    }
    return codes;
}

inline constexpr Bytes64 k_iq2_codes = signed_codes<2, panel::k_iq2_offset>(codebooks::k_iq2s_magnitudes);
inline constexpr Bytes64 k_iq3xxs_codes =
    signed_codes<3, panel::k_iq3xxs_offset>(codebooks::k_iq3xxs_magnitudes);
inline constexpr Bytes64 k_iq3s_codes = signed_codes<3, panel::k_iq3s_offset>(codebooks::k_iq3s_magnitudes);

// Returns the codes of four entries of eight; sign k of a lane is that of column k.
template <int... i>
MINIM_KERNEL_INLINE void put_codes(const Entries& entries, Int signs, Unit& unit,
                                   std::integer_sequence<int, i...>) {
    const auto table = Lanes::table_64(k_iq2_codes.byte);
    ((unit.code[i] = Lanes::look_up_six_bits(
          table,
          Lanes::merge_above<2>(fields<i / 2 * 8, 2>(entries.plane[i % 2]), fields<4 * i - 2, 1>(signs)))),
     ...);
}
MINIM_KERNEL_INLINE void put_codes(const Entries& entries, Int signs, Unit& unit) {
    put_codes(entries, signs, unit, std::make_integer_sequence<int, 8>());
}

// Returns the codes of four entries of four, columns 16 * half .. 16 * half + 15.
template <int half, int... i>
MINIM_KERNEL_INLINE void put_half(const Entries& entries, Int signs, const Bytes64& codes, Unit& unit,
                                  std::integer_sequence<int, i...>) {
    // Moves four signs to bits 1, 3, 5 and 7, each just above the third bit of its magnitude's index.
    static constexpr Bytes64 k_odd_bits = [] {
        Bytes64 odd{};
        for (int n = 0; n < 64; ++n)
            odd.byte[n] = static_cast<int8_t>((n & 1) << 1 | (n & 2) << 2 | (n & 4) << 3 | (n & 8) << 4);
        return odd;
    }();
    const auto odd_bits = Lanes::table_64(k_odd_bits.byte);
    const Int high =
        Lanes::bit_or(entries.plane[1], Lanes::look_up_six_bits(odd_bits, fields<16 * half, 4>(signs)));
    const auto table = Lanes::table_64(codes.byte);
    ((unit.code[4 * half + i] = Lanes::look_up_six_bits(
          table, Lanes::merge_above<2>(fields<8 * i, 2>(entries.plane[0]), fields<8 * i - 2, 2>(high)))),
     ...);
}
template <int half>
MINIM_KERNEL_INLINE void put_half(const Entries& entries, Int signs, const Bytes64& codes, Unit& unit) {
    put_half<half>(entries, signs, codes, unit, std::make_integer_sequence<int, 4>());
}

// Returns a mask whose byte i is set if bit `first` + step * i of byte 0 of the lane is set.
template <int first, int step>
MINIM_KERNEL_FUNCTION Mask bits_of_byte_0(Int word) {
    constexpr uint32_t k_bits = (1U << first) | (0x100U << (first + step)) |
                                (0x10000U << (first + 2 * step)) | (0x1000000U << (first + 3 * step));
    return {_mm512_test_epi8_mask(Lanes::shuffle_bytes<0, 0, 0, 0>(word).v,
                                  _mm512_set1_epi32(static_cast<int32_t>(k_bits)))};
}

// ---- formats ----

struct Iq2Xxs {
    using Block = IQ2_XXS;
    using Layout = panel::Iq2XxsLayout;
    using Kind = panel::Iq2XxsPanel<Lanes>::Kind;
    PanelBlock block;
    HalfStepScale scale;
    MINIM_KERNEL_INLINE Iq2Xxs(PanelBlock, PanelBlock at)
        : block(at), scale(at.f16(Block::d_at), Layout::k_scale_factor) {}
    MINIM_KERNEL_INLINE void unpack(int u, Unit& unit) const {
        const Int group = block.word(Layout::signs_at(u));
        const Entries entries(k_iq2xxs_planes, {block.word(Layout::entries_at(u))});
        put_codes(entries, even_signs<0>(fields<0, 7>(group)), unit);
        unit.scale[0] = scale.of(Lanes::shift_right<28>(group));
    }
};

struct Iq2Xs {
    using Block = IQ2_XS;
    using Layout = panel::Iq2XsLayout;
    using Kind = panel::Iq2XsPanel<Lanes>::Kind;
    PanelBlock block;
    HalfStepScale scale;
    MINIM_KERNEL_INLINE Iq2Xs(PanelBlock, PanelBlock at)
        : block(at), scale(at.f16(Block::d_at), Layout::k_scale_factor) {}
    // Returns byte 0 or 1 of the half words of both a and b.
    template <int byte>
    MINIM_KERNEL_FUNCTION static Int bytes_of_entries(Int a, Int b) {
        static constexpr Bytes64 k_order = [] {
            Bytes64 order{};
            for (int i = 0; i < 64; ++i)
                order.byte[i] = static_cast<int8_t>(64 * (i % 4 / 2) + i / 4 * 4 + i % 2 * 2 + byte);
            return order;
        }();
        return {_mm512_permutex2var_epi8(a.v, _mm512_loadu_si512(k_order.byte), b.v)};
    }
    MINIM_KERNEL_INLINE void unpack(int u, Unit& unit) const {
        // Two entries a word, each with 9 bits of index and 7 of signs.
        const Int a = block.word(Layout::entries_at(u, 0));
        const Int b = block.word(Layout::entries_at(u, 1));
        const Int upper = bytes_of_entries<1>(a, b);
        const Entries entries(k_iq2xs_planes, {bytes_of_entries<0>(a, b), Lanes::plane_mask<0>(upper)});
        put_codes(entries, even_signs<1>(upper), unit);
        scale.put_two(byte_from(block, Block::scales_at, u), unit.scale);
    }
};

struct Iq2S {
    using Block = IQ2_S;
    using Layout = panel::Iq2SLayout;
    using Kind = panel::Iq2SPanel<Lanes>::Kind;
    PanelBlock block;
    HalfStepScale scale;
    MINIM_KERNEL_INLINE Iq2S(PanelBlock, PanelBlock at)
        : block(at), scale(at.f16(Block::d_at), Layout::k_scale_factor) {}
    MINIM_KERNEL_INLINE void unpack(int u, Unit& unit) const {
        const Int high = byte_from(block, Block::high_at, u);
        const Entries entries(k_iq2s_planes, {block.word(Layout::low_at(u)), bits_of_byte_0<0, 2>(high),
                                              bits_of_byte_0<1, 2>(high)});
        put_codes(entries, block.word(Layout::signs_at(u)), unit);
        scale.put_two(byte_from(block, Block::scales_at, u), unit.scale);
    }
};

struct Iq3Xxs {
    using Block = IQ3_XXS;
    using Kind = panel::Iq3XxsPanel<Lanes>::Kind;
    PanelBlock block;
    HalfStepScale scale;
    MINIM_KERNEL_INLINE Iq3Xxs(PanelBlock, PanelBlock at) : block(at), scale(at.f16(Block::d_at), 0.5F) {}
    MINIM_KERNEL_INLINE void unpack(int u, Unit& unit) const {
        const Int group = block.word(Block::groups_at + 4 * u);
        const Int signs = even_signs<0>(fields<0, 7>(group));
        const Entries first(k_iq3xxs_planes, {block.word(Block::entries_at + 8 * u)});
        put_half<0>(first, signs, k_iq3xxs_codes, unit);
        const Entries second(k_iq3xxs_planes, {block.word(Block::entries_at + 8 * u + 4)});
        put_half<1>(second, signs, k_iq3xxs_codes, unit);
        unit.scale[0] = scale.of(Lanes::shift_right<28>(group));
    }
};

struct Iq3S {
    using Block = IQ3_S;
    using Layout = panel::Iq3SLayout;
    using Kind = panel::Iq3SPanel<Lanes>::Kind;
    PanelBlock block;
    HalfStepScale scale;
    MINIM_KERNEL_INLINE Iq3S(PanelBlock, PanelBlock at)
        : block(at), scale(at.f16(Block::d_at), Layout::k_scale_factor) {}
    MINIM_KERNEL_INLINE void unpack(int u, Unit& unit) const {
        const Int high = byte_from(block, Block::high_at, u);
        const Int signs = block.word(Layout::signs_at(u));
        const Entries first(k_iq3s_planes, {block.word(Layout::low_at(u, 0)), bits_of_byte_0<0, 1>(high)});
        put_half<0>(first, signs, k_iq3s_codes, unit);
        const Entries second(k_iq3s_planes, {block.word(Layout::low_at(u, 1)), bits_of_byte_0<4, 1>(high)});
        put_half<1>(second, signs, k_iq3s_codes, unit);
        unit.scale[0] =
            scale.of(panel::bits_of<Lanes, 0, 4>(Lanes::shift_right(block.word(Block::scales_at), 4 * u)));
    }
};

// The formats of panel::Grids without IQ1, whose ternary codebook is too large for registers.
using GridPanels = panel::PanelList<Iq2Xxs, Iq2Xs, Iq2S, Iq3Xxs, Iq3S>;

}  // namespace minim::cpu::avx512_vbmi
