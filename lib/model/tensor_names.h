// SPDX-License-Identifier: Apache-2.0
// The names of the tensors of a MiniMax-M2 or M3 checkpoint, in GGUF files and in safetensors folders. All functions but the first
// two take and return names without the prefix of a language model beside a vision tower (Prefix).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace minim::model::names {

// How a folder names the tensors of its language model: "model.layers.0...", "lm_head..."; "language_model.model.layers.0...",
// "language_model.lm_head..."; "model.language_model.layers.0...", "lm_head...".
enum class Prefix { none, outer, inner };

// Returns the name that a folder has for the tensor that is called `name` without a prefix. Names of other tensors stay.
std::string with_prefix(std::string_view name, Prefix prefix);
// Returns a name without its prefix, and the prefix; none for names of other tensors.
std::pair<std::string, Prefix> without_prefix(std::string_view name);

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
    router_bias,
    index_q,
    index_k,
    index_q_norm,
    index_k_norm,
};
// Of GGUF files of every family; the parts behind it are of M3 alone.
inline constexpr Part k_last_common_part = Part::router_bias;

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

// The feed-forward of a layer without experts, and the shared expert of a layer with experts.
Spellings dense(int64_t layer, ExpertPart part);
Spellings shared_expert(int64_t layer, ExpertPart part);
// Safetensors: gate rows, then up rows.
Spellings fused_gate_up_dense(int64_t layer);
Spellings fused_gate_up_shared(int64_t layer);

// Returns whether a tensor does not affect results: precomputed rotary frequencies of old exporters, or factors for
// activations, K and V of eight or four bits, which are not quantised here.
bool is_ignored(std::string_view name);

// Returns the layer of a tensor's name, -1 if it belongs to no layer.
int64_t layer_of(std::string_view name);

// Returns whether a tensor is of a vision tower or its projector.
bool is_vision(std::string_view name);

// Returns whether a name is one that only layers of multi-token prediction have: blk.N.nextn.eh_proj, model.layers.N.enorm. Other
// tensors of such a layer are named like those of any layer.
bool marks_mtp(std::string_view name);

// Returns true for the name of a tensor of multi-token prediction: one of the n_mtp layers after the n_layer layers of the model,
// or one that only such layers have.
bool is_mtp(std::string_view name, int64_t n_layer, int64_t n_mtp);

}  // namespace minim::model::names
