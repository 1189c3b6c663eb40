// SPDX-License-Identifier: Apache-2.0
// The norm of one row as the beginning of the kernel that needs it: every block normalises the row for itself, so that no
// launch comes before.
//
// Shape: all threads of a block, four neighbouring elements each; the first k_kept of these of a thread stay in registers
// (with 256 threads a row of 3072). Eight lanes have a block of 32 elements. Bytes moved for each element: 8 in for each block
// of threads, from the second-level cache; 5.5 out of one block. Bound: latency of the row's loads and of two barriers.
#pragma once

#include <cmath>

#include "cuda/fast/device.h"
#include "cuda/fast/operations.h"
#include "cuda/fast/quantize.h"

namespace minim::cuda::fast {

// Where the normalised row goes, in shared or global memory: floats, blocks, and the blocks once more, if at all, for later
// kernels; and the floats once more, in the host's memory. Null: nowhere.
struct NormedRow {
    float* h = nullptr;
    Q8Block* quantized = nullptr;
    Q8Block* later_quantized = nullptr;
    float* posted = nullptr;
};

template <int n_threads>
struct RowNorm {
    static constexpr int k_kept = 3;
    static constexpr int k_step = k_kept * n_threads;
    static constexpr int k_sum_bytes = n_threads / 32 * 4;
    using Fours = FourFloats[k_kept];

    // Waits for the kernel's inputs: the weights are loaded before that, since they do not depend on earlier work in the
    // stream. `sums` is k_sum_bytes of shared memory, free again after the next barrier. That barrier must come before other
    // threads read the row.
    template <class T>
    MINIM_DEVICE static void run(T& t, const NormRow& row, float* sums, const NormedRow& to) {
        const int n_fours = static_cast<int>(row.size) / 4;
        Fours gain;
        load(row.weight, t.index(), n_fours, gain);
        t.wait_for_inputs();
        Fours x;
        load(row.x, t.index(), n_fours, x);
        const float factor = factor_of(t, row, x, sums);
        MINIM_DEVICE_LOOP
        for (int first = 0; first < n_fours; first += k_step) {
            const int own = first + t.index();
            if (first > 0) {
                load(row.weight, own, n_fours, gain);
                load(row.x, own, n_fours, x);
            }
            for (int k = 0; k < k_kept; ++k)
                for (int e = 0; e < 4; ++e) x[k].x[e] = x[k].x[e] * factor * gain[k].x[e];
            if (to.h != nullptr) store(to.h, own, n_fours, x);
            if (to.posted != nullptr) store(to.posted, own, n_fours, x);
            if (to.quantized != nullptr) quantize(t, own, n_fours, x, to);
        }
    }

  private:
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

    // Returns 1 / sqrt(mean(x^2) + eps), the same in every block. The thread has loaded the first elements already.
    template <class T>
    MINIM_DEVICE static float factor_of(T& t, const NormRow& row, const Fours& kept, float* sums) {
        const int n_fours = static_cast<int>(row.size) / 4;
        float sum = squares(kept, 0.0F);
        MINIM_DEVICE_LOOP
        for (int first = k_step; first < n_fours; first += k_step) {
            Fours x;
            load(row.x, first + t.index(), n_fours, x);
            sum = squares(x, sum);
        }
        sum = sum_of_lanes(t, sum);
        if (t.index() % 32 == 0) sums[t.index() / 32] = sum;
        t.sync();
        float total = 0.0F;
        for (int w = 0; w < n_threads / 32; ++w) total += sums[w];
        return 1.0F / std::sqrt(total / static_cast<float>(row.size) + row.eps);
    }
    MINIM_DEVICE static float squares(const Fours& x, float sum) {
        for (const FourFloats& four : x)
            for (const float value : four.x) sum += value * value;
        return sum;
    }

    // Does what quantize_lanes() does, for k_kept elements of four at once: exchanges of one hide those of the others.
    template <class T>
    MINIM_DEVICE static void quantize(T& t, int own, int n_fours, const Fours& x, const NormedRow& to) {
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
            put(to.quantized + i / 8, i % 8, codes[k], scale[k], sum[k]);
            if (to.later_quantized != nullptr)
                put(to.later_quantized + i / 8, i % 8, codes[k], scale[k], sum[k]);
        }
    }
    // `four` of eight puts its codes; it has the sum of its half.
    MINIM_DEVICE static void put(Q8Block* block, int four, uint32_t codes, float scale, int32_t sum) {
        reinterpret_cast<uint32_t*>(block->code)[four] = codes;
        if (four == 0) block->scale = scale;
        if (four % 4 != 0) return;
        block->sum[four / 4] = static_cast<int16_t>(sum);
        block->scaled_sum[four / 4] = scale * static_cast<float>(sum);
    }
};

}  // namespace minim::cuda::fast
