// SPDX-License-Identifier: Apache-2.0
#include "convert/rules.h"

#include <cstddef>
#include <regex>

#include "base/error.h"
#include "model/tensor_names.h"

namespace minim::convert {
namespace {

bool is_plain(Format type) {
    return type == Format::f32 || type == Format::f16 || type == Format::bf16;
}

// The matcher of the standard library recurses: limits keep it from filling the stack. Names in real files have at most 63 bytes.
constexpr size_t k_max_pattern_bytes = size_t{16} << 10;
constexpr size_t k_max_name_bytes = 1024;

// A rule that was read.
struct Rule {
    std::string text;  // as given
    std::regex pattern;
    Format type;
    bool has_matched = false;
};

Rule parse_rule(const std::string& text) {
    const size_t equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
        fail(Status::invalid, "the rule '{}' is not of the form PATTERN=TYPE", text);
    if (equals > k_max_pattern_bytes)
        fail(Status::invalid, "the rule '{}' has a pattern of {} bytes; at most {} are possible", text,
             equals, k_max_pattern_bytes);
    const Format type = parse_type(std::string_view(text).substr(equals + 1), "the rule '" + text + "'");
    try {
        return {text, std::regex(text.substr(0, equals)), type};
    } catch (const std::regex_error& error) {
        fail(Status::invalid, "the rule '{}': {}", text, error.what());
    }
}

// A rule applies to matrices, and, if the type is plain, to those that stay in floats.
bool applies_to(const Rule& rule, const SourceTensor& tensor) {
    return tensor.is_matrix || (tensor.stays_float && is_plain(rule.type));
}

std::optional<Format> type_by_rules(std::vector<Rule>& rules, const SourceTensor& tensor) {
    std::optional<Format> type;
    if (tensor.name.size() > k_max_name_bytes) return type;
    for (Rule& rule : rules) {
        if (rule.has_matched && type) continue;
        if (!applies_to(rule, tensor) || !std::regex_search(tensor.name, rule.pattern)) continue;
        rule.has_matched = true;
        if (!type) type = rule.type;
    }
    return type;
}

// Returns the type that holds the numbers of a tensor of a folder, or BF16.
ChosenType own_type_of(const SourceTensor& tensor) {
    const FormatTraits& format = traits(tensor.format);
    // Only NVFP4 has factors beside it in GGUF.
    const bool fits =
        format.gguf_type != k_no_gguf_type && (!tensor.has_factors || tensor.format == Format::nvfp4);
    if (fits) return {tensor.format};
    return {Format::bf16, false, true};
}

bool is_below_8_bits(const SourceTensor& tensor) {
    return tensor.row_bytes < tensor.n_columns;
}

// Returns whether the numbers change in a way that adds the errors of two encodings.
bool is_encoded_again(const SourceTensor& tensor, Format type, bool is_gguf) {
    return !is_copied(tensor, type, is_gguf) && !is_plain(type) && is_below_8_bits(tensor);
}

}  // namespace

bool is_copied(const SourceTensor& tensor, Format type, bool is_gguf) {
    // Only NVFP4 has factors beside it in GGUF; a GGUF source has them as tensors of their own.
    return type == tensor.format && (!tensor.has_factors || is_gguf || type == Format::nvfp4);
}

Format parse_type(std::string_view name, std::string_view what) {
    std::string capitals(name);
    for (char& c : capitals)
        if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    const std::optional<Format> type = format_from_name(capitals);
    if (!type || traits(*type).gguf_type == k_no_gguf_type || traits(*type).decode_row == nullptr)
        fail(Status::invalid, "{}: there is no type '{}' for weights in GGUF files", what, name);
    return *type;
}

std::vector<ChosenType> choose_types(const TypeOptions& options, std::span<const SourceTensor> tensors,
                                     bool is_gguf, int64_t n_layer, bool with_importance) {
    std::vector<Rule> rules;
    for (const std::string& text : options.rules) rules.push_back(parse_rule(text));
    const auto wanted_type = [&](const SourceTensor& tensor) -> std::optional<Format> {
        const MatrixRole role = role_of(tensor.name);
        const std::optional<Format> by_rules = type_by_rules(rules, tensor);
        if (!tensor.is_matrix) return by_rules;
        if (role == MatrixRole::output) {
            if (options.keeps_output) return std::nullopt;
            if (options.output_type) return options.output_type;
        }
        if (role == MatrixRole::token_embd && options.embedding_type) return options.embedding_type;
        if (by_rules) return by_rules;
        if (options.target == Target::plain) return options.plain_type;
        if (options.target != Target::recipe) return std::nullopt;
        if (options.is_pure) return options.recipe->type;
        return type_of(*options.recipe, role, model::names::layer_of(tensor.name), n_layer, with_importance);
    };
    std::vector<ChosenType> chosen;
    for (const SourceTensor& tensor : tensors) {
        const std::optional<Format> wanted = wanted_type(tensor);
        ChosenType one;
        if (wanted) {
            one.type = type_for_columns(*wanted, tensor.n_columns);
            one.is_fallback = one.type != *wanted;
        } else if (is_gguf) {
            one.type = tensor.format;
        } else if (tensor.is_matrix) {
            one = own_type_of(tensor);
        }  // else a norm, a bias, or a matrix of a folder that stays in floats: F32
        if (tensor.is_matrix && !options.allows_requantize && is_encoded_again(tensor, one.type, is_gguf))
            fail(Status::invalid,
                 "tensor {} is {}, below 8 bits, and would be encoded again, as {}: a file made of the "
                 "original weights is "
                 "better; --allow-requantize does it all the same",
                 shown(tensor.name), traits(tensor.format).name, traits(one.type).name);
        chosen.push_back(one);
    }
    for (const Rule& rule : rules)
        if (!rule.has_matched)
            fail(Status::invalid, "the rule '{}' matches no matrix; the names are like {}", rule.text,
                 model::names::stacked_expert(0, "up"));
    return chosen;
}

}  // namespace minim::convert
