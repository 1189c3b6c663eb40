// SPDX-License-Identifier: Apache-2.0
#include "model/chat_templates.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/format_text.h"
#include "base/json.h"
#include "model/chat_template_texts.h"
#include "model/side_file.h"

namespace minim::model {
namespace {

using checkpoint::Checkpoint;
using NamedTexts = std::vector<std::pair<std::string, std::string>>;

constexpr std::string_view k_default = "default";

NamedTexts texts_of_gguf(const checkpoint::Metadata& metadata) {
    constexpr std::string_view k_key = "tokenizer.chat_template";
    NamedTexts texts;
    if (const auto text = metadata.string(k_key)) texts.emplace_back(k_default, *text);
    for (const auto& entry : metadata.entries()) {
        const std::string_view key = entry.key;
        if (!key.starts_with(k_key) || key.size() < k_key.size() + 2 || key[k_key.size()] != '.') continue;
        texts.emplace_back(key.substr(k_key.size() + 1), *metadata.string(key));
    }
    return texts;
}

NamedTexts texts_of_config(const json::Value& config) {
    NamedTexts texts;
    const json::Value* field = json::find(&config, "chat_template");
    if (field == nullptr) return texts;
    if (field->is_string()) texts.emplace_back(k_default, field->text);
    for (const json::Value& item : field->items) {
        const json::Value* name = json::find(&item, "name");
        const json::Value* text = json::find(&item, "template");
        if (name != nullptr && name->is_string() && text != nullptr && text->is_string())
            texts.emplace_back(name->text, text->text);
    }
    return texts;
}

std::vector<std::pair<std::string, std::string>> special_tokens_of_config(const json::Value& config) {
    std::vector<std::pair<std::string, std::string>> tokens;
    for (const std::string_view name :
         {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
        const json::Value* token = json::find(&config, name);
        if (token != nullptr && token->is_object()) token = json::find(token, "content");
        if (token != nullptr && token->is_string()) tokens.emplace_back(name, token->text);
    }
    return tokens;
}

std::vector<std::pair<std::string, std::string>> special_tokens_of_gguf(
    const checkpoint::Metadata& metadata, const tokenizer::Tokenizer& tokenizer) {
    constexpr std::pair<std::string_view, std::string_view> k_keys[] = {
        {"bos_token", "tokenizer.ggml.bos_token_id"},
        {"eos_token", "tokenizer.ggml.eos_token_id"},
        {"unk_token", "tokenizer.ggml.unknown_token_id"},
        {"pad_token", "tokenizer.ggml.padding_token_id"},
    };
    std::vector<std::pair<std::string, std::string>> tokens;
    for (const auto& [name, key] : k_keys) {
        const checkpoint::MetaValue* stored = metadata.find(key);
        if (stored == nullptr || stored->is_array() || stored->type == checkpoint::MetaType::string) continue;
        const double id = stored->number_at(0);
        if (id >= 0 && id < tokenizer.n_tokens())
            tokens.emplace_back(name, tokenizer.token_bytes(static_cast<int32_t>(id)));
    }
    return tokens;
}

json::Value tokenizer_config(const Checkpoint& checkpoint) {
    const std::string text = side_file(checkpoint, "tokenizer_config.json", false);
    return text.empty() ? json::Value() : json::parse(text, "tokenizer_config.json", json::Source::file);
}

NamedTexts texts_of_folder(const Checkpoint& checkpoint, const json::Value& config) {
    const std::string own_file = side_file(checkpoint, "chat_template.jinja", false);
    return own_file.empty() ? texts_of_config(config) : NamedTexts{{std::string(k_default), own_file}};
}

// Parses a template that the caller gave. Errors name the argument, as the checkpoint's template is another one.
chat::Template parse_own(std::string_view text) {
    if (text.find("{{") == std::string_view::npos && text.find("{%") == std::string_view::npos)
        fail(Status::invalid,
             "chat_template is '{}', which is no template: it has neither {{{{ nor {{%. Give the text of a "
             "Jinja "
             "template",
             text.substr(0, 100));
    try {
        return chat::parse_template(text);
    } catch (const Error& error) {
        fail(error.status(), "chat_template: {}", error.what());
    }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> chat_template_texts(const Checkpoint& checkpoint) {
    if (checkpoint.container() == checkpoint::Container::gguf) return texts_of_gguf(checkpoint.metadata());
    return texts_of_folder(checkpoint, tokenizer_config(checkpoint));
}

ChatTemplates::ChatTemplates(const Checkpoint& checkpoint, const tokenizer::Tokenizer& tokenizer,
                             std::string_view file, std::string_view own, const Logger& log)
    : file_(file) {
    NamedTexts texts;
    std::vector<std::pair<std::string, std::string>> special_tokens;
    if (checkpoint.container() == checkpoint::Container::gguf) {
        texts = texts_of_gguf(checkpoint.metadata());
        special_tokens = special_tokens_of_gguf(checkpoint.metadata(), tokenizer);
    } else {
        const json::Value config = tokenizer_config(checkpoint);
        special_tokens = special_tokens_of_config(config);
        texts = texts_of_folder(checkpoint, config);
    }
    if (!own.empty()) {
        entries_.push_back({std::string(k_default), parse_own(own), {}});
        entries_.back().parsed->special_tokens = special_tokens;
        return;
    }
    for (auto& [name, text] : texts) {
        Entry made{std::move(name), std::nullopt, {}};
        try {
            made.parsed = chat::parse_template(text);
            made.parsed->special_tokens = special_tokens;
        } catch (const Error& error) {
            if (error.status() != Status::unsupported) throw;
            made.why_not =
                made.name == k_default ? error.what() : format_text("'{}': {}", made.name, error.what());
            log.warning("{}", made.why_not);
        }
        entries_.push_back(std::move(made));
    }
    if (entries_.empty()) log.warning("{} has no chat template", file_);
}

const ChatTemplates::Entry* ChatTemplates::entry(std::string_view name) const noexcept {
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.name == name; });
    return found == entries_.end() ? nullptr : &*found;
}

const chat::Template& ChatTemplates::find(std::string_view name, bool has_tools) const {
    if (entries_.empty()) fail(Status::unsupported, "{} has no chat template", file_);
    const Entry* found = nullptr;
    if (!name.empty()) {
        found = entry(name);
    } else {
        if (has_tools) found = entry("tool_use");
        if (found == nullptr) found = entry(k_default);
    }
    if (found == nullptr) {
        std::string names;
        for (const Entry& one : entries_) names += (names.empty() ? "'" : ", '") + one.name + "'";
        fail(Status::not_found, "{} has no chat template '{}'; it has {}", file_,
             name.empty() ? k_default : name, names);
    }
    if (!found->parsed) fail(Status::unsupported, "{}", found->why_not);
    return *found->parsed;
}

}  // namespace minim::model
