// Guesses how a text goes on: as it did where it last had the same three tokens. Answers that quote their
// prompt (code that is edited, documents that are summed up) are guessed well, others seldom. A guess costs
// nothing but the rows that check it; what is chosen does not depend on it.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace minim::engine {

class LookupDraft {
  public:
    // At most `most` tokens of `text` that may come next; none where its last three were not seen before.
    // From call to call a text only grows.
    std::span<const int32_t> guess(std::span<const int32_t> text, int64_t most);

  private:
    size_t n_known_ = 0;  // tokens of the text that next_of_ has seen
    std::unordered_map<uint64_t, size_t>
        next_of_;  // three tokens -> place of the one after them, the last time
};

// Finds out how long guesses are worth their rows: keeps the time a token takes with guesses of several
// lengths, uses the best one and tries its neighbours now and then, ever more seldom where they are no
// better.
class DraftLength {
  public:
    // Guesses of at most `most` tokens.
    explicit DraftLength(int64_t most);

    bool is_on() const noexcept { return lengths_.size() > 1; }

    // How long the next guess may be; 0: none.
    int64_t next();

    // A step with a guess of n_drafted tokens made n_tokens of the text.
    void learn(int64_t n_drafted, int64_t n_tokens, double seconds);

  private:
    struct Length {
        int64_t n_drafted = 0;
        double seconds = 0.0;  // both fade
        double tokens = 0.0;
    };

    size_t best() const;
    bool is_known(const Length& length) const { return length.tokens > 0.0; }

    std::vector<Length> lengths_;  // 0 first
    int64_t n_until_trial_ = 0;
    int64_t trial_interval_ = 0;
    bool tries_longer_ = true;
};

// Both together: guesses as long as they are worth.
class Drafter {
  public:
    // Guesses of at most `most` tokens; 0: none.
    explicit Drafter(int64_t most) : length_(most) {}

    // At most `room` tokens of `text` that may come next.
    std::span<const int32_t> guess(std::span<const int32_t> text, int64_t room);

    // As DraftLength.
    void learn(int64_t n_drafted, int64_t n_tokens, double seconds) {
        length_.learn(n_drafted, n_tokens, seconds);
    }

  private:
    LookupDraft lookup_;
    DraftLength length_;
};

}  // namespace minim::engine
