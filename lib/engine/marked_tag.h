// SPDX-License-Identifier: Apache-2.0
// Finds a tag of M3 in a text of tokens: a mark, which is one token, and the tag's text, which is any number of tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "chat/markup.h"
#include "tokenizer/tokenizer.h"

namespace minim::engine {

class MarkedTag {
  public:
    MarkedTag(std::optional<int32_t> mark, std::string_view tag) : mark_(mark), tag_(tag) {}

    // Processes the next token. Returns true if it completes the tag.
    bool follow(int32_t token, const tokenizer::Tokenizer& tokenizer) {
        if (mark_ == token) {
            is_after_mark_ = true;
            text_.clear();
            return false;
        }
        if (!is_after_mark_) return false;
        text_ += tokenizer.token_bytes(token);
        const size_t begin = text_.find_first_not_of(chat::markup::k_space);
        if (begin == std::string::npos) return false;
        const std::string_view text = std::string_view(text_).substr(begin);
        if (text.size() < tag_.size() && tag_.starts_with(text)) return false;
        is_after_mark_ = false;
        return text.starts_with(tag_);
    }

  private:
    std::optional<int32_t> mark_;
    std::string_view tag_;
    bool is_after_mark_ = false;
    std::string text_;  // after the mark
};

}  // namespace minim::engine
