// SPDX-License-Identifier: Apache-2.0
#include "model/shares.h"

#include <utility>

#include "model/roles.h"
#include "model/weights.h"
#include "weights/narrow.h"

namespace minim::model {
namespace {

using runtime::RankShare;
using runtime::Shard;
using weights::Range;
using weights::WeightSpec;

// Returns range i of n equal ranges of `count`.
Range range_of(int64_t count, int64_t i, int64_t n) {
    return {i * (count / n), count / n};
}

// Returns the rank's part of a weight of its layers.
WeightSpec share_of(const RankShare& share, const WeightSpec& weight, const Config& config) {
    const Range rows = range_of(weight.rows, share.rank, share.tensor);
    const Range columns = range_of(weight.cols, share.rank, share.tensor);
    switch (static_cast<Role>(weight.role)) {
        case Role::wq:
        case Role::wk:
        case Role::wv:
        case Role::index_q:  // index head g chooses for KV head g
        case Role::output:
            return share.tensor == 1 ? weight : weights::rows_of(weight, rows);
        case Role::q_norm:
        case Role::k_norm:
            // The weights of one head, if every head has the same ones, are every rank's.
            if (share.tensor == 1 || weight.cols == config.head_dim) return weight;
            return weights::rows_of(weight, columns);
        case Role::wo:
            return share.tensor == 1 ? weight : weights::columns_of(weight, columns);
        case Role::gate:
        case Role::up:
            if (share.expert_parts == 1) return weight;
            return weights::rows_of(weight, range_of(weight.rows, share.expert_part(), share.expert_parts));
        case Role::down:
            if (share.expert_parts == 1) return weight;
            return weights::columns_of(weight,
                                       range_of(weight.cols, share.expert_part(), share.expert_parts));
        case Role::dense_gate:
        case Role::dense_up:
            if (share.dense_parts == 1) return weight;
            return weights::rows_of(weight, range_of(weight.rows, share.rank, share.dense_parts));
        case Role::dense_down:
            if (share.dense_parts == 1) return weight;
            return weights::columns_of(weight, range_of(weight.cols, share.rank, share.dense_parts));
        case Role::embedding:
        case Role::attn_norm:
        case Role::ffn_norm:
        case Role::experts_norm:
        case Role::index_k:  // each rank has the key that all heads share
        case Role::index_q_norm:
        case Role::index_k_norm:
        case Role::router:
        case Role::router_bias:
        case Role::output_norm:
            break;
    }
    return weight;
}

}  // namespace

Config config_of(const RankShare& share, const Config& whole) {
    Config config = whole;
    config.n_head /= share.tensor;
    config.n_head_kv /= share.tensor;
    config.sparse_attention.n_head /= share.tensor;
    config.expert_ff /= share.expert_parts;
    config.dense_ff /= share.dense_parts;
    config.shared_ff /= share.dense_parts;
    config.n_vocab /= share.tensor;
    return config;
}

std::optional<WeightSpec> part_of(const Shard& shard, const WeightSpec& weight, const Config& config) {
    const bool is_absent = weight.is_expert() && !shard.share.has_expert(weight.expert);
    if (is_absent || !has(shard, weight)) return {};
    return share_of(shard.share, weight, config);
}

std::vector<WeightSpec> weights_of(const Shard& shard, std::span<const WeightSpec> whole,
                                   const Config& config) {
    std::vector<WeightSpec> weights;
    for (const WeightSpec& weight : whole)
        if (auto part = part_of(shard, weight, config)) weights.push_back(std::move(*part));
    return weights;
}

kv::PagePart page_part_of(const Shard& shard, const Config& config) {
    const int64_t n_head = config.n_head_kv / shard.share.tensor;
    return {.backend = shard.backend,
            .first_layer = shard.first_layer,
            .n_layer = shard.n_layer,
            .first_head = shard.share.shares_heads() ? shard.share.rank * n_head : 0,
            .n_head = n_head};
}

}  // namespace minim::model
