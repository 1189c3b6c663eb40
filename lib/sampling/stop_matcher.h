// SPDX-License-Identifier: Apache-2.0
// Ends a text at the first stop string. It works on the emitted text, so a stop string may span any number of
// tokens, and it holds back the longest end of the text that may still become one. The result does not depend on how the
// text is cut into pieces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace minim::sampling {

constexpr size_t k_max_stop_strings = 16;

// One thread at a time. The text stops at the first byte that completes a stop string, and is cut before that string; if
// several end at this byte, the longest counts. Whole UTF-8 sequences in, whole sequences out.
class StopMatcher {
  public:
    // Throws Status::invalid for more than 16 stop strings, for an empty one, and for one that begins inside a UTF-8
    // sequence. Without stop strings all text passes at once.
    explicit StopMatcher(std::vector<std::string> stops);

    // Takes the next piece of text and returns the text that can be emitted; after a stop, none.
    std::string push(std::string_view text);

    // Ends the text and returns the part that was withheld as the possible beginning of a stop string.
    std::string finish();

    bool stopped() const noexcept { return matched_ >= 0; }

    // Returns the index of the stop string that was found; -1 before stopped().
    int32_t matched_index() const noexcept { return matched_; }

  private:
    // One stop string and how far the text's end matches it (Knuth, Morris, Pratt).
    struct Pattern {
        std::string text;
        std::vector<size_t> borders;  // [n]: the longest proper prefix of text[0, n) that is its suffix too
        size_t n_matched = 0;
    };
    static Pattern make_pattern(std::string text);
    static void advance(Pattern& pattern, char byte);
    std::string stop_at(size_t index);

    std::vector<Pattern> patterns_;
    std::string pending_;
    int32_t matched_ = -1;  // index of a pattern
};

}  // namespace minim::sampling
