// SPDX-License-Identifier: Apache-2.0
#include "model/m2_config.h"

#include "base/error.h"
#include "layouts/quantization_config.h"
#include "model/config_check.h"
#include "model/gguf_keys.h"
#include "model/json_values.h"

namespace minim::model {
namespace {

using json::to_text;
using json::Value;

// A list may go on with the layers of multi-token prediction.
void check_layer_list(const Value& list, const char* key, int64_t n_layer) {
    if (!list.is_array() || static_cast<int64_t>(list.items.size()) < n_layer) {
        fail_file(Reason::value, "config.json: {} has not one entry for each of {} layers", key, n_layer);
    }
}

// 1 is softmax attention; 0 was linear attention in the older family.
void check_attention_kinds(const Value& object, int64_t n_layer) {
    if (const Value* kinds = json_values::find(object, "attn_type_list")) {
        check_layer_list(*kinds, "attn_type_list", n_layer);
        for (size_t layer = 0; layer < kinds->items.size(); ++layer) {
            if (!json_values::is_number(kinds->items[layer], 1)) {
                fail(Status::unsupported,
                     "layer {} uses linear attention (attn_type_list = {}), which is not supported", layer,
                     to_text(kinds->items[layer]));
            }
        }
    }
    if (const Value* kinds = json_values::find(object, "layer_types")) {
        check_layer_list(*kinds, "layer_types", n_layer);
        for (size_t layer = 0; layer < kinds->items.size(); ++layer) {
            if (!kinds->items[layer].is_string("full_attention")) {
                fail(Status::unsupported, "layer {} is of type {} (layer_types), which is not supported",
                     layer, to_text(kinds->items[layer]));
            }
        }
    }
    const Value* sparse = json_values::find(object, "moe_layer_freq");
    if (sparse != nullptr && !json_values::is_number(*sparse, 1)) {
        check_layer_list(*sparse, "moe_layer_freq", n_layer);
        for (size_t layer = 0; layer < sparse->items.size(); ++layer) {
            if (!json_values::is_number(sparse->items[layer], 1))
                fail(Status::unsupported, "layer {} is dense (moe_layer_freq), which is not supported",
                     layer);
        }
    }
}

void refuse_what_m2_lacks(const Value& object) {
    json_values::refuse_what_no_family_has(object);
    json_values::refuse_if_set(object, "shared_intermediate_size", "a shared expert");
    json_values::refuse_if_set(object, "sparse_attention_config", "sparse attention");
    json_values::refuse_if_set(object, "use_gemma_norm", "(1 + weight) normalisation");
    if (const Value* value = json_values::find(object, "hidden_act");
        value != nullptr && !value->is_string("silu")) {
        json_values::refuse("hidden_act", *value, "this activation");
    }
    if (const Value* value = json_values::find(object, "qk_norm_type");
        value != nullptr && !value->is_string("per_layer")) {
        json_values::refuse("qk_norm_type", *value, "this QK-norm");
    }
}

}  // namespace

Config m2_config(const Value& object) {
    using json_values::required;
    refuse_what_m2_lacks(object);

    Config config;
    config.packing = layouts::packing_hints(object);
    config.n_layer = required(object, "num_hidden_layers");
    check_attention_kinds(object, config.n_layer);
    config.n_mtp_layer = json_values::mtp_layers(object);
    config.hidden = required(object, "hidden_size");
    config.n_head = required(object, "num_attention_heads");
    config.n_head_kv = required(object, "num_key_value_heads");
    config.head_dim = required(object, "head_dim");
    config.rotary_dim = json_values::rotary_dim(object, config.head_dim);
    config.rope_theta = json_values::rope_theta(object);
    config.norm_eps = static_cast<float>(json_values::required_number(object, "rms_norm_eps"));
    config.n_expert = required(object, "num_local_experts");
    config.n_expert_used = required(object, "num_experts_per_tok");
    config.expert_ff = required(object, "intermediate_size");
    config.n_context_train = required(object, "max_position_embeddings");
    if (json_values::find(object, "vocab_size") != nullptr) config.n_vocab = required(object, "vocab_size");
    config.expert_weights_scale = json_values::expert_weights_scale(object);
    if (const Value* bias = json_values::find(object, "use_routing_bias"))
        config.needs_router_bias = bias->boolean;
    check_config(config);
    return config;
}

Config m2_config(const checkpoint::Metadata& metadata, const Logger& log) {
    const GgufKeys keys(metadata, "minimax-m2");
    refuse_what_no_family_has(keys);
    keys.refuse_above("expert_shared_count", 0, "a shared expert");
    keys.refuse_above("expert_shared_feed_forward_length", 0, "a shared expert");
    keys.refuse_above("leading_dense_block_count", 0, "dense leading layers");

    Config config = common_config(keys, log);
    config.expert_ff =
        keys.integer_or("expert_feed_forward_length", keys.integer_or("feed_forward_length", 0));
    check_config(config);
    return config;
}

}  // namespace minim::model
