// SPDX-License-Identifier: Apache-2.0
#include "quantisation.h"

#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "output.h"

namespace cli {
namespace {

using nlohmann::json;

constexpr size_t k_max_rules = 12;
constexpr size_t k_rule_bytes = 80;

// Reads a JSON object from a file. Returns an empty object if the file is absent or not a JSON object: the library reports the
// fault.
json object_of(const std::filesystem::path& path) {
    std::ifstream file(path);
    json object = json::parse(file, nullptr, false);
    return object.is_object() ? object : json::object();
}

std::string text_of(const json& object, const char* key) {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) return {};
    return printable(found->is_string() ? found->get<std::string>() : found->dump(), k_rule_bytes);
}

std::string line(const char* name, const std::string& value) {
    return value.empty() ? std::string() : fmt::format("  {:<12} {}\n", name, value);
}

// Returns the bits, type, group size and other properties of a group of weights.
std::string group_text(const json& weights) {
    std::vector<std::string> parts;
    for (const char* key : {"num_bits", "bits", "type", "dtype", "strategy", "group_size", "block_structure",
                            "symmetric", "actorder", "scale_dtype"}) {
        const std::string value = text_of(weights, key);
        if (!value.empty()) parts.push_back(fmt::format("{} {}", key, value));
    }
    return fmt::format("{}", fmt::join(parts, ", "));
}

std::string groups_text(const json& quantization) {
    std::string text = line("weights", group_text(quantization));
    if (const auto groups = quantization.find("config_groups");
        groups != quantization.end() && groups->is_object()) {
        for (const auto& [name, group] : groups->items()) {
            if (!group.is_object()) continue;
            std::string what = group_text(group.value("weights", json::object()));
            if (const std::string format = text_of(group, "format"); !format.empty()) what += ", " + format;
            if (const std::string targets = text_of(group, "targets"); !targets.empty())
                what += "; of " + targets;
            text += line(printable(name, k_rule_bytes).c_str(), what);
        }
    }
    if (const auto global = quantization.find("global_quant_config");
        global != quantization.end() && global->is_object())
        text += line("weights", group_text(global->value("weight", json::object())));
    return text;
}

// Returns the modules that are not quantised. Looks for every key that writers of such files use.
std::string rules_text(const json& quantization) {
    std::string text;
    for (const char* key : {"ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers",
                            "exclude", "extra_config"}) {
        const auto rules = quantization.find(key);
        if (rules == quantization.end() || rules->empty()) continue;
        std::vector<std::string> names;
        for (const auto& [name, rule] : rules->items())
            if (names.size() < k_max_rules)
                names.push_back(printable(rule.is_string() ? rule.get<std::string>() : name, k_rule_bytes));
        const size_t more = rules->size() - names.size();
        text += line(key, fmt::format("{}{}", fmt::join(names, ", "),
                                      more > 0 ? fmt::format(" and {} more", more) : ""));
    }
    return text;
}

}  // namespace

std::string quantisation_text(const std::string& path) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) return {};
    const json config = object_of(std::filesystem::path(path) / "config.json");
    json quantization = config.value("quantization_config", json());
    if (!quantization.is_object())
        quantization =
            object_of(std::filesystem::path(path) / "hf_quant_config.json").value("quantization", json());
    if (!quantization.is_object() || quantization.empty()) return {};
    std::string text = "\nquantisation\n";
    for (const char* key : {"quant_method", "quant_algo", "format", "packing_format", "checkpoint_format",
                            "version", "weight_block_size", "fmt", "desc_act", "zero_point", "sym"})
        text += line(key, text_of(quantization, key));
    return text + groups_text(quantization) + rules_text(quantization);
}

}  // namespace cli
