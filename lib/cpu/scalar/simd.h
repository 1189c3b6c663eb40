// The vector vocabulary in plain C++: the specification of avx2/simd.h and avx512/simd.h, which offer the
// same names with the same results, bit for bit (the payload of a NaN aside). Nothing here depends on the
// width of a register:
//
//   F32x16  16 floats. Every float sum of the library runs in these lanes and ends in sum().
//   I32x16  16 integers, the sums of 4 neighbouring products of bytes.
//   B32     32 bytes, B64 64 bytes: packed weights, or 8-bit codes. Signed or not is the operation's
//   business. I16x32  a factor for each pair of products of a B64.
//
// Weights may be any byte where an operation says signed (-128 .. 127) and up to 128 where it says unsigned;
// codes of activations lie in -127 .. 127. Within these no intermediate of any instruction set can saturate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"

namespace minim::cpu::scalar {

struct F32x16 {
    float lane[16];
};
struct I32x16 {
    int32_t lane[16];
};
struct I16x32 {
    int16_t lane[32];
};
struct B32 {
    uint8_t byte[32];
};
struct B64 {
    uint8_t byte[64];
};
// 16 signed bytes to look up.
struct Table16 {
    uint8_t byte[16];
};

struct Simd {
    using F32 = F32x16;
    using I32 = I32x16;
    using I16 = I16x32;
    using Bytes32 = B32;
    using Bytes64 = B64;
    using Table = Table16;

    // Input rows handled together, so that a weight is unpacked once for all of them; rows of W handled
    // together.
    static constexpr int k_token_tile = 1;
    static constexpr int k_row_tile = 1;

