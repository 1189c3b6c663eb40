// SPDX-License-Identifier: Apache-2.0
// The lane vocabulary without any instruction set: the specification of avx2/lanes.h and avx512/lanes.h,
// which offer the same names with the same results, bit for bit. A lane is a row of a panel (panel/panel.h); no
// operation mixes lanes, so results do not depend on their number.
//
//   Int    32 bits per lane: a number, or four bytes, the lowest first
//   Float  a float a lane
//   Mask   chosen bytes of an Int
//   Table  16 bytes to look up
//
// Dots add four products a lane. Codes of activations are as in a Q8Block (../q8_block.h). Weights are either
// small, 0 .. `largest` <= 127, or wide, any signed byte, in the form that wide() and wide_table() make: the
// byte plus k_wide_offset. The caller subtracts the offset times the sum of the codes. Lanes whose k_tile_strips
// is more than 1 have dot_strips(), which takes weights of several strips of k_width rows.
//
// Four lanes are 16 bytes of the compiler's own vector types; the operations that are loops here stay out of
// line, because the kernels of all formats are made of many of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"

namespace minim::cpu::scalar {

struct Lanes {
    using Words = uint32_t __attribute__((vector_size(16)));
    using SignedWords = int32_t __attribute__((vector_size(16)));
    using Bytes = uint8_t __attribute__((vector_size(16)));
    using SignedBytes = int8_t __attribute__((vector_size(16)));
    using Floats = float __attribute__((vector_size(16)));

    struct Int {
        Words v;
    };
    struct Float {
        Floats v;
    };
    struct Mask {
        Bytes v;  // chosen bytes are all ones
    };
    struct Table {
        Bytes v;
    };

    static constexpr int k_width = 4;
    static constexpr int k_tile_strips = 1;  // unpacked strips of rows multiplied with an input row together
    static constexpr int k_token_tile = 1;   // input rows that share an unpacked weight
    static constexpr int k_few_tokens = 1;   // most input rows multiplied with a weight while unpacking it
    static constexpr int k_wide_offset = 0;

    // ---- memory ----
    static Int load(const std::byte* p) {
        Int r;
        memcpy(&r.v, p, sizeof(r.v));
        return r;
    }
    static Int load_u16(const std::byte* p) {
        uint16_t value[4];
        memcpy(value, p, sizeof(value));
        return {Words{value[0], value[1], value[2], value[3]}};
    }
    static Int load_u8(const std::byte* p) {
        const auto at = [&](int i) { return static_cast<uint32_t>(p[i]); };
        return {Words{at(0), at(1), at(2), at(3)}};
    }
    static Float load_f16(const std::byte* p) { return f16_of(load_u16(p)); }
    static Float load_f32(const float* p) {
        Float r;
        memcpy(&r.v, p, sizeof(r.v));
        return r;
    }
    static void store(std::byte* p, Int a) { memcpy(p, &a.v, sizeof(a.v)); }
    static void store(float* p, Float a) { memcpy(p, &a.v, sizeof(a.v)); }
    // Looks up codebook entries in a table of words. Each lane has a word of indices at `at`, two of 16 bits or four of 8;
    // point[p] gets the entries of index p of all lanes. (Indices are read from memory: from a register they would have to be
    // stored first, and the loads would wait for that.)
    template <typename Index>
    static void fetch(const uint32_t* table, const Index* at, Int* point) {
        constexpr int k_entries = 4 / sizeof(Index);
        for (int p = 0; p < k_entries; ++p) {
            const auto of = [&](int lane) { return table[at[k_entries * lane + p]]; };
            point[p].v = Words{of(0), of(1), of(2), of(3)};
        }
    }
    // The same in a table of 64-bit words: `half` gets the low halves of the entries of index 0, then their high halves, and so
    // on.
    template <typename Index>
    static void fetch(const uint64_t* table, const Index* at, Int* half) {
        constexpr int k_entries = 4 / sizeof(Index);
        for (int p = 0; p < k_entries; ++p) {
            const auto low = [&](int lane) { return static_cast<uint32_t>(table[at[k_entries * lane + p]]); };
            const auto high = [&](int lane) {
                return static_cast<uint32_t>(table[at[k_entries * lane + p]] >> 32);
            };
            half[2 * p].v = Words{low(0), low(1), low(2), low(3)};
            half[2 * p + 1].v = Words{high(0), high(1), high(2), high(3)};
        }
    }
    // Makes the compiler store the indices, so that fetch() reads them from memory: extracting an index from a register costs two
    // instructions a lane, a load costs one.
    template <typename T>
    static void keep_in_memory(T& indices) {
        asm("" : "+m"(indices));
    }

