// SPDX-License-Identifier: Apache-2.0
#include "model/quantisation.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/format_text.h"
#include "model/declared_methods.h"
#include "model/other_models.h"

namespace minim::model {
namespace {

using json::Value;
using weights::PackingHints;

const Value* find(const Value& object, const char* key) {
    const Value* value = json::find(&object, key);
    return value == nullptr || value->is_null() ? nullptr : value;
}

std::string text_of(const Value& object, const char* key) {
    const Value* value = find(object, key);
    return value != nullptr && value->is_string() ? value->text : std::string();
}

std::optional<int64_t> number_of(const Value& object, const char* key) {
    const Value* value = find(object, key);
    return value != nullptr ? json::to_int64(*value) : std::nullopt;
}

std::optional<bool> flag_of(const Value& object, const char* key) {
    const Value* value = find(object, key);
    return value != nullptr && value->is_boolean() ? std::optional(value->boolean) : std::nullopt;
}

// Returns a value as JSON text, cut if it is long.
std::string shown(const Value& value) {
    constexpr size_t k_longest = 120;
    std::string text = json::to_text(value);
    if (text.size() <= k_longest) return text;
    text.resize(k_longest);
    while ((static_cast<unsigned char>(text.back()) & 0x80U) != 0) text.pop_back();  // keep characters whole
    return text + "...";
}

[[noreturn]] void refuse(const Value& object, const char* key, std::string_view what) {
    fail(Status::unsupported, "{} (config.json: {} = {}) is not supported", what, key,
         shown(*find(object, key)));
}

[[noreturn]] void refuse_quantisation(std::string_view what, const std::string& where) {
    fail(Status::unsupported,
         "a folder quantised by {} (config.json: {}) is not supported; take a GGUF file or an FP8, NVFP4, "
         "MXFP4, "
         "INT4, GPTQ or AWQ folder of the model",
         what, where);
}

bool has_any(const Value& object, std::initializer_list<const char*> keys) {
    return std::ranges::any_of(keys, [&](const char* key) { return find(object, key) != nullptr; });
}

// MLX writes {"group_size": 64, "bits": 4}, often twice.
bool is_of_mlx(const Value& quantization) {
    return has_any(quantization, {"group_size"}) && has_any(quantization, {"bits"}) &&
           !has_any(quantization, {"quant_method", "quant_algo"});
}

// Returns the method of a quantization_config, also for some writers that do not name it.
std::string method_of(const Value& quantization) {
    const Value* method = find(quantization, "quant_method");
    if (method != nullptr && method->is_string()) return method->text;
    if (method == nullptr && is_of_mlx(quantization)) return "mlx";
    if (method == nullptr && has_any(quantization, {"load_in_4bit", "load_in_8bit", "bnb_4bit_quant_type"}))
        return "bitsandbytes";
    if (method == nullptr && has_any(quantization, {"weight_quant_params", "quant_config"})) return "hqq";
    if (method == nullptr && has_any(quantization, {"quant_algo", "quantized_layers"})) return "modelopt";
    if (method == nullptr && has_any(quantization, {"config_groups"})) return "compressed-tensors";
    fail_file(Reason::value, "config.json: quantization_config has no quant_method");
}

// Declares the group of an object with `bits` and `group_size`. If one of them is missing, that of the whole
// configuration applies.
void declare(const Value& object, int64_t whole_bits, int64_t whole_size, PackingHints& hints) {
    const int64_t bits = number_of(object, "bits").value_or(whole_bits);
    const int64_t size = number_of(object, "group_size").value_or(whole_size);
    if (bits == 4 || bits == 8) hints.groups.push_back({bits, size});
}

void check_bits(const Value& quantization, std::string_view method) {
    const auto bits = number_of(quantization, "bits");
    if (bits && *bits != 4 && *bits != 8)
        refuse(quantization, "bits", format_text("{} of these bits", method));
}

// Declares the groups of rules for single modules: {"regex": {"bits": 8, ...}, ...}.
void declare_rules(const Value& quantization, const char* key, PackingHints& hints) {
    const Value* rules = find(quantization, key);
    if (rules == nullptr || !rules->is_object()) return;
    const PackingHints::Group whole = hints.groups.empty() ? PackingHints::Group{} : hints.groups.front();
    for (const Value& rule : rules->items)
        if (rule.is_object()) declare(rule, whole.bits, whole.size, hints);
}

void read_fp8(const Value& quantization) {
    const std::string kind = text_of(quantization, "fmt");
    if (!kind.empty() && kind != "float8_e4m3fn" && kind != "e4m3")
        refuse(quantization, "fmt", "this kind of FP8");
    const Value* size = find(quantization, "weight_block_size");
    const auto is = [](const Value& value, double number) {
        return value.is_number() && value.number == number;
    };
    const bool is_known = size == nullptr || (size->is_array() && size->items.size() == 2 &&
                                              is(size->items[0], 128) && is(size->items[1], 128));
    if (!is_known) refuse(quantization, "weight_block_size", "FP8 in these blocks");
}

void read_awq(const Value& quantization, PackingHints& hints) {
    const auto bits = number_of(quantization, "bits");
    if (bits && *bits != 4) refuse(quantization, "bits", "AWQ of these bits");
    const std::string version = text_of(quantization, "version");
    if (!version.empty() && version != "gemm" && version != "GEMM")
        refuse(quantization, "version", "this layout of AWQ");
    declare(quantization, 4, 128, hints);
}

void read_gptq(const Value& quantization, PackingHints& hints) {
    check_bits(quantization, "GPTQ");
    const std::string layout = text_of(quantization, "checkpoint_format");
    if (!layout.empty() && layout != "gptq" && layout != "gptq_v2")
        refuse(quantization, "checkpoint_format", "this layout of GPTQ");
    hints.gptq_zero_bias = layout == "gptq_v2" ? 0 : 1;
    hints.orders_inputs = flag_of(quantization, "desc_act").value_or(false);
    hints.symmetric = flag_of(quantization, "sym");
    declare(quantization, 4, 128, hints);
    declare_rules(quantization, "dynamic", hints);
}

void read_auto_round(const Value& quantization, PackingHints& hints) {
    check_bits(quantization, "AutoRound");
    const std::string layout = text_of(quantization, "packing_format");
    constexpr std::string_view k_known[] = {"",
                                            "auto_round",
                                            "auto_round:gptq",
                                            "auto_round:auto_gptq",
                                            "auto_gptq",
                                            "auto_round:awq",
                                            "auto_round:auto_awq",
                                            "auto_awq",
                                            "auto_round:llm_compressor",
                                            "llm_compressor",
                                            "auto_round:fp8"};
    if (std::ranges::find(k_known, layout) == std::end(k_known))
        refuse(quantization, "packing_format", "this layout of AutoRound");
    hints.gptq_zero_bias = layout.find("auto_gptq") != std::string::npos ? 1 : 0;
    const std::string type = text_of(quantization, "data_type");
    if (!type.empty() && type != "int") return;  // MXFP4, NVFP4: floats, whose groups the tensors show
    hints.symmetric = flag_of(quantization, "sym");
    declare(quantization, 4, 128, hints);
    declare_rules(quantization, "extra_config", hints);
}

// Reads one of the config_groups, if it is about whole numbers.
void read_group(const Value& weights, bool& all_symmetric, PackingHints& hints) {
    if (text_of(weights, "type") == "float") return;
    const std::string strategy = text_of(weights, "strategy");
    const bool is_whole_row = strategy == "channel" || strategy == "tensor" || strategy == "token";
    hints.groups.push_back({number_of(weights, "num_bits").value_or(8),
                            is_whole_row ? -1 : number_of(weights, "group_size").value_or(-1)});
    all_symmetric = all_symmetric && flag_of(weights, "symmetric").value_or(true);
    const std::string order = text_of(weights, "actorder");
    if (order == "group" || flag_of(weights, "actorder").value_or(false)) hints.orders_inputs = true;
}

void read_compressed_tensors(const Value& quantization, PackingHints& hints) {
    for (const char* key : {"format"}) {
        const std::string format = text_of(quantization, key);
        if (format.starts_with("marlin") || format.starts_with("sparse"))
            refuse(quantization, key, "this layout of compressed-tensors");
    }
    const Value* sparsity = find(quantization, "sparsity_config");
    if (sparsity != nullptr && sparsity->is_object()) {
        const std::string format = text_of(*sparsity, "format");
        if (!format.empty() && format != "dense") refuse(quantization, "sparsity_config", "a sparse layout");
    }
    const Value* groups = find(quantization, "config_groups");
    if (groups == nullptr || !groups->is_object()) return;
    bool all_symmetric = true;
    for (const Value& group : groups->items)
        if (const Value* weights = find(group, "weights"); weights != nullptr && weights->is_object())
            read_group(*weights, all_symmetric, hints);
    if (!hints.groups.empty() && all_symmetric) hints.symmetric = true;
}

// Reads whether all weights are symmetric, because Quark writes zero points of symmetric integers, too.
void read_quark(const Value& quantization, PackingHints& hints) {
    const Value* whole = find(quantization, "global_quant_config");
    const auto is_symmetric = [](const Value& config) {
        const Value* weight = find(config, "weight");
        return weight != nullptr && weight->is_object() && flag_of(*weight, "symmetric").value_or(false);
    };
    const auto all_symmetric = [&](const char* key) {
        const Value* configs = find(quantization, key);
        return configs == nullptr || !configs->is_object() ||
               std::ranges::all_of(configs->items, [&](const Value& config) {
                   return !config.is_object() || is_symmetric(config);
               });
    };
    if (whole != nullptr && whole->is_object() && is_symmetric(*whole) &&
        all_symmetric("layer_quant_config") && all_symmetric("layer_type_quant_config"))
        hints.symmetric = true;
}

}  // namespace

PackingHints packing_hints(const Value& config) {
    PackingHints hints;
    if (const Value* mlx = find(config, "quantization"); mlx != nullptr && is_of_mlx(*mlx))
        refuse_quantisation(other_quantisation("mlx"), "quantization = " + shown(*mlx));
    const Value* quantization = find(config, "quantization_config");
    if (quantization == nullptr) quantization = find(config, "compression_config");  // of compressed-tensors
    if (quantization == nullptr) return hints;
    const std::string method = method_of(*quantization);
    if (const std::string_view other = other_quantisation(method); !other.empty())
        refuse_quantisation(other, "quantization_config = " + shown(*quantization));
    if (method == "fp8") {
        read_fp8(*quantization);
    } else if (method == "awq") {
        read_awq(*quantization, hints);
    } else if (method == "gptq") {
        read_gptq(*quantization, hints);
    } else if (method == "auto-round" || method == "auto_round" || method == "intel/auto-round") {
        read_auto_round(*quantization, hints);
    } else if (method == "compressed-tensors") {
        read_compressed_tensors(*quantization, hints);
    } else if (method == "quark") {
        read_quark(*quantization, hints);
    } else if (method != "modelopt" && method != "mxfp8" && method != "mxfp4") {
        refuse(*quantization, "quant_method", "this quantisation");
    }
    hints.declarations.push_back(declared_methods(*quantization));
    if (!hints.groups.empty()) {
        hints.text = format_text("{}:", method);
        for (const PackingHints::Group& group : hints.groups)
            hints.text += format_text(" {} bits in groups of {};", group.bits, group.size);
        hints.text.pop_back();
    }
    return hints;
}

}  // namespace minim::model
