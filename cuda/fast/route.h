// SPDX-License-Identifier: Apache-2.0
// The choice of experts from the router's outputs.
//
// Shape: one warp for each row, each lane has one of every 32 experts; the best is taken n_used times. Bytes moved:
// the outputs once, and before that the router and its inputs (linear_float.h; route_row.h for one row). Bound: latency, two
// exchanges for each choice.
#pragma once

#include <cmath>

#include "backend/choose_experts.h"
#include "cuda/fast/device.h"
#include "cuda/fast/exchange.h"
#include "cuda/fast/last_block.h"
#include "cuda/fast/linear_float.h"
#include "cuda/fast/operations.h"

namespace minim::cuda::fast {

// Converts a score to a sortable number: larger is better; NaN ranks after all others and before 0, which means none.
MINIM_DEVICE uint32_t choice_order(float x) {
    if (x != x) return 1;
    const uint32_t bits = float_to_bits(x + 0.0F);  // no -0
    return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

MINIM_DEVICE float expert_score(float output) {
    return 1.0F / (1.0F + std::exp(-output));
}

// Computes the scores of experts first, first + step, and so on.
template <class T>
MINIM_DEVICE void score_experts(T& t, const float* output, int64_t n_expert, int first, int step,
                                float* score) {
    for (int e = first; e < n_expert; e += step) score[e] = expert_score(t.load_fresh(output + e));
}

// Copies the table's entries of the experts of a row; lane s has the id of choice s. All lanes of a warp call it: four for each
// entry, 16 bytes each.
template <class T>
MINIM_DEVICE void copy_places(T& t, const Choice& choice, int32_t own_id, int64_t row) {
    constexpr int k_lanes = sizeof(backend::ExpertPlace) / sizeof(SixteenBytes);
    const auto n_used = static_cast<int>(choice.n_used);
    const int lane = t.index() % 32;
    for (int first = 0; first < n_used; first += 32 / k_lanes) {
        const int slot = first + lane / k_lanes;
        const auto id = static_cast<int32_t>(t.from_lane(static_cast<float>(own_id), slot % 32));
        if (slot >= n_used) continue;
        const auto* from = reinterpret_cast<const SixteenBytes*>(choice.places + id);
        auto* to = reinterpret_cast<SixteenBytes*>(choice.chosen + row * n_used + slot);
        to[lane % k_lanes] = from[lane % k_lanes];
    }
}

// Computes backend::choose_experts() of score [n_expert], in shared memory, for row `row`. Called by a warp's threads. There are
// at most 32 * most experts.
template <int most, class T>
MINIM_DEVICE void choose_of(T& t, const float* score, int64_t n_expert, const Choice& choice, int64_t row) {
    const int lane = t.index() % 32;
    uint32_t order[most];  // of expert lane + 32 k; 0: chosen, or not there
    for (int k = 0; k < most; ++k) {
        const int e = lane + 32 * k;
        order[k] = 0;
        if (e >= n_expert) continue;
        order[k] = choice_order(choice.bias == nullptr ? score[e] : score[e] + choice.bias[e]);
    }
    int32_t own_id = 0;  // lane s keeps choice s, of at most 32
    const auto n_used = static_cast<int>(choice.n_used);
    for (int s = 0; s < n_used; ++s) {
        uint32_t best = 0;
        for (const uint32_t each : order) best = each > best ? each : best;
        best = t.largest_of_lanes(best);
        // The first of equals has the largest distance from its index to the end.
        uint32_t lack = 0;
        for (int k = most - 1; k >= 0; --k)
            lack = order[k] == best ? static_cast<uint32_t>(32 * most - (lane + 32 * k)) : lack;
        lack = t.largest_of_lanes(lack);
        const int32_t id = 32 * most - static_cast<int32_t>(lack);
        for (int k = 0; k < most; ++k) order[k] = id == lane + 32 * k ? 0 : order[k];
        if (lane == s) own_id = id;
    }
    const float own_score = lane < n_used ? score[own_id] : 0.0F;
    float sum = 0.0F;
    for (int s = 0; s < n_used; ++s) sum += t.from_lane(own_score, s);
    if (sum < backend::k_smallest_gate_sum) sum = backend::k_smallest_gate_sum;
    if (choice.chosen != nullptr) copy_places(t, choice, own_id, row);
    if (lane >= n_used) return;
    choice.ids[row * n_used + lane] = own_id;
    choice.gates[row * n_used + lane] = own_score / sum;
}

// The same for any number of experts: models with up to 256 need half the comparisons.
template <class T>
MINIM_DEVICE void choose_experts(T& t, const float* score, int64_t n_expert, const Choice& choice,
                                 int64_t row) {
    constexpr int k_max = static_cast<int>(exact::k_max_experts) / 32;
    if (n_expert <= 16 * k_max) return choose_of<k_max / 2>(t, score, n_expert, choice, row);
    choose_of<k_max>(t, score, n_expert, choice, row);
}

// Chooses experts by a router's outputs.
struct RouteKernel {
    static constexpr int k_threads = 32;

    const float* output;  // [n, n_expert]
    int64_t n;
    int64_t n_expert;
    Choice choice;

    Grid grid() const { return {n, 1, n_expert * int64_t{sizeof(float)}}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        auto* score = reinterpret_cast<float*>(t.shared());
        score_experts(t, output + t.block() * n_expert, n_expert, t.index(), 32, score);
        t.sync_warp();
        choose_experts(t, score, n_expert, choice, t.block());
    }
};

// Also computes the router's outputs for several rows: the last block of some rows chooses for them, a warp per row.
// `posts`: the rows and the choices also go to the host (exchange.h); there are at most k_tokens rows then.
template <class Block, bool posts = false>
struct RouteFloatKernel {
    static constexpr int k_tokens = 4;
    using Outputs = LinearFloatKernel<Block, k_tokens, 4>;
    static constexpr int k_threads = Outputs::k_threads;
    static constexpr bool k_starts_early = true;
    static constexpr int k_scores_at = Outputs::k_shared_bytes + static_cast<int>(sizeof(int32_t));
    static_assert(k_tokens <= k_threads / 32);

    Outputs outputs;
    Choice choice;
    int32_t* arrived;
    PostedPieces post;

    // With `posts` there is one more block, which posts the rows.
    Grid grid() const {
        Grid grid = outputs.grid();
        if (posts) ++grid.n_blocks;
        grid.shared_bytes = k_scores_at + k_tokens * outputs.products.rows[0] * int64_t{sizeof(float)};
        return grid;
    }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        if constexpr (posts) {
            if (t.block() == outputs.grid().n_blocks) return post_rows(t);
        }
        outputs(t);
        const int64_t n_expert = outputs.products.rows[0];
        auto* is_last = reinterpret_cast<int32_t*>(t.shared() + Outputs::k_shared_bytes);
        const auto n_blocks = static_cast<int32_t>(outputs.grid().n_blocks);
        if (!is_last_block(t, arrived + t.block_y(), n_blocks, is_last)) return;
        const int warp = t.index() / 32;
        const int64_t row = int64_t{t.block_y()} * k_tokens + warp;
        if (warp >= k_tokens || row >= outputs.n) return;  // the whole warp returns
        float* score = reinterpret_cast<float*>(t.shared() + k_scores_at) + warp * n_expert;
        score_experts(t, outputs.products.y[0] + row * n_expert, n_expert, t.index() % 32, 32, score);
        t.sync_warp();
        choose_experts(t, score, n_expert, choice, row);
        if constexpr (posts) {
            t.sync_warp();
            put_ids(t, choice.ids, row, choice.n_used, post, number_of(t, post.turn), t.index() % 32, 32);
        }
    }

  private:
    template <class T>
    MINIM_DEVICE void post_rows(T& t) const {
        t.wait_for_inputs();
        copy_words(t, k_threads, outputs.x, post.h, outputs.n * outputs.products.cols);
        put_flag(t, outputs.n, choice.n_used, post, number_of(t, post.turn));
    }
};

}  // namespace minim::cuda::fast