    // ---- floats ----
    static Float zero() { return {Floats{}}; }
    static Float all(float value) { return {Floats{value, value, value, value}}; }
    static Float add(Float a, Float b) { return {a.v + b.v}; }
    static Float mul(Float a, Float b) { return {a.v * b.v}; }
    __attribute__((noinline)) static Float fma(Float a, Float b, Float c) {
        Float r;
        for (int i = 0; i < k_width; ++i) r.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
        return r;
    }
    static Float to_float(Int a) {
        return {__builtin_convertvector(reinterpret_cast<SignedWords>(a.v), Floats)};
    }
    static Float as_float(Int bits) { return {reinterpret_cast<Floats>(bits.v)}; }
    // Converts the F16 number in the low 16 bits of every lane; the upper bits must be clear.
    __attribute__((noinline)) static Float f16_of(Int bits) {
        Float r;
        for (int i = 0; i < k_width; ++i) r.v[i] = f16_to_float(static_cast<uint16_t>(bits.v[i]));
        return r;
    }
    // Returns `below` in lanes whose signed number x is less than `limit`, and `others` in the other lanes.
    static Float choose_below(Int x, int32_t limit, Float below, Float others) {
        const SignedWords is_below = reinterpret_cast<SignedWords>(x.v) < limit;
        return {is_below ? below.v : others.v};
    }

    // ---- integers of 32 bits ----
    static Int all(int32_t value) {
        const auto word = static_cast<uint32_t>(value);
        return {Words{word, word, word, word}};
    }
    template <int n>
    static Int shift_left(Int a) {
        return {a.v << n};
    }
    template <int n>
    static Int shift_right(Int a) {
        return {a.v >> n};
    }
    static Int shift_right(Int a, int n) { return {a.v >> static_cast<uint32_t>(n)}; }
    template <int n>
    static Int shift_right_signed(Int a) {
        return {reinterpret_cast<Words>(reinterpret_cast<SignedWords>(a.v) >> n)};
    }
    static Int bit_and(Int a, Int b) { return {a.v & b.v}; }
    static Int bit_or(Int a, Int b) { return {a.v | b.v}; }
    static Int bit_xor(Int a, Int b) { return {a.v ^ b.v}; }
    static Int add(Int a, Int b) { return {a.v + b.v}; }
    static Int sub(Int a, Int b) { return {a.v - b.v}; }
    static Int mul(Int a, Int b) { return {a.v * b.v}; }
    // Returns a. With few registers, it keeps the compiler from starting later work before a is complete.
    static Int settled(Int a) { return a; }

