// SPDX-License-Identifier: Apache-2.0
#include "convert/tokenizer_json.h"

#include <string_view>

#include "base/format_text.h"
#include "base/json.h"
#include "model/gguf_values.h"
#include "tokenizer/pre_tokenizer.h"

namespace minim::convert {
namespace {

using tokenizer::TokenType;
using tokenizer::Vocabulary;

std::string quoted_text(std::string_view text) {
    std::string out;
    json::append_quoted(out, text);
    return out;
}

bool is_added(TokenType type) {
    return tokenizer::is_special(type) || type == TokenType::user_defined;
}

std::string added_tokens(const Vocabulary& vocabulary) {
    std::string out;
    for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
        if (!is_added(vocabulary.types[id])) continue;
        out += format_text(
            "{}\n    {{\"id\": {}, \"content\": {}, \"single_word\": false, \"lstrip\": false, \"rstrip\": "
            "false, \"normalized\": false, \"special\": {}}}",
            out.empty() ? "" : ",", id, quoted_text(vocabulary.tokens[id]),
            tokenizer::is_special(vocabulary.types[id]));
    }
    return out;
}

std::string vocab(const Vocabulary& vocabulary) {
    std::string out;
    for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
        if (!tokenizer::is_ordinary(vocabulary.types[id])) continue;
        out +=
            format_text("{}\n      {}: {}", out.empty() ? "" : ",", quoted_text(vocabulary.tokens[id]), id);
    }
    return out;
}

// A merge is "LEFT RIGHT"; neither side has a space, which is another character in byte-level vocabularies.
std::string merges(const Vocabulary& vocabulary) {
    std::string out;
    for (const std::string& merge : vocabulary.merges) {
        const size_t space = merge.find(' ');
        const std::string_view text = merge;
        out += out.empty() ? "\n      [" : ",\n      [";
        json::append_quoted(out, text.substr(0, space));
        out += ", ";
        json::append_quoted(out, space == std::string_view::npos ? "" : text.substr(space + 1));
        out += ']';
    }
    return out;
}

}  // namespace

std::string tokenizer_json(const Vocabulary& vocabulary) {
    std::string out = "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n";
    out += "  \"added_tokens\": [" + added_tokens(vocabulary) + "\n  ],\n  \"normalizer\": null,\n";
    out += "  \"pre_tokenizer\": {\n    \"type\": \"Sequence\",\n    \"pretokenizers\": [\n";
    out += "      {\"type\": \"Split\", \"pattern\": {\"Regex\": " + quoted_text(tokenizer::k_piece_pattern) +
           "}, \"behavior\": \"Isolated\", \"invert\": false},\n";
    out +=
        "      {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
        "\"use_regex\": false}\n    ]\n  },\n";
    out +=
        "  \"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": "
        "false, \"use_regex\": true},\n";
    out +=
        "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, "
        "\"use_regex\": true},\n";
    out +=
        "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
        "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n"
        "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n";
    out += "    \"vocab\": {" + vocab(vocabulary) + "\n    },\n";
    return out + "    \"merges\": [" + merges(vocabulary) + "\n    ]\n  }\n}\n";
}

std::string tokenizer_config_json(const Vocabulary& vocabulary, const checkpoint::Metadata& metadata,
                                  const std::vector<std::pair<std::string, std::string>>& templates) {
    std::string out = "{\n  \"add_prefix_space\": false,\n  \"clean_up_tokenization_spaces\": false,\n";
    const std::pair<const char*, int32_t> tokens[] = {{"bos_token", vocabulary.bos},
                                                      {"eos_token", vocabulary.eos},
                                                      {"unk_token", vocabulary.unk},
                                                      {"pad_token", vocabulary.pad}};
    for (const auto& [key, id] : tokens)
        if (id != tokenizer::k_no_token && is_added(vocabulary.types[id]))
            out += format_text("  \"{}\": {},\n", key, quoted_text(vocabulary.tokens[id]));
    for (const char* key : {"add_bos_token", "add_eos_token"})
        if (const auto adds = model::flag(metadata, std::string("tokenizer.ggml.") + key))
            out += format_text("  \"{}\": {},\n", key, *adds);
    const std::string architecture(metadata.string("general.architecture").value_or(""));
    if (const auto context = model::whole_number(metadata, architecture + ".context_length"))
        out += format_text("  \"model_max_length\": {},\n", *context);
    std::string listed;
    for (const auto& [name, text] : templates)
        listed += format_text("{}\n    {{\"name\": {}, \"template\": {}}}", listed.empty() ? "" : ",",
                              quoted_text(name), quoted_text(text));
    if (!listed.empty()) out += "  \"chat_template\": [" + listed + "\n  ],\n";
    return out + "  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n";
}

}  // namespace minim::convert
