// SPDX-License-Identifier: Apache-2.0
// Rows of floats as blocks of 8-bit codes, at the beginning of the kernel that needs them: every block of threads makes them for itself.
//
// Shape: n_threads threads, four neighbouring elements each, k_kept times these at once; eight lanes have a block of 32 elements. Bytes
// moved for each element: 4 in for each block of threads, from the second-level cache. Bound: latency of the loads.
#pragma once

#include <cmath>

#include "cuda/fast/device.h"
#include "cuda/fast/operations.h"
#include "cuda/fast/quantize.h"

namespace minim::cuda::fast {

// Elements of rows in registers: thread i has fours i, i + n_threads and so on from `first` on.
template <int n_threads>
struct RowFours {
    static constexpr int k_kept = 3;
    static constexpr int k_step = k_kept * n_threads;
    using Fours = FourFloats[k_kept];

    MINIM_DEVICE static void load(const float* from, int own, int n_fours, Fours& x) {
        for (int k = 0; k < k_kept; ++k) {
            const int i = own + k * n_threads;
            x[k] = {};
            if (i < n_fours) x[k] = reinterpret_cast<const FourFloats*>(from)[i];
        }
    }
    MINIM_DEVICE static void store(float* to, int own, int n_fours, const Fours& x) {
        for (int k = 0; k < k_kept; ++k) {
            const int i = own + k * n_threads;
            if (i < n_fours) reinterpret_cast<FourFloats*>(to)[i] = x[k];
        }
    }

    // Does what quantize_lanes() does, for k_kept elements of four at once: exchanges of one hide those of the others. later: the
    // blocks once more; null: nowhere.
    template <class T>
    MINIM_DEVICE static void quantize(T& t, int own, int n_fours, const Fours& x, Q8Block* blocks,
                                      Q8Block* later) {
        float largest[k_kept];
        for (int k = 0; k < k_kept; ++k) {
            largest[k] = std::fabs(x[k].x[0]);
            for (int e = 1; e < 4; ++e) largest[k] = larger(largest[k], std::fabs(x[k].x[e]));
        }
        for (int mask = 4; mask > 0; mask /= 2)
            for (float& each : largest) each = larger(each, t.from_lane_xor(each, mask));
        float scale[k_kept];
        uint32_t codes[k_kept];
        int32_t sum[k_kept];
        for (int k = 0; k < k_kept; ++k) {
            scale[k] = q8_scale(largest[k]);
            const float inverse = q8_inverse(scale[k]);
            codes[k] = 0;
            sum[k] = 0;
            for (int e = 0; e < 4; ++e) {
                const int32_t code = q8_code(x[k].x[e], inverse);
                codes[k] |= (static_cast<uint32_t>(code) & 0xFFU) << (8 * e);
                sum[k] += code;
            }
        }
        for (int mask = 2; mask > 0; mask /= 2)
            for (int32_t& each : sum) each += t.from_lane_xor(each, mask);
        for (int k = 0; k < k_kept; ++k) {
            const int i = own + k * n_threads;
            if (i >= n_fours) continue;
            put(blocks + i / 8, i % 8, codes[k], scale[k], sum[k]);
            if (later != nullptr) put(later + i / 8, i % 8, codes[k], scale[k], sum[k]);
        }
    }

  private:
    // `four` of eight puts its codes; it has the sum of its half.
    MINIM_DEVICE static void put(Q8Block* block, int four, uint32_t codes, float scale, int32_t sum) {
        reinterpret_cast<uint32_t*>(block->code)[four] = codes;
        if (four == 0) block->scale = scale;
        if (four % 4 != 0) return;
        block->sum[four / 4] = static_cast<int16_t>(sum);
        block->scaled_sum[four / 4] = scale * static_cast<float>(sum);
    }
};

// Quantises `count` floats, a multiple of 32, aligned to 16 bytes. n_threads threads call it, t.index() of which counts from 0; a barrier
// of theirs must come before others read the blocks. later: as above.
template <int n_threads, class T>
MINIM_DEVICE void quantize_rows(T& t, const float* x, int count, Q8Block* blocks, Q8Block* later) {
    using Fours = RowFours<n_threads>;
    const int n_fours = count / 4;
    MINIM_DEVICE_LOOP
    for (int first = 0; first < n_fours; first += Fours::k_step) {
        typename Fours::Fours own;
        Fours::load(x, first + t.index(), n_fours, own);
        Fours::quantize(t, first + t.index(), n_fours, own, blocks, later);
    }
}

}  // namespace minim::cuda::fast
