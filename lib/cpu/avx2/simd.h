// SPDX-License-Identifier: Apache-2.0
// The vector vocabulary of scalar/simd.h in AVX2, FMA and F16C: 16 lanes are two registers.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace minim::cpu::avx2 {

struct F32x16 {
    __m256 low, high;
};

struct Simd {
    using F32 = F32x16;

    // Register tiles of products of floats and of FP8 (generic/float_tiles.h).
    static constexpr int k_float_rows = 2, k_float_tokens = 2, k_half_rows_of_one = 2;
    static constexpr int k_fp8_rows = 1, k_fp8_tokens = 4;

    // ---- floats: memory ----
    static F32 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
    static F32 all(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
    static F32 load_f32(const std::byte* p) {
        const auto* f = reinterpret_cast<const float*>(p);
        return {_mm256_loadu_ps(f), _mm256_loadu_ps(f + 8)};
    }
    static F32 load_f16(const std::byte* p) {
        return {_mm256_cvtph_ps(load_16(p)), _mm256_cvtph_ps(load_16(p + 16))};
    }
    static float load_one_f16(const std::byte* p) {
        uint16_t bits;
        memcpy(&bits, p, sizeof(bits));
        return _cvtsh_ss(bits);
    }
    static F32 load_i8(const std::byte* p) {
        const __m128i bytes = load_16(p);
        return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
    }
    static void load_e4m3_by_256(const std::byte* p, F32* w) {
        const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
        w[0] = widen_e4m3(_mm256_slli_epi16(pairs, 8));
        w[1] = widen_e4m3(pairs);
    }
    static F32 load_i4(const std::byte* p, bool upper) {
        const __m128i bytes = load_16(p);
        const __m128i halves = _mm_and_si128(upper ? _mm_srli_epi16(bytes, 4) : bytes, _mm_set1_epi8(15));
        const __m128i codes = _mm_sub_epi8(halves, _mm_set1_epi8(8));
        return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)),
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(codes, 8)))};
    }
    static F32 load_bf16(const std::byte* p) { return {widen_bf16(load_16(p)), widen_bf16(load_16(p + 16))}; }
    static void store(float* p, F32 a) {
        _mm256_storeu_ps(p, a.low);
        _mm256_storeu_ps(p + 8, a.high);
    }
    static void store_f16(std::byte* p, F32 a) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.low, k_nearest));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 16), _mm256_cvtps_ph(a.high, k_nearest));
    }
    static int32_t store_i8(int8_t* p, F32 a) {
        // Packing works within 128 bits: words come out as 0-3, 8-11, 4-7, 12-15 and are put in order before
        // the bytes.
        const __m256i words = _mm256_packs_epi32(_mm256_cvttps_epi32(a.low), _mm256_cvttps_epi32(a.high));
        const __m256i ordered = _mm256_permute4x64_epi64(words, 0xD8);
        const __m128i bytes =
            _mm_packs_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
        return sum_of_bytes(bytes);
    }
    static void store_i16(int16_t* p, F32 a) {
        const __m256i words = _mm256_packs_epi32(_mm256_cvttps_epi32(a.low), _mm256_cvttps_epi32(a.high));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(words, 0xD8));
    }

    // ---- floats: arithmetic ----
    static F32 add(F32 a, F32 b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
    static F32 sub(F32 a, F32 b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
    static F32 mul(F32 a, F32 b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
    static F32 div(F32 a, F32 b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
    static F32 fma(F32 a, F32 b, F32 c) {
        return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
    }
    static F32 max(F32 a, F32 b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
    static F32 min(F32 a, F32 b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
    static F32 max_magnitude(F32 a, F32 b) {
        return {larger_bits(a.low, b.low), larger_bits(a.high, b.high)};
    }
    static float largest_magnitude(F32 a) {
        const __m256i eight = _mm256_max_epi32(_mm256_castps_si256(a.low), _mm256_castps_si256(a.high));
        const __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
        const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4E));
        const __m128i one = _mm_max_epi32(two, _mm_shuffle_epi32(two, 0xB1));
        return _mm_cvtss_f32(_mm_castsi128_ps(one));
    }
    static F32 swap_neighbours(F32 a) {
        return {_mm256_permute_ps(a.low, 0xB1), _mm256_permute_ps(a.high, 0xB1)};
    }
    static F32 copy_sign(F32 magnitude, F32 sign) {
        return {with_sign(magnitude.low, sign.low), with_sign(magnitude.high, sign.high)};
    }
    static F32 power_of_two(F32 n) { return {exponent(n.low), exponent(n.high)}; }
    static float sum(F32 a) {
        const __m256 eight = _mm256_add_ps(a.low, a.high);
        const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
        const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
    }

    // ---- scores of attention ----
    struct Quads {
        __m256 v;
    };
    static constexpr int k_quads = 2, k_score_queries = 3;
    static void quads_of(const F32 (&row)[2], Quads (&out)[4]) {
        out[0] = {_mm256_permute2f128_ps(row[0].low, row[1].low, 0x20)};
        out[1] = {_mm256_permute2f128_ps(row[0].low, row[1].low, 0x31)};
        out[2] = {_mm256_permute2f128_ps(row[0].high, row[1].high, 0x20)};
        out[3] = {_mm256_permute2f128_ps(row[0].high, row[1].high, 0x31)};
    }
    static Quads zero_quads() { return {_mm256_setzero_ps()}; }
    static Quads all_quads(const float* four) {
        return {_mm256_broadcast_ps(reinterpret_cast<const __m128*>(four))};
    }
    static Quads load_quads(const float* p) { return {_mm256_loadu_ps(p)}; }
    static void store_quads(float* p, Quads a) { _mm256_storeu_ps(p, a.v); }
    static Quads fma_quads(Quads a, Quads b, Quads c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
    static Quads scale_quads(Quads a, float factor) { return {_mm256_mul_ps(a.v, _mm256_set1_ps(factor))}; }
    static Quads sum_quads(Quads a, Quads b, Quads c, Quads d) {
        const __m256 ab = _mm256_add_ps(_mm256_shuffle_ps(a.v, b.v, 0x44), _mm256_shuffle_ps(a.v, b.v, 0xEE));
        const __m256 cd = _mm256_add_ps(_mm256_shuffle_ps(c.v, d.v, 0x44), _mm256_shuffle_ps(c.v, d.v, 0xEE));
        return {_mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x88), _mm256_shuffle_ps(ab, cd, 0xDD))};
    }

    // ---- scores of keys that are codes ----
    struct IntQuads {
        __m256i v;
    };
    static constexpr int k_code_queries = 1;
    static IntQuads load_code_quads(const std::byte* const (&row)[2]) {
        return {_mm256_inserti128_si256(_mm256_castsi128_si256(load_16(row[0])), load_16(row[1]), 1)};
    }
    static IntQuads nibbles_less_8(IntQuads a, bool upper) {
        const __m256i halves =
            _mm256_and_si256(upper ? _mm256_srli_epi16(a.v, 4) : a.v, _mm256_set1_epi8(15));
        return {_mm256_sub_epi8(halves, _mm256_set1_epi8(8))};
    }
    static IntQuads even_words(IntQuads a) { return {_mm256_srai_epi16(_mm256_slli_epi16(a.v, 8), 8)}; }
    static IntQuads odd_words(IntQuads a) { return {_mm256_srai_epi16(a.v, 8)}; }
    static IntQuads load_quads(const int16_t* p) {
        return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
    }
    static void store_quads(int16_t* p, IntQuads a) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.v);
    }
    static IntQuads all_quads(const int16_t* eight) {
        return {_mm256_broadcastsi128_si256(load_16(reinterpret_cast<const std::byte*>(eight)))};
    }
    static IntQuads dot_words(IntQuads a, IntQuads b) { return {_mm256_madd_epi16(a.v, b.v)}; }
    static IntQuads add_dot_words(IntQuads sum, IntQuads a, IntQuads b) {
        return {_mm256_add_epi32(sum.v, _mm256_madd_epi16(a.v, b.v))};
    }
    static Quads to_float(IntQuads a) { return {_mm256_cvtepi32_ps(a.v)}; }
    static void spread_quads(const float* scale, Quads (&out)[4]) {
        const __m256 all = _mm256_loadu_ps(scale);
        out[0] = {_mm256_permute_ps(all, 0x00)};
        out[1] = {_mm256_permute_ps(all, 0x55)};
        out[2] = {_mm256_permute_ps(all, 0xAA)};
        out[3] = {_mm256_permute_ps(all, 0xFF)};
    }

    static constexpr int k_value_vectors = 1;  // vectors of columns whose values are summed together

  private:
    // Returns the sum of 16 signed bytes: each is made unsigned by adding 128.
    static int32_t sum_of_bytes(__m128i bytes) {
        const __m128i moved = _mm_xor_si128(bytes, _mm_set1_epi8(static_cast<char>(0x80)));
        const __m128i halves = _mm_sad_epu8(moved, _mm_setzero_si128());
        return _mm_cvtsi128_si32(halves) + _mm_extract_epi16(halves, 4) - 16 * 128;
    }
    // Widens E4M3 codes in the upper bytes of 16-bit words. An arithmetic shift by one bit puts sign, exponent and mantissa
    // where F16 has them, but leaves a copy of the sign between them, which is masked out.
    static F32 widen_e4m3(__m256i words) {
        const __m256i mask = _mm256_set1_epi16(static_cast<int16_t>(0xBF80));
        const __m256i f16 = _mm256_and_si256(_mm256_srai_epi16(words, 1), mask);
        return {_mm256_cvtph_ps(_mm256_castsi256_si128(f16)),
                _mm256_cvtph_ps(_mm256_extracti128_si256(f16, 1))};
    }
    static constexpr int k_nearest = _MM_FROUND_TO_NEAREST_INT;

    static __m128i load_16(const std::byte* p) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    }
    static __m256 widen_bf16(__m128i bits) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
    }
    static __m256 larger_bits(__m256 a, __m256 b) {
        const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
        return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_and_si256(_mm256_castps_si256(a), magnitude),
                                                    _mm256_and_si256(_mm256_castps_si256(b), magnitude)));
    }
    static __m256 with_sign(__m256 magnitude, __m256 sign) {
        const __m256 mask = _mm256_set1_ps(-0.0F);
        return _mm256_or_ps(_mm256_andnot_ps(mask, magnitude), _mm256_and_ps(mask, sign));
    }
    static __m256 exponent(__m256 n) {
        const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
        return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
    }
};

}  // namespace minim::cpu::avx2