    // ---- four bytes per lane ----
    static Int add_bytes(Int a, Int b) { return words(bytes(a) + bytes(b)); }
    static Table table(const int8_t* values) {
        Table t;
        memcpy(&t.v, values, sizeof(t.v));
        return t;
    }
    static Table wide_table(const int8_t* values) { return table(values); }
    // Looks up bits 0-3 of every byte of `index`; bit 7 must be clear.
    __attribute__((noinline)) static Int look_up(Table t, Int index) {
        const Bytes at = bytes(index) & 15;
        Bytes r;
        for (int i = 0; i < 16; ++i) r[i] = t.v[at[i]];
        return words(r);
    }
    // Returns the bytes a, b, c, d of each lane.
    template <int a, int b, int c, int d>
    static Int shuffle_bytes(Int x) {
        const auto byte_of = [&](int i) { return (x.v >> (8 * i)) & 255; };
        return {byte_of(a) | byte_of(b) << 8 | byte_of(c) << 16 | byte_of(d) << 24};
    }
    // Returns a mask whose byte k is set if bit first + k of the lane is set; first is a multiple of 4.
    template <int first>
    static Mask bits_mask(Int word) {
        constexpr uint32_t k_bits = 0x08040201U << (first % 8);
        const Bytes bits = bytes({Words{k_bits, k_bits, k_bits, k_bits}});
        constexpr int k_byte = first / 8;
        return mask((bytes(shuffle_bytes<k_byte, k_byte, k_byte, k_byte>(word)) & bits) != 0);
    }
    // Returns a mask of the bytes that have this bit set.
    template <int bit>
    static Mask plane_mask(Int x) {
        return mask((bytes(x) & static_cast<uint8_t>(1 << bit)) != 0);
    }
    static Int negate_bytes(Int a, Mask where) { return words((bytes(a) ^ where.v) - where.v); }
    static Int abs_bytes(Int a) { return negate_bytes(a, mask(reinterpret_cast<SignedBytes>(a.v) < 0)); }
    static Int choose_bytes(Mask where, Int chosen, Int others) {
        return words((bytes(chosen) & where.v) | (bytes(others) & ~where.v));
    }
    // Returns the byte of `chosen` if the byte of `plane` has this bit set, else the byte of `others`.
    template <int bit>
    static Int choose_by_bit(Int plane, Int chosen, Int others) {
        return choose_bytes(plane_mask<bit>(plane), chosen, others);
    }
    // Sets the bits of `value` in the bytes of a mask; the bits must be clear before.
    static Int or_bytes(Int a, Mask where, int value) {
        return words(bytes(a) | (where.v & static_cast<uint8_t>(value)));
    }

    // ---- dots of four bytes per lane ----
    static Int wide(Int signed_bytes) { return signed_bytes; }
    // Returns low half * pair[0] + high half * pair[1] of every lane; the halves are signed.
    static Int dot_halves(Int halves, const int16_t* pair) {
        const auto lanes = reinterpret_cast<SignedWords>(halves.v);
        return {reinterpret_cast<Words>((lanes << 16 >> 16) * int32_t{pair[0]} +
                                        (lanes >> 16) * int32_t{pair[1]})};
    }
    // sum[t] += weight[0] . code[t][0..3] + weight[1] . code[t][4..7] + ... of n weights
    template <int n, int n_tokens>
    static void dot_wide(Int* sum, const Int* weight, const int8_t* const* code) {
        for (int t = 0; t < n_tokens; ++t) {
            for (int k = 0; k < n; ++k) sum[t] = add_products(sum[t], weight[k], code[t] + 4 * k);
        }
    }
    template <int n, int largest, int n_tokens>
    static void dot_small(Int* sum, const Int* weight, const int8_t* const* code) {
        dot_wide<n, n_tokens>(sum, weight, code);  // a small weight is also a signed byte
    }

  private:
    static Bytes bytes(Int a) { return reinterpret_cast<Bytes>(a.v); }
    static Int words(Bytes a) { return {reinterpret_cast<Words>(a)}; }
    static Mask mask(SignedBytes where) { return {reinterpret_cast<Bytes>(where)}; }

    __attribute__((noinline)) static Int add_products(Int sum, Int weight, const int8_t* code) {
        SignedWords total = reinterpret_cast<SignedWords>(sum.v);
        const auto weights = reinterpret_cast<SignedWords>(weight.v);
        for (int b = 0; b < 4; ++b) total += (weights << (24 - 8 * b) >> 24) * static_cast<int32_t>(code[b]);
        return {reinterpret_cast<Words>(total)};
    }
};

}  // namespace minim::cpu::scalar
