// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "layouts/quantization_config.h"
#include "model/config.h"
#include "model/config_check.h"
#include "model/other_models.h"

namespace minim::model {
namespace {

using json::to_text;
using json::Value;

// Returns the value of a key, or null if it is absent. A JSON null counts as absent: published files have both.
const Value* find(const Value& object, const char* key) {
    const Value* value = json::find(&object, key);
    return value == nullptr || value->is_null() ? nullptr : value;
}

// Adds the members of an object that another does not have, also of quantization_config in both.
void add_absent(const Value& from, Value& to) {
    for (size_t i = 0; i < from.items.size(); ++i) {
        const std::string& key = from.keys[i];
        const auto at = std::ranges::find(to.keys, key);
        if (at == to.keys.end()) {
            to.keys.push_back(key);
            to.items.push_back(from.items[i]);
            continue;
        }
        Value& own = to.items[at - to.keys.begin()];
        if (own.is_null()) own = from.items[i];
        const bool is_quantisation = key == "quantization_config" || key == "quantization";
        if (is_quantisation && own.is_object() && from.items[i].is_object()) add_absent(from.items[i], own);
    }
}

bool is_number(const Value& value, double number) {
    return value.is_number() && value.number == number;
}

int64_t integer(const Value& value, const char* key) {
    if (!value.is_integer())
        fail_file(Reason::value, "config.json: {} is {}, not an integer", key, to_text(value));
    const std::optional<int64_t> number = json::to_int64(value);
    if (!number || *number > INT32_MAX) fail_file(Reason::value, "config.json: {} is {}", key, value.text);
    return *number;
}

int64_t required(const Value& object, const char* key) {
    const Value* value = find(object, key);
    if (value == nullptr) fail_file(Reason::value, "config.json: {} is missing", key);
    return integer(*value, key);
}

double required_number(const Value& object, const char* key) {
    const Value* value = find(object, key);
    if (value == nullptr || !value->is_number())
        fail_file(Reason::value, "config.json: {} is missing or no number", key);
    return value->number;
}

[[noreturn]] void refuse(const char* key, const Value& value, const char* meaning) {
    fail(Status::unsupported, "{} (config.json: {} = {}) is not supported", meaning, key, to_text(value));
}

// Refuses a key that asks for something not computed here. A key that is absent, null, false or zero asks for nothing.
void refuse_if_set(const Value& object, const char* key, const char* meaning) {
    const Value* value = find(object, key);
    if (value == nullptr) return;
    if (value->is_boolean() && !value->boolean) return;
    if (value->is_number() && value->number == 0.0) return;
    refuse(key, *value, meaning);
}

// A list may go on with the layers of multi-token prediction.
void check_layer_list(const Value& list, const char* key, int64_t n_layer) {
    if (!list.is_array() || static_cast<int64_t>(list.items.size()) < n_layer) {
        fail_file(Reason::value, "config.json: {} has not one entry for each of {} layers", key, n_layer);
    }
}

// 1 is softmax attention; 0 was linear attention in the older family.
void check_attention_kinds(const Value& object, int64_t n_layer) {
    if (const Value* kinds = find(object, "attn_type_list")) {
        check_layer_list(*kinds, "attn_type_list", n_layer);
        for (size_t layer = 0; layer < kinds->items.size(); ++layer) {
            if (!is_number(kinds->items[layer], 1)) {
                fail(Status::unsupported,
                     "layer {} uses linear attention (attn_type_list = {}), which is not supported", layer,
                     to_text(kinds->items[layer]));
            }
        }
    }
    if (const Value* kinds = find(object, "layer_types")) {
        check_layer_list(*kinds, "layer_types", n_layer);
        for (size_t layer = 0; layer < kinds->items.size(); ++layer) {
            if (!kinds->items[layer].is_string("full_attention")) {
                fail(Status::unsupported, "layer {} is of type {} (layer_types), which is not supported",
                     layer, to_text(kinds->items[layer]));
            }
        }
    }
    if (const Value* sparse = find(object, "moe_layer_freq"); sparse != nullptr && !is_number(*sparse, 1)) {
        check_layer_list(*sparse, "moe_layer_freq", n_layer);
        for (size_t layer = 0; layer < sparse->items.size(); ++layer) {
            if (!is_number(sparse->items[layer], 1))
                fail(Status::unsupported, "layer {} is dense (moe_layer_freq), which is not supported",
                     layer);
        }
    }
}

// Refuses rope scaling. A factor without a type counts as scaling, too.
void refuse_rope_scaling(const Value& object, const char* key) {
    const Value* scaling = find(object, key);
    if (scaling == nullptr) return;
    if (!scaling->is_object()) refuse(key, *scaling, "rope scaling");
    bool is_plain = find(*scaling, "factor") == nullptr;
    for (const char* type : {"rope_type", "type"}) {
        const Value* value = find(*scaling, type);
        if (value == nullptr) continue;
        if (!value->is_string("default") && !value->is_string("none")) refuse(key, *scaling, "rope scaling");
        is_plain = true;
    }
    if (!is_plain) refuse(key, *scaling, "rope scaling");
}

void refuse_what_is_not_computed(const Value& object) {
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
        if (const Value* groups = find(object, key); groups != nullptr && integer(*groups, key) > 1) {
            refuse(key, *groups, "group-limited routing");
        }
    }
    if (const Value* value = find(object, "scoring_func"); value != nullptr && !value->is_string("sigmoid")) {
        refuse("scoring_func", *value, "this router function");
    }
    if (const Value* value = find(object, "hidden_act"); value != nullptr && !value->is_string("silu")) {
        refuse("hidden_act", *value, "this activation");
    }
    if (const Value* value = find(object, "use_qk_norm"); value != nullptr && !value->boolean) {
        refuse("use_qk_norm", *value, "attention without QK-norm");
    }
    if (const Value* value = find(object, "qk_norm_type");
        value != nullptr && !value->is_string("per_layer")) {
        refuse("qk_norm_type", *value, "this QK-norm");
    }
    for (const char* key : {"rope_scaling", "rope_parameters"}) refuse_rope_scaling(object, key);
}

double rope_theta(const Value& object) {
    if (const Value* parameters = find(object, "rope_parameters"); parameters != nullptr) {
        if (find(*parameters, "rope_theta") != nullptr) return required_number(*parameters, "rope_theta");
    }
    return required_number(object, "rope_theta");
}

// Returns rotary_dim, or the head dimension times partial_rotary_factor. Throws format if both are missing: the whole
// head is never a silent default.
int64_t rotary_dim(const Value& object, int64_t head_dim) {
    if (find(object, "rotary_dim") != nullptr) return required(object, "rotary_dim");
    const Value* parameters = find(object, "rope_parameters");
    const bool is_nested = parameters != nullptr && find(*parameters, "partial_rotary_factor") != nullptr;
    const Value& holder = is_nested ? *parameters : object;
    if (find(holder, "partial_rotary_factor") == nullptr) {
        fail_file(
            Reason::value,
            "config.json: neither rotary_dim nor partial_rotary_factor says how many components rotate");
    }
    return std::llround(required_number(holder, "partial_rotary_factor") * static_cast<double>(head_dim));
}

// Returns the layers of multi-token prediction, by either of their names.
int64_t mtp_layers(const Value& object) {
    if (const Value* layers = find(object, "num_nextn_predict_layers"))
        return integer(*layers, "num_nextn_predict_layers");
    const Value* modules = find(object, "num_mtp_modules");
    if (modules == nullptr) return 0;
    const Value* each = find(object, "mtp_transformer_layers");
    return integer(*modules, "num_mtp_modules") *
           std::max<int64_t>(each == nullptr ? 1 : integer(*each, "mtp_transformer_layers"), 1);
}

[[noreturn]] void refuse_architecture(const std::string& names, std::string_view what) {
    if (what.empty())
        fail(Status::unsupported, "architecture {} is not supported; this library runs MiniMaxM2ForCausalLM",
             names);
    fail(Status::unsupported,
         "the model is {} (config.json: {}), and not supported; this library runs MiniMax-M2 "
         "(MiniMaxM2ForCausalLM)",
         what, names);
}

void check_architecture(const Value& object) {
    const Value* names = find(object, "architectures");
    const Value* type = find(object, "model_type");
    const std::string_view other = type != nullptr && type->is_string() ? other_model(type->text) : "";
    if (names == nullptr || !names->is_array() || names->items.empty()) {
        if (!other.empty()) refuse_architecture("model_type = " + to_text(*type), other);
        fail_file(Reason::value, "config.json: architectures is missing");
    }
    for (const Value& name : names->items) {
        if (name.is_string("MiniMaxM2ForCausalLM")) return;
    }
    for (const Value& name : names->items) {
        const std::string_view what = name.is_string() ? other_model(name.text) : "";
        if (!what.empty()) refuse_architecture("architectures = " + to_text(*names), what);
    }
    refuse_architecture(to_text(*names), other);
}

// Adds what only text_config has: configurations of models with more than text keep the language model's there.
void merge_text_config(Value& object) {
    const Value* nested = find(object, "text_config");
    if (nested == nullptr || !nested->is_object()) return;
    const Value text = *nested;
    add_absent(text, object);
}

}  // namespace

Config config_from_json(std::string_view config_json, const Logger&) {
    Value object = json::parse(config_json, "config.json", json::Source::file);
    if (!object.is_object()) fail_file(Reason::format, "config.json is not a JSON object");
    merge_text_config(object);
    check_architecture(object);
    refuse_what_is_not_computed(object);

    Config config;
    config.packing = layouts::packing_hints(object);
    config.n_layer = required(object, "num_hidden_layers");
    check_attention_kinds(object, config.n_layer);
    config.n_mtp_layer = mtp_layers(object);
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
    if (const Value* bias = find(object, "use_routing_bias")) config.needs_router_bias = bias->boolean;
    check_config(config);
    return config;
}

}  // namespace minim::model
