#include <cmath>
#include <string>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/config.h"
#include "model/config_check.h"

namespace minim::model {
namespace {

using nlohmann::json;

// Messages print values by a recursive function: a bound on the nesting bounds its stack.
constexpr int k_deepest = 32;

json parse_config(std::string_view text) {
    return json::parse(
        text,
        [](int depth, json::parse_event_t, json&) {
            if (depth > k_deepest)
                fail_file(Reason::limit, "config.json is nested more than {} deep", k_deepest);
            return true;
        },
        false);
}

// Null counts as absent: published files write both.
const json* find(const json& object, const char* key) {
    const auto it = object.find(key);
    return it == object.end() || it->is_null() ? nullptr : &*it;
}

int64_t integer(const json& value, const char* key) {
    if (!value.is_number_integer())
        fail_file(Reason::value, "config.json: {} is {}, not an integer", key, value.dump());
    if (value.is_number_unsigned() && value.get<uint64_t>() > INT32_MAX) {
        fail_file(Reason::value, "config.json: {} is {}", key, value.dump());
    }
    return value.get<int64_t>();
}

int64_t required(const json& object, const char* key) {
    const json* value = find(object, key);
    if (value == nullptr) fail_file(Reason::value, "config.json: {} is missing", key);
    return integer(*value, key);
}

double required_number(const json& object, const char* key) {
    const json* value = find(object, key);
    if (value == nullptr || !value->is_number())
        fail_file(Reason::value, "config.json: {} is missing or no number", key);
    return value->get<double>();
}

[[noreturn]] void refuse(const char* key, const json& value, const char* meaning) {
    fail(Status::unsupported, "{} (config.json: {} = {}) is not supported", meaning, key, value.dump());
}

// A key that asks for something not computed here unless it is absent, null, false or zero.
void refuse_if_set(const json& object, const char* key, const char* meaning) {
    const json* value = find(object, key);
    if (value == nullptr) return;
    if (value->is_boolean() && !value->get<bool>()) return;
    if (value->is_number() && value->get<double>() == 0.0) return;
    refuse(key, *value, meaning);
}

void check_layer_list(const json& list, const char* key, int64_t n_layer) {
    if (!list.is_array() || static_cast<int64_t>(list.size()) != n_layer) {
        fail_file(Reason::value, "config.json: {} has not one entry for each of {} layers", key, n_layer);
    }
}

// 1 is softmax attention; 0 was linear attention in the older family.
void check_attention_kinds(const json& object, int64_t n_layer) {
    if (const json* kinds = find(object, "attn_type_list")) {
        check_layer_list(*kinds, "attn_type_list", n_layer);
        for (size_t layer = 0; layer < kinds->size(); ++layer) {
            if ((*kinds)[layer] != 1) {
                fail(Status::unsupported,
                     "layer {} uses linear attention (attn_type_list = {}), which is not supported", layer,
                     (*kinds)[layer].dump());
            }
        }
    }
    if (const json* kinds = find(object, "layer_types")) {
        check_layer_list(*kinds, "layer_types", n_layer);
        for (size_t layer = 0; layer < kinds->size(); ++layer) {
            if ((*kinds)[layer] != "full_attention") {
                fail(Status::unsupported, "layer {} is of type {} (layer_types), which is not supported",
                     layer, (*kinds)[layer].dump());
            }
        }
    }
    if (const json* sparse = find(object, "moe_layer_freq"); sparse != nullptr && *sparse != 1) {
        check_layer_list(*sparse, "moe_layer_freq", n_layer);
        for (size_t layer = 0; layer < sparse->size(); ++layer) {
            if ((*sparse)[layer] != 1)
                fail(Status::unsupported, "layer {} is dense (moe_layer_freq), which is not supported",
                     layer);
        }
    }
}

// A factor without a type is scaling too.
void refuse_rope_scaling(const json& object, const char* key) {
    const json* scaling = find(object, key);
    if (scaling == nullptr) return;
    if (!scaling->is_object()) refuse(key, *scaling, "rope scaling");
    bool is_plain = find(*scaling, "factor") == nullptr;
    for (const char* type : {"rope_type", "type"}) {
        const json* value = find(*scaling, type);
        if (value == nullptr) continue;
        if (*value != "default" && *value != "none") refuse(key, *scaling, "rope scaling");
        is_plain = true;
    }
    if (!is_plain) refuse(key, *scaling, "rope scaling");
}

void refuse_what_is_not_computed(const json& object) {
    refuse_if_set(object, "sliding_window", "sliding-window attention");
    refuse_if_set(object, "attn_window_size", "windowed attention");
    refuse_if_set(object, "layernorm_linear_attention_alpha", "linear attention");
    refuse_if_set(object, "postnorm", "post-normalisation");
    refuse_if_set(object, "shared_intermediate_size", "a shared expert");
    refuse_if_set(object, "sparse_attention_config", "sparse attention");
    refuse_if_set(object, "use_gemma_norm", "(1 + weight) normalisation");
    refuse_if_set(object, "attention_bias", "attention bias");
    refuse_if_set(object, "tie_word_embeddings", "a tied output matrix");
    for (const char* key : {"n_group", "num_expert_group", "topk_group"}) {
        if (const json* groups = find(object, key); groups != nullptr && integer(*groups, key) > 1) {
            refuse(key, *groups, "group-limited routing");
        }
    }
    if (const json* value = find(object, "scoring_func"); value != nullptr && *value != "sigmoid") {
        refuse("scoring_func", *value, "this router function");
    }
    if (const json* value = find(object, "hidden_act"); value != nullptr && *value != "silu") {
        refuse("hidden_act", *value, "this activation");
    }
    if (const json* value = find(object, "use_qk_norm"); value != nullptr && *value != true) {
        refuse("use_qk_norm", *value, "attention without QK-norm");
    }
    if (const json* value = find(object, "qk_norm_type"); value != nullptr && *value != "per_layer") {
        refuse("qk_norm_type", *value, "this QK-norm");
    }
    for (const char* key : {"rope_scaling", "rope_parameters"}) refuse_rope_scaling(object, key);
}

double rope_theta(const json& object) {
    if (const json* parameters = find(object, "rope_parameters"); parameters != nullptr) {
        if (find(*parameters, "rope_theta") != nullptr) return required_number(*parameters, "rope_theta");
    }
    return required_number(object, "rope_theta");
}

// rotary_dim, or the head dimension times a partial factor; the whole head is never a silent default.
int64_t rotary_dim(const json& object, int64_t head_dim) {
    if (find(object, "rotary_dim") != nullptr) return required(object, "rotary_dim");
    const json* parameters = find(object, "rope_parameters");
    const bool is_nested = parameters != nullptr && find(*parameters, "partial_rotary_factor") != nullptr;
    const json& holder = is_nested ? *parameters : object;
    if (find(holder, "partial_rotary_factor") == nullptr) {
        fail_file(
            Reason::value,
            "config.json: neither rotary_dim nor partial_rotary_factor says how many components rotate");
    }
    return std::llround(required_number(holder, "partial_rotary_factor") * static_cast<double>(head_dim));
}

void check_architecture(const json& object) {
    const json* names = find(object, "architectures");
    if (names == nullptr || !names->is_array() || names->empty()) {
        fail_file(Reason::value, "config.json: architectures is missing");
    }
    for (const json& name : *names) {
        if (name == "MiniMaxM2ForCausalLM") return;
    }
    fail(Status::unsupported, "architecture {} is not supported; this library runs MiniMaxM2ForCausalLM",
         names->dump());
}

}  // namespace

Config config_from_json(std::string_view config_json, const Logger&) {
    const json object = parse_config(config_json);
    if (!object.is_object()) fail_file(Reason::format, "config.json is not a JSON object");
    check_architecture(object);
    refuse_what_is_not_computed(object);

    Config config;
    config.n_layer = required(object, "num_hidden_layers");
    check_attention_kinds(object, config.n_layer);
    if (const json* modules = find(object, "num_mtp_modules"))
        config.n_mtp_layer = integer(*modules, "num_mtp_modules");
    config.hidden = required(object, "hidden_size");
    config.n_head = required(object, "num_attention_heads");
    config.n_head_kv = required(object, "num_key_value_heads");
    config.head_dim = required(object, "head_dim");
    config.rotary_dim = rotary_dim(object, config.head_dim);
    config.rope_theta = rope_theta(object);
    config.norm_eps = static_cast<float>(required_number(object, "rms_norm_eps"));
    config.n_expert = required(object, "num_local_experts");
    config.n_expert_used = required(object, "num_experts_per_tok");
    config.expert_ff = required(object, "intermediate_size");
    config.n_context_train = required(object, "max_position_embeddings");
    if (find(object, "vocab_size") != nullptr) config.n_vocab = required(object, "vocab_size");
    if (find(object, "routed_scaling_factor") != nullptr) {
        const double scale = required_number(object, "routed_scaling_factor");
        if (scale != 0.0) config.expert_weights_scale = static_cast<float>(scale);
    }
    if (const json* bias = find(object, "use_routing_bias")) config.needs_router_bias = *bias == true;
    check_config(config);
    return config;
}

}  // namespace minim::model
