// SPDX-License-Identifier: Apache-2.0
// Tracks whether a text is inside a block of tool calls.
#pragma once

#include <cstdint>
#include <optional>

#include "chat/family.h"
#include "engine/marked_tag.h"
#include "tokenizer/tokenizer.h"

namespace minim::engine {

class ToolBlock {
  public:
    // `tokenizer` must outlive it.
    explicit ToolBlock(const tokenizer::Tokenizer& tokenizer)
        : ToolBlock(tokenizer, chat::markup_of(tokenizer)) {}

    void follow(int32_t token) {
        if (begin_ == token || marked_begin_.follow(token, tokenizer_)) is_open_ = true;
        if (end_ == token || marked_end_.follow(token, tokenizer_)) is_open_ = false;
    }
    bool is_open() const noexcept { return is_open_; }

  private:
    ToolBlock(const tokenizer::Tokenizer& tokenizer, const chat::Markup& markup)
        : tokenizer_(tokenizer),
          marked_begin_(tokenizer.find(markup.mark), markup.block_open),
          marked_end_(tokenizer.find(markup.mark), markup.block_close) {
        if (!markup.mark.empty()) return;
        begin_ = tokenizer.find(markup.block_open);
        end_ = tokenizer.find(markup.block_close);
    }

    const tokenizer::Tokenizer& tokenizer_;
    std::optional<int32_t> begin_;  // of M2
    std::optional<int32_t> end_;
    MarkedTag marked_begin_;  // of M3
    MarkedTag marked_end_;
    bool is_open_ = false;
};

}  // namespace minim::engine
