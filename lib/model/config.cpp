// SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include <bit>
#include <cmath>

#include "base/error.h"
#include "model/config_check.h"

namespace minim::model {
namespace {

void check_sparse_attention(const Config& config) {
    const backend::SparseAttention& sparse = config.sparse_attention;
    if (config.first_sparse_layer >= config.n_layer) return;
    if (sparse.n_head != config.n_head_kv)
        fail(Status::unsupported, "{} index heads beside {} KV heads are not supported", sparse.n_head,
             config.n_head_kv);
    if (sparse.block < 16 || sparse.block > 1024 || !std::has_single_bit(static_cast<uint64_t>(sparse.block)))
        fail(Status::unsupported,
             "blocks of {} positions are not supported; a block has a power of two from 16 to 1024",
             sparse.block);
    if (sparse.dim < config.rotary_dim || sparse.dim > config.hidden)
        fail_file(Reason::value, "index dimension {} does not suit a rotary dimension of {}", sparse.dim,
                  config.rotary_dim);
    if (sparse.local < 1 || sparse.init < 0 || sparse.top < sparse.local + sparse.init)
        fail_file(
            Reason::value,
            "{} chosen blocks have no room for {} local and {} initial blocks, at least one of them local",
            sparse.top, sparse.local, sparse.init);
}

// What M3 has besides what every family has.
void check_m3(const Config& config) {
    if (config.n_dense_layer < 0 || config.n_dense_layer > config.n_layer)
        fail_file(Reason::value, "{} of {} layers have no experts", config.n_dense_layer, config.n_layer);
    if (config.n_dense_layer == config.n_layer)
        fail(Status::unsupported, "a model without experts in any layer is not supported");
    const backend::Activation& activation = config.activation;
    if (!(activation.alpha > 0.0F) || !(activation.limit > 0.0F) || !std::isfinite(activation.alpha) ||
        !std::isfinite(activation.limit))
        fail(Status::unsupported,
             "an activation of alpha {} and limit {} is not supported; both must be above 0",
             activation.alpha, activation.limit);
    check_sparse_attention(config);
}

}  // namespace

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
    if (config.family == Family::m3) positive("shared expert width", config.shared_ff);
    if (config.n_dense_layer > 0) positive("dense width", config.dense_ff);
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
    if (config.family == Family::m3) check_m3(config);
}

}  // namespace minim::model
