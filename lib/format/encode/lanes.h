// SPDX-License-Identifier: Apache-2.0
// Eight floats, the vector type of the encoders' searches, in plain C++: the specification of lanes_avx2.h, which has the same
// names with the same results, bit for bit. A lane is one candidate (a scale, or a codebook entry), and a sum over elements runs
// inside its lane, in order of the elements. So no result depends on the width of a register. No numbers are NaN.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/half.h"

namespace minim::encoding::scalar {

struct F32x8 {
    float lane[8];
};

struct Lanes {
    using F32 = F32x8;

    static F32 all(float value) {
        F32 r;
        for (float& lane : r.lane) lane = value;
        return r;
    }
    static F32 load(const float* p) {
        F32 r;
        memcpy(r.lane, p, sizeof(r.lane));
        return r;
    }
    static void store(float* p, F32 a) { memcpy(p, a.lane, sizeof(a.lane)); }
    static F32 add(F32 a, F32 b) {
        for (int i = 0; i < 8; ++i) a.lane[i] += b.lane[i];
        return a;
    }
    static F32 sub(F32 a, F32 b) {
        for (int i = 0; i < 8; ++i) a.lane[i] -= b.lane[i];
        return a;
    }
    static F32 mul(F32 a, F32 b) {
        for (int i = 0; i < 8; ++i) a.lane[i] *= b.lane[i];
        return a;
    }
    static F32 div(F32 a, F32 b) {
        for (int i = 0; i < 8; ++i) a.lane[i] /= b.lane[i];
        return a;
    }
    static F32 min(F32 a, F32 b) {
        for (int i = 0; i < 8; ++i) a.lane[i] = a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i];
        return a;
    }
    static F32 max(F32 a, F32 b) {
        for (int i = 0; i < 8; ++i) a.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
        return a;
    }
    // Returns a < b ? yes : no.
    static F32 if_less(F32 a, F32 b, F32 yes, F32 no) {
        for (int i = 0; i < 8; ++i) a.lane[i] = a.lane[i] < b.lane[i] ? yes.lane[i] : no.lane[i];
        return a;
    }
    // Rounds to the nearest whole number, ties to even. Magnitudes are below 2^22.
    static F32 round(F32 a) {
        for (float& lane : a.lane) lane = (lane + 12582912.0F) - 12582912.0F;
        return a;
    }
    // Returns table[truncated index]. An index is not negative.
    static F32 lookup(const float* table, F32 index) {
        for (float& lane : index.lane) lane = table[static_cast<int32_t>(lane)];
        return index;
    }
    // Rounds to the nearest F16, ties to even.
    static F32 round_to_f16(F32 a) {
        for (float& lane : a.lane) lane = f16_to_float(float_to_f16(lane));
        return a;
    }
};

}  // namespace minim::encoding::scalar
