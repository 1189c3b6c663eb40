// SPDX-License-Identifier: Apache-2.0
#include "model/declared_methods.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/format_text.h"
#include "checkpoint/printable.h"

namespace minim::model {
namespace {

using json::Value;
using weights::Declaration;
using weights::Method;
using Entry = Declaration::Entry;

std::string text_of(const Value& object, const char* key) {
    const Value* value = json::find(&object, key);
    return value != nullptr && value->is_string() ? value->text : std::string();
}

int64_t number_of(const Value& object, const char* key) {
    const Value* value = json::find(&object, key);
    return value == nullptr ? 0 : json::to_int64(*value).value_or(0);
}

// Returns the method of an algorithm, by ModelOpt's name of it: "NVFP4", "W4A16_NVFP4", "FP8_PB_WO", "W4A16_AWQ" ...
// Returns nothing if the name is not known.
std::optional<Method> method_of_algorithm(std::string_view name) {
    const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
    if (has("NVFP4")) return Method::nvfp4;
    if (has("MXFP4")) return Method::mxfp4;
    if (has("MXFP8")) return Method::mxfp8;
    if (name.starts_with("W4A") || name.starts_with("W8A") || name.starts_with("INT"))
        return Method::integers;
    if (name.starts_with("FP8")) return Method::fp8;
    return {};
}

// Reads an object with the name of an algorithm at `key`, and perhaps `group_size`.
std::optional<Entry> entry_of(const Value& object, const char* key) {
    const std::string name = text_of(object, key);
    const std::optional<Method> method = method_of_algorithm(name);
    if (!method) return {};
    Entry entry = {*method, number_of(object, "group_size"),
                   format_text("{} {}", key, checkpoint::printable(name))};
    if (entry.group != 0) entry.text += format_text(", group_size {}", entry.group);
    return entry;
}

// Reads a declaration of ModelOpt: one algorithm, or a map by names of modules, whose last parts may be left out.
void read_modelopt(const Value& object, Declaration& declared) {
    const Value* layers = json::find(&object, "quantized_layers");
    if (layers != nullptr && layers->is_object()) {
        for (size_t i = 0; i < layers->items.size(); ++i) {
            const std::optional<Entry> entry = entry_of(layers->items[i], "quant_algo");
            if (!entry) {  // an unknown algorithm: the whole declaration counts as unknown
                declared.entries.clear();
                declared.modules.clear();
                return;
            }
            declared.entries.push_back(*entry);
            declared.modules.emplace(layers->keys[i], *entry);
        }
        return;
    }
    if (const auto entry = entry_of(object, "quant_algo")) declared.entries.push_back(*entry);
}

// Reads one of the config_groups of compressed-tensors. Returns false if its kind is not known.
bool read_group(const Value& group, std::vector<Entry>& entries) {
    const Value* weights = json::find(&group, "weights");
    if (weights == nullptr || !weights->is_object()) return false;
    const int64_t bits = number_of(*weights, "num_bits");
    const int64_t size = number_of(*weights, "group_size");
    if (text_of(*weights, "type") != "float") {
        entries.push_back({Method::integers, 0, format_text("whole numbers of {} bits", bits)});
    } else if (bits == 8) {
        entries.push_back({Method::fp8, 0, "floats of 8 bits"});
        entries.push_back({Method::mxfp8, 0, "floats of 8 bits"});
    } else if (bits == 4) {
        const std::string text = format_text("floats of 4 bits in groups of {}", size);
        if (size == 0 || size == 16) entries.push_back({Method::nvfp4, size, text});
        if (size == 0 || size == 32) entries.push_back({Method::mxfp4, size, text});
        return size == 0 || size == 16 || size == 32;
    } else {
        return false;
    }
    return true;
}

void read_compressed_tensors(const Value& object, Declaration& declared) {
    const Value* groups = json::find(&object, "config_groups");
    if (groups == nullptr || !groups->is_object()) return;
    for (const Value& group : groups->items) {
        if (read_group(group, declared.entries)) continue;
        declared.entries.clear();
        return;
    }
}

}  // namespace

Declaration declared_methods(const Value& quantization) {
    Declaration declared = {"config.json", {}, {}};
    const std::string method = text_of(quantization, "quant_method");
    const bool has_algorithm = json::find(&quantization, "quant_algo") != nullptr ||
                               json::find(&quantization, "quantized_layers") != nullptr;
    if (has_algorithm) {
        read_modelopt(quantization, declared);
    } else if (method == "compressed-tensors" || method.empty()) {
        read_compressed_tensors(quantization, declared);
    } else if (method == "fp8") {
        declared.entries.push_back({Method::fp8, 0, "quant_method fp8"});
    } else if (method == "mxfp8") {
        declared.entries.push_back({Method::mxfp8, 0, "quant_method mxfp8"});
        if (const auto experts = entry_of(quantization, "moe_quant_algo"))
            declared.entries.push_back(*experts);
    } else if (method == "mxfp4") {
        declared.entries.push_back({Method::mxfp4, 0, "quant_method mxfp4"});
    }
    return declared;
}

void add_hf_quant_config(std::string_view text, weights::PackingHints& hints) {
    constexpr const char* k_name = "hf_quant_config.json";
    const Value object = json::parse(text, k_name, json::Source::file);
    if (!object.is_object()) fail_file(Reason::format, "{} is not a JSON object", k_name);
    const Value* quantization = json::find(&object, "quantization");
    Declaration declared = {k_name, {}, {}};
    read_modelopt(quantization != nullptr && quantization->is_object() ? *quantization : object, declared);
    for (const Declaration& other : hints.declarations) {
        if (other.entries.empty() || declared.entries.empty()) continue;
        const auto has = [&](const Entry& entry) {
            return std::ranges::any_of(other.entries, [&](const Entry& one) {
                const bool same_group = one.group == 0 || entry.group == 0 || one.group == entry.group;
                return one.method == entry.method && same_group;
            });
        };
        const auto odd = std::ranges::find_if_not(declared.entries, has);
        if (odd != declared.entries.end())
            fail_file(Reason::value, "{} declares {}, {} declares {}", k_name, odd->text, other.file,
                      other.entries.front().text);
    }
    hints.declarations.push_back(std::move(declared));
}

}  // namespace minim::model
