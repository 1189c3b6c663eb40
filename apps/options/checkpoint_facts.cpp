// SPDX-License-Identifier: Apache-2.0
#include "checkpoint_facts.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace program {
namespace {

using nlohmann::json;

// Returns the layer of "blk.3.ffn_down_exps.weight" or "model.layers.3.block_sparse_moe...", or -1.
int64_t layer_of(std::string_view name) {
    for (const std::string_view mark : {"blk.", "layers."}) {
        const size_t at = name.find(mark);
        if (at == std::string_view::npos) continue;
        int64_t layer = -1;
        std::from_chars(name.data() + at + mark.size(), name.data() + name.size(), layer);
        return layer;
    }
    return -1;
}

json object_of(const std::filesystem::path& path) {
    std::ifstream file(path);
    json object = json::parse(file, nullptr, false);
    return object.is_object() ? object : json::object();
}

json member(const json& object, const char* name) {
    const auto found = object.find(name);
    return found == object.end() ? json() : *found;
}

std::string method_name(std::string text) {
    for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c == '-' ? '_' : c;
    return text;
}

// Returns the names that fit what the headers say; none: the weights are not quantised.
std::set<std::string> methods_of(const std::string& path) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error))
        return path.ends_with(".safetensors") ? std::set<std::string>{} : std::set<std::string>{"gguf"};
    const std::filesystem::path folder(path);
    const json config = object_of(folder / "config.json");
    json quantization = member(config, "quantization_config");
    if (!quantization.is_object())
        quantization = member(member(config, "text_config"), "quantization_config");
    if (!quantization.is_object())
        quantization = member(object_of(folder / "hf_quant_config.json"), "quantization");
    if (!quantization.is_object()) {
        const bool has_config = std::filesystem::exists(folder / "config.json", error);
        return has_config ? std::set<std::string>{} : std::set<std::string>{"gguf"};
    }
    std::set<std::string> methods;
    for (const char* key : {"quant_method", "quant_algo"})
        if (const json value = member(quantization, key); value.is_string())
            methods.insert(method_name(value.get<std::string>()));
    const auto also = [&](const char* one, std::initializer_list<const char*> others) {
        if (methods.contains(one)) methods.insert(others.begin(), others.end());
    };
    also("nvfp4", {"modelopt", "modelopt_fp4"});
    also("modelopt", {"modelopt_fp4", "modelopt_fp8", "modelopt_mixed"});
    also("awq", {"awq_marlin", "moe_wna16"});
    also("gptq", {"gptq_marlin", "moe_wna16"});
    also("auto_round", {"auto_round_int8", "gptq", "awq"});
    return methods;
}

}  // namespace

CheckpointFacts checkpoint_facts(const minim::Runtime& runtime, const std::string& path) {
    const minim::Checkpoint checkpoint(runtime, path);
    CheckpointFacts facts;
    std::set<int64_t> expert_layers;
    for (size_t i = 0; i < checkpoint.tensor_count(); ++i) {
        const minim_tensor_info tensor = checkpoint.tensor(i);
        const std::string_view name = tensor.name;
        const int64_t layer = layer_of(name);
        facts.n_layers = std::max(facts.n_layers, layer + 1);
        const bool is_expert =
            name.find("_exps.") != std::string_view::npos || name.find(".experts.") != std::string_view::npos;
        if (!is_expert || layer < 0) continue;
        expert_layers.insert(layer);
        facts.expert_bytes += tensor.bytes;
    }
    facts.n_expert_layers = static_cast<int64_t>(expert_layers.size());
    return facts;
}

void check_quantization(const std::string& path, const std::string& method) {
    const std::set<std::string> methods = methods_of(path);
    const std::string asked = method_name(method);
    const bool asks_for_none = asked == "none" || asked == "unquant";
    if (asks_for_none ? methods.empty() : methods.contains(asked)) return;
    throw std::runtime_error(fmt::format(
        "--quantization: the checkpoint is not '{}' but {}", method,
        methods.empty() ? "not quantised (none)" : fmt::format("'{}'", fmt::join(methods, "', '"))));
}

}  // namespace program
