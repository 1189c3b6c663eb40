// SPDX-License-Identifier: Apache-2.0
#include "convert/metadata_edits.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "checkpoint/gguf_metadata.h"

namespace minim::convert {
namespace {

using checkpoint::meta_text;
using checkpoint::meta_value;
using checkpoint::MetaEntries;
using checkpoint::MetaType;
using checkpoint::MetaValue;

constexpr std::string_view k_model_prefixes[] = {"minimax-m2.", "minimax-m3."};

// Keys that the tensors decide, behind the architecture's name.
constexpr std::string_view k_shape_keys[] = {"block_count",
                                             "embedding_length",
                                             "feed_forward_length",
                                             "attention.head_count",
                                             "attention.head_count_kv",
                                             "attention.key_length",
                                             "attention.value_length",
                                             "expert_count",
                                             "expert_feed_forward_length",
                                             "expert_shared_count",
                                             "expert_shared_feed_forward_length",
                                             "leading_dense_block_count",
                                             "attention.indexer.head_count",
                                             "attention.indexer.key_length",
                                             "vocab_size",
                                             "nextn_predict_layers"};
constexpr std::string_view k_vocabulary_keys[] = {
    "model", "pre", "tokens", "token_type", "token_type_count", "scores", "merges"};
constexpr std::string_view k_own_keys[] = {
    "general.architecture", "general.alignment",        "general.type",
    "minim.tensor_xxh3",    "minim.tensor_source_xxh3", "minim.version"};

void check_key(std::string_view key) {
    if (key.empty()) fail(Status::invalid, "a metadata key is empty");
    if (key.find('\0') != std::string_view::npos || key.size() > checkpoint::k_name_cap_bytes)
        fail(Status::invalid, "the metadata key {} has a NUL or is too long", key.substr(0, 64));
    constexpr std::string_view k_vocabulary = "tokenizer.ggml.";
    const auto is_in = [&](const auto& keys, std::string_view name) {
        return std::ranges::find(keys, name) != std::end(keys);
    };
    const size_t dot = key.find('.');
    const auto is_shape = [&](std::string_view prefix) {
        return key.starts_with(prefix) && is_in(k_shape_keys, key.substr(prefix.size()));
    };
    if (std::ranges::any_of(k_model_prefixes, is_shape) ||
        (dot != std::string_view::npos && key.substr(dot) == ".block_count"))
        fail(Status::invalid, "the metadata key {} describes the shapes of the tensors; it cannot be changed",
             key);
    if (key.starts_with(k_vocabulary) && is_in(k_vocabulary_keys, key.substr(k_vocabulary.size())))
        fail(Status::invalid, "the metadata key {} is part of the vocabulary; it cannot be changed", key);
    if (is_in(k_own_keys, key) || key.starts_with("split."))
        fail(Status::invalid, "the metadata key {} is written as the file requires; it cannot be changed",
             key);
}

std::optional<MetaType> type_of_name(std::string_view name) {
    for (uint32_t code = 0; code <= static_cast<uint32_t>(MetaType::f64); ++code) {
        const auto type = static_cast<MetaType>(code);
        if (type != MetaType::array && checkpoint::name_of(type) == name) return type;
    }
    return std::nullopt;
}

template <typename T>
std::optional<T> number(std::string_view text) {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

template <typename T>
std::optional<MetaValue> number_value(std::string_view text) {
    const std::optional<T> value = number<T>(text);
    return value ? std::optional(meta_value(*value)) : std::nullopt;
}

std::optional<MetaValue> parse_value(MetaType type, std::string_view text) {
    switch (type) {
        case MetaType::u8:
            return number_value<uint8_t>(text);
        case MetaType::i8:
            return number_value<int8_t>(text);
        case MetaType::u16:
            return number_value<uint16_t>(text);
        case MetaType::i16:
            return number_value<int16_t>(text);
        case MetaType::u32:
            return number_value<uint32_t>(text);
        case MetaType::i32:
            return number_value<int32_t>(text);
        case MetaType::u64:
            return number_value<uint64_t>(text);
        case MetaType::i64:
            return number_value<int64_t>(text);
        case MetaType::f32:
            return number_value<float>(text);
        case MetaType::f64:
            return number_value<double>(text);
        case MetaType::boolean:
            if (text != "true" && text != "false") return std::nullopt;
            return meta_value(text == "true");
        case MetaType::string:
            return meta_text(text);
        case MetaType::array:
            break;
    }
    return std::nullopt;
}

MetaValue parse_or_fail(std::string_view key, MetaType type, std::string_view text) {
    if (std::optional<MetaValue> value = parse_value(type, text)) return std::move(*value);
    fail(Status::invalid, "the metadata key {} is {}, which '{}' is not", key, checkpoint::name_of(type),
         text);
}

// Splits "u32:5" into a type and a value. Other texts have no type.
std::pair<std::optional<MetaType>, std::string_view> split_type(std::string_view text) {
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos) return {std::nullopt, text};
    const std::optional<MetaType> type = type_of_name(text.substr(0, colon));
    return {type, type ? text.substr(colon + 1) : text};
}

MetaValue deduced_value(std::string_view text) {
    if (text == "true" || text == "false") return meta_value(text == "true");
    if (const auto value = number<uint32_t>(text)) return meta_value(*value);
    if (const auto value = number<int64_t>(text)) return meta_value(*value);
    if (const auto value = number<float>(text)) return meta_value(*value);
    return meta_text(text);
}

auto find(MetaEntries& entries, std::string_view key) {
    return std::ranges::find_if(entries, [&](const auto& entry) { return entry.first == key; });
}

MetaValue new_value(const MetadataEdit& edit, const MetaValue* old) {
    if (old != nullptr && old->is_array())
        fail(Status::invalid, "the metadata key {} is an array, which cannot be set from text", edit.key);
    if (edit.kind == MetadataEdit::Kind::text) {
        if (old != nullptr && old->type != MetaType::string)
            fail(Status::invalid, "the metadata key {} is {}, not a string", edit.key,
                 checkpoint::name_of(old->type));
        return meta_text(edit.text);
    }
    const auto [said, text] = split_type(edit.text);
    // Other texts with a colon are texts.
    if (old != nullptr && old->type == MetaType::string)
        return meta_text(said == MetaType::string ? text : std::string_view(edit.text));
    if (old == nullptr) return said ? parse_or_fail(edit.key, *said, text) : deduced_value(text);
    if (said && *said != old->type)
        fail(Status::invalid, "the metadata key {} is {} and keeps this type; '{}' asks for another",
             edit.key, checkpoint::name_of(old->type), edit.text);
    return parse_or_fail(edit.key, old->type, text);
}

}  // namespace

void put(MetaEntries& entries, std::string_view key, MetaValue value) {
    const auto found = find(entries, key);
    if (found == entries.end()) {
        entries.emplace_back(key, std::move(value));
    } else {
        found->second = std::move(value);
    }
}

void remove(MetaEntries& entries, std::string_view key) {
    std::erase_if(entries, [&](const auto& entry) { return entry.first == key; });
}

void edit_metadata(const std::vector<MetadataEdit>& edits, MetaEntries& entries) {
    for (const MetadataEdit& edit : edits) {
        check_key(edit.key);
        const auto found = find(entries, edit.key);
        const bool is_there = found != entries.end();
        if (edit.kind == MetadataEdit::Kind::unset) {
            if (!is_there) fail(Status::invalid, "there is no metadata key {} to remove", edit.key);
            entries.erase(found);
        } else {
            put(entries, edit.key, new_value(edit, is_there ? &found->second : nullptr));
        }
    }
}

}  // namespace minim::convert
