// SPDX-License-Identifier: Apache-2.0
// The roles of the architecture's weights, in the order in which they are listed for each layer.
#pragma once

#include <cstdint>

namespace minim::model {

enum class Role : int32_t {
    embedding,
    attn_norm,
    wq,
    wk,
    wv,
    index_q,  // of layers with block-sparse attention, like the other three
    index_k,
    wo,
    router,
    q_norm,
    k_norm,
    index_q_norm,
    index_k_norm,
    ffn_norm,
    router_bias,
    experts_norm,  // ffn_norm once more, on a device that has the experts of a layer but not its attention
    dense_gate,  // of the feed-forward that every row takes, like the next two: a dense layer's, or the shared expert
    dense_up,
    dense_down,
    gate,  // of an expert, like `up` and `down`
    up,
    down,
    output_norm,
    output,
};

}  // namespace minim::model
