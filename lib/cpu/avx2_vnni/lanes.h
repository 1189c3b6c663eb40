// SPDX-License-Identifier: Apache-2.0
// The lanes of AVX2 with what AVX-VNNI adds: dots of four bytes in one instruction, added to 32-bit sums, which cannot overflow.
#pragma once

#include "cpu/avx2/lanes.h"

namespace minim::cpu::avx2_vnni {

struct Vnni {};

struct Lanes : avx2::LanesOf<Vnni> {
    template <int n, int n_tokens>
    static MINIM_KERNEL_INLINE void dot_wide(Int* sum, const Int* weight, const int8_t* const* code) {
        for (int k = 0; k < n; ++k) {
            for (int t = 0; t < n_tokens; ++t) {
                sum[t].v = _mm256_dpbusd_avx_epi32(sum[t].v, weight[k].v, broadcast_codes(code[t] + 4 * k).v);
            }
        }
    }
    template <int n, int /*largest*/, int n_tokens>
    static MINIM_KERNEL_INLINE void dot_small(Int* sum, const Int* weight, const int8_t* const* code) {
        dot_wide<n, n_tokens>(sum, weight, code);
    }
    template <int n, int /*largest*/, bool signed_weights, int n_strips, int n_tokens>
    static MINIM_KERNEL_INLINE void dot_strips(Int (&sum)[n_strips][n_tokens],
                                               const std::byte* const (&weight)[n_strips],
                                               const int8_t* const (&code)[n_tokens]) {
#pragma GCC unroll 8
        for (int k = 0; k < n; ++k) {
            const auto w = load_strips<signed_weights>(weight, k);
            for (int t = 0; t < n_tokens; ++t) {
                const Int four = load_codes(code[t] + 4 * k);
                for (int s = 0; s < n_strips; ++s)
                    sum[s][t].v = _mm256_dpbusd_avx_epi32(sum[s][t].v, w.strip[s].v, four.v);
            }
        }
    }
};

}  // namespace minim::cpu::avx2_vnni
