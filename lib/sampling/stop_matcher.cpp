// SPDX-License-Identifier: Apache-2.0
#include "sampling/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace minim::sampling {

StopMatcher::StopMatcher(std::vector<std::string> stops) {
    if (stops.size() > k_max_stop_strings) {
        fail(Status::invalid, "{} stop strings, at most {} are possible", stops.size(), k_max_stop_strings);
    }
    for (size_t i = 0; i < stops.size(); ++i) {
        if (stops[i].empty()) fail(Status::invalid, "stop string {} is empty", i);
        // A match that begins at such a byte would split a character.
        if ((static_cast<unsigned char>(stops[i][0]) & 0xc0) == 0x80) {
            fail(Status::invalid, "stop string {} begins inside a UTF-8 sequence", i);
        }
        patterns_.push_back(make_pattern(std::move(stops[i])));
    }
}

StopMatcher::Pattern StopMatcher::make_pattern(std::string text) {
    Pattern pattern;
    pattern.borders.assign(text.size() + 1, 0);
    size_t border = 0;
    for (size_t n = 1; n < text.size(); ++n) {
        while (border > 0 && text[n] != text[border]) border = pattern.borders[border];
        if (text[n] == text[border]) ++border;
        pattern.borders[n + 1] = border;
    }
    pattern.text = std::move(text);
    return pattern;
}

// No pattern is fully matched before this call, because the matcher stops at the first full match.
void StopMatcher::advance(Pattern& pattern, char byte) {
    size_t n = pattern.n_matched;
    while (n > 0 && pattern.text[n] != byte) n = pattern.borders[n];
    if (pattern.text[n] == byte) ++n;
    pattern.n_matched = n;
}

std::string StopMatcher::push(std::string_view text) {
    if (stopped()) return {};
    for (const char byte : text) {
        pending_ += byte;
        size_t longest = patterns_.size();
        for (size_t i = 0; i < patterns_.size(); ++i) {
            advance(patterns_[i], byte);
            const bool complete = patterns_[i].n_matched == patterns_[i].text.size();
            if (complete &&
                (longest == patterns_.size() || patterns_[i].text.size() > patterns_[longest].text.size())) {
                longest = i;
            }
        }
        if (longest < patterns_.size()) return stop_at(longest);
    }

    size_t n_open = 0;
    for (const Pattern& pattern : patterns_) n_open = std::max(n_open, pattern.n_matched);
    std::string safe = pending_.substr(0, pending_.size() - n_open);
    pending_.erase(0, safe.size());
    return safe;
}

std::string StopMatcher::stop_at(size_t index) {
    matched_ = static_cast<int32_t>(index);
    pending_.resize(pending_.size() - patterns_[index].text.size());
    return std::exchange(pending_, {});
}

std::string StopMatcher::finish() {
    for (Pattern& pattern : patterns_) pattern.n_matched = 0;
    return std::exchange(pending_, {});
}

}  // namespace minim::sampling
