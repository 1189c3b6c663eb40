// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/declared_tokens.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/format_text.h"
#include "base/log.h"

namespace minim::tokenizer {
namespace {

using json::Value;

constexpr const char* k_file = "tokenizer_config.json";

bool token_flag(const Value& token, const char* key, bool absent) {
    const Value* value = json::find(&token, key);
    if (value == nullptr || value->is_null()) return absent;
    if (!value->is_boolean()) fail_file(Reason::type, "{}: {} is not a boolean", k_file, key);
    return value->boolean;
}

// Reads a token that is a text, or an object with its text as `content`. Returns an empty text for anything else.
DeclaredToken token_of(const Value& value) {
    DeclaredToken token;
    const Value* content = value.is_object() ? json::find(&value, "content") : &value;
    if (content == nullptr || !content->is_string()) return token;
    token.text = content->text;
    token.is_normalized = token_flag(value, "normalized", false);
    return token;
}

void append_decoder(const Value& config, std::vector<DeclaredToken>& tokens) {
    const Value* decoder = json::find(&config, "added_tokens_decoder");
    if (decoder == nullptr || decoder->is_null()) return;
    if (!decoder->is_object()) fail_file(Reason::type, "{}: added_tokens_decoder is not an object", k_file);
    for (size_t i = 0; i < decoder->items.size(); ++i) {
        const std::string& key = decoder->keys[i];
        const Value& value = decoder->items[i];
        DeclaredToken token = token_of(value);
        const auto [end, code] = std::from_chars(key.data(), key.data() + key.size(), token.id);
        if (code != std::errc() || end != key.data() + key.size() || token.id < 0)
            fail_file(Reason::value, "{}: added_tokens_decoder has the id {}", k_file, key);
        if (token.text.empty())
            fail_file(Reason::type, "{}: added_tokens_decoder has no text for the id {}", k_file, key);
        for (const char* mode : {"lstrip", "rstrip", "single_word"})
            if (token_flag(value, mode, false))
                fail(Status::unsupported, "{}: the added token {} has {}", k_file, token.text, mode);
        token.is_special = token_flag(value, "special", false);
        token.is_normalized = token_flag(value, "normalized", !token.is_special);
        token.has_flags = true;
        tokens.push_back(std::move(token));
    }
    std::ranges::stable_sort(tokens, {}, &DeclaredToken::id);
}

// Appends the tokens of a list, or of an object with names for them.
void append_list(const Value& config, const char* key, std::vector<DeclaredToken>& tokens) {
    const Value* list = json::find(&config, key);
    if (list == nullptr || list->is_null()) return;
    if (!list->is_array() && !list->is_object())
        fail_file(Reason::type, "{}: {} is neither a list nor an object", k_file, key);
    for (const Value& value : list->items) {
        DeclaredToken token = token_of(value);
        if (token.text.empty()) fail_file(Reason::type, "{}: {} has a token without text", k_file, key);
        tokens.push_back(std::move(token));
    }
}

// Returns whether merges make the token or start from it, or its text is a single byte: it is needed as an ordinary token.
bool is_needed(const Vocabulary& vocabulary, const std::string& text) {
    if (text.size() == 1) return true;
    return std::ranges::any_of(vocabulary.merges, [&](const std::string& line) {
        const size_t space = line.find(' ');
        const std::string_view left = std::string_view(line).substr(0, space);
        const std::string_view right = std::string_view(line).substr(std::min(space, line.size() - 1) + 1);
        return left == text || right == text ||
               (left.size() + right.size() == text.size() && text.starts_with(left) && text.ends_with(right));
    });
}

// Adds tokens to a vocabulary, and remembers which row has which text.
class Adding {
  public:
    Adding(int64_t n_rows, Vocabulary& vocabulary, const Logger& logger)
        : n_rows_(n_rows), vocabulary_(vocabulary), logger_(logger) {
        for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
            if (vocabulary.types[id] == TokenType::unused) continue;
            // An added token counts before an ordinary one of the same text.
            if (is_ordinary(vocabulary.types[id])) {
                rows_.try_emplace(vocabulary.tokens[id], id);
            } else {
                rows_[vocabulary.tokens[id]] = id;
            }
        }
    }

    void add(const DeclaredToken& token) {
        const auto found = rows_.find(token.text);
        if (found == rows_.end()) return append(token);
        const size_t row = found->second;
        if (is_ordinary(vocabulary_.types[row])) {
            if (is_needed(vocabulary_, token.text)) {
                logger_.warning("{}: the token {} is an ordinary one of the vocabulary, and stays one",
                                k_file, token.text);
                return;
            }
        } else if (!token.has_flags) {
            return;
        }
        set(row, token);
    }

  private:
    void append(const DeclaredToken& token) {
        const auto id = static_cast<int64_t>(vocabulary_.tokens.size());
        if (n_rows_ > 0 && id >= n_rows_) {
            logger_.warning(
                "{}: the token {} is not in the vocabulary, which has no room for it: the model has "
                "{} rows",
                k_file, token.text, n_rows_);
            return;
        }
        if (token.id >= 0 && token.id != id)
            logger_.warning("{}: the token {} gets the next id, {}, as in transformers, not {}", k_file,
                            token.text, id, token.id);
        vocabulary_.tokens.push_back(token.text);
        vocabulary_.types.push_back(TokenType::unused);
        rows_[token.text] = id;
        set(id, token);
    }

    void set(size_t row, const DeclaredToken& token) {
        vocabulary_.types[row] = token.is_special ? TokenType::control : TokenType::user_defined;
        std::vector<int32_t>& normalized = vocabulary_.normalized;
        const auto id = static_cast<int32_t>(row);
        std::erase(normalized, id);
        if (token.is_normalized) normalized.push_back(id);
    }

    int64_t n_rows_;
    Vocabulary& vocabulary_;
    const Logger& logger_;
    std::unordered_map<std::string, size_t> rows_;
};

}  // namespace

std::vector<DeclaredToken> declared_tokens(const Value& config) {
    std::vector<DeclaredToken> tokens;
    append_decoder(config, tokens);
    const size_t n_decoder = tokens.size();
    for (const char* name :
         {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
        const Value* value = json::find(&config, name);
        if (value == nullptr) continue;
        DeclaredToken token = token_of(*value);
        if (!token.text.empty()) tokens.push_back(std::move(token));
    }
    for (const char* key :
         {"additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens"})
        append_list(config, key, tokens);
    // A token that is named as special is special, whatever its own flag says.
    std::unordered_set<std::string> special;
    for (size_t i = n_decoder; i < tokens.size(); ++i) special.insert(tokens[i].text);
    for (size_t i = 0; i < n_decoder; ++i)
        if (special.contains(tokens[i].text)) tokens[i].is_special = true;
    return tokens;
}

void add_declared(const std::vector<DeclaredToken>& declared, int64_t n_rows, Vocabulary& vocabulary,
                  const Logger& logger) {
    if (declared.empty()) return;
    Adding adding(n_rows, vocabulary, logger);
    for (const DeclaredToken& token : declared) adding.add(token);
}

}  // namespace minim::tokenizer
