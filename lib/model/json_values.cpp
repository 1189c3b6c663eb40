// SPDX-License-Identifier: Apache-2.0
#include "model/json_values.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"

namespace minim::model::json_values {
namespace {

using json::to_text;
using json::Value;

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

}  // namespace

const Value* find(const Value& object, const char* key) {
    const Value* value = json::find(&object, key);
    return value == nullptr || value->is_null() ? nullptr : value;
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

double number(const Value& value, const char* key) {
    if (!value.is_number())
        fail_file(Reason::value, "config.json: {} is {}, not a number", key, to_text(value));
    return value.number;
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

void refuse(const char* key, const Value& value, const char* meaning) {
    fail(Status::unsupported, "{} (config.json: {} = {}) is not supported", meaning, key, to_text(value));
}

void refuse_if_set(const Value& object, const char* key, const char* meaning) {
    const Value* value = find(object, key);
    if (value == nullptr) return;
    if (value->is_boolean() && !value->boolean) return;
    if (value->is_number() && value->number == 0.0) return;
    refuse(key, *value, meaning);
}

void refuse_what_no_family_has(const Value& object) {
    refuse_if_set(object, "sliding_window", "sliding-window attention");
    refuse_if_set(object, "attn_window_size", "windowed attention");
    refuse_if_set(object, "layernorm_linear_attention_alpha", "linear attention");
    refuse_if_set(object, "postnorm", "post-normalisation");
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
    if (const Value* value = find(object, "use_qk_norm"); value != nullptr && !value->boolean) {
        refuse("use_qk_norm", *value, "attention without QK-norm");
    }
    for (const char* key : {"rope_scaling", "rope_parameters"}) refuse_rope_scaling(object, key);
}

double rope_theta(const Value& object) {
    if (const Value* parameters = find(object, "rope_parameters"); parameters != nullptr) {
        if (find(*parameters, "rope_theta") != nullptr) return required_number(*parameters, "rope_theta");
    }
    return required_number(object, "rope_theta");
}

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

int64_t mtp_layers(const Value& object) {
    if (const Value* layers = find(object, "num_nextn_predict_layers"))
        return integer(*layers, "num_nextn_predict_layers");
    const Value* modules = find(object, "num_mtp_modules");
    if (modules == nullptr) return 0;
    const Value* each = find(object, "mtp_transformer_layers");
    return integer(*modules, "num_mtp_modules") *
           std::max<int64_t>(each == nullptr ? 1 : integer(*each, "mtp_transformer_layers"), 1);
}

float expert_weights_scale(const Value& object) {
    if (find(object, "routed_scaling_factor") == nullptr) return 1.0F;
    const double scale = required_number(object, "routed_scaling_factor");
    return scale == 0.0 ? 1.0F : static_cast<float>(scale);
}

}  // namespace minim::model::json_values
