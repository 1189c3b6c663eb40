// SPDX-License-Identifier: Apache-2.0
// Values of config.json, and what the configurations of all families have in common. Every error names the key and its value.
#pragma once

#include <cstdint>

#include "base/json.h"

namespace minim::model::json_values {

// Returns the value of a key, or null if it is absent. A JSON null counts as absent: published files have both.
const json::Value* find(const json::Value& object, const char* key);

bool is_number(const json::Value& value, double number);

// All throw format if the value is of another kind or, for `required`, absent.
int64_t integer(const json::Value& value, const char* key);
double number(const json::Value& value, const char* key);
int64_t required(const json::Value& object, const char* key);
double required_number(const json::Value& object, const char* key);

// Throws unsupported.
[[noreturn]] void refuse(const char* key, const json::Value& value, const char* meaning);

// Refuses a key that asks for something not computed here. A key that is absent, null, false or zero asks for nothing.
void refuse_if_set(const json::Value& object, const char* key, const char* meaning);

// Refuses sliding windows, attention biases, tied output matrices and the like, and rope scaling.
void refuse_what_no_family_has(const json::Value& object);

// Returns rope_theta of rope_parameters, or else of the object.
double rope_theta(const json::Value& object);

// Returns rotary_dim, or the head dimension times partial_rotary_factor. Throws format if both are missing: the whole
// head is never a silent default.
int64_t rotary_dim(const json::Value& object, int64_t head_dim);

// Returns the layers of multi-token prediction, by either of their names.
int64_t mtp_layers(const json::Value& object);

// Returns routed_scaling_factor; 1 if it is absent or 0.
float expert_weights_scale(const json::Value& object);

}  // namespace minim::model::json_values
