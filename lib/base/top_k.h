// SPDX-License-Identifier: Apache-2.0
// Top-k of a row of logits, computed on a device so that the next token can be chosen without copying the row: its highest
// entries in order, the logits of requested ids, and the sum of all weights.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace minim {

inline constexpr int32_t k_max_candidates = 256;  // of a row
inline constexpr int32_t k_max_named = 512;

struct Candidate {
    float logit;
    int32_t token;
};

// The order of candidates: highest logit first, lowest id first on ties.
constexpr bool ranks_before(const Candidate& a, const Candidate& b) noexcept {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

// The results that are requested for a row.
struct TopKQuery {
    int32_t n_candidates = 0;          // 1 to k_max_candidates; 0: copy the whole row
    std::vector<int32_t> named;        // ids whose logits are requested, at most k_max_named
    double inverse_temperature = 0.0;  // for the sum of weights; 0: no sum
    bool exact_total =
        false;  // true: also the sum at temperature 1, exact to the last bit, for log-probabilities
};

struct TopK {
    int32_t n_nan = 0;  // number of NaN logits; unless 0, ignore everything below
    // The highest entries, in order. Entries of -inf are left out.
    std::span<const Candidate> candidates;
    bool is_complete = false;  // the row has no other finite entries
    std::span<const int32_t> named;
    std::span<const float> named_logits;
    // Sums over the row of exp((logit - highest) * inverse_temperature), if the highest logit is finite. The first one has
    // a relative error of at most top_k_error() against sampling::Softmax::total(); the second is equal to it.
    double inverse_temperature = 0.0;  // 0: none
    double total = 0.0;
    double exact_total = 0.0;  // 0: none
};

// Bounds the relative error of the sum: at most an eighth of the row is added to one number in sequence, each addition rounding
// by at most 2^-53. The rest covers the exponentials (2 units in the last place each) and their arguments, whose mean size in a
// softmax is below ln(n_vocab).
constexpr double top_k_error(int64_t n_vocab) noexcept {
    const int64_t n_roundings = n_vocab / 8 + 1000;
    return static_cast<double>(n_roundings) * 0x1p-52;
}

}  // namespace minim
