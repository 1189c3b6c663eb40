// SPDX-License-Identifier: Apache-2.0
// The lanes of lanes.h in AVX2 and F16C: one register.
#pragma once

#include <immintrin.h>

namespace minim::encoding::avx2 {

struct Lanes {
    using F32 = __m256;

    static F32 all(float value) { return _mm256_set1_ps(value); }
    static F32 load(const float* p) { return _mm256_loadu_ps(p); }
    static void store(float* p, F32 a) { _mm256_storeu_ps(p, a); }
    static F32 add(F32 a, F32 b) { return _mm256_add_ps(a, b); }
    static F32 sub(F32 a, F32 b) { return _mm256_sub_ps(a, b); }
    static F32 mul(F32 a, F32 b) { return _mm256_mul_ps(a, b); }
    static F32 div(F32 a, F32 b) { return _mm256_div_ps(a, b); }
    static F32 min(F32 a, F32 b) { return _mm256_min_ps(a, b); }
    static F32 max(F32 a, F32 b) { return _mm256_max_ps(a, b); }
    static F32 if_less(F32 a, F32 b, F32 yes, F32 no) {
        return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
    }
    static F32 round(F32 a) {  // not by the instruction, which gives -0 for small negative numbers
        return sub(add(a, all(12582912.0F)), all(12582912.0F));
    }
    static F32 lookup(const float* table, F32 index) {
        return _mm256_i32gather_ps(table, _mm256_cvttps_epi32(index), sizeof(float));
    }
    static F32 round_to_f16(F32 a) { return _mm256_cvtph_ps(_mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT)); }
};

}  // namespace minim::encoding::avx2
