// SPDX-License-Identifier: Apache-2.0
// Finds the family of a model by config.json; m2_config.cpp and m3_config.cpp read the rest.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "model/config.h"
#include "model/json_values.h"
#include "model/m2_config.h"
#include "model/m3_config.h"
#include "model/other_models.h"

namespace minim::model {
namespace {

using json::to_text;
using json::Value;

// The classes of MiniMax-M3: with its vision tower, which is left out, and of the language model alone.
constexpr std::array k_m3_classes = {"MiniMaxM3SparseForConditionalGeneration", "MiniMaxM3SparseForCausalLM",
                                     "MiniMaxM3ForCausalLM"};

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

[[noreturn]] void refuse_architecture(const std::string& names, std::string_view what) {
    if (what.empty())
        fail(Status::unsupported,
             "architecture {} is not supported; this library runs MiniMaxM2ForCausalLM and {}", names,
             k_m3_classes.front());
    fail(Status::unsupported,
         "the model is {} (config.json: {}), and not supported; this library runs MiniMax-M2 "
         "(MiniMaxM2ForCausalLM) and MiniMax-M3 ({})",
         what, names, k_m3_classes.front());
}

Family family_of(const Value& object) {
    const Value* names = json_values::find(object, "architectures");
    const Value* type = json_values::find(object, "model_type");
    const std::string_view other = type != nullptr && type->is_string() ? other_model(type->text) : "";
    if (names == nullptr || !names->is_array() || names->items.empty()) {
        if (!other.empty()) refuse_architecture("model_type = " + to_text(*type), other);
        fail_file(Reason::value, "config.json: architectures is missing");
    }
    for (const Value& name : names->items) {
        if (name.is_string("MiniMaxM2ForCausalLM")) return Family::m2;
        for (const char* m3 : k_m3_classes)
            if (name.is_string(m3)) return Family::m3;
    }
    for (const Value& name : names->items) {
        const std::string_view what = name.is_string() ? other_model(name.text) : "";
        if (!what.empty()) refuse_architecture("architectures = " + to_text(*names), what);
    }
    refuse_architecture(to_text(*names), other);
}

// Returns the object of the language model with what only the other object has: configurations of models with more than text keep
// the language model's in text_config. The values of M2 at the top count before those in text_config.
Value language_model(const Value& object, Family family) {
    const Value* nested = json_values::find(object, "text_config");
    if (nested == nullptr || !nested->is_object()) return object;
    const bool is_m3 = family == Family::m3 && json_values::find(*nested, "num_hidden_layers") != nullptr;
    Value merged = is_m3 ? *nested : object;
    add_absent(is_m3 ? object : *nested, merged);
    return merged;
}

}  // namespace

Config config_from_json(std::string_view config_json, const Logger& log) {
    const Value whole = json::parse(config_json, "config.json", json::Source::file);
    if (!whole.is_object()) fail_file(Reason::format, "config.json is not a JSON object");
    const Family family = family_of(language_model(whole, Family::m2));
    const Value object = language_model(whole, family);
    return family == Family::m2 ? m2_config(object) : m3_config(object, log);
}

}  // namespace minim::model
