// SPDX-License-Identifier: Apache-2.0
#include "model/gguf_keys.h"

#include "base/error.h"
#include "base/format_text.h"
#include "checkpoint/printable.h"
#include "model/gguf_values.h"

namespace minim::model {
namespace {

using checkpoint::printable;

// Throws unsupported if the metadata ask for rope scaling. Other readers take a factor without a type as linear
// scaling; with type none they ignore the factor.
void refuse_rope_scaling(const GgufKeys& keys) {
    const std::string type_key = keys.full("rope.scaling.type");
    const auto type = keys.metadata().string(type_key);
    if (type && *type != "none") {
        fail(Status::unsupported, "rope scaling {} ({}) is not supported", printable(*type), type_key);
    }
    if (type) return;
    for (const char* key : {"rope.scaling.factor", "rope.scale_linear"}) {
        const double factor = keys.number_or(key, 0.0);
        if (factor != 0.0 && factor != 1.0) {
            fail(Status::unsupported, "rope scaling ({} = {}) is not supported", keys.full(key), factor);
        }
    }
}

double rope_theta(const GgufKeys& keys, const Logger& log) {
    constexpr double k_released = 5e6;
    if (const auto theta = keys.number_of("rope.freq_base")) return *theta;
    log.warning("{} is missing; the rope base is {}, as in the released models", keys.full("rope.freq_base"),
                k_released);
    return k_released;
}

int64_t rotary_dim(const GgufKeys& keys, int64_t head_dim, const Logger& log) {
    const int64_t stated = keys.integer_or("rope.dimension_count", 0);
    if (stated != 0) return stated;
    // The released models rotate 64 of 128 components. A model with heads of another width must state the number.
    if (head_dim != 128)
        fail_file(Reason::value, "metadata key {} is missing", keys.full("rope.dimension_count"));
    log.warning("{} is missing; 64 of 128 components are rotated, as in the released models",
                keys.full("rope.dimension_count"));
    return 64;
}

}  // namespace

std::string GgufKeys::full(std::string_view key) const {
    return format_text("{}.{}", architecture_, key);
}

int64_t GgufKeys::bounded(std::string_view key, int64_t value) const {
    if (value < 0 || value > INT32_MAX) fail_file(Reason::value, "metadata key {} is {}", full(key), value);
    return value;
}

int64_t GgufKeys::required(std::string_view key) const {
    const auto value = whole_number(metadata_, full(key));
    if (!value) fail_file(Reason::value, "metadata key {} is missing", full(key));
    return bounded(key, *value);
}

int64_t GgufKeys::integer_or(std::string_view key, int64_t otherwise) const {
    const auto value = whole_number(metadata_, full(key));
    return value ? bounded(key, *value) : otherwise;
}

std::optional<double> GgufKeys::number_of(std::string_view key) const {
    return number(metadata_, full(key));
}

double GgufKeys::number_or(std::string_view key, double otherwise) const {
    return number_of(key).value_or(otherwise);
}

double GgufKeys::required_number(std::string_view key) const {
    const auto value = number_of(key);
    if (!value) fail_file(Reason::value, "metadata key {} is missing", full(key));
    return *value;
}

bool GgufKeys::boolean_or(std::string_view key, bool otherwise) const {
    return flag(metadata_, full(key)).value_or(otherwise);
}

void GgufKeys::refuse_above(std::string_view key, int64_t allowed, const char* meaning) const {
    const int64_t value = integer_or(key, 0);
    if (value > allowed)
        fail(Status::unsupported, "{} ({} = {}) is not supported", meaning, full(key), value);
}

void GgufKeys::refuse_factor(std::string_view key, const char* meaning) const {
    if (number_or(key, 0.0) != 1.0) refuse_number(key, meaning);
}

void GgufKeys::refuse_number(std::string_view key, const char* meaning) const {
    const double value = number_or(key, 0.0);
    if (value != 0.0) fail(Status::unsupported, "{} ({} = {}) is not supported", meaning, full(key), value);
}

void refuse_what_no_family_has(const GgufKeys& keys) {
    keys.refuse_above("attention.sliding_window", 0, "sliding-window attention");
    keys.refuse_above("expert_group_count", 1, "group-limited routing");
    keys.refuse_number("attention.scale", "an attention scale of its own");
    keys.refuse_number("attention.clamp_kqv", "clamped attention");
    keys.refuse_number("attention.max_alibi_bias", "ALiBi");
    keys.refuse_number("attn_logit_softcapping", "attention soft-capping");
    keys.refuse_number("final_logit_softcapping", "logit soft-capping");
    keys.refuse_factor("logit_scale", "logit scaling");
    keys.refuse_factor("residual_scale", "residual scaling");
    keys.refuse_factor("embedding_scale", "embedding scaling");
    const int64_t gating = keys.integer_or("expert_gating_func", 2);
    if (gating != 2) {
        fail(Status::unsupported, "router function {} ({}) is not supported; 2, sigmoid, is", gating,
             keys.full("expert_gating_func"));
    }
    if (!keys.boolean_or("expert_weights_norm", true)) {
        fail(Status::unsupported, "gates that are not normalised ({} = false) are not supported",
             keys.full("expert_weights_norm"));
    }
    if (!keys.boolean_or("attention.causal", true)) {
        fail(Status::unsupported, "attention that is not causal ({} = false) is not supported",
             keys.full("attention.causal"));
    }
    refuse_rope_scaling(keys);
}

Config common_config(const GgufKeys& keys, const Logger& log) {
    Config config;
    const checkpoint::MetaValue* name = keys.metadata().find("general.name");
    if (name != nullptr && name->type == checkpoint::MetaType::string)
        config.name = std::string(name->string_at(0));
    // The tensors show whether block_count includes the layers of multi-token prediction (mtp_layers.h).
    config.n_layer = keys.required("block_count");
    config.n_mtp_layer = keys.integer_or("nextn_predict_layers", 0);
    config.hidden = keys.required("embedding_length");
    config.n_head = keys.required("attention.head_count");
    // As other readers: without these keys, every query head has KV heads of its own, and all heads fill the hidden size. The
    // shapes of the tensors must agree.
    config.n_head_kv = keys.integer_or("attention.head_count_kv", config.n_head);
    config.head_dim =
        keys.integer_or("attention.key_length", config.n_head > 0 ? config.hidden / config.n_head : 0);
    const int64_t value_dim = keys.integer_or("attention.value_length", config.head_dim);
    if (value_dim != config.head_dim) {
        fail(Status::unsupported, "value heads of {} beside key heads of {} are not supported", value_dim,
             config.head_dim);
    }
    config.rotary_dim = rotary_dim(keys, config.head_dim, log);
    config.rope_theta = rope_theta(keys, log);
    config.norm_eps = static_cast<float>(keys.required_number("attention.layer_norm_rms_epsilon"));
    config.n_expert = keys.required("expert_count");
    config.n_expert_used = keys.required("expert_used_count");
    config.n_context_train = keys.required("context_length");
    const double scale = keys.number_or("expert_weights_scale", 0.0);
    config.expert_weights_scale = scale == 0.0 ? 1.0F : static_cast<float>(scale);
    return config;
}

}  // namespace minim::model
