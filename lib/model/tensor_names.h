// SPDX-License-Identifier: Apache-2.0
// The names of the tensors of a MiniMax-M2 checkpoint, in GGUF files and in safetensors folders.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace minim::model::names {

enum class Part {
    attn_norm,
    attn_q,
    attn_k,
    attn_v,
    attn_output,
    attn_q_norm,
    attn_k_norm,
    ffn_norm,
    router,
    router_bias
};

enum class ExpertPart { gate, up, down };

// Spellings in the order of search.
using Spellings = std::vector<std::string>;

Spellings embedding();
Spellings output_norm();
Spellings output();
Spellings layer(int64_t index, Part part);

Spellings fused_qkv(int64_t layer);                                // rows Q, K, V
std::string stacked_expert(int64_t layer, std::string_view part);  // GGUF: "gate", "up", "down"
std::string fused_gate_up_gguf(int64_t layer);                     // gate rows, then up rows
// Safetensors: block_sparse_moe or mlp, and for single experts w1, w3, w2 or gate_proj, up_proj, down_proj.
Spellings fused_gate_up_hf(int64_t layer);
Spellings fused_down_hf(int64_t layer);
Spellings single_expert(int64_t layer, int64_t expert, ExpertPart part);

// Returns whether a tensor does not affect results: precomputed rotary frequencies of old exporters, or factors for
// activations, K and V of eight or four bits, which are not quantised here.
bool is_ignored(std::string_view name);

// Returns the layer of a tensor's name, -1 if it belongs to no layer.
int64_t layer_of(std::string_view name);

// Returns whether a name is one that only layers of multi-token prediction have: blk.N.nextn.eh_proj, model.layers.N.enorm. Other
// tensors of such a layer are named like those of any layer.
bool marks_mtp(std::string_view name);

// Returns true for the name of a tensor of multi-token prediction: one of the n_mtp layers after the n_layer layers of the model,
// or one that only such layers have.
bool is_mtp(std::string_view name, int64_t n_layer, int64_t n_mtp);

}  // namespace minim::model::names
