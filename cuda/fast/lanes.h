// SPDX-License-Identifier: Apache-2.0
// The lane vocabulary of a GPU (its specification is lib/cpu/scalar/lanes.h): a lane is a thread. The same functions
// run on the host, for tests on machines without a GPU.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "base/platform.h"

namespace minim::cuda::fast {

struct Lanes {
    using Int = uint32_t;
    using Float = float;
    using Mask = uint32_t;  // all ones in the bytes where something holds
    struct Table {
        uint32_t word[4];
    };

    static constexpr int k_width = 1;

    // ---- memory ----
    MINIM_HOST_DEVICE static Int load(const std::byte* p) { return load_as<uint32_t>(p); }
    MINIM_HOST_DEVICE static Int load_u16(const std::byte* p) { return load_as<uint16_t>(p); }
    MINIM_HOST_DEVICE static Int load_u8(const std::byte* p) { return load_as<uint8_t>(p); }
    MINIM_HOST_DEVICE static Float load_f16(const std::byte* p) { return f16_of(load_u16(p)); }
    MINIM_HOST_DEVICE static Float load_f32(const float* p) { return *p; }
    MINIM_HOST_DEVICE static void store(std::byte* p, Int a) { memcpy(p, &a, sizeof(a)); }
    MINIM_HOST_DEVICE static void store(float* p, Float a) { *p = a; }
    template <typename Index>
    MINIM_HOST_DEVICE static void fetch(const uint32_t* table, const Index* at, Int* point) {
        for (size_t p = 0; p < 4 / sizeof(Index); ++p) point[p] = table[at[p]];
    }
    template <typename Index>
    MINIM_HOST_DEVICE static void fetch(const uint64_t* table, const Index* at, Int* half) {
        for (size_t p = 0; p < 4 / sizeof(Index); ++p) {
            const uint64_t point = table[at[p]];
            half[2 * p] = static_cast<uint32_t>(point);
            half[2 * p + 1] = static_cast<uint32_t>(point >> 32);
        }
    }
    // Here indices are best in registers.
    template <typename T>
    MINIM_HOST_DEVICE static void keep_in_memory(T&) {}

