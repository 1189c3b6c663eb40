// SPDX-License-Identifier: Apache-2.0
// The lane vocabulary of scalar/lanes.h in AVX2, FMA and F16C: 8 lanes are one register. It is a template so that files
// compiled for further instruction sets get functions of their own, which the linker does not merge with these.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/q8_block.h"
#include "panel/kernel_inline.h"

namespace minim::cpu::avx2 {

struct Plain {};

template <class Level>
struct LanesOf {
    struct Int {
        __m256i v;
    };
    struct Float {
        __m256 v;
    };
    // Chosen bytes are all ones.
    struct Mask {
        __m256i v;
    };
    struct Table {
        __m256i v;  // the 16 bytes, twice
    };

    static constexpr int k_width = 8;
    static constexpr int k_tile_strips = 2;
    static constexpr int k_token_tile = 3;
    static constexpr int k_few_tokens = 4;
    // vpmaddubsw multiplies unsigned by signed bytes: 128 is added to signed weights.
    static constexpr int k_wide_offset = k_unsigned_offset;

    // ---- memory ----
    static Int load(const std::byte* p) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))}; }
    static Int load_u16(const std::byte* p) {
        return {_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
    }
    static Int load_u8(const std::byte* p) {
        return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))};
    }
    static Float load_f16(const std::byte* p) {
        return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
    }
    static Float load_f32(const float* p) { return {_mm256_loadu_ps(p)}; }
    static void store(std::byte* p, Int a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.v); }
    static void store(float* p, Float a) { _mm256_storeu_ps(p, a.v); }
    // One load for each lane instead of a gather: on CPUs with the mitigation against data sampling a gather takes more than 20
    // cycles, and on others it is hardly faster. Loads are the bottleneck, so the indices of two lanes are read with
    // one load.
    template <typename Index>
    static MINIM_KERNEL_INLINE void fetch(const uint32_t* table, const Index* at, Int* point) {
        constexpr int k_entries = 4 / sizeof(Index);
        __m128i half[2][k_entries];
        for (int h = 0; h < 2; ++h) {
            Indices<Index> a(at + 4 * k_entries * h);
            for (int p = 0; p < k_entries; ++p) half[h][p] = _mm_loadu_si32(table + a.next());
            for (int p = 0; p < k_entries; ++p)
                half[h][p] = _mm_insert_epi32(half[h][p], static_cast<int>(table[a.next()]), 1);
            Indices<Index> b(at + 4 * k_entries * h + 2 * k_entries);
            for (int p = 0; p < k_entries; ++p)
                half[h][p] = _mm_insert_epi32(half[h][p], static_cast<int>(table[b.next()]), 2);
            for (int p = 0; p < k_entries; ++p)
                half[h][p] = _mm_insert_epi32(half[h][p], static_cast<int>(table[b.next()]), 3);
        }
        for (int p = 0; p < k_entries; ++p) point[p].v = join(half[0][p], half[1][p]);
    }
    template <typename Index>
    static MINIM_KERNEL_INLINE void fetch(const uint64_t* table, const Index* at, Int* half) {
        constexpr int k_entries = 4 / sizeof(Index);
        __m128d two[4][k_entries];  // lanes 0 and 1, and so on
        for (int i = 0; i < 4; ++i) {
            Indices<Index> a(at + 2 * k_entries * i);
            for (int p = 0; p < k_entries; ++p)
                two[i][p] = _mm_load_sd(reinterpret_cast<const double*>(table + a.next()));
            for (int p = 0; p < k_entries; ++p)
                two[i][p] = _mm_loadh_pd(two[i][p], reinterpret_cast<const double*>(table + a.next()));
        }
        for (int p = 0; p < k_entries; ++p) {
            part(join(two[0][p], two[2][p]), join(two[1][p], two[3][p]), half[2 * p], half[2 * p + 1]);
        }
    }
    template <typename T>
    static void keep_in_memory(T& indices) {
        asm("" : "+m"(indices));
    }

    // ---- floats ----
    static Float zero() { return {_mm256_setzero_ps()}; }
    static Float all(float value) { return {_mm256_set1_ps(value)}; }
    static Float add(Float a, Float b) { return {_mm256_add_ps(a.v, b.v)}; }
    static Float mul(Float a, Float b) { return {_mm256_mul_ps(a.v, b.v)}; }
    static Float fma(Float a, Float b, Float c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
    static Float to_float(Int a) { return {_mm256_cvtepi32_ps(a.v)}; }
    static Float as_float(Int bits) { return {_mm256_castsi256_ps(bits.v)}; }
    static Float f16_of(Int bits) {
        const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(bits.v, bits.v), 0x08);
        return {_mm256_cvtph_ps(_mm256_castsi256_si128(packed))};
    }
    static Float choose_below(Int x, int32_t limit, Float below, Float others) {
        const __m256i is_below = _mm256_cmpgt_epi32(_mm256_set1_epi32(limit), x.v);
        return {_mm256_blendv_ps(others.v, below.v, _mm256_castsi256_ps(is_below))};
    }

    // ---- integers of 32 bits ----
    static Int all(int32_t value) { return {_mm256_set1_epi32(value)}; }
    template <int n>
    static Int shift_left(Int a) {
        return {_mm256_slli_epi32(a.v, n)};
    }
    template <int n>
    static Int shift_right(Int a) {
        return {_mm256_srli_epi32(a.v, n)};
    }
    static Int shift_right(Int a, int n) { return {_mm256_srl_epi32(a.v, _mm_cvtsi32_si128(n))}; }
    template <int n>
    static Int shift_right_signed(Int a) {
        return {_mm256_srai_epi32(a.v, n)};
    }
    static Int bit_and(Int a, Int b) { return {_mm256_and_si256(a.v, b.v)}; }
    static Int bit_or(Int a, Int b) { return {_mm256_or_si256(a.v, b.v)}; }
    static Int bit_xor(Int a, Int b) { return {_mm256_xor_si256(a.v, b.v)}; }
    static Int add(Int a, Int b) { return {_mm256_add_epi32(a.v, b.v)}; }
    static Int sub(Int a, Int b) { return {_mm256_sub_epi32(a.v, b.v)}; }
    static Int mul(Int a, Int b) { return {_mm256_mullo_epi32(a.v, b.v)}; }
    static MINIM_KERNEL_INLINE Int settled(Int a) {
        asm volatile("" : "+x"(a.v));
        return a;
    }

    // ---- four bytes per lane ----
    static Int add_bytes(Int a, Int b) { return {_mm256_add_epi8(a.v, b.v)}; }
    static Table table(const int8_t* values) {
        return {_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)))};
    }
    static Table wide_table(const int8_t* values) { return {wide({table(values).v}).v}; }
    static Int look_up(Table t, Int index) { return {_mm256_shuffle_epi8(t.v, index.v)}; }
    template <int a, int b, int c, int d>
    static Int shuffle_bytes(Int x) {
        const __m128i order = _mm_setr_epi8(a, b, c, d, a + 4, b + 4, c + 4, d + 4, a + 8, b + 8, c + 8,
                                            d + 8, a + 12, b + 12, c + 12, d + 12);
        return {_mm256_shuffle_epi8(x.v, _mm256_broadcastsi128_si256(order))};
    }
    template <int first>
    static Mask bits_mask(Int word) {
        constexpr int k_byte = first / 8;
        constexpr uint32_t k_bits = 0x08040201U << (first % 8);
        const __m256i bits = _mm256_set1_epi32(static_cast<int32_t>(k_bits));
        const __m256i spread = shuffle_bytes<k_byte, k_byte, k_byte, k_byte>(word).v;
        return {_mm256_cmpeq_epi8(_mm256_and_si256(spread, bits), bits)};
    }
    template <int bit>
    static Mask plane_mask(Int bytes) {
        const __m256i one = _mm256_set1_epi8(static_cast<char>(1 << bit));
        return {_mm256_cmpeq_epi8(_mm256_and_si256(bytes.v, one), one)};
    }
    static Int negate_bytes(Int a, Mask where) {
        return {_mm256_sub_epi8(_mm256_xor_si256(a.v, where.v), where.v)};
    }
    static Int abs_bytes(Int a) { return {_mm256_abs_epi8(a.v)}; }
    template <int bit>
    static Int choose_by_bit(Int plane, Int chosen, Int others) {
        // vpblendvb uses only bit 7 of a byte: the bits that a shift moves into the others do not matter.
        return {_mm256_blendv_epi8(others.v, chosen.v, _mm256_slli_epi16(plane.v, 7 - bit))};
    }
    static Int or_bytes(Int a, Mask where, int value) {
        return {_mm256_or_si256(a.v, _mm256_and_si256(where.v, _mm256_set1_epi8(static_cast<char>(value))))};
    }

    // ---- dots of four bytes per lane ----
    static Int wide(Int signed_bytes) {
        return {_mm256_xor_si256(signed_bytes.v, _mm256_set1_epi8(static_cast<char>(0x80)))};
    }
    static Int broadcast_codes(const int8_t* codes) {
        int32_t four;
        memcpy(&four, codes, sizeof(four));
        return {_mm256_set1_epi32(four)};
    }
    static MINIM_KERNEL_INLINE Int dot_halves(Int halves, const int16_t* pair) {
        return {_mm256_madd_epi16(halves.v, _mm256_broadcastd_epi32(_mm_loadu_si32(pair)))};
    }
    template <int n, int largest, int n_tokens>
    static MINIM_KERNEL_INLINE void dot_small(Int* sum, const Int* weight, const int8_t* const* code) {
        constexpr int k_run = run_of(n, largest);
        const __m256i one = _mm256_set1_epi16(1);
        for (int k = 0; k < n; k += k_run) {
            for (int t = 0; t < n_tokens; ++t) {
                __m256i pairs = _mm256_maddubs_epi16(weight[k].v, broadcast_codes(code[t] + 4 * k).v);
                for (int i = k + 1; i < k + k_run && i < n; ++i) {
                    pairs = _mm256_add_epi16(
                        pairs, _mm256_maddubs_epi16(weight[i].v, broadcast_codes(code[t] + 4 * i).v));
                }
                sum[t].v = _mm256_add_epi32(sum[t].v, _mm256_madd_epi16(pairs, one));
                // Without this, GCC may delay additions until the end of the block and keep all addends on the stack.
                asm("" : "+x"(sum[t].v));
            }
        }
    }
    template <int n, int n_tokens>
    static MINIM_KERNEL_INLINE void dot_wide(Int* sum, const Int* weight, const int8_t* const* code) {
        dot_small<n, 255, n_tokens>(sum, weight, code);
    }
    // sum[s][t] += weight[s] . code[t] of n vectors of codes. Each code is loaded once for all strips, because loads are the
    // bottleneck of dot_small(). Signed weights are made wide first.
    template <int n, int largest, bool signed_weights, int n_strips, int n_tokens>
    static MINIM_KERNEL_INLINE void dot_strips(Int (&sum)[n_strips][n_tokens],
                                               const std::byte* const (&weight)[n_strips],
                                               const int8_t* const (&code)[n_tokens]) {
        constexpr int k_run = run_of(n, largest);
        const __m256i one = _mm256_set1_epi16(1);
        __m256i pairs[n_strips][n_tokens] = {};
#pragma GCC unroll 8
        for (int k = 0; k < n; ++k) {
            const auto w = load_strips<signed_weights>(weight, k);
            for (int t = 0; t < n_tokens; ++t) {
                const Int four = load_codes(code[t] + 4 * k);
                for (int s = 0; s < n_strips; ++s) {
                    __m256i& p = pairs[s][t];
                    const __m256i products = _mm256_maddubs_epi16(w.strip[s].v, four.v);
                    p = k % k_run == 0 ? products : _mm256_add_epi16(p, products);
                    if (k % k_run == k_run - 1 || k == n - 1)
                        sum[s][t].v = _mm256_add_epi32(sum[s][t].v, _mm256_madd_epi16(p, one));
                    asm volatile("" : "+x"(p), "+x"(sum[s][t].v));
                }
            }
        }
    }

  protected:
    // Weights and codes of several products. Without the asm statements, GCC would load them again for each product.
    template <int n_strips>
    struct Strips {
        Int strip[n_strips];
    };
    template <bool signed_weights, int n_strips>
    static MINIM_KERNEL_INLINE Strips<n_strips> load_strips(const std::byte* const (&weight)[n_strips],
                                                            int k) {
        Strips<n_strips> strips;
        for (int s = 0; s < n_strips; ++s) {
            strips.strip[s] = load(weight[s] + 64 * k);  // 64 bytes apart, in scratch and in panels
            if constexpr (signed_weights) strips.strip[s] = wide(strips.strip[s]);
            asm volatile("" : "+x"(strips.strip[s].v));
        }
        return strips;
    }
    static MINIM_KERNEL_INLINE Int load_codes(const int8_t* codes) {
        Int four = broadcast_codes(codes);
        asm volatile("" : "+x"(four.v));
        return four;
    }

  private:
    // Returns how many of n pairs of products can be added in 16 bits: a pair is at most 128 * largest, because two
    // neighbouring codes add up to at most 128 (quantize.h).
    static constexpr int run_of(int n, int largest) {
        const int room = 32767 / (128 * largest);
        return room < n ? room : n;
    }
    // Returns the indices in eight bytes one after the other, the lowest first.
    template <typename Index>
    struct Indices {
        uint64_t word;
        MINIM_KERNEL_INLINE explicit Indices(const Index* at) {
            memcpy(&word, at, sizeof(word));
            asm("" : "+Q"(word));  // else the compiler would load each index separately
        }
        MINIM_KERNEL_INLINE Index next() {
            const auto index = static_cast<Index>(word);
            word >>= 8 * sizeof(Index);
            return index;
        }
    };
    static MINIM_KERNEL_INLINE __m256i join(__m128i low, __m128i high) {
        return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
    }
    static MINIM_KERNEL_INLINE __m256 join(__m128d low, __m128d high) {
        return _mm256_castpd_ps(_mm256_insertf128_pd(_mm256_castpd128_pd256(low), high, 1));
    }
    // Separates the low and the high halves of eight 64-bit numbers: numbers 0, 1, 4 and 5 are in `a`, the others in `b`.
    static MINIM_KERNEL_INLINE void part(__m256 a, __m256 b, Int& low, Int& high) {
        low.v = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88));
        high.v = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xDD));
    }
};

using Lanes = LanesOf<Plain>;

}  // namespace minim::cpu::avx2
