// SPDX-License-Identifier: Apache-2.0
#include "constraint/token_trie.h"

#include <algorithm>
#include <limits>
#include <string_view>

namespace minim::constraint {
namespace {

struct Token {
    std::string_view bytes;
    int32_t id;
};

size_t common_length(std::string_view a, std::string_view b) {
    return std::ranges::mismatch(a, b).in1 - a.begin();
}

}  // namespace

TokenTrie::TokenTrie(const tokenizer::Tokenizer& tokenizer) : n_vocab_(tokenizer.n_tokens()) {
    std::vector<Token> tokens;
    for (int32_t id = 0; id < n_vocab_; ++id) {
        const std::string_view bytes = tokenizer.token_bytes(id);
        const bool is_text = tokenizer::is_ordinary(tokenizer.token_type(id));
        // A token that is too long for a 16-bit depth is never allowed.
        if (is_text && !bytes.empty() && bytes.size() <= std::numeric_limits<uint16_t>::max())
            tokens.push_back({bytes, id});
    }
    std::ranges::sort(tokens, [](const Token& a, const Token& b) {
        return a.bytes != b.bytes ? a.bytes < b.bytes : a.id < b.id;
    });

    std::vector<int32_t> open;  // nodes whose end is not known yet, by depth
    const auto close_from = [&](size_t depth) {
        for (; open.size() > depth; open.pop_back()) {
            nodes_[open.back()].end = static_cast<int32_t>(nodes_.size());
        }
    };
    std::string_view before;
    for (const Token& token : tokens) {
        longest_token_ = std::max(longest_token_, token.bytes.size());
        if (token.bytes == before) {
            twins_.push_back({nodes_.back().token, token.id});
            continue;
        }
        const size_t n_common = common_length(before, token.bytes);
        close_from(n_common);
        for (size_t i = n_common; i < token.bytes.size(); ++i) {
            open.push_back(static_cast<int32_t>(nodes_.size()));
            nodes_.push_back({.byte = static_cast<uint8_t>(token.bytes[i]),
                              .depth = static_cast<uint16_t>(i + 1),
                              .end = 0,
                              .token = -1});
        }
        nodes_.back().token = token.id;
        before = token.bytes;
    }
    close_from(0);
}

}  // namespace minim::constraint