    // ---- floats ----
    MINIM_HOST_DEVICE static Float zero() { return 0.0F; }
    MINIM_HOST_DEVICE static Float all(float value) { return value; }
    MINIM_HOST_DEVICE static Float add(Float a, Float b) { return a + b; }
    MINIM_HOST_DEVICE static Float mul(Float a, Float b) { return a * b; }
    MINIM_HOST_DEVICE static Float fma(Float a, Float b, Float c) { return fmaf(a, b, c); }
    MINIM_HOST_DEVICE static Float to_float(Int a) { return static_cast<float>(static_cast<int32_t>(a)); }
    MINIM_HOST_DEVICE static Float as_float(Int bits) { return bits_to_float(bits); }
    MINIM_HOST_DEVICE static Float f16_of(Int bits) {
#if defined(__CUDA_ARCH__)
        Float value;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<uint16_t>(bits)));
        return value;
#else
        return f16_to_float(static_cast<uint16_t>(bits));
#endif
    }
    MINIM_HOST_DEVICE static Float choose_below(Int x, int32_t limit, Float below, Float others) {
        return static_cast<int32_t>(x) < limit ? below : others;
    }

    // ---- integers of 32 bits ----
    MINIM_HOST_DEVICE static Int all(int32_t value) {
        return static_cast<uint32_t>(value);
    }
    template <int n>
    MINIM_HOST_DEVICE static Int shift_left(Int a) {
        return a << n;
    }
    template <int n>
    MINIM_HOST_DEVICE static Int shift_right(Int a) {
        return a >> n;
    }
    MINIM_HOST_DEVICE static Int shift_right(Int a, int n) {
        return a >> n;
    }
    template <int n>
    MINIM_HOST_DEVICE static Int shift_right_signed(Int a) {
        return static_cast<uint32_t>(static_cast<int32_t>(a) >> n);
    }
    MINIM_HOST_DEVICE static Int bit_and(Int a, Int b) {
        return a & b;
    }
    MINIM_HOST_DEVICE static Int bit_or(Int a, Int b) {
        return a | b;
    }
    MINIM_HOST_DEVICE static Int bit_xor(Int a, Int b) {
        return a ^ b;
    }
    MINIM_HOST_DEVICE static Int add(Int a, Int b) {
        return a + b;
    }
    MINIM_HOST_DEVICE static Int sub(Int a, Int b) {
        return a - b;
    }
    MINIM_HOST_DEVICE static Int mul(Int a, Int b) {
        return a * b;
    }
    MINIM_HOST_DEVICE static Int settled(Int a) {
        return a;
    }

    // ---- four bytes per lane ----
    // Adds bytes without carries from byte to byte: seven bits are added as they are, the eighth separately.
    MINIM_HOST_DEVICE static Int add_bytes(Int a, Int b) {
        return ((a & k_low_bits) + (b & k_low_bits)) ^ ((a ^ b) & k_top_bits);
    }
    MINIM_HOST_DEVICE static Table table(const int8_t* values) {
        Table t;
        for (int k = 0; k < 4; ++k) {
            const auto byte = [&](int i) {
                return static_cast<uint32_t>(static_cast<uint8_t>(values[4 * k + i])) << (8 * i);
            };
            t.word[k] = byte(0) | byte(1) | byte(2) | byte(3);
        }
        t.word[0] ^= hidden_zero();
        t.word[2] ^= hidden_zero();
        return t;
    }
    MINIM_HOST_DEVICE static Table wide_table(const int8_t* values) {
        return table(values);
    }
    MINIM_HOST_DEVICE static Int look_up(const Table& t, Int index) {
        // The four nibbles side by side, as the selector of a byte permutation wants them; its top bits would
        // mean "the sign", so the halves of the table are looked up with three bits and chosen by the fourth.
        const Int pairs = (index & 0x000F000FU) | ((index >> 4) & 0x00F000F0U);
        const Int selector = permute(pairs, 0, 0x4420);
        const Int three_bits = selector & 0x7777U;
        const Int low = permute(t.word[0], t.word[1], three_bits);
        const Int high = permute(t.word[2], t.word[3], three_bits);
        return permute(low, high, 0x3210U | ((selector & 0x8888U) >> 1));
    }
    // The values of the low nibbles of a word's bytes, and of the high ones: eight at a time as they lie.
    MINIM_HOST_DEVICE static void look_up_nibbles(const Table& t, Int word, Int& low, Int& high) {
        Int four[2];
        look_up_eight(t, word, four);
        low = permute(four[0], four[1], 0x6420);
        high = permute(four[0], four[1], 0x7531);
    }
    // The same of words as they are packed for GPUs (WordOrder::nibbles): the low nibbles come first.
    MINIM_HOST_DEVICE static void look_up_packed(const Table& t, Int word, Int& low, Int& high) {
        Int four[2];
        look_up_eight(t, word, four);
        low = four[0];
        high = four[1];
    }
    // Codes of 5 or 6 bits, packed for GPUs in words of their own for each unit (WordOrder::units_of_5, units_of_6): those of input
    // word k, from word k % 4 of nibbles and the unit's words of the fifth and sixth bits. Tables of 32 and 64 values.
    static constexpr bool k_packs_units = true;
    MINIM_HOST_DEVICE static Int look_up_unit_32(const int8_t* values, Int word, Int fifth, int k) {
        const Int nibbles = word >> (16 * (k / 4));
        return permute(look_up_four(table(values), nibbles), look_up_four(table(values + 16), nibbles),
                       further_bit_selector(fifth, k));
    }
    MINIM_HOST_DEVICE static Int look_up_unit_64(const int8_t* values, Int word, Int fifth, Int sixth,
                                                 int k) {
        Int value = permute(look_up_unit_32(values, word, fifth, k),
                            look_up_unit_32(values + 32, word, fifth, k), further_bit_selector(sixth, k));
#if defined(__CUDA_ARCH__)
        // The upper halves of words come after all lower ones: at once, both take more registers than gate and up have.
        if (k == 3) asm volatile("" : "+r"(value));
#endif
        return value;
    }
    template <int a, int b, int c, int d>
    MINIM_HOST_DEVICE static Int shuffle_bytes(Int x) {
        return permute(x, 0, a | b << 4 | c << 8 | d << 12);
    }
    template <int first>
    MINIM_HOST_DEVICE static Mask bits_mask(Int word) {
        // Bits first .. first + 3 to the tops of four bytes: the products do not overlap.
        const Int bits = (word >> first) & 15U;
        return tops_to_bytes(bits * 0x10204080U);
    }
    template <int bit>
    MINIM_HOST_DEVICE static Mask plane_mask(Int x) {
        return tops_to_bytes(x << (7 - bit));
    }
    MINIM_HOST_DEVICE static Int negate_bytes(Int a, Mask where) {
        return add_bytes(a ^ where, where & 0x01010101U);
    }
    // Returns offset + magnitude, or offset - magnitude where `negative`. Magnitudes are at most `offset`, so no byte carries.
    template <int offset>
    MINIM_HOST_DEVICE static Int with_signs(Int magnitudes, Mask negative) {
        constexpr Int k_zero = static_cast<uint32_t>(offset) * 0x01010101U;
        return choose_bytes(negative, k_zero - magnitudes, k_zero + magnitudes);
    }
    MINIM_HOST_DEVICE static Int abs_bytes(Int a) {
        return negate_bytes(a, tops_to_bytes(a));
    }
    MINIM_HOST_DEVICE static Int choose_bytes(Mask where, Int chosen, Int others) {
        return (chosen & where) | (others & ~where);
    }
    template <int bit>
    MINIM_HOST_DEVICE static Int choose_by_bit(Int plane, Int chosen, Int others) {
        return choose_bytes(plane_mask<bit>(plane), chosen, others);
    }
    MINIM_HOST_DEVICE static Int or_bytes(Int a, Mask where, int value) {
        return a | (where & (static_cast<uint32_t>(value) * 0x01010101U));
    }

    // ---- dots of four bytes per lane ----
    MINIM_HOST_DEVICE static Int wide(Int signed_bytes) {
        return signed_bytes;
    }
    template <int n, int n_tokens>
    MINIM_HOST_DEVICE static void dot_wide(Int* sum, const Int* weight, const int8_t* const* code) {
        for (int t = 0; t < n_tokens; ++t) {
            for (int k = 0; k < n; ++k) {
                Int codes;
                memcpy(&codes, code[t] + 4 * k, sizeof(codes));
                sum[t] = dot(weight[k], codes, sum[t]);
            }
        }
    }
    template <int n, int largest, int n_tokens>
    MINIM_HOST_DEVICE static void dot_small(Int* sum, const Int* weight, const int8_t* const* code) {
        dot_wide<n, n_tokens>(sum, weight, code);  // a small weight is also a signed byte
    }

    // sum + the products of four signed bytes
    MINIM_HOST_DEVICE static Int dot(Int a, Int b, Int sum) {
#if defined(__CUDA_ARCH__)
        return static_cast<uint32_t>(__dp4a(static_cast<int>(a), static_cast<int>(b), static_cast<int>(sum)));
#else
        for (int i = 0; i < 4; ++i) {
            const auto byte = [i](Int x) { return static_cast<int32_t>(static_cast<int8_t>(x >> (8 * i))); };
            sum += static_cast<uint32_t>(byte(a) * byte(b));
        }
        return sum;
#endif
    }

    // ---- of a GPU ----
    // Byte i of the result is the byte of a (0 .. 3) or b (4 .. 7) that nibble i of the selector names; if the nibble's top
    // bit is set, eight copies of that byte's sign bit. (The intrinsic __byte_perm does not support the latter.)
    MINIM_HOST_DEVICE static Int permute(Int a, Int b, Int selector) {
#if defined(__CUDA_ARCH__)
        Int r;
        asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
        return r;
#else
        const uint64_t both = uint64_t{b} << 32 | a;
        Int r = 0;
        for (int i = 0; i < 4; ++i) {
            const Int nibble = selector >> (4 * i);
            const Int byte = static_cast<Int>(both >> (8 * (nibble & 7U))) & 255U;
            r |= ((nibble & 8U) == 0 ? byte : (byte >> 7) * 255U) << (8 * i);
        }
        return r;
#endif
    }
    // The logic function of three words with this truth table: bit 4 a + 2 b + c of it is the result for bits a, b and c (PTX lop3).
    template <int truth>
    MINIM_HOST_DEVICE static Int logic(Int a, Int b, Int c) {
#if defined(__CUDA_ARCH__)
        Int r;
        asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(r) : "r"(a), "r"(b), "r"(c), "n"(truth));
        return r;
