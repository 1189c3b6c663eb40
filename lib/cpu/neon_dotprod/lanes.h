// SPDX-License-Identifier: Apache-2.0
// The lane vocabulary of scalar/lanes.h in NEON with FEAT_DotProd: 4 lanes are one register, so a panel is read in four passes. It is
// a template so that files compiled for further instruction sets get functions of their own, which the linker does not merge with
// these.
//
// SDOT multiplies signed by signed bytes: weights need no offset, and no sum of 16 bits can overflow. It takes the codes of an input
// row from a quarter of a register, so 16 codes are loaded at once and never broadcast.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "panel/kernel_inline.h"

namespace minim::cpu::neon_dotprod {

struct Plain {};

template <class Level>
struct LanesOf {
    struct Int {
        uint32x4_t v;
    };
    struct Float {
        float32x4_t v;
    };
    // Chosen bytes are all ones.
    struct Mask {
        uint8x16_t v;
    };
    struct Table {
        uint8x16_t v;
    };
    struct Table32 {
        uint8x16x2_t v;
    };
    struct Table64 {
        uint8x16x4_t v;
    };

    static constexpr int k_width = 4;
    // 8 rows x 4 tokens: 8 registers of dots and 8 of sums leave enough for weights and codes. 16 rows would spill.
    static constexpr int k_tile_strips = 2;
    static constexpr int k_token_tile = 4;
    static constexpr int k_few_tokens = 4;
    static constexpr int k_wide_offset = 0;

