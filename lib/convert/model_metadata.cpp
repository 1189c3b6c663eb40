// SPDX-License-Identifier: Apache-2.0
#include "convert/model_metadata.h"

#include <cmath>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format_text.h"
#include "base/json.h"
#include "model/chat_template_texts.h"
#include "model/m3_config.h"
#include "model/side_file.h"
#include "tokenizer/vocabulary.h"

namespace minim::convert {
namespace {

using checkpoint::Checkpoint;
using checkpoint::meta_array;
using checkpoint::meta_text;
using checkpoint::meta_texts;
using checkpoint::meta_value;
using checkpoint::MetaEntries;
using checkpoint::MetaValue;

json::Value object_of(const std::string& text, const char* file) {
    if (text.empty()) return {};
    json::Value object = json::parse(text, file, json::Source::file);
    if (!object.is_object()) fail_file(Reason::format, "{} is not a JSON object", file);
    return object;
}

std::optional<double> number_of(const json::Value& object, std::string_view key) {
    const json::Value* value = json::find(&object, key);
    return value != nullptr && value->is_number() ? std::optional(value->number) : std::nullopt;
}

void add_sampling(const Checkpoint& checkpoint, MetaEntries& entries) {
    constexpr const char* k_file = "generation_config.json";
    const json::Value config = object_of(model::side_file(checkpoint, k_file, false), k_file);
    constexpr double k_largest = INT32_MAX;
    if (const auto top_k = number_of(config, "top_k"); top_k && *top_k >= 0 && *top_k <= k_largest)
        entries.emplace_back("general.sampling.top_k", meta_value(static_cast<int32_t>(*top_k)));
    if (const auto top_p = number_of(config, "top_p"))
        entries.emplace_back("general.sampling.top_p", meta_value(static_cast<float>(*top_p)));
    if (const auto temperature = number_of(config, "temperature"))
        entries.emplace_back("general.sampling.temp", meta_value(static_cast<float>(*temperature)));
}

// Throws unsupported for what a folder of M3 says and GGUF has no key for.
void refuse_what_gguf_lacks(const model::Config& config) {
    const auto refuse_unless = [](auto value, auto meant, const char* what) {
        if (value != meant)
            fail(Status::unsupported, "{} is {}: GGUF has no key for it, and files of MiniMax-M3 mean {}",
                 what, value, meant);
    };
    refuse_unless(config.activation.alpha, model::k_m3_activation.alpha, "swiglu_alpha");
    refuse_unless(config.activation.limit, model::k_m3_activation.limit, "swiglu_limit");
    refuse_unless(config.first_sparse_layer, config.n_dense_layer,
                  "the first layer with block-sparse attention");
    refuse_unless(config.sparse_attention.init, int64_t{0}, "sparse_init_block");
}

void add_configuration(const Source& source, uint32_t file_type, MetaEntries& entries) {
    constexpr uint32_t k_sigmoid = 2;
    const model::Config& config = source.config;
    const bool is_m3 = config.family == model::Family::m3;
    const auto add = [&](const char* key, MetaValue value) {
        entries.emplace_back(source.key(key), std::move(value));
    };
    const auto add_count = [&](const char* key, int64_t count) {
        add(key, meta_value(static_cast<uint32_t>(count)));
    };
    add_count("block_count", config.n_layer);
    add_count("context_length", config.n_context_train);
    add_count("embedding_length", config.hidden);
    add_count("feed_forward_length", config.n_dense_layer > 0 ? config.dense_ff : config.expert_ff);
    add_count("attention.head_count", config.n_head);
    add_count("attention.head_count_kv", config.n_head_kv);
    add("rope.freq_base", meta_value(static_cast<float>(config.rope_theta)));
    add("attention.layer_norm_rms_epsilon", meta_value(config.norm_eps));
    add_count("expert_count", config.n_expert);
    add_count("expert_used_count", config.n_expert_used);
    add("expert_gating_func", meta_value(k_sigmoid));
    if (is_m3) add("expert_weights_norm", meta_value(true));
    if (is_m3 || config.expert_weights_scale != 1.0F)
        add("expert_weights_scale", meta_value(config.expert_weights_scale));
    add_count("attention.key_length", config.head_dim);
    add_count("attention.value_length", config.head_dim);
    entries.emplace_back("general.file_type", meta_value(file_type));
    add_count("expert_feed_forward_length", config.expert_ff);
    add_count("rope.dimension_count", config.rotary_dim);
    if (is_m3) {
        const backend::SparseAttention& index = config.sparse_attention;
        add_count("leading_dense_block_count", config.n_dense_layer);
        add_count("expert_shared_count", config.shared_ff > 0 ? 1 : 0);
        if (config.shared_ff != config.expert_ff)
            add_count("expert_shared_feed_forward_length", config.shared_ff);
        add_count("attention.indexer.head_count", index.n_head);
        add_count("attention.indexer.key_length", index.dim);
        add_count("attention.indexer.top_k", index.top);
        add_count("attention.indexer.block_size", index.block);
        add_count("attention.indexer.local_blocks", index.local);
    }
    entries.emplace_back("general.quantization_version", meta_value(uint32_t{2}));
}

// Rows of the embedding behind the last token, and ids that no token has, are tokens without text.
void add_tokens(const tokenizer::Vocabulary& vocabulary, int64_t n_rows, MetaEntries& entries) {
    std::vector<std::string> tokens = vocabulary.tokens;
    std::vector<int32_t> types;
    for (const tokenizer::TokenType type : vocabulary.types) types.push_back(static_cast<int32_t>(type));
    if (std::ssize(tokens) > n_rows)
        fail_file(Reason::value, "the tokenizer has {} tokens, the embedding {} rows", tokens.size(), n_rows);
    tokens.resize(n_rows);
    types.resize(n_rows, static_cast<int32_t>(tokenizer::TokenType::unused));
    for (int64_t id = 0; id < n_rows; ++id)
        if (types[id] == static_cast<int32_t>(tokenizer::TokenType::unused))
            tokens[id] = format_text("[PAD{}]", id);
    entries.emplace_back("tokenizer.ggml.tokens", meta_texts(tokens));
    entries.emplace_back("tokenizer.ggml.token_type", meta_array(std::span<const int32_t>(types)));
    entries.emplace_back("tokenizer.ggml.merges", meta_texts(vocabulary.merges));
}

void add_vocabulary(const Source& source, MetaEntries& entries, const Logger& log) {
    constexpr const char* k_tokenizer_config = "tokenizer_config.json";
    const auto file = [&](const char* name, bool is_required) {
        return model::side_file(source.checkpoint, name, is_required);
    };
    const std::string tokenizer_config = file(k_tokenizer_config, false);
    // It refuses every tokenizer but that of the model family.
    const tokenizer::Vocabulary vocabulary = tokenizer::vocabulary_from_json(
        file("tokenizer.json", true), tokenizer_config, file("generation_config.json", false), log,
        file("config.json", true));
    if (vocabulary.ignore_merges)
        log.warning(
            "tokenizer.json says ignore_merges, for which GGUF has no key: engines may split some words into "
            "other tokens");
    entries.emplace_back("tokenizer.ggml.model", meta_text("gpt2"));
    entries.emplace_back("tokenizer.ggml.pre", meta_text("minimax-m2"));
    add_tokens(vocabulary, source.config.n_vocab, entries);
    const std::pair<const char*, int32_t> ids[] = {{"bos_token_id", vocabulary.bos},
                                                   {"eos_token_id", vocabulary.eos},
                                                   {"unknown_token_id", vocabulary.unk},
                                                   {"padding_token_id", vocabulary.pad}};
    for (const auto& [key, id] : ids)
        if (id != tokenizer::k_no_token)
            entries.emplace_back(format_text("tokenizer.ggml.{}", key),
                                 meta_value(static_cast<uint32_t>(id)));
    const json::Value config = object_of(tokenizer_config, k_tokenizer_config);
    for (const char* key : {"add_bos_token", "add_eos_token"}) {
        const json::Value* value = json::find(&config, key);
        const bool adds = value != nullptr && value->is_boolean() && value->boolean;
        entries.emplace_back(format_text("tokenizer.ggml.{}", key), meta_value(adds));
    }
}

void add_chat_templates(const Checkpoint& checkpoint, MetaEntries& entries) {
    std::vector<std::string> names;
    const auto texts = model::chat_template_texts(checkpoint);
    for (const auto& [name, text] : texts)
        if (name == "default") entries.emplace_back("tokenizer.chat_template", meta_text(text));
    for (const auto& [name, text] : texts) {
        if (name == "default") continue;
        names.push_back(name);
        entries.emplace_back("tokenizer.chat_template." + name, meta_text(text));
    }
    if (!names.empty()) entries.emplace_back("tokenizer.chat_templates", meta_texts(names));
}

}  // namespace

MetaEntries model_metadata(const Source& source, const std::string& name, uint32_t file_type,
                           const Logger& log) {
    MetaEntries entries;
    const bool is_m3 = source.config.family == model::Family::m3;
    if (is_m3) refuse_what_gguf_lacks(source.config);
    entries.emplace_back("general.architecture", meta_text(is_m3 ? "minimax-m3" : "minimax-m2"));
    entries.emplace_back("general.type", meta_text("model"));
    add_sampling(source.checkpoint, entries);
    entries.emplace_back("general.name", meta_text(name));
    add_configuration(source, file_type, entries);
    add_vocabulary(source, entries, log);
    add_chat_templates(source.checkpoint, entries);
    return entries;
}

}  // namespace minim::convert
