// SPDX-License-Identifier: Apache-2.0
// Tracks whether a text is inside a block of tool calls.
#pragma once

#include <cstdint>
#include <optional>

#include "chat/markup.h"
#include "tokenizer/tokenizer.h"

namespace minim::engine {

class ToolBlock {
  public:
    explicit ToolBlock(const tokenizer::Tokenizer& tokenizer)
        : begin_(tokenizer.find(chat::markup::k_block_open)),
          end_(tokenizer.find(chat::markup::k_block_close)) {}

    void follow(int32_t token) noexcept {
        if (begin_ == token) is_open_ = true;
        if (end_ == token) is_open_ = false;
    }
    bool is_open() const noexcept { return is_open_; }

  private:
    std::optional<int32_t> begin_;
    std::optional<int32_t> end_;
    bool is_open_ = false;
};

}  // namespace minim::engine
