// SPDX-License-Identifier: Apache-2.0
#include "layouts/quantization_config.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/format_text.h"
#include "checkpoint/printable.h"

namespace minim::layouts {
namespace {

using json::Value;
using Entry = Declaration::Entry;

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
    Entry entry = {*method, number_of(object, "group_size").value_or(0),
                   format_text("{} {}", key, checkpoint::printable(name))};
    if (entry.group != 0) entry.text += format_text(", group_size {}", entry.group);
    return entry;
}

// Reads a declaration of ModelOpt: one algorithm, or a map by names of modules, whose last parts may be left out.
void declare_modelopt(const Value& object, Declaration& declared) {
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
bool declare_group(const Value& group, std::vector<Entry>& entries) {
    const Value* weights = json::find(&group, "weights");
    if (weights == nullptr || !weights->is_object()) return false;
    const int64_t bits = number_of(*weights, "num_bits").value_or(0);
    const int64_t size = number_of(*weights, "group_size").value_or(0);
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

void declare_compressed_tensors(const Value& object, Declaration& declared) {
    const Value* groups = json::find(&object, "config_groups");
    if (groups == nullptr || !groups->is_object()) return;
    for (const Value& group : groups->items) {
        if (declare_group(group, declared.entries)) continue;
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
        declare_modelopt(quantization, declared);
    } else if (method == "compressed-tensors" || method.empty()) {
        declare_compressed_tensors(quantization, declared);
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

void add_hf_quant_config(std::string_view text, PackingHints& hints) {
    constexpr const char* k_name = "hf_quant_config.json";
    const Value object = json::parse(text, k_name, json::Source::file);
    if (!object.is_object()) fail_file(Reason::format, "{} is not a JSON object", k_name);
    const Value* quantization = json::find(&object, "quantization");
    Declaration declared = {k_name, {}, {}};
    declare_modelopt(quantization != nullptr && quantization->is_object() ? *quantization : object, declared);
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

}  // namespace minim::layouts
