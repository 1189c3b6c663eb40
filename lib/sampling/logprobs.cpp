// SPDX-License-Identifier: Apache-2.0
#include "sampling/logprobs.h"

#include <algorithm>

#include "sampling/softmax.h"

namespace minim::sampling {

float LogNormaliser::logprob(float logit) const noexcept {
    const double distance =
        logit == highest ? 0.0 : static_cast<double>(logit) - static_cast<double>(highest);
    return static_cast<float>(distance - log_sum);
}

LogNormaliser log_normaliser(std::span<const float> logits) noexcept {
    const float highest = *std::max_element(logits.begin(), logits.end());
    const Softmax softmax{highest, 1.0};
    return {highest, portable_log(softmax.total(logits))};
}

std::vector<TokenProbability> top_logprobs(std::span<const float> logits, const LogNormaliser& normaliser,
                                           int32_t n) {
    const auto n_top = static_cast<size_t>(std::clamp<int64_t>(n, 0, static_cast<int64_t>(logits.size())));
    std::vector<TokenProbability> top;
    if (n_top == 0) return top;
    top.reserve(n_top + 1);
    // `logprob` holds the bare logit until the end: rounding to log-probabilities could tie different logits.
    for (size_t id = 0; id < logits.size(); ++id) {
        const float logit = logits[id];
        if (top.size() == n_top && !(logit > top.back().logprob)) continue;
        const auto place = std::find_if(
            top.begin(), top.end(), [logit](const TokenProbability& other) { return logit > other.logprob; });
        top.insert(place, {static_cast<int32_t>(id), logit});
        if (top.size() > n_top) top.pop_back();
    }
    for (TokenProbability& entry : top) entry.logprob = normaliser.logprob(entry.logprob);
    return top;
}

int32_t rank_of(std::span<const float> logits, int32_t token) noexcept {
    const float own = logits[token];
    const auto n_higher = std::ranges::count_if(logits, [own](float logit) { return logit > own; });
    const auto n_before = std::ranges::count(logits.first(token), own);
    return static_cast<int32_t>(1 + n_higher + n_before);
}

}  // namespace minim::sampling
