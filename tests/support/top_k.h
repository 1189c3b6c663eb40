// SPDX-License-Identifier: Apache-2.0
// Top-k (`base/top_k.h`) computed on the host from whole rows: what a device should report.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "base/top_k.h"
#include "sampling/softmax.h"

namespace minim::test {

struct HostTopK {
    std::vector<Candidate> candidates;
    std::vector<int32_t> named;
    std::vector<float> named_logits;
    int32_t n_nan = 0;
    bool is_complete = false;
    double inverse_temperature = 0.0;
    double total = 0.0;
    double exact_total = 0.0;

    TopK view() const {
        return {n_nan, candidates, is_complete, named, named_logits, inverse_temperature, total, exact_total};
    }
};

inline HostTopK make_top_k(std::span<const float> logits, const TopKQuery& query) {
    HostTopK top;
    for (size_t id = 0; id < logits.size(); ++id) {
        const float logit = logits[id];
        top.n_nan += logit != logit ? 1 : 0;
        if (logit > -std::numeric_limits<float>::infinity())
            top.candidates.push_back({logit == 0.0F ? 0.0F : logit, static_cast<int32_t>(id)});
    }
    const auto n = std::min(top.candidates.size(), static_cast<size_t>(query.n_candidates));
    std::partial_sort(top.candidates.begin(), top.candidates.begin() + static_cast<std::ptrdiff_t>(n),
                      top.candidates.end(), ranks_before);
    top.is_complete = top.candidates.size() < static_cast<size_t>(query.n_candidates);
    top.candidates.resize(n);
    top.named = query.named;
    for (const int32_t id : query.named) top.named_logits.push_back(logits[static_cast<size_t>(id)]);
    if (top.n_nan > 0 || n == 0 || std::isinf(top.candidates[0].logit)) return top;
    top.inverse_temperature = query.inverse_temperature;
    const auto weight = [&](float logit) {
        return std::exp((static_cast<double>(logit) - static_cast<double>(top.candidates[0].logit)) *
                        query.inverse_temperature);
    };
    // The sum is added in another order than in Softmax::total(), as on a device.
    double sums[300] = {};
    if (query.inverse_temperature != 0.0)
        for (size_t id = 0; id < logits.size(); ++id) sums[id % 300] += weight(logits[id]);
    for (const double sum : sums) top.total += sum;
    if (query.exact_total) top.exact_total = sampling::Softmax{top.candidates[0].logit, 1.0}.total(logits);
    return top;
}

}  // namespace minim::test
