// SPDX-License-Identifier: Apache-2.0
// The lane vocabulary of scalar/lanes.h in AVX-512 (F, BW, DQ, VL, VNNI): 16 lanes are one register. It is a template so that
// files compiled for further instruction sets get functions of their own, which the linker does not merge with these.
#pragma once

#include "cpu/avx512/simd.h"
#include "cpu/q8_block.h"
#include "panel/kernel_inline.h"

namespace minim::cpu::avx512 {

struct Plain {};

template <class Level>
struct LanesOf {
    struct Int {
        __m512i v;
    };
    struct Float {
        __m512 v;
    };
    struct Mask {
        __mmask64 v;
    };
    struct Table {
        __m512i v;  // the 16 bytes, four times
    };

    static constexpr int k_width = 16;
    static constexpr int k_tile_strips = 2;
    static constexpr int k_token_tile = 4;
    static constexpr int k_few_tokens = 8;
    // vpdpbusd multiplies unsigned by signed bytes: 128 is added to signed weights.
    static constexpr int k_wide_offset = k_unsigned_offset;

    // ---- memory ----
    static Int load(const std::byte* p) { return {_mm512_loadu_si512(p)}; }
    static Int load_u16(const std::byte* p) {
        return {_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
    }
    static Int load_u8(const std::byte* p) {
        return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
    }
    static Float load_f16(const std::byte* p) {
        return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
    }
    static Float load_f32(const float* p) { return {_mm512_loadu_ps(p)}; }
    static void store(std::byte* p, Int a) { _mm512_storeu_si512(p, a.v); }
    static void store(float* p, Float a) { _mm512_storeu_ps(p, a.v); }
    // One load for each lane instead of a gather: on CPUs with the mitigation against data sampling a gather takes more than 20
    // cycles, and on others it is hardly faster.
    template <typename Index>
    static MINIM_KERNEL_INLINE void fetch(const uint32_t* table, const Index* at, Int* point) {
        constexpr int k_entries = 4 / sizeof(Index);
        for (int p = 0; p < k_entries; ++p) {
            const auto four = [&](int lane) MINIM_KERNEL_INLINE_LAMBDA {
                return fetch_four<k_entries>(table, at + k_entries * lane + p);
            };
            point[p].v = join(join(four(0), four(4)), join(four(8), four(12)));
        }
    }
    template <typename Index>
    static MINIM_KERNEL_INLINE void fetch(const uint64_t* table, const Index* at, Int* half) {
        constexpr int k_entries = 4 / sizeof(Index);
        for (int p = 0; p < k_entries; ++p) {
            // Returns lanes n, n + 1, n + 4 and n + 5, and the lanes eight after each of these.
            const auto eight = [&](int n) MINIM_KERNEL_INLINE_LAMBDA {
                return _mm512_castsi512_ps(join(fetch_four<k_entries>(table, at + k_entries * n + p),
                                                fetch_four<k_entries>(table, at + k_entries * (n + 8) + p)));
            };
            const __m512 a = eight(0);
            const __m512 b = eight(2);
            half[2 * p].v = _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88));
            half[2 * p + 1].v = _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xDD));
        }
    }
    template <typename T>
    static void keep_in_memory(T& indices) {
        asm("" : "+m"(indices));
    }

    // Keeps `a` in a register from here on. The compiler does not change the order of these calls.
    static void keep_in_register(Int& a) { asm volatile("" : "+v"(a.v)); }

    // ---- floats ----
    static Float zero() { return {_mm512_setzero_ps()}; }
    static Float all(float value) { return {_mm512_set1_ps(value)}; }
    static Float add(Float a, Float b) { return {_mm512_add_ps(a.v, b.v)}; }
    static Float mul(Float a, Float b) { return {_mm512_mul_ps(a.v, b.v)}; }
    static Float fma(Float a, Float b, Float c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
    static Float to_float(Int a) { return {_mm512_cvtepi32_ps(a.v)}; }
    static Float as_float(Int bits) { return {_mm512_castsi512_ps(bits.v)}; }
    static Float f16_of(Int bits) { return {_mm512_cvtph_ps(_mm512_cvtepi32_epi16(bits.v))}; }
    static Float choose_below(Int x, int32_t limit, Float below, Float others) {
        const __mmask16 is_below = _mm512_cmplt_epi32_mask(x.v, _mm512_set1_epi32(limit));
        return {_mm512_mask_blend_ps(is_below, others.v, below.v)};
    }

    // ---- integers of 32 bits ----
    static Int all(int32_t value) { return {_mm512_set1_epi32(value)}; }
    template <int n>
    static Int shift_left(Int a) {
        return {_mm512_slli_epi32(a.v, n)};
    }
    template <int n>
    static Int shift_right(Int a) {
        return {_mm512_srli_epi32(a.v, n)};
    }
    static Int shift_right(Int a, int n) { return {_mm512_srl_epi32(a.v, _mm_cvtsi32_si128(n))}; }
    template <int n>
    static Int shift_right_signed(Int a) {
        return {_mm512_srai_epi32(a.v, n)};
    }
    static Int bit_and(Int a, Int b) { return {_mm512_and_si512(a.v, b.v)}; }
    static Int bit_or(Int a, Int b) { return {_mm512_or_si512(a.v, b.v)}; }
    static Int bit_xor(Int a, Int b) { return {_mm512_xor_si512(a.v, b.v)}; }
    static Int add(Int a, Int b) { return {_mm512_add_epi32(a.v, b.v)}; }
    static Int sub(Int a, Int b) { return {_mm512_sub_epi32(a.v, b.v)}; }
    static Int mul(Int a, Int b) { return {_mm512_mullo_epi32(a.v, b.v)}; }
    static Int settled(Int a) { return a; }

    // ---- four bytes per lane ----
    static Int add_bytes(Int a, Int b) { return {_mm512_add_epi8(a.v, b.v)}; }
    static Table table(const int8_t* values) {
        return {_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)))};
    }
    static Table wide_table(const int8_t* values) { return {wide({table(values).v}).v}; }
    static Int look_up(Table t, Int index) { return {_mm512_shuffle_epi8(t.v, index.v)}; }
    template <int a, int b, int c, int d>
    static Int shuffle_bytes(Int x) {
        const __m128i order = _mm_setr_epi8(a, b, c, d, a + 4, b + 4, c + 4, d + 4, a + 8, b + 8, c + 8,
                                            d + 8, a + 12, b + 12, c + 12, d + 12);
        return {_mm512_shuffle_epi8(x.v, _mm512_broadcast_i32x4(order))};
    }
    template <int first>
    static Mask bits_mask(Int word) {
        constexpr int k_byte = first / 8;
        constexpr uint32_t k_bits = 0x08040201U << (first % 8);
        return {_mm512_test_epi8_mask(shuffle_bytes<k_byte, k_byte, k_byte, k_byte>(word).v,
                                      _mm512_set1_epi32(static_cast<int32_t>(k_bits)))};
    }
    template <int bit>
    static Mask plane_mask(Int bytes) {
        return {_mm512_test_epi8_mask(bytes.v, _mm512_set1_epi8(static_cast<char>(1 << bit)))};
    }
    static Int negate_bytes(Int a, Mask where) {
        return {_mm512_mask_sub_epi8(a.v, where.v, _mm512_setzero_si512(), a.v)};
    }
    static Int abs_bytes(Int a) { return {_mm512_abs_epi8(a.v)}; }
    static Int choose_bytes(Mask where, Int chosen, Int others) {
        return {_mm512_mask_blend_epi8(where.v, others.v, chosen.v)};
    }
    template <int bit>
    static Int choose_by_bit(Int plane, Int chosen, Int others) {
        return choose_bytes(plane_mask<bit>(plane), chosen, others);
    }
    static Int or_bytes(Int a, Mask where, int value) {
        // There is no masked `or` of bytes. An addition gives the same result, because the bits are clear.
        return {_mm512_mask_add_epi8(a.v, where.v, a.v, _mm512_set1_epi8(static_cast<char>(value)))};
    }

    // ---- dots of four bytes per lane ----
    static Int wide(Int signed_bytes) {
        return {_mm512_xor_si512(signed_bytes.v, _mm512_set1_epi8(static_cast<char>(0x80)))};
    }
    static Int broadcast_codes(const int8_t* codes) {
        int32_t four;
        memcpy(&four, codes, sizeof(four));
        return {_mm512_set1_epi32(four)};
    }
    static MINIM_KERNEL_INLINE Int dot_halves(Int halves, const int16_t* pair) {
        int32_t both;
        memcpy(&both, pair, sizeof(both));
        return {_mm512_madd_epi16(halves.v, _mm512_set1_epi32(both))};
    }
    template <int n, int n_tokens>
    static MINIM_KERNEL_INLINE void dot_wide(Int* sum, const Int* weight, const int8_t* const* code) {
        for (int k = 0; k < n; ++k) {
            for (int t = 0; t < n_tokens; ++t) {
                sum[t].v = _mm512_dpbusd_epi32(sum[t].v, weight[k].v, broadcast_codes(code[t] + 4 * k).v);
            }
        }
    }
    template <int n, int largest, int n_tokens>
    static MINIM_KERNEL_INLINE void dot_small(Int* sum, const Int* weight, const int8_t* const* code) {
        dot_wide<n, n_tokens>(sum, weight, code);
    }
    // sum[s][t] += weight[s] . code[t] of n vectors of codes, 64 bytes each. Each code is loaded once for all strips. If registers
    // are free, a sum is split in two, to hide latency (two products start each cycle, each takes four). Signed weights are made
    // wide first.
    template <int n, int /*largest*/, bool signed_weights, int n_strips, int n_tokens>
    static MINIM_KERNEL_INLINE void dot_strips(Int (&sum)[n_strips][n_tokens],
                                               const std::byte* const (&weight)[n_strips],
                                               const int8_t* const (&code)[n_tokens]) {
        constexpr int k_chains = n == 8 && n_strips * n_tokens <= 8 ? 2 : 1;
        Int other[n_strips][n_tokens];
        if constexpr (k_chains == 2) {
            for (auto& of_strip : other) {
                for (Int& one : of_strip) one = all(0);
            }
        }
#pragma GCC unroll 8
        for (int k = 0; k < n; ++k) {
            Int w[n_strips];
            for (int s = 0; s < n_strips; ++s) {
                w[s] = load(weight[s] + 64 * k);
                if constexpr (signed_weights) w[s] = wide(w[s]);
            }
            auto& to = k_chains == 2 && k % 2 == 1 ? other : sum;
            for (int t = 0; t < n_tokens; ++t) {
                const Int four = broadcast_codes(code[t] + 4 * k);
                for (int s = 0; s < n_strips; ++s)
                    to[s][t].v = _mm512_dpbusd_epi32(to[s][t].v, w[s].v, four.v);
            }
        }
        if constexpr (k_chains == 2) {
            for (int s = 0; s < n_strips; ++s) {
                for (int t = 0; t < n_tokens; ++t) sum[s][t] = add(sum[s][t], other[s][t]);
            }
        }
    }

  private:
    template <int stride, typename Index>
    static MINIM_KERNEL_INLINE __m128i fetch_four(const uint32_t* table, const Index* at) {
        __m128i four = _mm_loadu_si32(table + at[0]);
        four = _mm_mask_broadcastd_epi32(four, 2, _mm_loadu_si32(table + at[stride]));
        four = _mm_mask_broadcastd_epi32(four, 4, _mm_loadu_si32(table + at[2 * stride]));
        return _mm_mask_broadcastd_epi32(four, 8, _mm_loadu_si32(table + at[3 * stride]));
    }
    // Returns the codebook entries of lanes 0, 1, 4 and 5, from index `at` on.
    template <int stride, typename Index>
    static MINIM_KERNEL_INLINE __m256i fetch_four(const uint64_t* table, const Index* at) {
        __m256i four = _mm256_castsi128_si256(_mm_loadu_si64(table + at[0]));
        four = _mm256_mask_broadcastq_epi64(four, 2, _mm_loadu_si64(table + at[stride]));
        four = _mm256_mask_broadcastq_epi64(four, 4, _mm_loadu_si64(table + at[4 * stride]));
        return _mm256_mask_broadcastq_epi64(four, 8, _mm_loadu_si64(table + at[5 * stride]));
    }
    static MINIM_KERNEL_INLINE __m256i join(__m128i low, __m128i high) {
        return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
    }
    static MINIM_KERNEL_INLINE __m512i join(__m256i low, __m256i high) {
        return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    }
};

using Lanes = LanesOf<Plain>;

}  // namespace minim::cpu::avx512