    // ---- memory ----
    static Int load(const std::byte* p) { return {vld1q_u32(reinterpret_cast<const uint32_t*>(p))}; }
    static Int load_u16(const std::byte* p) {
        return {vmovl_u16(vld1_u16(reinterpret_cast<const uint16_t*>(p)))};
    }
    static Int load_u8(const std::byte* p) {
        uint32_t four;
        memcpy(&four, p, sizeof(four));
        const uint8x8_t bytes = vreinterpret_u8_u32(vdup_n_u32(four));
        return {vmovl_u16(vget_low_u16(vmovl_u8(bytes)))};
    }
    static Float load_f16(const std::byte* p) {
        return {vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const uint16_t*>(p))))};
    }
    static Float load_f32(const float* p) { return {vld1q_f32(p)}; }
    static void store(std::byte* p, Int a) { vst1q_u32(reinterpret_cast<uint32_t*>(p), a.v); }
    static void store(float* p, Float a) { vst1q_f32(p, a.v); }
    // One load for each lane: NEON has no gather.
    template <typename Index>
    static MINIM_KERNEL_INLINE void fetch(const uint32_t* table, const Index* at, Int* point) {
        constexpr int k_entries = 4 / sizeof(Index);
        for (int p = 0; p < k_entries; ++p) {
            uint32x4_t four = {table[at[p]], 0, 0, 0};
            four = vld1q_lane_u32(table + at[k_entries + p], four, 1);
            four = vld1q_lane_u32(table + at[2 * k_entries + p], four, 2);
            point[p].v = vld1q_lane_u32(table + at[3 * k_entries + p], four, 3);
        }
    }
    template <typename Index>
    static MINIM_KERNEL_INLINE void fetch(const uint64_t* table, const Index* at, Int* half) {
        constexpr int k_entries = 4 / sizeof(Index);
        for (int p = 0; p < k_entries; ++p) {
            const uint32x4_t low = two_of(table, at[p], at[k_entries + p]);
            const uint32x4_t high = two_of(table, at[2 * k_entries + p], at[3 * k_entries + p]);
            half[2 * p].v = vuzp1q_u32(low, high);
            half[2 * p + 1].v = vuzp2q_u32(low, high);
        }
    }
    template <typename T>
    static void keep_in_memory(T& indices) {
        asm("" : "+m"(indices));
    }

    // ---- floats ----
    static Float zero() { return {vdupq_n_f32(0.0F)}; }
    static Float all(float value) { return {vdupq_n_f32(value)}; }
    static Float add(Float a, Float b) { return {vaddq_f32(a.v, b.v)}; }
    static Float mul(Float a, Float b) { return {vmulq_f32(a.v, b.v)}; }
    static Float fma(Float a, Float b, Float c) { return {vfmaq_f32(c.v, a.v, b.v)}; }
    static Float to_float(Int a) { return {vcvtq_f32_s32(vreinterpretq_s32_u32(a.v))}; }
    static Float as_float(Int bits) { return {vreinterpretq_f32_u32(bits.v)}; }
    static Float f16_of(Int bits) { return {vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(bits.v)))}; }
    static Float choose_below(Int x, int32_t limit, Float below, Float others) {
        const uint32x4_t is_below = vcltq_s32(vreinterpretq_s32_u32(x.v), vdupq_n_s32(limit));
        return {vbslq_f32(is_below, below.v, others.v)};
    }

    // ---- integers of 32 bits ----
    static Int all(int32_t value) { return {vreinterpretq_u32_s32(vdupq_n_s32(value))}; }
    template <int n>
    static Int shift_left(Int a) {
        if constexpr (n == 0)
            return a;
        else
            return {vshlq_n_u32(a.v, n)};
    }
    template <int n>
    static Int shift_right(Int a) {
        if constexpr (n == 0)
            return a;
        else
            return {vshrq_n_u32(a.v, n)};
    }
    static Int shift_right(Int a, int n) { return {vshlq_u32(a.v, vdupq_n_s32(-n))}; }
    template <int n>
    static Int shift_right_signed(Int a) {
        return {vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(a.v), n))};
    }
    static Int bit_and(Int a, Int b) { return {vandq_u32(a.v, b.v)}; }
    static Int bit_or(Int a, Int b) { return {vorrq_u32(a.v, b.v)}; }
    static Int bit_xor(Int a, Int b) { return {veorq_u32(a.v, b.v)}; }
    static Int add(Int a, Int b) { return {vaddq_u32(a.v, b.v)}; }
    static Int sub(Int a, Int b) { return {vsubq_u32(a.v, b.v)}; }
    static Int mul(Int a, Int b) { return {vmulq_u32(a.v, b.v)}; }
    static Int settled(Int a) { return a; }

    // ---- four bytes per lane ----
    static Int add_bytes(Int a, Int b) { return words(vaddq_u8(bytes(a), bytes(b))); }
    static Table table(const int8_t* values) { return {load_bytes(values)}; }
    static Table wide_table(const int8_t* values) { return table(values); }
    // TBL gives 0 for an index of 16 or more.
    static Int look_up(Table t, Int index) {
        return words(vqtbl1q_u8(t.v, vandq_u8(bytes(index), vdupq_n_u8(15))));
    }
    static void look_up_nibbles(Table t, Int word, Int& low, Int& high) {
        low = look_up(t, word);
        high = words(vqtbl1q_u8(t.v, vshrq_n_u8(bytes(word), 4)));
    }
    static Table32 table_32(const int8_t* values) {
        return {{{load_bytes(values), load_bytes(values + 16)}}};
    }
    static Table32 wide_table_32(const int8_t* values) { return table_32(values); }
    static Table64 table_64(const int8_t* values) {
        return {{{load_bytes(values), load_bytes(values + 16), load_bytes(values + 32),
                  load_bytes(values + 48)}}};
    }
    static Table64 wide_table_64(const int8_t* values) { return table_64(values); }
    // Looks up the low five bits of every byte of an index, or the low six.
    static Int look_up_six_bits(Table32 t, Int index) {
        return words(vqtbl2q_u8(t.v, vandq_u8(bytes(index), vdupq_n_u8(31))));
    }
    static Int look_up_six_bits(Table64 t, Int index) {
        return words(vqtbl4q_u8(t.v, vandq_u8(bytes(index), vdupq_n_u8(63))));
    }
    // Returns the n low bits of every byte of `low` with the others of `high`.
    template <int n>
    static Int merge_above(Int low, Int high) {
        return words(vbslq_u8(vdupq_n_u8((1 << n) - 1), bytes(low), bytes(high)));
    }
    template <int a, int b, int c, int d>
    static Int shuffle_bytes(Int x) {
        const uint8x16_t order = {a,     b,     c,     d,     a + 4,  b + 4,  c + 4,  d + 4,
                                  a + 8, b + 8, c + 8, d + 8, a + 12, b + 12, c + 12, d + 12};
        return words(vqtbl1q_u8(bytes(x), order));
    }
    template <int first>
    static Mask bits_mask(Int word) {
        constexpr int k_byte = first / 8;
        constexpr uint32_t k_bits = 0x08040201U << (first % 8);
        const Int spread = shuffle_bytes<k_byte, k_byte, k_byte, k_byte>(word);
        return {vtstq_u8(bytes(spread), vreinterpretq_u8_u32(vdupq_n_u32(k_bits)))};
    }
    template <int bit>
    static Mask plane_mask(Int x) {
        return {vtstq_u8(bytes(x), vdupq_n_u8(1 << bit))};
    }
    static Int negate_bytes(Int a, Mask where) {
        return words(vsubq_u8(veorq_u8(bytes(a), where.v), where.v));
    }
    static Int abs_bytes(Int a) { return words(vreinterpretq_u8_s8(vabsq_s8(vreinterpretq_s8_u32(a.v)))); }
    static Int choose_bytes(Mask where, Int chosen, Int others) {
        return words(vbslq_u8(where.v, bytes(chosen), bytes(others)));
    }
    template <int bit>
    static Int choose_by_bit(Int plane, Int chosen, Int others) {
        return choose_bytes(plane_mask<bit>(plane), chosen, others);
    }
    static Int or_bytes(Int a, Mask where, int value) {
        return words(vorrq_u8(bytes(a), vandq_u8(where.v, vdupq_n_u8(static_cast<uint8_t>(value)))));
    }

    // ---- dots of four bytes per lane ----
    static Int wide(Int signed_bytes) { return signed_bytes; }
    static MINIM_KERNEL_INLINE Int dot_halves(Int halves, const int16_t* pair) {
        const int32x4_t both = vreinterpretq_s32_u32(halves.v);
        const int32x4_t low = vshrq_n_s32(vshlq_n_s32(both, 16), 16);
        const int32x4_t high = vshrq_n_s32(both, 16);
        return {vreinterpretq_u32_s32(vmlaq_n_s32(vmulq_n_s32(low, pair[0]), high, pair[1]))};
    }
    // A dot begins with 1.5 * 2^23, as the bits of a float: in that range the last bit of a float is worth 1, so the bits of the sum
    // are the float 12582912 + dot, and a subtraction converts it exactly. Dots are below 2^22 (32 * 128 * 127 = 520,192). SCVTF can use
    // two of the four pipes of a Neoverse V2, a subtraction all.
    static Int first_dot(int32_t value) { return all(k_float_of_dots + value); }
    static Int first_dot(Int value) { return add(value, all(k_float_of_dots)); }
    static Float float_of_dot(Int dot) {
        return {vsubq_f32(vreinterpretq_f32_u32(dot.v), vdupq_n_f32(12582912.0F))};
    }
    template <int n, int n_tokens>
    static MINIM_KERNEL_INLINE void dot_wide(Int* sum, const Int* weight, const int8_t* const* code) {
        if constexpr (n % 4 == 0) {
            for (int k = 0; k < n; k += 4) {
                for (int t = 0; t < n_tokens; ++t) {
                    const int8x16_t codes = vld1q_s8(code[t] + 4 * k);
                    sum[t] = add_products<0>(sum[t], weight[k], codes);
                    sum[t] = add_products<1>(sum[t], weight[k + 1], codes);
                    sum[t] = add_products<2>(sum[t], weight[k + 2], codes);
                    sum[t] = add_products<3>(sum[t], weight[k + 3], codes);
                }
            }
        } else {
            // Behind the codes of a single word there may be no memory.
            for (int k = 0; k < n; ++k) {
                for (int t = 0; t < n_tokens; ++t) {
                    int32_t four;
                    memcpy(&four, code[t] + 4 * k, sizeof(four));
                    sum[t] = add_products<0>(sum[t], weight[k], vreinterpretq_s8_s32(vdupq_n_s32(four)));
                }
            }
        }
    }
    template <int n, int /*largest*/, int n_tokens>
    static MINIM_KERNEL_INLINE void dot_small(Int* sum, const Int* weight, const int8_t* const* code) {
        dot_wide<n, n_tokens>(sum, weight, code);  // a small weight is also a signed byte
    }
    // sum[s][t] += weight[s] . code[t] of n vectors of codes, 64 bytes apart.
    template <int n, int /*largest*/, bool /*signed_weights*/, int n_strips, int n_tokens>
    static MINIM_KERNEL_INLINE void dot_strips(Int (&sum)[n_strips][n_tokens],
                                               const std::byte* const (&weight)[n_strips],
                                               const int8_t* const (&code)[n_tokens]) {
        static_assert(n % 4 == 0);
#pragma GCC unroll 2
        for (int k = 0; k < n; k += 4) {
            int8x16_t codes[n_tokens];
            for (int t = 0; t < n_tokens; ++t) codes[t] = vld1q_s8(code[t] + 4 * k);
            add_vector<0>(sum, weight, k, codes);
            add_vector<1>(sum, weight, k + 1, codes);
            add_vector<2>(sum, weight, k + 2, codes);
            add_vector<3>(sum, weight, k + 3, codes);
        }
    }

  protected:
    static uint8x16_t bytes(Int a) {
        return vreinterpretq_u8_u32(a.v);
    }
    static Int words(uint8x16_t a) {
        return {vreinterpretq_u32_u8(a)};
    }

  private:
    static constexpr int32_t k_float_of_dots = 0x4B400000;

    static uint8x16_t load_bytes(const int8_t* p) {
        return vld1q_u8(reinterpret_cast<const uint8_t*>(p));
    }
    static MINIM_KERNEL_INLINE uint32x4_t two_of(const uint64_t* table, int a, int b) {
        const uint64x2_t two = vcombine_u64(vld1_u64(table + a), vld1_u64(table + b));
        return vreinterpretq_u32_u64(two);
    }
    // Adds the products of a weight with word `quarter` of 16 codes.
    template <int quarter>
    static MINIM_KERNEL_INLINE Int add_products(Int sum, Int weight, int8x16_t codes) {
        return {vreinterpretq_u32_s32(
            vdotq_laneq_s32(vreinterpretq_s32_u32(sum.v), vreinterpretq_s8_u32(weight.v), codes, quarter))};
    }
    template <int quarter, int n_strips, int n_tokens>
    static MINIM_KERNEL_INLINE void add_vector(Int (&sum)[n_strips][n_tokens],
                                               const std::byte* const (&weight)[n_strips], int k,
                                               const int8x16_t (&codes)[n_tokens]) {
        for (int s = 0; s < n_strips; ++s) {
            const Int w = load(weight[s] + 64 * k);
            for (int t = 0; t < n_tokens; ++t) sum[s][t] = add_products<quarter>(sum[s][t], w, codes[t]);
        }
    }
};

using Lanes = LanesOf<Plain>;

}  // namespace minim::cpu::neon_dotprod
