// SPDX-License-Identifier: Apache-2.0
// The bytes that a token must read, by the model's shape: the numerator of every bandwidth that minim-bench prints.
#pragma once

#include <cstdint>

#include "backend/kv_view.h"
#include "backend/sparse_attention.h"
#include "model/config.h"
#include "model/weights.h"
#include "runtime/placement.h"

namespace minim::bench {

// Returns the bytes of weights that a step of n_rows tokens reads, all with logits. Experts count if at least one token chooses
// them: the mean for random choices.
double active_bytes(const model::Config& config, const model::Weights& weights, int64_t n_rows);
// Returns the part of these bytes that one device has.
double active_bytes(const model::Config& config, const model::Weights& weights, int64_t n_rows,
                    const runtime::Shard& shard);

// Returns the bytes of all weights.
double weight_bytes(const model::Weights& weights);

// Returns the bytes of the KV cache that attention reads for a token behind n_positions others: all, or, in a layer that chooses blocks,
// the chosen ones and all index keys.
double kv_bytes(const backend::KvLayout& layout, const backend::SparseAttention& index, int64_t n_layer,
                int64_t n_positions);

}  // namespace minim::bench
