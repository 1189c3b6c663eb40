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
struct I32x16 {
    __m256i low, high;
};
struct I16x32 {
    __m256i low, high;
};
struct B32 {
    __m256i v;
};
struct B64 {
    __m256i low, high;
};
struct Table16 {
    __m256i v;  // twice
};

struct Simd {
    using F32 = F32x16;
    using I32 = I32x16;
    using I16 = I16x32;
    using Bytes32 = B32;
    using Bytes64 = B64;
    using Table = Table16;

    static constexpr int k_token_tile = 2;
    static constexpr int k_row_tile = 2;

    // ---- floats: memory ----
    static F32 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
    static F32 all(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
    static F32 halves(float low, float high) { return {_mm256_set1_ps(low), _mm256_set1_ps(high)}; }
    static F32 load_f32(const std::byte* p) {
        const auto* f = reinterpret_cast<const float*>(p);
        return {_mm256_loadu_ps(f), _mm256_loadu_ps(f + 8)};
    }
    static F32 load_8(const float* p) { return {_mm256_loadu_ps(p), _mm256_setzero_ps()}; }
    static F32 load_f16(const std::byte* p) {
        return {_mm256_cvtph_ps(load_16(p)), _mm256_cvtph_ps(load_16(p + 16))};
    }
    static F32 load_bf16(const std::byte* p) { return {widen_bf16(load_16(p)), widen_bf16(load_16(p + 16))}; }
    static float f16(const std::byte* p) {
        uint16_t bits;
        memcpy(&bits, p, sizeof(bits));
        return _cvtsh_ss(bits);
    }
    static void store(float* p, F32 a) {
        _mm256_storeu_ps(p, a.low);
        _mm256_storeu_ps(p + 8, a.high);
    }
    static void store_f16(std::byte* p, F32 a) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.low, k_nearest));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 16), _mm256_cvtps_ph(a.high, k_nearest));
    }
    static void store_i8(int8_t* p, F32 a) {
        // Packing works within 128 bits: words come out as 0-3, 8-11, 4-7, 12-15 and are put in order before
        // the bytes.
        const __m256i words = _mm256_packs_epi32(_mm256_cvttps_epi32(a.low), _mm256_cvttps_epi32(a.high));
        const __m256i ordered = _mm256_permute4x64_epi64(words, 0xD8);
        const __m128i bytes =
            _mm_packs_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
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

    // ---- bytes ----
    static Bytes32 load_32(const std::byte* p) {
        return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
    }
    static Bytes64 load_64(const std::byte* p) { return join(load_32(p), load_32(p + 32)); }
    static Bytes64 join(Bytes32 low, Bytes32 high) { return {low.v, high.v}; }
    static Bytes64 nibbles_16(const std::byte* a, const std::byte* b) { return {nibbles(a), nibbles(b)}; }
    template <int shift, int mask>
    static Bytes32 bits(Bytes32 a) {
        return {_mm256_and_si256(_mm256_srli_epi16(a.v, shift), _mm256_set1_epi8(static_cast<char>(mask)))};
    }
    template <int shift, int mask>
    static Bytes64 bits(Bytes64 a) {
        return {bits<shift, mask>(Bytes32{a.low}).v, bits<shift, mask>(Bytes32{a.high}).v};
    }
    static Bytes64 or_high_nibble(Bytes64 low, Bytes64 high) {
        return {_mm256_or_si256(low.low, _mm256_slli_epi16(high.low, 4)),
                _mm256_or_si256(low.high, _mm256_slli_epi16(high.high, 4))};
    }
    static Bytes64 minus(Bytes64 a, int8_t value) {
        const __m256i v = _mm256_set1_epi8(value);
        return {_mm256_sub_epi8(a.low, v), _mm256_sub_epi8(a.high, v)};
    }
    static Table table(const int8_t* values) {
        return {_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)))};
    }
    static Bytes64 look_up(Table t, Bytes64 index) {
        return {_mm256_shuffle_epi8(t.v, index.low), _mm256_shuffle_epi8(t.v, index.high)};
    }

    // ---- integers ----
    static I32 zero_i32() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
    static F32 to_float(I32 a) { return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)}; }
    static I16 half_factors(int low, int high) {
        return {_mm256_set1_epi16(static_cast<int16_t>(low)), _mm256_set1_epi16(static_cast<int16_t>(high))};
    }
    static I16 quarter_factors(const std::byte* four) {
        int32_t packed;
        memcpy(&packed, four, sizeof(packed));
        const __m128i bytes = _mm_set1_epi32(packed);
        const __m128i first = _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
        const __m128i second = _mm_setr_epi8(2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
        return {_mm256_cvtepi8_epi16(_mm_shuffle_epi8(bytes, first)),
                _mm256_cvtepi8_epi16(_mm_shuffle_epi8(bytes, second))};
    }
    static I32 dot_signed(Bytes64 weight, Bytes64 code) {
        const __m256i one = _mm256_set1_epi16(1);
        return {_mm256_madd_epi16(pairs_signed(weight.low, code.low), one),
                _mm256_madd_epi16(pairs_signed(weight.high, code.high), one)};
    }
    static I32 add_dot_signed(I32 sum, Bytes64 weight, Bytes64 code, I16 factor) {
        return {add_scaled(sum.low, pairs_signed(weight.low, code.low), factor.low),
                add_scaled(sum.high, pairs_signed(weight.high, code.high), factor.high)};
    }
    static I32 add_dot_unsigned(I32 sum, Bytes64 weight, Bytes64 code, I16 factor) {
        return {add_scaled(sum.low, _mm256_maddubs_epi16(weight.low, code.low), factor.low),
                add_scaled(sum.high, _mm256_maddubs_epi16(weight.high, code.high), factor.high)};
    }
    static I32 weighted_pairs(const int16_t* sum, const uint8_t* factor) {
        const __m256i pairs = _mm256_madd_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(sum)),
                                                _mm256_set1_epi16(1));
        const __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(factor)));
        return {_mm256_mullo_epi32(pairs, wide), _mm256_setzero_si256()};
    }

  private:
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
    static __m256i nibbles(const std::byte* p) {
        const __m128i bytes = load_16(p);
        return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes), _mm256_set1_epi8(15));
    }
    // Products w0 a0 + w1 a1 of signed bytes, through |w| and a with w's sign: at most 2 * 128 * 127 < 2^15.
    static __m256i pairs_signed(__m256i weight, __m256i code) {
        return _mm256_maddubs_epi16(_mm256_abs_epi8(weight), _mm256_sign_epi8(code, weight));
    }
    static __m256i add_scaled(__m256i sum, __m256i pairs, __m256i factor) {
        return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, factor));
    }
};

}  // namespace minim::cpu::avx2
