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
    static void store_i8(int8_t* p, F32 a) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(a.v)));
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
    static void sum_four(const F32* a, float* out) {
        __m256 eight[4];
        for (int i = 0; i < 4; ++i) {
            eight[i] = _mm256_add_ps(_mm512_castps512_ps256(a[i].v), _mm512_extractf32x8_ps(a[i].v, 1));
        }
        const __m256 four01 = add_halves(eight[0], eight[1]);
        const __m256 four23 = add_halves(eight[2], eight[3]);
        const __m256 two =
            _mm256_add_ps(_mm256_shuffle_ps(four01, four23, 0x44), _mm256_shuffle_ps(four01, four23, 0xEE));
        const __m256 one = _mm256_add_ps(two, _mm256_movehdup_ps(two));  // 0 - 2 - | 1 - 3 -
        const __m128 odd = _mm_moveldup_ps(_mm256_extractf128_ps(one, 1));
        _mm_storeu_ps(out, _mm_blend_ps(_mm256_castps256_ps128(one), odd, 0x0A));
    }

    template <int n_queries>
    static constexpr int score_rows() {
        return 4;
    }
    static constexpr int k_value_vectors = 4;

  private:
    // As in avx2/simd.h.
    static F32 widen_e4m3(__m256i words) {
        const __m256i mask = _mm256_set1_epi16(static_cast<int16_t>(0xBF80));
        return {_mm512_cvtph_ps(_mm256_and_si256(_mm256_srai_epi16(words, 1), mask))};
    }
    static constexpr int k_nearest = _MM_FROUND_TO_NEAREST_INT;

    static __m256 add_halves(__m256 a, __m256 b) {
        return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
    }
    static __m512i magnitude(__m512 a) {
        return _mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7FFFFFFF));
    }
    static __m256i load_32(const std::byte* p) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    }
};

}  // namespace minim::cpu::avx512
