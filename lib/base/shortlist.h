// The top of a row of logits, as a device reports it so that the next token can be chosen without the row itself: its
// highest entries in their order, the logits of ids that were named, and the sum of all weights.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace minim {

inline constexpr int32_t k_most_candidates = 256;  // of a row
inline constexpr int32_t k_most_named = 512;

struct Candidate {
    float logit;
    int32_t token;
};

// The defined order of candidates: highest logit first, lowest id first on ties.
constexpr bool ranks_before(const Candidate& a, const Candidate& b) noexcept {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

// What is asked of a row.
struct ShortlistQuery {
    int32_t n_candidates = 0;          // 1 to k_most_candidates; 0: the row itself is wanted
    std::vector<int32_t> named;        // at most k_most_named ids
    double inverse_temperature = 0.0;  // of the sum of weights; 0: none is wanted
    bool exact_total = false;          // the sum at temperature 1 to the last bit, for log-probabilities
};

struct Shortlist {
    int32_t n_nan = 0;  // logits that are NaN; where there are any, nothing below is of use
    // In their order, none at -inf.
    std::span<const Candidate> candidates;
    bool is_complete = false;  // there are no others
    std::span<const int32_t> named;
    std::span<const float> named_logits;
    // Sums over the row of exp((logit - highest) * inverse_temperature), where the highest logit is finite: one that
    // differs from sampling::Softmax::total() by no more than its share shortlist_error(), and one that is the same.
    double inverse_temperature = 0.0;  // 0: none
    double total = 0.0;
    double exact_total = 0.0;  // 0: none
};

// Both sums add no more than an eighth of the row to one number, one after the other, each rounding by 2^-53 at most. The
// rest is for the exponentials: 2 units in the last place each, and for their arguments, whose mean size in a softmax
// is below ln(n_vocab).
constexpr double shortlist_error(int64_t n_vocab) noexcept {
    const int64_t n_roundings = n_vocab / 8 + 1000;
    return static_cast<double>(n_roundings) * 0x1p-52;
}

}  // namespace minim
