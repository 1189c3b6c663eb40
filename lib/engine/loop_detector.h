// SPDX-License-Identifier: Apache-2.0
// Detects a text that repeats itself.
#pragma once

#include <cstdint>
#include <vector>

namespace minim::engine {

class LoopDetector {
  public:
    // A loop is `n_tokens` tokens that repeat one block at least four times in a row; 0: disabled.
    explicit LoopDetector(int64_t n_tokens) : n_tokens_(n_tokens), runs_(n_tokens / 4) {}

    // Adds the next token and returns whether the text ends in a loop.
    bool add(int32_t token) {
        bool is_loop = false;
        for (size_t i = 0; i < runs_.size() && i < text_.size(); ++i) {
            const size_t period = i + 1;
            runs_[i] = text_[text_.size() - period] == token ? runs_[i] + 1 : 0;
            is_loop = is_loop || runs_[i] + static_cast<int64_t>(period) >= n_tokens_;
        }
        if (!runs_.empty()) text_.push_back(token);
        return is_loop;
    }

  private:
    int64_t n_tokens_;
    std::vector<int64_t>
        runs_;  // [period - 1]: how many of the last tokens in a row equal the token one period before
    std::vector<int32_t> text_;
};

}  // namespace minim::engine
