// SPDX-License-Identifier: Apache-2.0
// What a rank has of the model's weights and sizes (placement/parallel.h has the rules).
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "kv/page_store.h"
#include "model/config.h"
#include "runtime/placement.h"
#include "weights/spec.h"

namespace minim::model {

// Returns the sizes of the model as a rank sees them: with its heads, its part of each expert, and its rows of the output head.
// The share must divide them.
Config config_of(const runtime::RankShare& share, const Config& whole);

// Returns the rank's part of a weight: the whole weight, some rows or columns, or nothing.
std::optional<weights::WeightSpec> part_of(const runtime::Shard& shard, const weights::WeightSpec& weight,
                                           const Config& config);
// Returns the rank's weights, in the order of the model's.
std::vector<weights::WeightSpec> weights_of(const runtime::Shard& shard,
                                            std::span<const weights::WeightSpec> whole, const Config& config);

// Returns the layers and heads whose KV cache the rank has.
kv::PagePart page_part_of(const runtime::Shard& shard, const Config& config);

}  // namespace minim::model