    // ---- floats: memory ----
    static F32 zero() { return {}; }
    static F32 all(float value) {
        F32 r;
        for (float& lane : r.lane) lane = value;
        return r;
    }
    static F32 halves(float low, float high) {  // lanes 0..7 and 8..15
        F32 r;
        for (int i = 0; i < 16; ++i) r.lane[i] = i < 8 ? low : high;
        return r;
    }
    static F32 load_f32(const std::byte* p) {
        F32 r;
        memcpy(r.lane, p, sizeof(r.lane));
        return r;
    }
    static F32 load_8(const float* p) {  // lanes 0..7; the others are 0
        F32 r = {};
        memcpy(r.lane, p, 8 * sizeof(float));
        return r;
    }
    static F32 load_f16(const std::byte* p) {
        F32 r;
        for (int i = 0; i < 16; ++i) r.lane[i] = f16(p + 2 * i);
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
    static float f16(const std::byte* p) {  // one number
        uint16_t bits;
        memcpy(&bits, p, sizeof(bits));
        return f16_to_float(bits);
    }
    static void store(float* p, F32 a) { memcpy(p, a.lane, sizeof(a.lane)); }
    static void store_f16(std::byte* p, F32 a) {  // rounds to nearest even
        for (int i = 0; i < 16; ++i) {
            const uint16_t bits = float_to_f16(a.lane[i]);
            memcpy(p + 2 * i, &bits, sizeof(bits));
        }
    }
    // Truncates; the values are between -128 and 128, exclusive.
    static void store_i8(int8_t* p, F32 a) {
        for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(static_cast<int32_t>(a.lane[i]));
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
    static F32 max(F32 a, F32 b) {  // b where either is NaN
        for (int i = 0; i < 16; ++i) a.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
        return a;
    }
    static F32 min(F32 a, F32 b) {  // b where either is NaN
        for (int i = 0; i < 16; ++i) a.lane[i] = a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i];
        return a;
    }
    // The larger magnitude as a positive number; NaN counts as larger than infinity.
    static F32 max_magnitude(F32 a, F32 b) {
        for (int i = 0; i < 16; ++i) {
            const uint32_t x = float_to_bits(a.lane[i]) & 0x7FFFFFFFU;
            const uint32_t y = float_to_bits(b.lane[i]) & 0x7FFFFFFFU;
            a.lane[i] = bits_to_float(x > y ? x : y);
        }
        return a;
    }
    static F32 copy_sign(F32 magnitude, F32 sign) {
        for (int i = 0; i < 16; ++i) magnitude.lane[i] = __builtin_copysignf(magnitude.lane[i], sign.lane[i]);
        return magnitude;
    }
    // 2^n for integral n in -126 .. 127; anything for NaN.
    static F32 power_of_two(F32 n) {
        for (float& lane : n.lane) {
            lane = lane == lane ? bits_to_float(static_cast<uint32_t>(static_cast<int32_t>(lane) + 127) << 23)
                                : 1.0F;
        }
        return n;
    }
    // Halves onto halves: 16 -> 8 -> 4 -> 2 -> 1.
    static float sum(F32 a) {
        for (int width = 8; width > 0; width /= 2) {
            for (int i = 0; i < width; ++i) a.lane[i] += a.lane[i + width];
        }
        return a.lane[0];
    }

    // ---- bytes ----
    static Bytes32 load_32(const std::byte* p) {
        Bytes32 r;
        memcpy(r.byte, p, sizeof(r.byte));
        return r;
    }
    static Bytes64 load_64(const std::byte* p) {
        Bytes64 r;
        memcpy(r.byte, p, sizeof(r.byte));
        return r;
    }
    static Bytes64 join(Bytes32 low, Bytes32 high) {
        Bytes64 r;
        memcpy(r.byte, low.byte, 32);
        memcpy(r.byte + 32, high.byte, 32);
        return r;
    }
    // Low nibbles of 16 bytes, then their high nibbles; first of `a`, then of `b`.
    static Bytes64 nibbles_16(const std::byte* a, const std::byte* b) {
        Bytes64 r;
        for (int i = 0; i < 16; ++i) {
            r.byte[i] = static_cast<uint8_t>(a[i]) & 15U;
            r.byte[i + 16] = static_cast<uint8_t>(static_cast<uint8_t>(a[i]) >> 4U);
            r.byte[i + 32] = static_cast<uint8_t>(b[i]) & 15U;
            r.byte[i + 48] = static_cast<uint8_t>(static_cast<uint8_t>(b[i]) >> 4U);
        }
        return r;
    }
    // (byte >> shift) & mask, mask <= 255 >> shift.
    template <int shift, int mask>
    static Bytes32 bits(Bytes32 a) {
        for (uint8_t& byte : a.byte) byte = static_cast<uint8_t>((byte >> shift) & mask);
        return a;
    }
    template <int shift, int mask>
    static Bytes64 bits(Bytes64 a) {
        for (uint8_t& byte : a.byte) byte = static_cast<uint8_t>((byte >> shift) & mask);
        return a;
    }
    static Bytes64 or_high_nibble(Bytes64 low, Bytes64 high) {  // low | high << 4, both below 16
        for (int i = 0; i < 64; ++i) low.byte[i] = static_cast<uint8_t>(low.byte[i] | high.byte[i] << 4);
        return low;
    }
    static Bytes64 minus(Bytes64 a, int8_t value) {
        for (uint8_t& byte : a.byte) byte = static_cast<uint8_t>(byte - static_cast<uint8_t>(value));
        return a;
    }
    static Table table(const int8_t* values) {
        Table r;
        memcpy(r.byte, values, sizeof(r.byte));
        return r;
    }
    static Bytes64 look_up(Table t, Bytes64 index) {  // index below 16
        for (uint8_t& byte : index.byte) byte = t.byte[byte];
        return index;
    }

    // ---- integers ----
    static I32 zero_i32() { return {}; }
    static F32 to_float(I32 a) {
        F32 r;
        for (int i = 0; i < 16; ++i) r.lane[i] = static_cast<float>(a.lane[i]);
        return r;
    }
    // A factor for each half, or for each quarter, of the 64 elements.
    static I16 half_factors(int low, int high) {
        I16 r;
        for (int i = 0; i < 32; ++i) r.lane[i] = static_cast<int16_t>(i < 16 ? low : high);
        return r;
    }
    static I16 quarter_factors(const std::byte* four) {  // signed bytes
        I16 r;
        for (int i = 0; i < 32; ++i)
            r.lane[i] = static_cast<int16_t>((static_cast<int>(four[i / 8]) ^ 128) - 128);
        return r;
    }
    // lane = sum of 4 products
    static I32 dot_signed(Bytes64 weight, Bytes64 code) {
        I32 r = {};
        for (int i = 0; i < 64; ++i) {
            r.lane[i / 4] += static_cast<int8_t>(weight.byte[i]) * static_cast<int8_t>(code.byte[i]);
        }
        return r;
    }
    // lane += factor * sum of 4 products
    static I32 add_dot_signed(I32 sum, Bytes64 weight, Bytes64 code, I16 factor) {
        for (int i = 0; i < 64; ++i) {
            const int product = static_cast<int8_t>(weight.byte[i]) * static_cast<int8_t>(code.byte[i]);
            sum.lane[i / 4] += factor.lane[i / 2] * product;
        }
        return sum;
    }
    static I32 add_dot_unsigned(I32 sum, Bytes64 weight, Bytes64 code, I16 factor) {
        for (int i = 0; i < 64; ++i) {
            sum.lane[i / 4] += factor.lane[i / 2] * (weight.byte[i] * static_cast<int8_t>(code.byte[i]));
        }
        return sum;
    }
    // Lane j < 8: factor[j] * (sum[2j] + sum[2j + 1]); the other lanes are 0. The factors are unsigned bytes.
    static I32 weighted_pairs(const int16_t* sum, const uint8_t* factor) {
        I32 r = {};
        for (int j = 0; j < 8; ++j) r.lane[j] = factor[j] * (sum[2 * j] + sum[2 * j + 1]);
        return r;
    }
};

}  // namespace minim::cpu::scalar
