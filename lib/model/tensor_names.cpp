#include "model/tensor_names.h"

#include <charconv>

#include "base/format_text.h"

namespace minim::model::names {
namespace {

struct PartNames {
    const char* gguf;
    const char* hf;
    const char* other;  // an older or newer spelling, relative to the same prefix as its column; null if none
    bool other_is_gguf;
};

// In the order of Part.
constexpr PartNames k_parts[] = {
    {"attn_norm.weight", "input_layernorm.weight", nullptr, false},
    {"attn_q.weight", "self_attn.q_proj.weight", nullptr, false},
    {"attn_k.weight", "self_attn.k_proj.weight", nullptr, false},
    {"attn_v.weight", "self_attn.v_proj.weight", nullptr, false},
    {"attn_output.weight", "self_attn.o_proj.weight", nullptr, false},
    {"attn_q_norm.weight", "self_attn.q_norm.weight", nullptr, false},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", nullptr, false},
    {"ffn_norm.weight", "post_attention_layernorm.weight", "post_attention_norm.weight", true},
    {"ffn_gate_inp.weight", "block_sparse_moe.gate.weight", "mlp.gate.weight", false},
    {"exp_probs_b.bias", "block_sparse_moe.e_score_correction_bias", "mlp.e_score_correction_bias", false},
};

// The number after `prefix` at the start of a name, or -1.
int64_t layer_index(std::string_view name, std::string_view prefix) {
    if (!name.starts_with(prefix)) return -1;
    name.remove_prefix(prefix.size());
    int64_t index = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool whole = error == std::errc() && end != name.data() + name.size() && *end == '.';
    return whole ? index : -1;
}

}  // namespace

Spellings embedding() {
    return {"token_embd.weight", "model.embed_tokens.weight", ""};
}
Spellings output_norm() {
    return {"output_norm.weight", "model.norm.weight", ""};
}
Spellings output() {
    return {"output.weight", "lm_head.weight", ""};
}

Spellings layer(int64_t index, Part part) {
    const PartNames& names = k_parts[static_cast<size_t>(part)];
    Spellings spellings = {format_text("blk.{}.{}", index, names.gguf),
                           format_text("model.layers.{}.{}", index, names.hf), ""};
    if (names.other != nullptr) {
        spellings[2] =
            format_text("{}.{}.{}", names.other_is_gguf ? "blk" : "model.layers", index, names.other);
    }
    return spellings;
}

std::string fused_qkv(int64_t layer) {
    return format_text("blk.{}.attn_qkv.weight", layer);
}

std::string stacked_expert(int64_t layer, std::string_view part) {
    return format_text("blk.{}.ffn_{}_exps.weight", layer, part);
}

std::string fused_gate_up_gguf(int64_t layer) {
    return format_text("blk.{}.ffn_gate_up_exps.weight", layer);
}
std::string fused_gate_up_hf(int64_t layer) {
    return format_text("model.layers.{}.mlp.experts.gate_up_proj", layer);
}
std::string fused_down_hf(int64_t layer) {
    return format_text("model.layers.{}.mlp.experts.down_proj", layer);
}

std::string single_expert(int64_t layer, int64_t expert, std::string_view part) {
    return format_text("model.layers.{}.block_sparse_moe.experts.{}.{}.weight", layer, expert, part);
}

bool is_ignored(std::string_view name) {
    return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".k_scale") || name.ends_with(".v_scale");
}

int64_t gguf_layer(std::string_view name) {
    return layer_index(name, "blk.");
}

bool is_mtp(std::string_view name, int64_t n_layer, int64_t n_mtp) {
    if (name.starts_with("mtp.") || name.find(".mtp.") != std::string_view::npos) return true;
    if (gguf_layer(name) >= n_layer) return name.find(".nextn.") != std::string_view::npos;
    const int64_t index = layer_index(name, "model.layers.");
    return index >= n_layer && index < n_layer + n_mtp;
}

}  // namespace minim::model::names
