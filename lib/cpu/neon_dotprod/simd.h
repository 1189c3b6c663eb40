// SPDX-License-Identifier: Apache-2.0
// The vector vocabulary of scalar/simd.h in NEON: 16 lanes are four registers.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace minim::cpu::neon_dotprod {

struct F32x16 {
    float32x4_t v[4];  // lanes 0-3, 4-7, 8-11, 12-15
};

struct Simd {
    using F32 = F32x16;

    // Register tiles of products of floats and of FP8 (generic/float_tiles.h).
    static constexpr int k_float_rows = 1, k_float_tokens = 4, k_half_rows_of_one = 2;
    static constexpr int k_fp8_rows = 1, k_fp8_tokens = 2;

    // ---- floats: memory ----
    static F32 zero() { return all(0.0F); }
    static F32 all(float value) {
        const float32x4_t four = vdupq_n_f32(value);
        return {{four, four, four, four}};
    }
    static F32 load_f32(const std::byte* p) {
        const auto* f = reinterpret_cast<const float*>(p);
        return {{vld1q_f32(f), vld1q_f32(f + 4), vld1q_f32(f + 8), vld1q_f32(f + 12)}};
    }
    static F32 load_f16(const std::byte* p) { return widen_f16(load_words(p), load_words(p + 16)); }
    static float load_one_f16(const std::byte* p) {
        uint16_t bits;
        memcpy(&bits, p, sizeof(bits));
        return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(bits))), 0);
    }
    static F32 load_i8(const std::byte* p) { return widen_i8(vld1q_s8(reinterpret_cast<const int8_t*>(p))); }
    static void load_e4m3_by_256(const std::byte* p, F32* w) {
        const uint16x8_t low = load_words(p);
        const uint16x8_t high = load_words(p + 16);
        w[0] = widen_f16(f16_of_e4m3(vshlq_n_u16(low, 8)), f16_of_e4m3(vshlq_n_u16(high, 8)));
        w[1] = widen_f16(f16_of_e4m3(low), f16_of_e4m3(high));
    }
    static F32 load_i4(const std::byte* p, bool upper) {
        const uint8x16_t bytes = vld1q_u8(reinterpret_cast<const uint8_t*>(p));
        const uint8x16_t nibbles = upper ? vshrq_n_u8(bytes, 4) : vandq_u8(bytes, vdupq_n_u8(15));
        return widen_i8(vsubq_s8(vreinterpretq_s8_u8(nibbles), vdupq_n_s8(8)));
    }
    static F32 load_bf16(const std::byte* p) {
        const uint16x8_t low = load_words(p);
        const uint16x8_t high = load_words(p + 16);
        return {{widen_bf16(vget_low_u16(low)), widen_bf16(vget_high_u16(low)),
                 widen_bf16(vget_low_u16(high)), widen_bf16(vget_high_u16(high))}};
    }
    static void store(float* p, F32 a) {
        for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, a.v[i]);
    }
    static void store_f16(std::byte* p, F32 a) {
        auto* words = reinterpret_cast<uint16_t*>(p);
        for (int i = 0; i < 4; ++i) vst1_u16(words + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(a.v[i])));
    }
    static int32_t store_i8(int8_t* p, F32 a) {
        const int8x16_t bytes =
            vcombine_s8(vmovn_s16(words_of(a.v[0], a.v[1])), vmovn_s16(words_of(a.v[2], a.v[3])));
        vst1q_s8(p, bytes);
        return vaddlvq_s8(bytes);
    }
    static void store_i16(int16_t* p, F32 a) {
        vst1q_s16(p, words_of(a.v[0], a.v[1]));
        vst1q_s16(p + 8, words_of(a.v[2], a.v[3]));
    }

    // ---- floats: arithmetic ----
    static F32 add(F32 a, F32 b) {
        for (int i = 0; i < 4; ++i) a.v[i] = vaddq_f32(a.v[i], b.v[i]);
        return a;
    }
    static F32 sub(F32 a, F32 b) {
        for (int i = 0; i < 4; ++i) a.v[i] = vsubq_f32(a.v[i], b.v[i]);
        return a;
    }
    static F32 mul(F32 a, F32 b) {
        for (int i = 0; i < 4; ++i) a.v[i] = vmulq_f32(a.v[i], b.v[i]);
        return a;
    }
    static F32 div(F32 a, F32 b) {
        for (int i = 0; i < 4; ++i) a.v[i] = vdivq_f32(a.v[i], b.v[i]);
        return a;
    }
    static F32 fma(F32 a, F32 b, F32 c) {
        for (int i = 0; i < 4; ++i) c.v[i] = vfmaq_f32(c.v[i], a.v[i], b.v[i]);
        return c;
    }
    // FMAX and FMIN would return NaN if either operand is NaN.
    static F32 max(F32 a, F32 b) {
        for (int i = 0; i < 4; ++i) a.v[i] = vbslq_f32(vcgtq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]);
        return a;
    }
    static F32 min(F32 a, F32 b) {
        for (int i = 0; i < 4; ++i) a.v[i] = vbslq_f32(vcltq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]);
        return a;
    }
    static F32 max_magnitude(F32 a, F32 b) {
        for (int i = 0; i < 4; ++i)
            a.v[i] = vreinterpretq_f32_u32(vmaxq_u32(magnitude_of(a.v[i]), magnitude_of(b.v[i])));
        return a;
    }
    static float largest_magnitude(F32 a) {
        const uint32x4_t low = vmaxq_u32(magnitude_of(a.v[0]), magnitude_of(a.v[1]));
        const uint32x4_t high = vmaxq_u32(magnitude_of(a.v[2]), magnitude_of(a.v[3]));
        const uint32_t bits = vmaxvq_u32(vmaxq_u32(low, high));
        return vget_lane_f32(vreinterpret_f32_u32(vdup_n_u32(bits)), 0);
    }
    static F32 swap_neighbours(F32 a) {
        for (int i = 0; i < 4; ++i) a.v[i] = vrev64q_f32(a.v[i]);
        return a;
    }
    static F32 copy_sign(F32 magnitude, F32 sign) {
        for (int i = 0; i < 4; ++i)
            magnitude.v[i] = vbslq_f32(vdupq_n_u32(0x80000000U), sign.v[i], magnitude.v[i]);
        return magnitude;
    }
    static F32 power_of_two(F32 n) {
        for (int i = 0; i < 4; ++i) {
            const int32x4_t biased = vaddq_s32(vcvtq_s32_f32(n.v[i]), vdupq_n_s32(127));
            n.v[i] = vreinterpretq_f32_s32(vshlq_n_s32(biased, 23));
        }
        return n;
    }
    static float sum(F32 a) {
        const float32x4_t four = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
        return vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)));
    }

    // ---- scores of attention ----
    struct Quads {
        float32x4_t v;
    };
    // Sums of six queries, their four columns and a register of keys: 31 registers.
    static constexpr int k_quads = 1, k_score_queries = 6;
    static void quads_of(const F32 (&row)[1], Quads (&out)[4]) {
        for (int m = 0; m < 4; ++m) out[m] = {row[0].v[m]};
    }
    static Quads zero_quads() { return {vdupq_n_f32(0.0F)}; }
    static Quads all_quads(const float* four) { return {vld1q_f32(four)}; }
    static Quads load_quads(const float* p) { return {vld1q_f32(p)}; }
    static void store_quads(float* p, Quads a) { vst1q_f32(p, a.v); }
    static Quads fma_quads(Quads a, Quads b, Quads c) { return {vfmaq_f32(c.v, a.v, b.v)}; }
    static Quads scale_quads(Quads a, float factor) { return {vmulq_f32(a.v, vdupq_n_f32(factor))}; }
    static Quads sum_quads(Quads a, Quads b, Quads c, Quads d) {
        return {vpaddq_f32(add_halves(a.v, b.v), add_halves(c.v, d.v))};
    }

    // ---- scores of keys that are codes ----
    struct IntQuads {
        int16x8_t v;
    };
    struct IntSums {
        int32x4_t v;
    };
    static constexpr int k_code_queries = 3;
    static IntQuads load_code_quads(const std::byte* const (&row)[1]) {
        return {vreinterpretq_s16_u16(load_words(row[0]))};
    }
    static IntQuads nibbles_less_8(IntQuads a, bool upper) {
        const uint8x16_t bytes = vreinterpretq_u8_s16(a.v);
        const uint8x16_t nibbles = upper ? vshrq_n_u8(bytes, 4) : vandq_u8(bytes, vdupq_n_u8(15));
        return {vreinterpretq_s16_u8(vsubq_u8(nibbles, vdupq_n_u8(8)))};
    }
    static IntQuads even_words(IntQuads a) { return {vshrq_n_s16(vshlq_n_s16(a.v, 8), 8)}; }
    static IntQuads odd_words(IntQuads a) { return {vshrq_n_s16(a.v, 8)}; }
    static IntQuads load_quads(const int16_t* p) { return {vld1q_s16(p)}; }
    static void store_quads(int16_t* p, IntQuads a) { vst1q_s16(p, a.v); }
    static IntQuads all_quads(const int16_t* eight) { return load_quads(eight); }
    static IntSums dot_words(IntQuads a, IntQuads b) {
        return {vpaddq_s32(vmull_s16(vget_low_s16(a.v), vget_low_s16(b.v)), vmull_high_s16(a.v, b.v))};
    }
    static IntSums add_dot_words(IntSums sum, IntQuads a, IntQuads b) {
        return {vaddq_s32(sum.v, dot_words(a, b).v)};
    }
    static Quads to_float(IntSums a) { return {vcvtq_f32_s32(a.v)}; }
    static void spread_quads(const float* scale, Quads (&out)[4]) {
        for (int i = 0; i < 4; ++i) out[i] = {vdupq_n_f32(scale[i])};
    }

    static constexpr int k_value_vectors = 1;  // vectors of columns whose values are summed together

  private:
    static uint16x8_t load_words(const std::byte* p) {
        return vreinterpretq_u16_u8(vld1q_u8(reinterpret_cast<const uint8_t*>(p)));
    }
    static F32 widen_f16(uint16x8_t low, uint16x8_t high) {
        const float16x8_t a = vreinterpretq_f16_u16(low);
        const float16x8_t b = vreinterpretq_f16_u16(high);
        return {{vcvt_f32_f16(vget_low_f16(a)), vcvt_high_f32_f16(a), vcvt_f32_f16(vget_low_f16(b)),
                 vcvt_high_f32_f16(b)}};
    }
    // Returns E4M3 codes in the upper bytes of 16-bit words as halves that are 256 times too small. An arithmetic shift by one bit puts
    // sign, exponent and mantissa where F16 has them, but leaves a copy of the sign between them, which is masked out.
    static uint16x8_t f16_of_e4m3(uint16x8_t words) {
        const int16x8_t moved = vshrq_n_s16(vreinterpretq_s16_u16(words), 1);
        return vandq_u16(vreinterpretq_u16_s16(moved), vdupq_n_u16(0xBF80));
    }
    static float32x4_t widen_bf16(uint16x4_t bits) { return vreinterpretq_f32_u32(vshll_n_u16(bits, 16)); }
    static F32 widen_i8(int8x16_t bytes) {
        const int16x8_t low = vmovl_s8(vget_low_s8(bytes));
        const int16x8_t high = vmovl_high_s8(bytes);
        return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
                 vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))}};
    }
    static int16x8_t words_of(float32x4_t a, float32x4_t b) {  // truncates
        return vcombine_s16(vmovn_s32(vcvtq_s32_f32(a)), vmovn_s32(vcvtq_s32_f32(b)));
    }
    static uint32x4_t magnitude_of(float32x4_t a) {
        return vandq_u32(vreinterpretq_u32_f32(a), vdupq_n_u32(0x7FFFFFFFU));
    }
    // Returns lanes 0 + 2 and 1 + 3 of a, then those of b.
    static float32x4_t add_halves(float32x4_t a, float32x4_t b) {
        const float64x2_t x = vreinterpretq_f64_f32(a);
        const float64x2_t y = vreinterpretq_f64_f32(b);
        return vaddq_f32(vreinterpretq_f32_f64(vzip1q_f64(x, y)), vreinterpretq_f32_f64(vzip2q_f64(x, y)));
    }
};

}  // namespace minim::cpu::neon_dotprod
