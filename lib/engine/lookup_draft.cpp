// SPDX-License-Identifier: Apache-2.0
#include "engine/lookup_draft.h"

#include <algorithm>

namespace minim::engine {
namespace {

constexpr size_t k_context = 3;  // tokens that must agree

// Ids are below 2^21 in every vocabulary there is; a collision costs a bad draft.
uint64_t key_of(std::span<const int32_t> tokens) {
    uint64_t key = 0;
    for (const int32_t token : tokens) key = (key << 21U) ^ static_cast<uint32_t>(token);
    return key;
}

constexpr double k_fading = 0.9;  // the factor of earlier measurements, at each step
constexpr int64_t k_first_interval = 8;
constexpr int64_t k_longest_interval = 512;

}  // namespace

std::span<const int32_t> LookupDraft::draft(std::span<const int32_t> text, int64_t most) {
    for (size_t i = std::max(n_known_, k_context); i < text.size(); ++i)
        next_of_[key_of(text.subspan(i - k_context, k_context))] = i;
    n_known_ = text.size();
    if (most <= 0 || text.size() < k_context) return {};
    const auto found = next_of_.find(key_of(text.last(k_context)));
    if (found == next_of_.end()) return {};
    const auto seen = text.subspan(found->second);
    return seen.first(std::min<size_t>(seen.size(), most));
}

DraftLength::DraftLength(int64_t most) : trial_interval_(k_first_interval) {
    lengths_.push_back({});
    for (int64_t n = 2; n < most; n *= 2) lengths_.push_back({.n_drafted = n});
    if (most > 0) lengths_.push_back({.n_drafted = most});
}

size_t DraftLength::best() const {
    size_t best = 0;
    for (size_t i = 1; i < lengths_.size(); ++i) {
        const Length& a = lengths_[i];
        const Length& b = lengths_[best];
        if (is_known(a) && (!is_known(b) || a.seconds * b.tokens < b.seconds * a.tokens)) best = i;
    }
    return best;
}

int64_t DraftLength::next() {
    if (!is_known(lengths_[0]) || !is_on()) return 0;
    size_t index = best();
    if (--n_until_trial_ <= 0) {
        n_until_trial_ = trial_interval_;
        if (index == 0 || (tries_longer_ && index + 1 < lengths_.size())) {
            ++index;
        } else {
            --index;
        }
        tries_longer_ = !tries_longer_;
    }
    return lengths_[index].n_drafted;
}

void DraftLength::learn(int64_t n_drafted, int64_t n_tokens, double seconds) {
    const size_t before = best();
    // A draft may be shorter than allowed.
    const auto length =
        std::ranges::find_if(lengths_, [&](const Length& l) { return l.n_drafted >= n_drafted; });
    if (length == lengths_.end()) return;
    length->seconds = k_fading * length->seconds + seconds;
    length->tokens = k_fading * length->tokens + static_cast<double>(n_tokens);
    const bool is_trial = length != lengths_.begin() + static_cast<ptrdiff_t>(before);
    if (best() != before) {
        trial_interval_ = k_first_interval;
    } else if (is_trial) {
        trial_interval_ = std::min(2 * trial_interval_, k_longest_interval);
    }
}

std::span<const int32_t> Drafter::draft(std::span<const int32_t> text, int64_t room) {
    if (!length_.is_on()) return {};
    const auto tokens = lookup_.draft(text, room);
    if (tokens.empty()) return {};  // there is no draft whose length could be chosen
    return tokens.first(std::min<size_t>(tokens.size(), length_.next()));
}

}  // namespace minim::engine
