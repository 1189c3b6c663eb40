// SPDX-License-Identifier: Apache-2.0
#include "model/tensor_names.h"

#include <algorithm>
#include <charconv>

#include "base/format_text.h"

namespace minim::model::names {
namespace {

struct PartNames {
    const char* gguf;
    const char* hf;
    const char* other;  // a further spelling of the same kind as `other_is_hf` says, or null
    bool other_is_hf = false;
};

// The names are in the order of Part. In safetensors folders, the names of the router and its bias begin with a prefix
// of k_mixtures (see layer()).
constexpr PartNames k_parts[] = {
    {"attn_norm.weight", "input_layernorm.weight", nullptr},
    {"attn_q.weight", "self_attn.q_proj.weight", nullptr},
    {"attn_k.weight", "self_attn.k_proj.weight", nullptr},
    {"attn_v.weight", "self_attn.v_proj.weight", nullptr},
    {"attn_output.weight", "self_attn.o_proj.weight", nullptr},
    {"attn_q_norm.weight", "self_attn.q_norm.weight", nullptr},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", nullptr},
    {"ffn_norm.weight", "post_attention_layernorm.weight", "post_attention_norm.weight"},
    {"ffn_gate_inp.weight", nullptr, nullptr},
    {"exp_probs_b.bias", nullptr, nullptr},
    {"indexer.q_proj.weight", "self_attn.index_q_proj.weight", "self_attn.indexer.q_proj.weight", true},
    {"indexer.k_proj.weight", "self_attn.index_k_proj.weight", "self_attn.indexer.k_proj.weight", true},
    {"indexer.q_norm.weight", "self_attn.index_q_norm.weight", "self_attn.indexer.q_norm.weight", true},
    {"indexer.k_norm.weight", "self_attn.index_k_norm.weight", "self_attn.indexer.k_norm.weight", true},
};

// The names of the mixture of experts in safetensors folders: the official name, and that of newer tools.
constexpr const char* k_mixtures[] = {"block_sparse_moe", "mlp"};

// The names in the order of ExpertPart: the official name, and that of newer tools.
constexpr const char* k_expert_parts[][2] = {{"w1", "gate_proj"}, {"w3", "up_proj"}, {"w2", "down_proj"}};
constexpr const char* k_gguf_expert_parts[] = {"gate", "up", "down"};

// The beginnings of names without and with a prefix, by Prefix less one.
struct PrefixNames {
    std::string_view layers, head;
};
constexpr PrefixNames k_plain = {"model.", "lm_head."};
constexpr PrefixNames k_prefixes[] = {{"language_model.model.", "language_model.lm_head."},
                                      {"model.language_model.", "lm_head."}};

// Of the official files, and those of transformers 5, which has them behind "model.".
constexpr std::string_view k_vision[] = {"vision_tower.", "multi_modal_projector.", "patch_merge_mlp."};

// Factors of weights, attention or the cache that only quantised activations, K or V need.
constexpr std::string_view k_ignored_suffixes[] = {
    ".rotary_emb.inv_freq", ".k_scale",      ".v_scale",      ".q_scale",          ".kv_scale",
    ".prob_scale",          ".output_scale", ".input_scale",  ".activation_scale", ".input_global_scale",
    ".k_zero_point",        ".v_zero_point", ".q_zero_point", ".input_zero_point", ".output_zero_point"};

// Returns the number after `prefix` at the start of a name, or -1.
int64_t layer_index(std::string_view name, std::string_view prefix) {
    if (!name.starts_with(prefix)) return -1;
    name.remove_prefix(prefix.size());
    int64_t index = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool whole = error == std::errc() && end != name.data() + name.size() && *end == '.';
    return whole ? index : -1;
}

}  // namespace

std::string with_prefix(std::string_view name, Prefix prefix) {
    if (prefix == Prefix::none || without_prefix(name).second != Prefix::none) return std::string(name);
    const PrefixNames& names = k_prefixes[static_cast<size_t>(prefix) - 1];
    for (const auto& [from, to] : {std::pair(k_plain.layers, names.layers), {k_plain.head, names.head}})
        if (name.starts_with(from)) return std::string(to).append(name.substr(from.size()));
    return std::string(name);
}

std::pair<std::string, Prefix> without_prefix(std::string_view name) {
    for (const Prefix prefix : {Prefix::outer, Prefix::inner}) {
        const PrefixNames& names = k_prefixes[static_cast<size_t>(prefix) - 1];
        for (const auto& [from, to] : {std::pair(names.layers, k_plain.layers), {names.head, k_plain.head}})
            if (from != to && name.starts_with(from))
                return {std::string(to).append(name.substr(from.size())), prefix};
    }
    return {std::string(name), Prefix::none};
}

Spellings embedding() {
    return {"token_embd.weight", "model.embed_tokens.weight"};
}
Spellings output_norm() {
    return {"output_norm.weight", "model.norm.weight"};
}
Spellings output() {
    return {"output.weight", "lm_head.weight"};
}

Spellings layer(int64_t index, Part part) {
    const PartNames& names = k_parts[static_cast<size_t>(part)];
    Spellings spellings = {format_text("blk.{}.{}", index, names.gguf)};
    if (names.hf != nullptr) spellings.push_back(format_text("model.layers.{}.{}", index, names.hf));
    if (names.other != nullptr)
        spellings.push_back(names.other_is_hf ? format_text("model.layers.{}.{}", index, names.other)
                                              : format_text("blk.{}.{}", index, names.other));
    for (const char* mixture : k_mixtures) {
        const std::string prefix = format_text("model.layers.{}.{}", index, mixture);
        if (part == Part::router) spellings.push_back(prefix + ".gate.weight");
        if (part == Part::router_bias) spellings.push_back(prefix + ".e_score_correction_bias");
        if (part == Part::router_bias) spellings.push_back(prefix + ".gate.e_score_correction_bias");
    }
    return spellings;
}

Spellings fused_qkv(int64_t layer) {
    return {format_text("blk.{}.attn_qkv.weight", layer),
            format_text("model.layers.{}.self_attn.qkv_proj.weight", layer)};
}

std::string stacked_expert(int64_t layer, std::string_view part) {
    return format_text("blk.{}.ffn_{}_exps.weight", layer, part);
}

std::string fused_gate_up_gguf(int64_t layer) {
    return format_text("blk.{}.ffn_gate_up_exps.weight", layer);
}
Spellings fused_gate_up_hf(int64_t layer) {
    Spellings spellings;
    for (const char* mixture : k_mixtures)
        spellings.push_back(format_text("model.layers.{}.{}.experts.gate_up_proj", layer, mixture));
    return spellings;
}
Spellings fused_down_hf(int64_t layer) {
    Spellings spellings;
    for (const char* mixture : k_mixtures)
        spellings.push_back(format_text("model.layers.{}.{}.experts.down_proj", layer, mixture));
    return spellings;
}

Spellings single_expert(int64_t layer, int64_t expert, ExpertPart part) {
    Spellings spellings;
    for (const char* mixture : k_mixtures) {
        for (const char* name : k_expert_parts[static_cast<size_t>(part)])
            spellings.push_back(
                format_text("model.layers.{}.{}.experts.{}.{}.weight", layer, mixture, expert, name));
    }
    return spellings;
}

Spellings dense(int64_t layer, ExpertPart part) {
    const auto index = static_cast<size_t>(part);
    return {format_text("blk.{}.ffn_{}.weight", layer, k_gguf_expert_parts[index]),
            format_text("model.layers.{}.mlp.{}.weight", layer, k_expert_parts[index][1])};
}

Spellings shared_expert(int64_t layer, ExpertPart part) {
    const auto index = static_cast<size_t>(part);
    Spellings spellings = {format_text("blk.{}.ffn_{}_shexp.weight", layer, k_gguf_expert_parts[index])};
    for (const char* mixture : k_mixtures)
        spellings.push_back(format_text("model.layers.{}.{}.shared_experts.{}.weight", layer, mixture,
                                        k_expert_parts[index][1]));
    return spellings;
}

Spellings fused_gate_up_dense(int64_t layer) {
    return {format_text("model.layers.{}.mlp.gate_up_proj.weight", layer)};
}

Spellings fused_gate_up_shared(int64_t layer) {
    Spellings spellings;
    for (const char* mixture : k_mixtures)
        spellings.push_back(
            format_text("model.layers.{}.{}.shared_experts.gate_up_proj.weight", layer, mixture));
    return spellings;
}

bool is_vision(std::string_view name) {
    if (name.starts_with(k_plain.layers)) name.remove_prefix(k_plain.layers.size());
    return std::ranges::any_of(k_vision, [&](std::string_view begin) { return name.starts_with(begin); });
}

bool is_ignored(std::string_view name) {
    return std::ranges::any_of(k_ignored_suffixes,
                               [&](std::string_view suffix) { return name.ends_with(suffix); });
}

int64_t layer_of(std::string_view name) {
    return std::max(layer_index(name, "blk."), layer_index(name, "model.layers."));
}

bool marks_mtp(std::string_view name) {
    // The parts that join the last hidden state with the next token, and the head of such a layer.
    constexpr std::string_view k_marks[] = {".nextn.", ".eh_proj.", ".enorm.",       ".hnorm.",
                                            ".mtp.",   ".mtp_",     ".shared_head.", ".embed_tokens."};
    return layer_of(name) >= 0 && std::ranges::any_of(k_marks, [&](std::string_view mark) {
               return name.find(mark) != std::string_view::npos;
           });
}

bool is_mtp(std::string_view name, int64_t n_layer, int64_t n_mtp) {
    if (name.starts_with("mtp.") || name.find(".mtp.") != std::string_view::npos) return true;
    const int64_t index = layer_of(name);
    return index >= n_layer && (index < n_layer + n_mtp || marks_mtp(name));
}

}  // namespace minim::model::names
