// SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include "base/error.h"
#include "model/config_check.h"

namespace minim::model {

void check_config(const Config& config) {
    const auto positive = [](const char* what, int64_t value) {
        constexpr int64_t k_limit = int64_t{1}
                                    << 24;  // far above any real size; keeps every product in 64 bits
        if (value < 1 || value > k_limit) fail_file(Reason::value, "{} is {}", what, value);
    };
    positive("layer count", config.n_layer);
    positive("hidden size", config.hidden);
    positive("query head count", config.n_head);
    positive("KV head count", config.n_head_kv);
    positive("head dimension", config.head_dim);
    positive("rotary dimension", config.rotary_dim);
    positive("expert count", config.n_expert);
    positive("experts per token", config.n_expert_used);
    positive("expert width", config.expert_ff);
    positive("context length", config.n_context_train);
    if (config.n_vocab < 0) fail_file(Reason::value, "vocabulary size is {}", config.n_vocab);
    if (config.n_mtp_layer < 0) {
        fail_file(Reason::value, "multi-token-prediction layer count is {}", config.n_mtp_layer);
    }
    if (config.n_head % config.n_head_kv != 0) {
        fail_file(Reason::value, "{} query heads cannot share {} KV heads evenly", config.n_head,
                  config.n_head_kv);
    }
    if (config.rotary_dim % 2 != 0 || config.rotary_dim > config.head_dim) {
        fail_file(Reason::value, "rotary dimension {} does not suit heads of {}", config.rotary_dim,
                  config.head_dim);
    }
    if (config.n_expert_used > config.n_expert) {
        fail_file(Reason::value, "{} experts per token of {} experts", config.n_expert_used, config.n_expert);
    }
    if (!(config.rope_theta > 0.0) || !(config.rope_theta < 1e30)) {
        fail_file(Reason::value, "rope base is {}", config.rope_theta);
    }
    if (!(config.norm_eps >= 0.0F) || !(config.norm_eps < 1.0F)) {
        fail_file(Reason::value, "norm epsilon is {}", config.norm_eps);
    }
    if (!(config.expert_weights_scale > 0.0F) || !(config.expert_weights_scale < 1e6F)) {
        fail_file(Reason::value, "expert weights scale is {}", config.expert_weights_scale);
    }
}

}  // namespace minim::model
