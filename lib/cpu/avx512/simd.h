// SPDX-License-Identifier: Apache-2.0
// The vector vocabulary of scalar/simd.h in AVX-512 (F, BW, DQ, VL, VNNI): 16 lanes are one register.
#pragma once

// GCC 12 starts its intrinsics from a register left undefined on purpose and warns wherever they are inlined.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace minim::cpu::avx512 {

struct F32x16 {
    __m512 v;
};

struct Simd {
    using F32 = F32x16;

    // Register tiles of products of floats and of FP8 (generic/float_tiles.h).
    static constexpr int k_float_rows = 4, k_float_tokens = 4, k_half_rows_of_one = 1;
    static constexpr int k_fp8_rows = 4, k_fp8_tokens = 4;

    // ---- floats: memory ----
    static F32 zero() { return {_mm512_setzero_ps()}; }
    static F32 all(float value) { return {_mm512_set1_ps(value)}; }
    static F32 load_f32(const std::byte* p) { return {_mm512_loadu_ps(p)}; }
    static F32 load_f16(const std::byte* p) { return {_mm512_cvtph_ps(load_32(p))}; }
    static float load_one_f16(const std::byte* p) {
        uint16_t bits;
        memcpy(&bits, p, sizeof(bits));
        return _cvtsh_ss(bits);
    }
    static F32 load_i8(const std::byte* p) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
        return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
    }
    static void load_e4m3_by_256(const std::byte* p, F32* w) {
        const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
        w[0] = widen_e4m3(_mm256_slli_epi16(pairs, 8));
        w[1] = widen_e4m3(pairs);
    }
    static F32 load_i4(const std::byte* p, bool upper) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
        const __m128i halves = _mm_and_si128(upper ? _mm_srli_epi16(bytes, 4) : bytes, _mm_set1_epi8(15));
        return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_sub_epi8(halves, _mm_set1_epi8(8))))};
    }
    static F32 load_bf16(const std::byte* p) {
        return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_32(p)), 16))};
    }
    static void store(float* p, F32 a) { _mm512_storeu_ps(p, a.v); }
    static void store_f16(std::byte* p, F32 a) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a.v, k_nearest));
    }
    static int32_t store_i8(int8_t* p, F32 a) {
        const __m128i bytes = _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(a.v));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
        return sum_of_bytes(bytes);
    }
    static void store_i16(int16_t* p, F32 a) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_cvttps_epi32(a.v)));
    }

    // ---- floats: arithmetic ----
    static F32 add(F32 a, F32 b) { return {_mm512_add_ps(a.v, b.v)}; }
    static F32 sub(F32 a, F32 b) { return {_mm512_sub_ps(a.v, b.v)}; }
    static F32 mul(F32 a, F32 b) { return {_mm512_mul_ps(a.v, b.v)}; }
    static F32 div(F32 a, F32 b) { return {_mm512_div_ps(a.v, b.v)}; }
    static F32 fma(F32 a, F32 b, F32 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
    static F32 max(F32 a, F32 b) { return {_mm512_max_ps(a.v, b.v)}; }
    static F32 min(F32 a, F32 b) { return {_mm512_min_ps(a.v, b.v)}; }
    static F32 max_magnitude(F32 a, F32 b) {
        return {_mm512_castsi512_ps(_mm512_max_epi32(magnitude(a.v), magnitude(b.v)))};
    }
    static float largest_magnitude(F32 a) {
        const __m512i bits = _mm512_castps_si512(a.v);
        const __m256i eight =
            _mm256_max_epi32(_mm512_castsi512_si256(bits), _mm512_extracti64x4_epi64(bits, 1));
        const __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
        const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4E));
        const __m128i one = _mm_max_epi32(two, _mm_shuffle_epi32(two, 0xB1));
        return _mm_cvtss_f32(_mm_castsi128_ps(one));
    }
    static F32 swap_neighbours(F32 a) { return {_mm512_permute_ps(a.v, 0xB1)}; }
    static F32 copy_sign(F32 size, F32 sign) {
        const __m512 mask = _mm512_set1_ps(-0.0F);
        return {_mm512_or_ps(_mm512_andnot_ps(mask, size.v), _mm512_and_ps(mask, sign.v))};
    }
    static F32 power_of_two(F32 n) {
        const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127));
        return {_mm512_castsi512_ps(_mm512_slli_epi32(biased, 23))};
    }
    static float sum(F32 a) {
        const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
        const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
        const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
    }

    // ---- scores of attention ----
    using Quads = F32x16;
    static constexpr int k_quads = 4, k_score_queries = 6;
    static void quads_of(const F32 (&row)[4], Quads (&out)[4]) {
        const __m512 low01 = _mm512_shuffle_f32x4(row[0].v, row[1].v, 0x44);
        const __m512 low23 = _mm512_shuffle_f32x4(row[2].v, row[3].v, 0x44);
        const __m512 high01 = _mm512_shuffle_f32x4(row[0].v, row[1].v, 0xEE);
        const __m512 high23 = _mm512_shuffle_f32x4(row[2].v, row[3].v, 0xEE);
        out[0] = {_mm512_shuffle_f32x4(low01, low23, 0x88)};
        out[1] = {_mm512_shuffle_f32x4(low01, low23, 0xDD)};
        out[2] = {_mm512_shuffle_f32x4(high01, high23, 0x88)};
        out[3] = {_mm512_shuffle_f32x4(high01, high23, 0xDD)};
    }
    static Quads zero_quads() { return zero(); }
    static Quads all_quads(const float* four) { return {_mm512_broadcast_f32x4(_mm_loadu_ps(four))}; }
    static Quads load_quads(const float* p) { return {_mm512_loadu_ps(p)}; }
    static void store_quads(float* p, Quads a) { store(p, a); }
    static Quads fma_quads(Quads a, Quads b, Quads c) { return fma(a, b, c); }
    static Quads scale_quads(Quads a, float factor) { return mul(a, all(factor)); }
    static Quads sum_quads(Quads a, Quads b, Quads c, Quads d) {
        const __m512 ab = _mm512_add_ps(_mm512_shuffle_ps(a.v, b.v, 0x44), _mm512_shuffle_ps(a.v, b.v, 0xEE));
        const __m512 cd = _mm512_add_ps(_mm512_shuffle_ps(c.v, d.v, 0x44), _mm512_shuffle_ps(c.v, d.v, 0xEE));
        return {_mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x88), _mm512_shuffle_ps(ab, cd, 0xDD))};
    }

    // ---- scores of keys that are codes ----
    struct IntQuads {
        __m512i v;
    };
    static constexpr int k_code_queries = 3;
    static IntQuads load_code_quads(const std::byte* const (&row)[4]) {
        __m512i all = _mm512_castsi128_si512(load_16(row[0]));
        all = _mm512_inserti32x4(all, load_16(row[1]), 1);
        all = _mm512_inserti32x4(all, load_16(row[2]), 2);
        return {_mm512_inserti32x4(all, load_16(row[3]), 3)};
    }
    static IntQuads nibbles_less_8(IntQuads a, bool upper) {
        const __m512i halves =
            _mm512_and_si512(upper ? _mm512_srli_epi16(a.v, 4) : a.v, _mm512_set1_epi8(15));
        return {_mm512_sub_epi8(halves, _mm512_set1_epi8(8))};
    }
    static IntQuads even_words(IntQuads a) { return {_mm512_srai_epi16(_mm512_slli_epi16(a.v, 8), 8)}; }
    static IntQuads odd_words(IntQuads a) { return {_mm512_srai_epi16(a.v, 8)}; }
    static IntQuads load_quads(const int16_t* p) { return {_mm512_loadu_si512(p)}; }
    static void store_quads(int16_t* p, IntQuads a) { _mm512_storeu_si512(p, a.v); }
    static IntQuads all_quads(const int16_t* eight) {
        return {_mm512_broadcast_i32x4(load_16(reinterpret_cast<const std::byte*>(eight)))};
    }
    static IntQuads dot_words(IntQuads a, IntQuads b) { return {_mm512_madd_epi16(a.v, b.v)}; }
    static IntQuads add_dot_words(IntQuads sum, IntQuads a, IntQuads b) {
        return {_mm512_dpwssd_epi32(sum.v, a.v, b.v)};
    }
    static Quads to_float(IntQuads a) { return {_mm512_cvtepi32_ps(a.v)}; }
    static void spread_quads(const float* scale, Quads (&out)[4]) {
        const __m512 all = _mm512_loadu_ps(scale);
        out[0] = {_mm512_permute_ps(all, 0x00)};
        out[1] = {_mm512_permute_ps(all, 0x55)};
        out[2] = {_mm512_permute_ps(all, 0xAA)};
        out[3] = {_mm512_permute_ps(all, 0xFF)};
    }

    static constexpr int k_value_vectors = 4;  // vectors of columns whose values are summed together

  private:
    // Returns the sum of 16 signed bytes: each is made unsigned by adding 128.
    static int32_t sum_of_bytes(__m128i bytes) {
        const __m128i moved = _mm_xor_si128(bytes, _mm_set1_epi8(static_cast<char>(0x80)));
        const __m128i halves = _mm_sad_epu8(moved, _mm_setzero_si128());
        return _mm_cvtsi128_si32(halves) + _mm_extract_epi16(halves, 4) - 16 * 128;
    }
    // As in avx2/simd.h.
    static F32 widen_e4m3(__m256i words) {
        const __m256i mask = _mm256_set1_epi16(static_cast<int16_t>(0xBF80));
        return {_mm512_cvtph_ps(_mm256_and_si256(_mm256_srai_epi16(words, 1), mask))};
    }
    static constexpr int k_nearest = _MM_FROUND_TO_NEAREST_INT;

    static __m512i magnitude(__m512 a) {
        return _mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7FFFFFFF));
    }
    static __m128i load_16(const std::byte* p) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    }
    static __m256i load_32(const std::byte* p) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    }
};

}  // namespace minim::cpu::avx512
