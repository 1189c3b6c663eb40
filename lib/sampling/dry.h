// SPDX-License-Identifier: Apache-2.0
// DRY ("don't repeat yourself") as in llama.cpp: a token that would continue a repetition of more than
// `dry_allowed_length` tokens loses dry_multiplier * dry_base ^ (length - dry_allowed_length) of its logit. Texts called
// breakers end repetitions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "sampling/params.h"

namespace minim::sampling {

constexpr size_t k_max_breaker_bytes = 40;  // further bytes are ignored
constexpr size_t k_max_breaker_tail = 20;   // tokens

// A breaker in the tokens of a vocabulary.
struct DryBreaker {
    // A token whose text contains the breaker, or ends with its beginning. `tail` has the tokens of the breaker's rest,
    // and is empty if the token contains the breaker.
    struct Entry {
        int32_t token;
        std::vector<int32_t> tail;
    };
    std::vector<Entry> entries;  // by token

    std::span<const Entry> of(int32_t token) const noexcept;
};

// One thread at a time.
class Dry {
  public:
    struct Penalty {
        int32_t token;
        float amount;  // subtracted from its logit
    };

    // `params` has been validated.
    explicit Dry(const Params& params);

    bool is_on() const noexcept { return multiplier_ > 0.0F && last_n_ != 0; }
    void accept(int32_t token);

    // Returns the penalties of the next token, ordered by token. Valid until the next call.
    std::span<const Penalty> penalties() const;

  private:
    int32_t back(size_t i) const { return tokens_[tokens_.size() - 1 - i]; }
    size_t breaker_distance(size_t n_window) const;
    void count_repetitions(size_t n_window, size_t limit) const;
    void find_penalties() const;
    bool is_breaker(int32_t token) const;

    float multiplier_;
    float base_;
    int64_t allowed_length_;
    int64_t last_n_;  // -1: all
    int32_t exempt_from_;
    std::vector<std::shared_ptr<const DryBreaker>> breakers_;
    std::vector<int32_t> tokens_;  // the whole sequence

    // Computed at the first request.
    mutable bool are_known_ = false;
    mutable std::vector<Penalty> penalties_;
    // [distance]: the number of tokens before that distance from the end that equal the last tokens.
    mutable std::vector<int32_t> repetitions_;
};

}  // namespace minim::sampling
