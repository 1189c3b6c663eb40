// SPDX-License-Identifier: Apache-2.0
// The properties that a model's shape must have, whatever file it was read from.
#pragma once

#include <cmath>
#include <cstdint>

#include "model/config.h"
#include "require.h"

namespace minim::fuzz {

inline void require_shape(const model::Config& config) {
    for (const int64_t size :
         {config.n_layer, config.hidden, config.n_head, config.n_head_kv, config.head_dim, config.rotary_dim,
          config.n_expert, config.n_expert_used, config.expert_ff, config.n_context_train})
        require(size > 0 && size <= INT32_MAX, "a size is positive and no larger than such a file can say");
    require(config.n_mtp_layer >= 0 && config.n_vocab >= 0, "a count is not negative");
    require(config.n_head % config.n_head_kv == 0, "each key head has as many query heads");
    require(config.rotary_dim % 2 == 0 && config.rotary_dim <= config.head_dim, "pairs of a head rotate");
    require(config.n_expert_used <= config.n_expert, "no more experts are used than there are");
    require(std::isfinite(config.rope_theta) && config.rope_theta > 0.0, "the rotation has a base");
    require(std::isfinite(config.norm_eps) && config.norm_eps >= 0.0F, "norms have an epsilon");
    require(std::isfinite(config.expert_weights_scale), "gates have a factor");
}

}  // namespace minim::fuzz
