// SPDX-License-Identifier: Apache-2.0
// What connects a rank with the ranks that it computes a model with. Without links it computes alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "backend/backend.h"
#include "backend/group.h"
#include "runtime/placement.h"
#include "runtime/transport.h"

namespace minim::runtime {

struct RankLinks {
    std::string name = {};  // "rank 2 (cuda:2)"
    RankShare share = {};
    // Connects the ranks of the layers, numbered as the share does; null: this rank has all of the layers.
    Transport* group = nullptr;
    // Connects the devices of the same ranks directly; null: they exchange over `group` alone.
    backend::GroupLink* direct = nullptr;
    // Connects the ranks of a pipeline's neighbours; null: there is no pipeline. `before` sends the residual stream to this
    // rank, which sends it to `after`; -1: none does.
    Transport* pipeline = nullptr;
    int32_t before = -1;
    int32_t after = -1;
    // Compares the experts that the ranks of a group choose, row by row in every layer: for tests and debugging, since it exchanges as
    // often as the layers do.
    bool compares_choices = false;

    bool is_alone() const noexcept { return group == nullptr && pipeline == nullptr; }
    bool shares_heads() const noexcept { return group != nullptr && share.shares_heads(); }
    // Returns whether experts are whole on each rank, and their outputs are sent slot by slot. Devices that are connected sum them, and
    // so do ranks that have parts of dense feed-forwards to sum.
    bool shares_slots() const noexcept {
        return group != nullptr && direct == nullptr && share.expert_parts == 1 && !share.divides_dense();
    }
};

// Returns the largest exchange of steps of this size among the ranks of a group. `shape`: of this rank.
inline backend::GroupLimits group_limits(const RankLinks& links, const backend::StepLimits& shape,
                                         int64_t n_rows) {
    backend::GroupLimits limits;
    limits.n_sum = n_rows * std::max<int64_t>(shape.hidden, 2);
    limits.n_slots = links.shares_slots() ? n_rows * shape.n_expert_used : 0;
    limits.hidden = shape.hidden;
    if (links.shares_heads())
        limits.n_gather = std::min(n_rows, backend::k_max_top_k_rows) * shape.n_vocab * links.share.tensor;
    return limits;
}

}  // namespace minim::runtime
