// SPDX-License-Identifier: Apache-2.0
// Log-probabilities as reported to clients: of the model's own distribution, before temperature, penalties, bias, masks and
// filters. The normaliser includes every entry of the row, also padding ids. Free functions, so that a caller can report
// forced tokens and prompt tokens in the same way.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace minim::sampling {

struct TokenProbability {
    int32_t token;
    float logprob;
};

// The terms that turn a row's logits into log-probabilities.
struct LogNormaliser {
    float highest;   // the row's highest logit
    double log_sum;  // ln of the sum of exp(logit - highest)

    // Returns a value of at most 0, up to rounding; -inf if the logit is -inf or another one is +inf.
    float logprob(float logit) const noexcept;
};

// `logits` is one row, not empty and without NaN.
LogNormaliser log_normaliser(std::span<const float> logits) noexcept;

// Returns the n most probable entries of the row, fewer if the row is shorter: highest first, lowest id first on
// ties.
std::vector<TokenProbability> top_logprobs(std::span<const float> logits, const LogNormaliser& normaliser,
                                           int32_t n);

// Returns the place of a token among the entries of the row, in the order of top_logprobs(); 1 for the first.
int32_t rank_of(std::span<const float> logits, int32_t token) noexcept;

}  // namespace minim::sampling
