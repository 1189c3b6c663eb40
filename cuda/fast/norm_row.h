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
#include "cuda/fast/quantize_rows.h"

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
    using Row = RowFours<n_threads>;
    using Fours = typename Row::Fours;
    static constexpr int k_kept = Row::k_kept;
    static constexpr int k_step = Row::k_step;
    static constexpr int k_sum_bytes = n_threads / 32 * 4;

    // Waits for the kernel's inputs: the weights are loaded before that, since they do not depend on earlier work in the
    // stream. `sums` is k_sum_bytes of shared memory, free again after the next barrier. That barrier must come before other
    // threads read the row.
    template <class T>
    MINIM_DEVICE static void run(T& t, const NormRow& row, float* sums, const NormedRow& to) {
        const int n_fours = static_cast<int>(row.size) / 4;
        Fours gain;
        Row::load(row.weight, t.index(), n_fours, gain);
        t.wait_for_inputs();
        Fours x;
        Row::load(row.x, t.index(), n_fours, x);
        const float factor = factor_of(t, row, x, sums);
        MINIM_DEVICE_LOOP
        for (int first = 0; first < n_fours; first += k_step) {
            const int own = first + t.index();
            if (first > 0) {
                Row::load(row.weight, own, n_fours, gain);
                Row::load(row.x, own, n_fours, x);
            }
            for (int k = 0; k < k_kept; ++k)
                for (int e = 0; e < 4; ++e) x[k].x[e] = x[k].x[e] * factor * gain[k].x[e];
            if (to.h != nullptr) Row::store(to.h, own, n_fours, x);
            if (to.posted != nullptr) Row::store(to.posted, own, n_fours, x);
            if (to.quantized != nullptr) Row::quantize(t, own, n_fours, x, to.quantized, to.later_quantized);
        }
    }

  private:
    // Returns 1 / sqrt(mean(x^2) + eps), the same in every block. The thread has loaded the first elements already.
    template <class T>
    MINIM_DEVICE static float factor_of(T& t, const NormRow& row, const Fours& kept, float* sums) {
        const int n_fours = static_cast<int>(row.size) / 4;
        float sum = squares(kept, 0.0F);
        MINIM_DEVICE_LOOP
        for (int first = k_step; first < n_fours; first += k_step) {
            Fours x;
            Row::load(row.x, first + t.index(), n_fours, x);
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
};

}  // namespace minim::cuda::fast
