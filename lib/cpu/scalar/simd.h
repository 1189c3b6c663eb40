// SPDX-License-Identifier: Apache-2.0
// The vector vocabulary in plain C++: the specification of avx2/simd.h and avx512/simd.h, which offer the
// same names with the same results, bit for bit (the payload of a NaN aside). Nothing here depends on the
// width of a register:
//
//   F32x16  16 floats. Every float sum over elements of a row runs in these lanes and ends in sum().
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "format/e4m3.h"

namespace minim::cpu::scalar {

struct F32x16 {
    float lane[16];
};

struct Simd {
    using F32 = F32x16;

    // Register tiles of products of floats and of FP8 (generic/float_tiles.h).
    static constexpr int k_float_rows = 1, k_float_tokens = 4, k_half_rows_of_one = 1;
    static constexpr int k_fp8_rows = 1, k_fp8_tokens = 4;

    // ---- floats: memory ----
    static F32 zero() { return {}; }
    static F32 all(float value) {
        F32 r;
        for (float& lane : r.lane) lane = value;
        return r;
    }
    static F32 load_f32(const std::byte* p) {
        F32 r;
        memcpy(r.lane, p, sizeof(r.lane));
        return r;
    }
    static F32 load_f16(const std::byte* p) {
        F32 r;
        for (int i = 0; i < 16; ++i) {
            uint16_t bits;
            memcpy(&bits, p + 2 * i, sizeof(bits));
            r.lane[i] = f16_to_float(bits);
        }
        return r;
    }
    static float load_one_f16(const std::byte* p) {
        uint16_t bits;
        memcpy(&bits, p, sizeof(bits));
        return f16_to_float(bits);
    }
    static F32 load_i8(const std::byte* p) {
        F32 r;
        for (int i = 0; i < 16; ++i) r.lane[i] = static_cast<float>(static_cast<int8_t>(p[i]));
        return r;
    }
    // 32 E4M3 numbers in the order of FP8_E4M3_B128, each 256 times too small (e4m3_as_half()).
    static void load_e4m3_by_256(const std::byte* p, F32* w) {
        for (int i = 0; i < 32; ++i)
            w[i % 2].lane[i / 2] = f16_to_float(e4m3_as_half(static_cast<uint8_t>(p[i])));
    }
    // Returns the low or the high nibbles of 16 bytes, minus 8.
    static F32 load_i4(const std::byte* p, bool upper) {
        F32 r;
        for (int i = 0; i < 16; ++i) {
            const int code = static_cast<int>(p[i]) >> (upper ? 4 : 0) & 15;
            r.lane[i] = static_cast<float>(code - 8);
        }
        return r;
    }
    static F32 load_bf16(const std::byte* p) {
        F32 r;
        for (int i = 0; i < 16; ++i) {
            uint16_t bits;
            memcpy(&bits, p + 2 * i, sizeof(bits));
            r.lane[i] = bf16_to_float(bits);
        }
        return r;
    }
    static void store(float* p, F32 a) { memcpy(p, a.lane, sizeof(a.lane)); }
    static void store_f16(std::byte* p, F32 a) {  // rounds to nearest even
        for (int i = 0; i < 16; ++i) {
            const uint16_t bits = float_to_f16(a.lane[i]);
            memcpy(p + 2 * i, &bits, sizeof(bits));
        }
    }
    // Truncates; the values are between -128 and 128, exclusive. Returns the sum of what it stores.
    static int32_t store_i8(int8_t* p, F32 a) {
        int32_t total = 0;
        for (int i = 0; i < 16; ++i) {
            p[i] = static_cast<int8_t>(static_cast<int32_t>(a.lane[i]));
            total += p[i];
        }
        return total;
    }
    // Truncates to 16 bits; the values are within -32768 .. 32767.
    static void store_i16(int16_t* p, F32 a) {
        for (int i = 0; i < 16; ++i) p[i] = static_cast<int16_t>(static_cast<int32_t>(a.lane[i]));
    }

