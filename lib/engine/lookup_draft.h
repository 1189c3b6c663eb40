// SPDX-License-Identifier: Apache-2.0
// Prompt lookup: drafts the tokens that followed the same three tokens earlier in the text. Answers that quote their
// prompt (edited code, summaries) are drafted well, others seldom. A draft costs only the rows that check it; the chosen
// tokens do not depend on it.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace minim::engine {

class LookupDraft {
  public:
    // Returns at most `most` tokens that may come next, a part of `text`; none if its last three tokens did not occur
    // before. `text` must only grow from call to call.
    std::span<const int32_t> draft(std::span<const int32_t> text, int64_t most);

  private:
    size_t n_known_ = 0;  // tokens of the text that next_of_ has seen
    std::unordered_map<uint64_t, size_t>
        next_of_;  // three tokens -> place of the token after their last occurrence
};

// Finds the best length of drafts: measures the time of a token for several lengths, uses the best one, and tries its
// neighbours now and then, less often as long as they are not better.
class DraftLength {
  public:
    // Drafts have at most `most` tokens.
    explicit DraftLength(int64_t most);

    bool is_on() const noexcept { return lengths_.size() > 1; }

    // Returns the length of the next draft; 0: none.
    int64_t next();

    // Takes note that a step with a draft of n_drafted tokens added n_tokens to the text.
    void learn(int64_t n_drafted, int64_t n_tokens, double seconds);

  private:
    struct Length {
        int64_t n_drafted = 0;
        double seconds = 0.0;  // in both, older measurements count less
        double tokens = 0.0;
    };

    size_t best() const;
    bool is_known(const Length& length) const { return length.tokens > 0.0; }

    std::vector<Length> lengths_;  // 0 first
    int64_t n_until_trial_ = 0;
    int64_t trial_interval_ = 0;
    bool tries_longer_ = true;
};

// Combines both: makes drafts of the best length.
class Drafter {
  public:
    // Drafts have at most `most` tokens; 0: none.
    explicit Drafter(int64_t most) : length_(most) {}

    // Returns at most `room` tokens that may come next, a part of `text`.
    std::span<const int32_t> draft(std::span<const int32_t> text, int64_t room);

    // See DraftLength::learn().
    void learn(int64_t n_drafted, int64_t n_tokens, double seconds) {
        length_.learn(n_drafted, n_tokens, seconds);
    }

  private:
    LookupDraft lookup_;
    DraftLength length_;
};

}  // namespace minim::engine
