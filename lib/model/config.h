// SPDX-License-Identifier: Apache-2.0
// The shape of a model, from its checkpoint only. Nothing is assumed: layer, head, expert and vocabulary counts of
// any size load through the same path. Features that the forward pass does not have are refused by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "backend/experts.h"
#include "backend/sparse_attention.h"
#include "base/log.h"
#include "checkpoint/metadata.h"
#include "layouts/declared.h"

namespace minim::model {

// MiniMax-M2 (M2.1, M2.5, M2.7), and the language model of MiniMax-M3.
enum class Family : uint8_t { m2, m3 };

struct Config {
    Family family = Family::m2;
    std::string name;  // general.name, or empty
    int64_t n_layer = 0;
    int64_t n_dense_layer = 0;  // leading layers without experts
    // Multi-token-prediction layers from n_layer on, which are skipped; need not be there.
    int64_t n_mtp_layer = 0;
    int64_t hidden = 0;
    int64_t n_head = 0;
    int64_t n_head_kv = 0;
    int64_t head_dim = 0;
    int64_t rotary_dim = 0;
    int64_t n_expert = 0;  // the largest of all layers: a pruned model may differ by layer
    int64_t n_expert_used = 0;
    int64_t expert_ff = 0;
    int64_t shared_ff = 0;  // of the expert that each row takes beside the chosen ones; 0: there is none
    int64_t dense_ff = 0;   // of layers without experts
    backend::Activation activation;
    int64_t n_vocab = 0;  // rows of the embedding, padding included; 0: as many as the embedding has
    int64_t n_context_train = 0;
    double rope_theta = 0.0;
    float norm_eps = 0.0F;
    bool adds_one_to_norms = false;             // the files have the weights of norms less 1
    backend::SparseAttention sparse_attention;  // of the layers from first_sparse_layer on
    int64_t first_sparse_layer = 0;
    float expert_weights_scale = 1.0F;  // multiplies the normalised gates
    bool needs_router_bias = false;     // declared by the configuration
    layouts::PackingHints packing;      // of quantised folders

    bool has_experts(int64_t layer) const noexcept { return layer >= n_dense_layer; }
    bool is_sparse(int64_t layer) const noexcept {
        return sparse_attention.n_head > 0 && layer >= first_sparse_layer;
    }
    int64_t n_expert_layer() const noexcept { return n_layer - n_dense_layer; }
    int64_t n_sparse_layer() const noexcept {
        return sparse_attention.n_head > 0 ? n_layer - first_sparse_layer : 0;
    }
};

// Both believe what the configuration says about layers of multi-token prediction; mtp_layers.h looks at the tensors too. Both
// throw format (a required key is missing, of another type, or impossible) or unsupported (a feature that this
// library does not have), naming the key and its value.
Config config_from_gguf(const checkpoint::Metadata& metadata, const Logger& log);
Config config_from_json(std::string_view config_json, const Logger& log);

}  // namespace minim::model