    // ---- floats: arithmetic ----
    static F32 add(F32 a, F32 b) {
        for (int i = 0; i < 16; ++i) a.lane[i] += b.lane[i];
        return a;
    }
    static F32 sub(F32 a, F32 b) {
        for (int i = 0; i < 16; ++i) a.lane[i] -= b.lane[i];
        return a;
    }
    static F32 mul(F32 a, F32 b) {
        for (int i = 0; i < 16; ++i) a.lane[i] *= b.lane[i];
        return a;
    }
    static F32 div(F32 a, F32 b) {
        for (int i = 0; i < 16; ++i) a.lane[i] /= b.lane[i];
        return a;
    }
    static F32 fma(F32 a, F32 b, F32 c) {  // a * b + c, rounded once
        for (int i = 0; i < 16; ++i) a.lane[i] = __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]);
        return a;
    }
    static F32 max(F32 a, F32 b) {  // b if either is NaN
        for (int i = 0; i < 16; ++i) a.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
        return a;
    }
    static F32 min(F32 a, F32 b) {  // b if either is NaN
        for (int i = 0; i < 16; ++i) a.lane[i] = a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i];
        return a;
    }
    // Returns the larger magnitude as a positive number; NaN counts as larger than infinity.
    static F32 max_magnitude(F32 a, F32 b) {
        for (int i = 0; i < 16; ++i) {
            const uint32_t x = float_to_bits(a.lane[i]) & 0x7FFFFFFFU;
            const uint32_t y = float_to_bits(b.lane[i]) & 0x7FFFFFFFU;
            a.lane[i] = bits_to_float(x > y ? x : y);
        }
        return a;
    }
    // Returns the largest lane of a result of max_magnitude().
    static float largest_magnitude(F32 a) {
        uint32_t largest = 0;
        for (const float lane : a.lane)
            largest = float_to_bits(lane) > largest ? float_to_bits(lane) : largest;
        return bits_to_float(largest);
    }
    static F32 swap_neighbours(F32 a) {  // lanes 1, 0, 3, 2 ...
        for (int i = 0; i < 16; i += 2) {
            const float even = a.lane[i];
            a.lane[i] = a.lane[i + 1];
            a.lane[i + 1] = even;
        }
        return a;
    }
    static F32 copy_sign(F32 magnitude, F32 sign) {
        for (int i = 0; i < 16; ++i) magnitude.lane[i] = __builtin_copysignf(magnitude.lane[i], sign.lane[i]);
        return magnitude;
    }
    // Returns 2^n for integral n in -126 .. 127; the result for NaN is unspecified.
    static F32 power_of_two(F32 n) {
        for (float& lane : n.lane) {
            lane = lane == lane ? bits_to_float(static_cast<uint32_t>(static_cast<int32_t>(lane) + 127) << 23)
                                : 1.0F;
        }
        return n;
    }
    // Returns the sum of all lanes, added by halves: 16 -> 8 -> 4 -> 2 -> 1.
    static float sum(F32 a) {
        for (int width = 8; width > 0; width /= 2) {
            for (int i = 0; i < width; ++i) a.lane[i] += a.lane[i + width];
        }
        return a.lane[0];
    }

    // ---- scores of attention ----
    //
    // Quads: k_quads times four lanes, as many as a register has; k_score_queries: the queries whose sums fit the registers.
    struct Quads {
        float lane[4];
    };
    static constexpr int k_quads = 1, k_score_queries = 2;
    // Writes to out[m] lanes 4m .. 4m + 3 of all rows, side by side.
    static void quads_of(const F32 (&row)[1], Quads (&out)[4]) {
        for (int m = 0; m < 4; ++m) out[m] = load_quads(row[0].lane + 4 * m);
    }
    static Quads zero_quads() { return {}; }
    static Quads all_quads(const float* four) { return {{four[0], four[1], four[2], four[3]}}; }
    static Quads load_quads(const float* p) { return all_quads(p); }
    static void store_quads(float* p, Quads a) { memcpy(p, a.lane, sizeof(a.lane)); }
    static Quads fma_quads(Quads a, Quads b, Quads c) {
        for (int i = 0; i < 4; ++i) c.lane[i] = __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]);
        return c;
    }
    static Quads scale_quads(Quads a, float factor) {
        for (float& lane : a.lane) lane *= factor;
        return a;
    }
    // Returns the sums of quads, (0 + 2) + (1 + 3): lane 4k + i has the sum of quad k of the i-th argument.
    static Quads sum_quads(Quads a, Quads b, Quads c, Quads d) {
        const auto sum = [](Quads q) { return (q.lane[0] + q.lane[2]) + (q.lane[1] + q.lane[3]); };
        return {{sum(a), sum(b), sum(c), sum(d)}};
    }

    // ---- scores of keys that are codes ----
    //
    // Registers of the width of Quads: each lane is a number of 32 bits, two numbers of 16, or four bytes. k_code_queries: as
    // k_score_queries.
    struct IntQuads {
        int16_t word[8];
    };
    struct IntSums {
        int32_t lane[4];
    };
    static constexpr int k_code_queries = 1;
    // Loads 16 bytes of each row, side by side.
    static IntQuads load_code_quads(const std::byte* const (&row)[1]) {
        IntQuads r;
        memcpy(r.word, row[0], sizeof(r.word));
        return r;
    }
    // Returns the low or the high nibbles of bytes, minus 8.
    static IntQuads nibbles_less_8(IntQuads a, bool upper) {
        for (int16_t& word : a.word) {
            uint8_t byte[2];
            memcpy(byte, &word, sizeof(byte));
            for (uint8_t& b : byte) b = static_cast<uint8_t>((b >> (upper ? 4 : 0) & 15) - 8);
            memcpy(&word, byte, sizeof(byte));
        }
        return a;
    }
    // Return the signed bytes 0, 2, 4 ... or 1, 3, 5 ... as words.
    static IntQuads even_words(IntQuads a) {
        for (int16_t& word : a.word) {
            const int low = word & 255;
            word = static_cast<int16_t>(low < 128 ? low : low - 256);
        }
        return a;
    }
    static IntQuads odd_words(IntQuads a) {
        for (int16_t& word : a.word) word = static_cast<int16_t>(word >> 8);
        return a;
    }
    static IntQuads load_quads(const int16_t* p) {
        IntQuads r;
        memcpy(r.word, p, sizeof(r.word));
        return r;
    }
    static void store_quads(int16_t* p, IntQuads a) { memcpy(p, a.word, sizeof(a.word)); }
    static IntQuads all_quads(const int16_t* eight) { return load_quads(eight); }
    // Return the dot of the two words of each lane, with or without adding it to the lane's sum.
    static IntSums dot_words(IntQuads a, IntQuads b) { return add_dot_words({}, a, b); }
    static IntSums add_dot_words(IntSums sum, IntQuads a, IntQuads b) {
        for (int i = 0; i < 8; ++i) sum.lane[i / 2] += static_cast<int32_t>(a.word[i]) * b.word[i];
        return sum;
    }
    static Quads to_float(IntSums a) {
        Quads r;
        for (int i = 0; i < 4; ++i) r.lane[i] = static_cast<float>(a.lane[i]);
        return r;
    }
    // out[i] has scale[4k + i] in all lanes of quad k.
    static void spread_quads(const float* scale, Quads (&out)[4]) {
        for (int i = 0; i < 4; ++i) out[i] = {{scale[i], scale[i], scale[i], scale[i]}};
    }

    static constexpr int k_value_vectors = 1;  // vectors of columns whose values are summed together
};

}  // namespace minim::cpu::scalar