#else
        Int r = 0;
        for (int i = 0; i < 8; ++i) {
            if ((truth >> i & 1) == 0) continue;
            r |= ((i & 4) != 0 ? a : ~a) & ((i & 2) != 0 ? b : ~b) & ((i & 1) != 0 ? c : ~c);
        }
        return r;
#endif
    }
    // A zero that the compiler cannot see: added to a table, it keeps the table in registers, which would else be loaded
    // for every look-up.
    MINIM_HOST_DEVICE static Int hidden_zero() {
#if defined(__CUDA_ARCH__)
        return threadIdx.z;
#else
        return 0;
#endif
    }

  private:
    // Looks up the lower four nibbles of a word.
    MINIM_HOST_DEVICE static Int look_up_four(const Table& t, Int nibbles) {
        const Int three_bits = nibbles & 0x7777U;
        return permute(permute(t.word[0], t.word[1], three_bits), permute(t.word[2], t.word[3], three_bits),
                       upper_half_selector(nibbles >> 1));
    }
    // For permute(a, b): a byte of b where the further bit of a code of input word k is set, else of a.
    MINIM_HOST_DEVICE static Int further_bit_selector(Int bits, int k) {
        const int shift = 16 * (k / 4) + k % 4 - 2;
        return upper_half_selector(shift < 0 ? bits << -shift : bits >> (shift < 0 ? 0 : shift));
    }
    // For permute(a, b): byte i of b where bit 2 of nibble i is set, else of a. A logic instruction takes only one
    // constant of its own; the other one is in a register.
    MINIM_HOST_DEVICE static Int upper_half_selector(Int bits) {
        return (bits & (0x44444444U ^ hidden_zero())) | 0x32103210U;
    }
    // The values of a word's nibbles, one after the other.
    MINIM_HOST_DEVICE static void look_up_eight(const Table& t, Int word, Int (&four)[2]) {
        const Int three_bits = word & 0x77777777U;
        const Int halves = upper_half_selector(word >> 1);  // from the first eight values or the others
        for (int h = 0; h < 2; ++h) {
            const Int bits = three_bits >> (16 * h);
            four[h] = permute(permute(t.word[0], t.word[1], bits), permute(t.word[2], t.word[3], bits),
                              halves >> (16 * h));
        }
    }

    static constexpr Int k_low_bits = 0x7F7F7F7FU;
    static constexpr Int k_top_bits = 0x80808080U;

    template <typename T>
    MINIM_HOST_DEVICE static uint32_t load_as(const std::byte* p) {
        return *reinterpret_cast<const T*>(p);  // panels are aligned
    }
    // Bytes of ones where the top bit is set; the others are clear.
    MINIM_HOST_DEVICE static Mask tops_to_bytes(Int word) {
        return permute(word, 0, 0xBA98);
    }
};

}  // namespace minim::cuda::fast
