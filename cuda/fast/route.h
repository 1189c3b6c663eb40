// The choice of experts from the router's outputs.
//
// Shape: a warp a row, an expert of every 32 a lane; the best is taken n_used times. Bytes moved: the outputs once. Bound:
// latency: five exchanges a choice.
#pragma once

#include <cmath>

#include "backend/choose_experts.h"
#include "cuda/fast/device.h"
#include "cuda/fast/operations.h"

namespace minim::cuda::fast {

// Meaning: backend::choose_experts() of the sigmoids.
struct RouteKernel {
    static constexpr int k_threads = 32;
    static constexpr int k_most = static_cast<int>(exact::k_most_experts) / 32;

    const float* output;  // [n, n_expert], of the router
    int64_t n;
    int64_t n_expert;
    const float* bias;  // may be null
    int64_t n_used;
    int32_t* ids;
    float* gates;

    Grid grid() const { return {.n_blocks = n}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const int lane = t.index();
        float score[k_most];
        float biased[k_most];
        bool is_chosen[k_most];
        for (int k = 0; k < k_most; ++k) {
            const int e = lane + 32 * k;
            is_chosen[k] = e >= n_expert;
            score[k] = is_chosen[k] ? 0.0F : 1.0F / (1.0F + std::exp(-output[t.block() * n_expert + e]));
            biased[k] = is_chosen[k] || bias == nullptr ? score[k] : score[k] + bias[e];
        }
        float sum = 0.0F;
        float own_gate = 0.0F;  // lane s keeps choice s, s + 32 ... of at most 32
        for (int64_t s = 0; s < n_used; ++s) {
            // The lane's best, the lower index first. NaN is worse than anything, but better than nothing.
            int32_t best = -1;
            float best_biased = 0.0F;
            float best_score = 0.0F;
            for (int k = 0; k < k_most; ++k) {
                if (is_chosen[k]) continue;
                if (best >= 0 && !is_better(biased[k], lane + 32 * k, best_biased, best)) continue;
                best = lane + 32 * k;
                best_biased = biased[k];
                best_score = score[k];
            }
            for (int mask = 16; mask > 0; mask /= 2) {
                const int32_t other = t.from_lane_xor(best, mask);
                const float other_biased = t.from_lane_xor(best_biased, mask);
                const float other_score = t.from_lane_xor(best_score, mask);
                const bool takes =
                    other >= 0 && (best < 0 || is_better(other_biased, other, best_biased, best));
                best = takes ? other : best;
                best_biased = takes ? other_biased : best_biased;
                best_score = takes ? other_score : best_score;
            }
            for (int k = 0; k < k_most; ++k) is_chosen[k] = is_chosen[k] || best == lane + 32 * k;
            sum += best_score;
            if (lane == s) own_gate = best_score;
            if (lane == 0) ids[t.block() * n_used + s] = best;
        }
        if (sum < backend::k_smallest_gate_sum) sum = backend::k_smallest_gate_sum;
        if (lane < n_used) gates[t.block() * n_used + lane] = own_gate / sum;
    }

  private:
    MINIM_DEVICE static bool is_better(float a, int32_t a_index, float b, int32_t b_index) {
        if (a > b) return true;
        if (b > a) return false;
        if ((a != a) != (b != b)) return b != b;
        return a_index < b_index;
    }
};

}  // namespace minim::cuda::fast
