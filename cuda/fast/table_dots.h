// SPDX-License-Identifier: Apache-2.0
// Dot products of codes that are indices into a table of values, without selecting a value for each code first.
//
// A byte permutation looks up eight values. If a nibble of its selector has the top bit set, it returns eight copies of the sign
// bit of a value instead: -1 from a table of negative bytes, 0 from any other. So a table is split into tables of eight, negative
// ones first, and each code is looked up in all of them, with the top bit clear only in its own:
//
//   table of its own        the value plus the number of other negative tables
//   other negative tables   -1 each
//   the other tables        0
//
// The dots with all tables then add up to the dot with the values. For 16 values, eight codes take 7 integer instructions
// instead of 12, and 4 dot products instead of 2, which other parts of a multiprocessor compute.
//
// Values with signs apart (E2M1) have one table of eight magnitudes, which is looked up twice: with the sign bits as top bits,
// and with their complements. The difference of the two dots is the dot with the values.
//
// Only for one input: with several, the codes of a unit are looked up once for all of them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/fast/lanes.h"
#include "cuda/fast/panel_dot.h"
#include "format/codebooks.h"
#include "panel/blocks_of_32.h"
#include "panel/value_tables.h"

namespace minim::cuda::fast {

// n tables of eight bytes, those of the negative values first.
template <int n>
struct SplitTables {
    uint32_t word[n][2];
};

// Returns the number of tables, from the first on, in which all values are negative.
template <int n, class Values>
constexpr int negative_tables(const Values& values) {
    int count = 0;
    while (count < n && values.data[8 * count + 7] < 0) ++count;
    return count;
}

// Returns entry i of the split tables of `values`, which ascend.
template <int n, class Values>
constexpr int split_entry(const Values& values, int i) {
    const int n_negative = negative_tables<n>(values);
    return values.data[i] + n_negative - (i / 8 < n_negative ? 1 : 0);
}

// Returns whether all entries of the split tables are bytes with the sign of their table.
template <int n, class Values>
constexpr bool can_split(const Values& values) {
    for (int i = 0; i < 8 * n; ++i) {
        const int entry = split_entry<n>(values, i);
        if (entry > 127 || (entry < 0) != (i / 8 < negative_tables<n>(values))) return false;
    }
    return true;
}

template <int n, const auto& values>
constexpr SplitTables<n> split_tables() {
    static_assert(can_split<n>(values));
    SplitTables<n> tables{};
    for (int i = 0; i < 8 * n; ++i)
        tables.word[i / 8][i / 4 % 2] |= (static_cast<uint32_t>(split_entry<n>(values, i)) & 255U)
                                         << (8 * (i % 4));
    return tables;
}

// The nibbles' top bits.
inline constexpr uint32_t k_nibble_tops = 0x88888888U;

// Looks up eight values in one table, or the constants of the others, and adds their dots with two words of inputs to two sums,
// which may be the same. Nibbles 0 to 3 of the selector are for x[0].
MINIM_HOST_DEVICE void add_dots_of_table(const uint32_t (&table)[2], uint32_t selector,
                                         const uint32_t (&x)[2], uint32_t& first, uint32_t& second) {
    first = Lanes::dot(Lanes::permute(table[0], table[1], selector), x[0], first);
    second = Lanes::dot(Lanes::permute(table[0], table[1], selector >> 16), x[1], second);
}

// Truth tables (Lanes::logic) with k_nibble_tops as c. A top bit of a selector is set if a bit of the code differs from that of the
// table's number: bit 3, which is the nibble's own top bit, or a further bit.
constexpr int truth_of(bool (*function)(bool a, bool b, bool c)) {
    int truth = 0;
    for (int i = 0; i < 8; ++i) truth |= (function((i & 4) != 0, (i & 2) != 0, (i & 1) != 0) ? 1 : 0) << i;
    return truth;
}
// a: nibbles, b: bit 4 of the codes at the tops. Table t of four.
template <int t>
inline constexpr int k_truth_of_four = truth_of([](bool a, bool b, bool c) {
    return a != (c && t % 2 == 1) || (c && b != (t / 2 == 1));
});
// a, b: bits 4 and 5 at the tops. Which of them differ for tables 2 t and 2 t + 1 of eight, and 0 below the tops.
template <int t>
inline constexpr int k_truth_of_further = truth_of([](bool a, bool b, bool c) {
    return c && (a != (t % 2 == 1) || b != (t / 2 == 1));
});
// a: nibbles, b: where further bits differ.
template <int t>
inline constexpr int k_truth_of_eight = truth_of([](bool a, bool b, bool c) {
    return a != (c && t % 2 == 1) || b;
});

// The lower four bits of eight codes in the nibbles of a word, and their further bits in the nibbles' top bits, with anything in
// the other bits.
struct EightCodes {
    uint32_t nibbles;
    uint32_t further[2];
};

// Calls with(std::integral_constant<int, t>) for t = 0 to n - 1.
template <int n, class With>
MINIM_HOST_DEVICE void for_each_table(const With& with) {
    if constexpr (n > 1) for_each_table<n - 1>(with);
    with(std::integral_constant<int, n - 1>());
}

// Adds the dots of eight codes with two words of inputs to two sums, which may be the same.
template <int n>
MINIM_HOST_DEVICE void add_dots_of_tables(const SplitTables<n>& tables, const EightCodes& codes,
                                          const uint32_t (&x)[2], uint32_t& first, uint32_t& second) {
    uint32_t differs = 0;
    for_each_table<n>([&](auto number) {
        constexpr int t = decltype(number)::value;
        uint32_t selector = codes.nibbles;
        if constexpr (n == 2 && t == 1) selector ^= k_nibble_tops;
        if constexpr (n == 4)
            selector = Lanes::logic<k_truth_of_four<t>>(codes.nibbles, codes.further[0], k_nibble_tops);
        if constexpr (n == 8 && t % 2 == 0)
            differs =
                Lanes::logic<k_truth_of_further<t / 2>>(codes.further[0], codes.further[1], k_nibble_tops);
        if constexpr (n == 8)
            selector = Lanes::logic<k_truth_of_eight<t>>(codes.nibbles, differs, k_nibble_tops);
        add_dots_of_table(tables.word[t], selector, x, first, second);
    });
}

// How the codes of a unit lie in the words of a block as GPUs pack it: at(u, m) is the place of word m of four, further_at(u, i) that
// of the word of the codes' bit 4 + i, in which bit 4j + m is that of nibble j of word m. The two halves of a word belong to input
// words first(m) and second(m).
template <class Block>
struct TableCodes;

struct NibbleHalves {
    MINIM_HOST_DEVICE static constexpr int first(int m) { return m; }
    MINIM_HOST_DEVICE static constexpr int second(int m) { return m + 4; }
};

template <class Block, int n, int further>
struct UnitWords : NibbleHalves {
    static constexpr int k_tables = n;
    static constexpr int k_further = further;  // bits above the nibbles
    MINIM_HOST_DEVICE static constexpr int at(int u, int m) { return Block::codes_at + 16 * u + 4 * m; }
    MINIM_HOST_DEVICE static constexpr int further_at(int, int) { return 0; }
};

template <>
struct TableCodes<IQ4_NL> : UnitWords<IQ4_NL, 2, 0> {
    static constexpr SplitTables<2> k_split = split_tables<2, codebooks::k_iq4nl>();
};
template <>
struct TableCodes<IQ4_XS> : UnitWords<IQ4_XS, 2, 0> {
    static constexpr SplitTables<2> k_split = split_tables<2, codebooks::k_iq4nl>();
};
template <>
struct TableCodes<IQ4_K> : UnitWords<IQ4_K, 2, 0> {
    static constexpr SplitTables<2> k_split = split_tables<2, codebooks::k_iq4k>();
};
template <>
struct TableCodes<IQ4_KS> : UnitWords<IQ4_KS, 2, 0> {
    static constexpr SplitTables<2> k_split = split_tables<2, codebooks::k_iq4k>();
};
template <>
struct TableCodes<IQ5_K> : UnitWords<IQ5_K, 4, 1> {
    static constexpr SplitTables<4> k_split = split_tables<4, codebooks::k_iq5k>();
    MINIM_HOST_DEVICE static constexpr int further_at(int u, int) { return IQ5_K::fifth_at + 4 * u; }
};
template <>
struct TableCodes<IQ5_KS> : UnitWords<IQ5_KS, 4, 1> {
    static constexpr SplitTables<4> k_split = split_tables<4, codebooks::k_iq5k>();
    MINIM_HOST_DEVICE static constexpr int further_at(int u, int) { return IQ5_KS::fifth_at + 4 * u; }
};
template <>
struct TableCodes<IQ6_K> : UnitWords<IQ6_K, 8, 2> {
    static constexpr SplitTables<8> k_split = split_tables<8, codebooks::k_iq6k>();
    MINIM_HOST_DEVICE static constexpr int further_at(int u, int i) { return IQ6_K::high_at + 8 * u + 4 * i; }
};

// E2M1: one table, that of the magnitudes.
template <class Block>
struct MagnitudeWords {
    static constexpr int k_tables = 1;
    static constexpr int k_further = 0;
    static constexpr SplitTables<1> k_split = split_tables<1, codebooks::k_e2m1_doubled>();
    MINIM_HOST_DEVICE static constexpr int at(int u, int m) { return Block::codes_at + 16 * u + 4 * m; }
    MINIM_HOST_DEVICE static constexpr int further_at(int, int) { return 0; }
};
template <>
struct TableCodes<MXFP4> : MagnitudeWords<MXFP4>, NibbleHalves {};
template <>
struct TableCodes<NVFP4> : MagnitudeWords<NVFP4> {  // two words for each 16 columns
    MINIM_HOST_DEVICE static constexpr int first(int m) { return m + m / 2 * 2; }
    MINIM_HOST_DEVICE static constexpr int second(int m) { return m + m / 2 * 2 + 2; }
};

// Formats that have such tables.
template <class P>
concept HasDotTables = requires {
    TableCodes<typename P::Block>::k_tables;
};

// With eight tables, or with four and a scale for each row, gate and up need more registers than three blocks leave a thread.
template <class P>
inline constexpr bool k_needs_registers = false;

// A format whose kernels for one input compute dots with tables.
template <class P>
struct ByTables {
    using Block = typename P::Block;
    using Codes = P;
};
template <class P>
struct ForDots<ByTables<P>> : ForDots<P> {};
template <class P>
inline constexpr bool k_is_by_tables = false;
template <class P>
inline constexpr bool k_is_by_tables<ByTables<P>> = true;
template <class P>
inline constexpr bool k_needs_registers<ByTables<P>> = TableCodes<typename P::Block>::k_tables +
                                                           4 * (P::Block::row_header_bytes > 0 ? 1 : 0) >=
                                                       8;

// Adds the dots of a unit's groups with an input.
template <class Kind, class Block, int u, class L>
MINIM_DEVICE void add_dots_of_unit(const PanelBlock<L>& block, const InputUnit& input, uint32_t (&dot)[2]) {
    using Words = TableCodes<Block>;
    // One word of each table stays in a register; a permutation takes the other one as a constant.
    auto tables = Words::k_split;
    for (auto& table : tables.word) table[0] ^= Lanes::hidden_zero();
    constexpr int k_words_a_group = 8 / Kind::k_groups;
    uint32_t further[2] = {};
    for (int i = 0; i < Words::k_further; ++i) further[i] = block.word(Words::further_at(u, i));
    uint32_t minus[2] = {};
    for (int m = 0; m < 4; ++m) {
        const EightCodes codes = {block.word(Words::at(u, m)),
                                  {further[0] << (3 - m), further[1] << (3 - m)}};
        const int first = Words::first(m);
        const int second = Words::second(m);
        const uint32_t x[2] = {input.code[first], input.code[second]};
        uint32_t& first_dot = dot[first / k_words_a_group];
        uint32_t& second_dot = dot[second / k_words_a_group];
        if constexpr (Words::k_tables == 1) {
            add_dots_of_table(tables.word[0], codes.nibbles, x, first_dot, second_dot);
            add_dots_of_table(tables.word[0], codes.nibbles ^ k_nibble_tops, x,
                              minus[first / k_words_a_group], minus[second / k_words_a_group]);
        } else {
            add_dots_of_tables(tables, codes, x, first_dot, second_dot);
        }
    }
    for (int g = 0; g < Kind::k_groups; ++g) dot[g] -= minus[g];
}

// Returns sum + the products of a unit and an input: the bits of add_unit(), since dots are exact. Of `unit`, scales, minima and
// shifts are used, so that the compiler drops the codes.
template <class Kind, class Block, int u, class L>
MINIM_DEVICE float add_unit_by_tables(const PanelBlock<L>& block, const panel::Unit<L>& unit,
                                      const InputUnit& input, float sum) {
    uint32_t dot[2] = {};
    add_dots_of_unit<Kind, Block, u>(block, input, dot);
    for (int g = 0; g < Kind::k_groups; ++g) {
        dot[g] +=
            static_cast<uint32_t>(dot_of_shift<Kind>(unit, input, g));  // last: it takes the fewest registers
        sum = add_group<Kind>(unit, input, g, dot[g], sum);
    }
    return sum;
}

}  // namespace minim::cuda::fast
