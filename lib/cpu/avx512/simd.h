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
struct I32x16 {
    __m512i v;
};
struct I16x32 {
    __m512i v;
};
struct B32 {
    __m256i v;
};
struct B64 {
    __m512i v;
};
struct Table16 {
    __m512i v;  // four times
};

struct Simd {
    using F32 = F32x16;
    using I32 = I32x16;
    using I16 = I16x32;
    using Bytes32 = B32;
    using Bytes64 = B64;
    using Table = Table16;

    static constexpr int k_token_tile = 4;
    static constexpr int k_row_tile = 4;

    // ---- floats: memory ----
    static F32 zero() { return {_mm512_setzero_ps()}; }
    static F32 all(float value) { return {_mm512_set1_ps(value)}; }
    static F32 halves(float low, float high) {
        return {_mm512_mask_blend_ps(k_upper_half, _mm512_set1_ps(low), _mm512_set1_ps(high))};
    }
    static F32 load_f32(const std::byte* p) { return {_mm512_loadu_ps(p)}; }
    static F32 load_8(const float* p) { return {_mm512_zextps256_ps512(_mm256_loadu_ps(p))}; }
    static F32 load_f16(const std::byte* p) { return {_mm512_cvtph_ps(load_32(p).v)}; }
    static F32 load_bf16(const std::byte* p) {
        return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_32(p).v), 16))};
    }
    static float f16(const std::byte* p) {
        uint16_t bits;
        memcpy(&bits, p, sizeof(bits));
        return _cvtsh_ss(bits);
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

    // ---- bytes ----
    static Bytes32 load_32(const std::byte* p) {
        return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
    }
    static Bytes64 load_64(const std::byte* p) { return {_mm512_loadu_si512(p)}; }
    static Bytes64 join(Bytes32 low, Bytes32 high) {
        return {_mm512_inserti64x4(_mm512_castsi256_si512(low.v), high.v, 1)};
    }
    static Bytes64 nibbles_16(const std::byte* a, const std::byte* b) { return join(nibbles(a), nibbles(b)); }
    template <int shift, int mask>
    static Bytes32 bits(Bytes32 a) {
        return {_mm256_and_si256(_mm256_srli_epi16(a.v, shift), _mm256_set1_epi8(static_cast<char>(mask)))};
    }
    template <int shift, int mask>
    static Bytes64 bits(Bytes64 a) {
        return {_mm512_and_si512(_mm512_srli_epi16(a.v, shift), _mm512_set1_epi8(static_cast<char>(mask)))};
    }
    static Bytes64 or_high_nibble(Bytes64 low, Bytes64 high) {
        return {_mm512_or_si512(low.v, _mm512_slli_epi16(high.v, 4))};
    }
    static Bytes64 minus(Bytes64 a, int8_t value) { return {_mm512_sub_epi8(a.v, _mm512_set1_epi8(value))}; }
    static Table table(const int8_t* values) {
        return {_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)))};
    }
    static Bytes64 look_up(Table t, Bytes64 index) { return {_mm512_shuffle_epi8(t.v, index.v)}; }

    // ---- integers ----
    static I32 zero_i32() { return {_mm512_setzero_si512()}; }
    static F32 to_float(I32 a) { return {_mm512_cvtepi32_ps(a.v)}; }
    static I16 half_factors(int low, int high) {
        return {_mm512_mask_blend_epi32(k_upper_half, _mm512_set1_epi16(static_cast<int16_t>(low)),
                                        _mm512_set1_epi16(static_cast<int16_t>(high)))};
    }
    static I16 quarter_factors(const std::byte* four) {
        int32_t packed;
        memcpy(&packed, four, sizeof(packed));
        const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,  //
                                                2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
        return {_mm512_cvtepi8_epi16(_mm256_shuffle_epi8(_mm256_set1_epi32(packed), spread))};
    }
    // dpbusd multiplies unsigned by signed bytes: |w| and a with w's sign.
    static I32 dot_signed(Bytes64 weight, Bytes64 code) {
        return {_mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_abs_epi8(weight.v),
                                    signed_by(code.v, weight.v))};
    }
    static I32 add_dot_signed(I32 sum, Bytes64 weight, Bytes64 code, I16 factor) {
        // At most 2 * 128 * 127 < 2^15: the pair sums do not saturate.
        const __m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(weight.v), signed_by(code.v, weight.v));
        return {_mm512_dpwssd_epi32(sum.v, pairs, factor.v)};
    }
    static I32 add_dot_unsigned(I32 sum, Bytes64 weight, Bytes64 code, I16 factor) {
        return {_mm512_dpwssd_epi32(sum.v, _mm512_maddubs_epi16(weight.v, code.v), factor.v)};
    }
    static I32 weighted_pairs(const int16_t* sum, const uint8_t* factor) {
        const __m256i pairs = _mm256_madd_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(sum)),
                                                _mm256_set1_epi16(1));
        const __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(factor)));
        return {_mm512_zextsi256_si512(_mm256_mullo_epi32(pairs, wide))};
    }

  private:
    static constexpr int k_nearest = _MM_FROUND_TO_NEAREST_INT;
    static constexpr __mmask16 k_upper_half = 0xFF00;

    static __m512i magnitude(__m512 a) {
        return _mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7FFFFFFF));
    }
    static Bytes32 nibbles(const std::byte* p) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
        return {_mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes), _mm256_set1_epi8(15))};
    }
    static __m512i signed_by(__m512i code, __m512i weight) {
        return _mm512_mask_sub_epi8(code, _mm512_movepi8_mask(weight), _mm512_setzero_si512(), code);
    }
};

}  // namespace minim::cpu::avx512
