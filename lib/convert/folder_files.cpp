// SPDX-License-Identifier: Apache-2.0
#include "convert/folder_files.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/format_text.h"
#include "base/json.h"
#include "convert/tokenizer_json.h"
#include "model/chat_template_texts.h"
#include "model/gguf_values.h"
#include "model/side_file.h"
#include "model/tensor_names.h"
#include "model/vocabulary.h"

namespace minim::convert {
namespace {

using json::Value;
using Files = std::vector<std::pair<std::string, std::string>>;

constexpr const char* k_config = "config.json";

// ---- JSON

Value text_value(std::string_view text) {
    Value value;
    value.kind = Value::Kind::string;
    value.text = text;
    return value;
}

Value bool_value(bool flag) {
    Value value;
    value.kind = Value::Kind::boolean;
    value.boolean = flag;
    return value;
}

Value int_value(int64_t number) {
    Value value;
    value.kind = Value::Kind::number;
    value.number = static_cast<double>(number);
    value.text = format_text("{}", number);
    return value;
}

// The shortest digits that are this number: 5000000, 1e-06.
Value decimal_value(double number) {
    Value value;
    value.kind = Value::Kind::number;
    value.number = number;
    const bool is_whole = number == std::floor(number) && std::fabs(number) < 1e15;
    value.text = is_whole ? format_text("{}", static_cast<int64_t>(number)) : format_text("{}", number);
    return value;
}

// A float, by the digits that give the same float.
Value float_value(float number) {
    if (number == std::floor(number)) return decimal_value(static_cast<double>(number));
    Value value = decimal_value(static_cast<double>(number));
    value.text = format_text("{}", number);
    return value;
}

Value object_value(const std::vector<std::pair<std::string, Value>>& members) {
    Value value;
    value.kind = Value::Kind::object;
    for (const auto& [key, member] : members) {
        value.keys.push_back(key);
        value.items.push_back(member);
    }
    return value;
}

Value list_value(std::vector<Value> items) {
    Value value;
    value.kind = Value::Kind::array;
    value.items = std::move(items);
    return value;
}

Value texts_value(const std::vector<std::string>& texts) {
    std::vector<Value> items;
    items.reserve(texts.size());
    for (const std::string& text : texts) items.push_back(text_value(text));
    return list_value(std::move(items));
}

// Replaces a member, or appends it.
void put_member(Value& object, std::string_view key, Value value) {
    const auto at = std::ranges::find(object.keys, key);
    if (at != object.keys.end()) {
        object.items[at - object.keys.begin()] = std::move(value);
        return;
    }
    object.keys.emplace_back(key);
    object.items.push_back(std::move(value));
}

void remove_member(Value& object, std::string_view key) {
    const auto at = std::ranges::find(object.keys, key);
    if (at == object.keys.end()) return;
    object.items.erase(object.items.begin() + (at - object.keys.begin()));
    object.keys.erase(at);
}

// Lists without lists and objects in them stand in one line.
bool is_flat(const Value& value) {
    return value.is_array() && std::ranges::none_of(value.items, [](const Value& item) {
               return item.is_array() || item.is_object() || item.is_string();
           });
}

void append_indented(std::string& out, const Value& value, size_t depth) {
    if ((!value.is_array() && !value.is_object()) || value.items.empty() || is_flat(value)) {
        out += json::to_text(value);
        return;
    }
    const std::string indent(2 * depth + 2, ' ');
    out += value.is_object() ? '{' : '[';
    for (size_t i = 0; i < value.items.size(); ++i) {
        out += i == 0 ? "\n" : ",\n";
        out += indent;
        if (value.is_object()) {
            json::append_quoted(out, value.keys[i]);
            out += ": ";
        }
        append_indented(out, value.items[i], depth + 1);
    }
    out += '\n' + std::string(2 * depth, ' ');
    out += value.is_object() ? '}' : ']';
}

std::string indented(const Value& value) {
    std::string out;
    append_indented(out, value, 0);
    return out + '\n';
}

// ---- what is quantised

// Names of modules that stay as they are, as one of the libraries reads them.
enum class NameStyle : uint8_t {
    wildcards,    // ModelOpt: model.layers.0.self_attn*
    expressions,  // compressed-tensors: re:.*self_attn.*
    plain,        // transformers' FP8
};

std::string expression_of(const FolderModule& module) {
    std::string out = "re:";
    for (const char c : module.name) {
        if (c == '.') out += '\\';
        out += c == '*' ? std::string("[0-9]+") : std::string(1, c);
    }
    return out + '$';
}

void add_plain_names(const FolderModule& module, int64_t n_expert, std::vector<std::string>& names) {
    const size_t star = module.name.find('*');
    if (star == std::string::npos) {
        names.push_back(module.name);
        return;
    }
    for (int64_t e = 0; e < n_expert; ++e)
        names.push_back(module.name.substr(0, star) + format_text("{}", e) + module.name.substr(star + 1));
}

std::vector<std::string> excluded_modules(const FolderWeights& weights, NameStyle style) {
    const auto is_attention = [](const FolderModule& module) {
        return module.name.find(".self_attn.") != std::string::npos;
    };
    const bool all_attention = std::ranges::none_of(weights.modules, [&](const FolderModule& module) {
        return is_attention(module) && module.is_quantised;
    });
    std::vector<std::string> names = {"lm_head"};
    if (style != NameStyle::plain) names.emplace_back("model.embed_tokens");
    if (style == NameStyle::expressions) names.emplace_back("re:.*block_sparse_moe\\.gate$");
    if (style == NameStyle::expressions && all_attention) names.emplace_back("re:.*self_attn.*");
    if (style == NameStyle::plain) names.insert(names.end(), {"gate", "e_score_correction_bias"});
    int64_t layer = -1;
    for (const FolderModule& module : weights.modules) {
        if (style == NameStyle::wildcards && module.layer != layer) {
            layer = module.layer;
            if (layer >= weights.n_dense_layer)
                names.push_back(format_text("model.layers.{}.block_sparse_moe.gate", layer));
            if (all_attention) names.push_back(format_text("model.layers.{}.self_attn*", layer));
        }
        if (module.is_quantised) continue;
        if (style == NameStyle::plain) {
            add_plain_names(module, weights.n_expert, names);
        } else if (!is_attention(module) || !all_attention) {
            names.push_back(style == NameStyle::expressions ? expression_of(module) : module.name);
        }
    }
    return names;
}

Value group_arguments(int64_t bits, const char* type, const char* strategy, std::optional<int64_t> group) {
    return object_value({{"actorder", Value()},
                         {"block_structure", Value()},
                         {"dynamic", bool_value(false)},
                         {"group_size", group ? int_value(*group) : Value()},
                         {"num_bits", int_value(bits)},
                         {"observer", text_value("minmax")},
                         {"observer_kwargs", object_value({})},
                         {"strategy", text_value(strategy)},
                         {"symmetric", bool_value(true)},
                         {"type", text_value(type)}});
}

Value compressed_tensors(const FolderWeights& weights, const char* format, Value arguments, Value inputs) {
    Value group = object_value({{"format", text_value(format)},
                                {"input_activations", std::move(inputs)},
                                {"output_activations", Value()},
                                {"targets", texts_value({"Linear"})},
                                {"weights", std::move(arguments)}});
    return object_value({{"config_groups", object_value({{"group_0", std::move(group)}})},
                         {"format", text_value(format)},
                         {"global_compression_ratio", Value()},
                         {"ignore", texts_value(excluded_modules(weights, NameStyle::expressions))},
                         {"kv_cache_scheme", Value()},
                         {"quant_method", text_value("compressed-tensors")},
                         {"quantization_status", text_value("compressed")}});
}

Value producer(const FolderWeights& weights) {
    return object_value({{"name", text_value("minim")}, {"version", text_value(weights.version)}});
}

const char* modelopt_algorithm(const FolderWeights& weights) {
    return weights.has_input_scales ? "NVFP4" : "W4A16_NVFP4";
}

Value modelopt(const FolderWeights& weights) {
    const auto fp4 = [] {
        return object_value({{"dynamic", bool_value(false)},
                             {"num_bits", int_value(4)},
                             {"type", text_value("float")},
                             {"group_size", int_value(16)}});
    };
    Value group = object_value({{"weights", fp4()}, {"targets", texts_value({"Linear"})}});
    if (weights.has_input_scales) put_member(group, "input_activations", fp4());
    return object_value({{"config_groups", object_value({{"group_0", std::move(group)}})},
                         {"ignore", texts_value(excluded_modules(weights, NameStyle::wildcards))},
                         {"producer", producer(weights)},
                         {"quant_algo", text_value(modelopt_algorithm(weights))},
                         {"quant_method", text_value("modelopt")}});
}

Value hf_quant_config(const FolderWeights& weights) {
    Value quantization =
        object_value({{"quant_algo", text_value(modelopt_algorithm(weights))},
                      {"kv_cache_quant_algo", Value()},
                      {"group_size", int_value(16)},
                      {"exclude_modules", texts_value(excluded_modules(weights, NameStyle::wildcards))}});
    return object_value({{"producer", producer(weights)}, {"quantization", std::move(quantization)}});
}

Value official_fp8(const FolderWeights& weights) {
    return object_value(
        {{"activation_scheme", text_value("dynamic")},
         {"fmt", text_value("float8_e4m3fn")},
         {"quant_method", text_value("fp8")},
         {"weight_block_size", list_value({int_value(128), int_value(128)})},
         {"modules_to_not_convert", texts_value(excluded_modules(weights, NameStyle::plain))}});
}

Value official_mxfp8(const FolderWeights& weights) {
    return object_value({{"activation_scheme", text_value("dynamic")},
                         {"fmt", text_value("float8_e4m3fn")},
                         {"ignored_layers", texts_value(excluded_modules(weights, NameStyle::plain))},
                         {"quant_method", text_value("mxfp8")},
                         {"scale_fmt", text_value("ue8m0")},
                         {"weight_block_size", list_value({int_value(1), int_value(32)})}});
}

// Returns quantization_config; null for BF16.
Value quantization_config(const FolderWeights& weights) {
    switch (weights.layout) {
        case FolderLayout::bf16:
            return {};
        case FolderLayout::fp8:
            return official_fp8(weights);
        case FolderLayout::mxfp8:
            return official_mxfp8(weights);
        case FolderLayout::nvfp4:
            return modelopt(weights);
        case FolderLayout::nvfp4_ct: {
            const auto arguments = [](Value dynamic) {
                Value value = group_arguments(4, "float", "tensor_group", 16);
                put_member(value, "dynamic", std::move(dynamic));
                put_member(value, "scale_dtype", text_value("torch.float8_e4m3fn"));
                put_member(value, "zp_dtype", Value());
                return value;
            };
            Value inputs = weights.has_input_scales ? arguments(text_value("local")) : Value();
            return compressed_tensors(weights, "nvfp4-pack-quantized", arguments(bool_value(false)),
                                      std::move(inputs));
        }
        case FolderLayout::mxfp4_ct: {
            Value arguments = group_arguments(4, "float", "group", 32);
            put_member(arguments, "scale_dtype", text_value("torch.uint8"));
            return compressed_tensors(weights, "mxfp4-pack-quantized", std::move(arguments), Value());
        }
        case FolderLayout::int4_g32:
            return compressed_tensors(weights, "pack-quantized", group_arguments(4, "int", "group", 32),
                                      Value());
        case FolderLayout::int4_g128:
            return compressed_tensors(weights, "pack-quantized", group_arguments(4, "int", "group", 128),
                                      Value());
        case FolderLayout::int8:
            return compressed_tensors(weights, "int-quantized",
                                      group_arguments(8, "int", "channel", std::nullopt), Value());
    }
    return {};
}

// ---- the configuration

Value config_of_folder(const Source& source, const FolderWeights& weights) {
    Value config =
        json::parse(model::side_file(source.checkpoint, k_config, true), k_config, json::Source::file);
    const auto change = [&](Value& object) {
        for (const char* key : {"quantization_config", "compression_config", "quantization"})
            remove_member(object, key);
        for (const char* key : {"torch_dtype", "dtype"})
            if (json::find(&object, key) != nullptr) put_member(object, key, text_value("bfloat16"));
        if (json::find(&object, "num_local_experts") != nullptr)
            put_member(object, "num_local_experts", int_value(weights.n_expert));
    };
    change(config);
    const auto nested = std::ranges::find(config.keys, "text_config");
    if (nested != config.keys.end()) {
        Value& text = config.items[nested - config.keys.begin()];
        if (text.is_object()) change(text);
    }
    return config;
}

// Returns the ids that end texts: one number, or a list.
Value end_ids(const tokenizer::Vocabulary& vocabulary) {
    std::vector<Value> ids;
    for (const int32_t id : {vocabulary.eos, vocabulary.eot, vocabulary.eom}) {
        const bool is_new = std::ranges::none_of(
            ids, [&](const Value& known) { return known.number == static_cast<double>(id); });
        if (id != tokenizer::k_no_token && is_new) ids.push_back(int_value(id));
    }
    if (ids.empty()) return {};
    return ids.size() == 1 ? ids.front() : list_value(std::move(ids));
}

// Returns a list with one number for each layer: 0 for those before `first`, 1 for the others.
Value layers_from(int64_t first, int64_t n_layer) {
    std::vector<Value> flags;
    for (int64_t layer = 0; layer < n_layer; ++layer) flags.push_back(int_value(layer < first ? 0 : 1));
    return list_value(std::move(flags));
}

// The configuration of M3 without a vision tower, in the published spelling.
Value m3_config(const Source& source, const FolderWeights& weights, const tokenizer::Vocabulary& vocabulary) {
    const model::Config& config = source.config;
    const backend::SparseAttention& index = config.sparse_attention;
    Value object = object_value({
        {"architectures", texts_value({"MiniMaxM3SparseForCausalLM"})},
        {"attention_output_gate", bool_value(false)},
        {"head_dim", int_value(config.head_dim)},
        {"hidden_act", text_value("swigluoai")},
        {"hidden_size", int_value(config.hidden)},
        {"intermediate_size", int_value(config.expert_ff)},
        {"max_position_embeddings", int_value(config.n_context_train)},
        {"model_type", text_value("minimax_m3")},
        {"moe_layer_freq", layers_from(config.n_dense_layer, config.n_layer)},
        {"n_shared_experts", int_value(1)},
        {"num_attention_heads", int_value(config.n_head)},
        {"num_experts_per_tok", int_value(config.n_expert_used)},
        {"num_hidden_layers", int_value(config.n_layer)},
        {"num_key_value_heads", int_value(config.n_head_kv)},
        {"num_local_experts", int_value(weights.n_expert)},
        {"partial_rotary_factor",
         decimal_value(static_cast<double>(config.rotary_dim) / static_cast<double>(config.head_dim))},
        {"qk_norm_type", text_value("per_head")},
        {"rms_norm_eps", float_value(config.norm_eps)},
        {"rope_theta", decimal_value(config.rope_theta)},
        {"rotary_dim", int_value(config.rotary_dim)},
        {"routed_scaling_factor", float_value(config.expert_weights_scale)},
        {"scoring_func", text_value("sigmoid")},
        {"shared_intermediate_size", int_value(config.shared_ff)},
        {"swiglu_alpha", float_value(config.activation.alpha)},
        {"swiglu_limit", float_value(config.activation.limit)},
        {"tie_word_embeddings", bool_value(false)},
        {"torch_dtype", text_value("bfloat16")},
        {"use_cache", bool_value(true)},
        {"use_gemma_norm", bool_value(true)},
        {"use_qk_norm", bool_value(true)},
        {"use_routing_bias", bool_value(true)},
        {"vocab_size", int_value(config.n_vocab)},
    });
    if (config.n_dense_layer > 0) put_member(object, "dense_intermediate_size", int_value(config.dense_ff));
    if (index.n_head > 0) {
        put_member(object, "sparse_attention_config",
                   object_value({
                       {"sparse_attention_freq", layers_from(config.first_sparse_layer, config.n_layer)},
                       {"sparse_block_size", int_value(index.block)},
                       {"sparse_disable_index_value", layers_from(config.first_sparse_layer, config.n_layer)},
                       {"sparse_index_dim", int_value(index.dim)},
                       {"sparse_init_block", int_value(index.init)},
                       {"sparse_local_block", int_value(index.local)},
                       {"sparse_num_index_heads", int_value(index.n_head)},
                       {"sparse_score_type", text_value("max")},
                       {"sparse_topk_blocks", int_value(index.top)},
                       {"use_sparse_attention", bool_value(true)},
                   }));
    }
    if (vocabulary.bos != tokenizer::k_no_token)
        put_member(object, "bos_token_id", int_value(vocabulary.bos));
    if (Value ids = end_ids(vocabulary); !ids.is_null()) put_member(object, "eos_token_id", std::move(ids));
    return object;
}

Value config_of_gguf(const Source& source, const FolderWeights& weights,
                     const tokenizer::Vocabulary& vocabulary) {
    const model::Config& config = source.config;
    if (config.family == model::Family::m3) return m3_config(source, weights, vocabulary);
    std::vector<Value> attention_kinds(static_cast<size_t>(config.n_layer), int_value(1));
    Value object = object_value({
        {"architectures", texts_value({"MiniMaxM2ForCausalLM"})},
        {"attn_type_list", list_value(std::move(attention_kinds))},
        {"head_dim", int_value(config.head_dim)},
        {"hidden_act", text_value("silu")},
        {"hidden_size", int_value(config.hidden)},
        {"intermediate_size", int_value(config.expert_ff)},
        {"max_position_embeddings", int_value(config.n_context_train)},
        {"model_type", text_value("minimax_m2")},
        {"num_attention_heads", int_value(config.n_head)},
        {"num_experts_per_tok", int_value(config.n_expert_used)},
        {"num_hidden_layers", int_value(config.n_layer)},
        {"num_key_value_heads", int_value(config.n_head_kv)},
        {"num_local_experts", int_value(weights.n_expert)},
        {"num_mtp_modules", int_value(0)},
        {"qk_norm_type", text_value("per_layer")},
        {"rms_norm_eps", float_value(config.norm_eps)},
        {"rope_theta", decimal_value(config.rope_theta)},
        {"rotary_dim", int_value(config.rotary_dim)},
        {"scoring_func", text_value("sigmoid")},
        {"shared_intermediate_size", int_value(0)},
        {"tie_word_embeddings", bool_value(false)},
        {"torch_dtype", text_value("bfloat16")},
        {"use_cache", bool_value(true)},
        {"use_mtp", bool_value(false)},
        {"use_qk_norm", bool_value(true)},
        {"use_routing_bias", bool_value(weights.has_router_bias)},
        {"vocab_size", int_value(config.n_vocab)},
    });
    if (config.expert_weights_scale != 1.0F)
        put_member(object, "routed_scaling_factor", float_value(config.expert_weights_scale));
    if (vocabulary.bos != tokenizer::k_no_token)
        put_member(object, "bos_token_id", int_value(vocabulary.bos));
    if (Value ids = end_ids(vocabulary); !ids.is_null()) put_member(object, "eos_token_id", std::move(ids));
    return object;
}

Value generation_config(const checkpoint::Metadata& metadata, const tokenizer::Vocabulary& vocabulary) {
    Value object = object_value({});
    if (vocabulary.bos != tokenizer::k_no_token)
        put_member(object, "bos_token_id", int_value(vocabulary.bos));
    put_member(object, "do_sample", bool_value(true));
    if (Value ids = end_ids(vocabulary); !ids.is_null()) put_member(object, "eos_token_id", std::move(ids));
    const std::pair<const char*, const char*> numbers[] = {
        {"temperature", "general.sampling.temp"},
        {"top_k", "general.sampling.top_k"},
        {"top_p", "general.sampling.top_p"},
        {"min_p", "general.sampling.min_p"},
        {"repetition_penalty", "general.sampling.penalty_repeat"}};
    for (const auto& [key, name] : numbers)
        if (const auto number = model::number(metadata, name))
            put_member(object, key, float_value(static_cast<float>(*number)));
    return object;
}

void add_quantisation(const FolderWeights& weights, Value& config, Files& files) {
    Value quantization = quantization_config(weights);
    if (!quantization.is_null()) put_member(config, "quantization_config", std::move(quantization));
    files.emplace_back(k_config, indented(config));
    if (weights.layout == FolderLayout::nvfp4)
        files.emplace_back("hf_quant_config.json", indented(hf_quant_config(weights)));
}

}  // namespace

Files folder_files(const Source& source, const FolderWeights& weights, const Logger& log) {
    const checkpoint::Checkpoint& from = source.checkpoint;
    Files files;
    if (!source.is_gguf()) {
        // M3's folder may have a vision tower, which is left out, and several spellings.
        Value config = source.config.family == model::Family::m3
                           ? m3_config(source, weights, model::read_vocabulary(from, log))
                           : config_of_folder(source, weights);
        add_quantisation(weights, config, files);
        for (const char* name :
             {"generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
            if (std::string text = model::side_file(from, name, false); !text.empty())
                files.emplace_back(name, std::move(text));
        return files;
    }
    const tokenizer::Vocabulary vocabulary = model::read_vocabulary(from, log);
    Value config = config_of_gguf(source, weights, vocabulary);
    add_quantisation(weights, config, files);
    files.emplace_back("generation_config.json", indented(generation_config(from.metadata(), vocabulary)));
    files.emplace_back("tokenizer.json", tokenizer_json(vocabulary));
    // A single template has a file of its own; several are a list in the configuration.
    Files templates = model::chat_template_texts(from);
    if (templates.size() == 1 && templates.front().first == "default") {
        files.emplace_back("chat_template.jinja", std::move(templates.front().second));
        templates.clear();
    }
    files.emplace_back("tokenizer_config.json",
                       tokenizer_config_json(vocabulary, from.metadata(), templates));
    return files;
}

}  // namespace minim::convert
