// SPDX-License-Identifier: Apache-2.0
#include "token_logits.h"

#include <algorithm>
#include <cmath>

namespace cli {
namespace {

constexpr size_t k_logits_bytes =
    size_t{64} << 20;  // size of the buffer: with a large vocabulary, a text is evaluated in parts

}  // namespace

double log_sum_exp(std::span<const float> logits) {
    const auto largest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
    return largest + std::log(sum);
}

void for_each_logits(minim::Session& session, std::span<const int32_t> ids, size_t first, size_t n_vocab,
                     std::vector<float>& buffer, const minim::Cancel& cancel,
                     const std::function<void(size_t, std::span<const float>)>& use) {
    if (first > 0 && first < ids.size()) session.eval({ids.data(), first}, false, buffer, &cancel);
    const size_t part = std::max<size_t>(1, k_logits_bytes / (n_vocab * sizeof(float)));
    for (size_t at = first; at < ids.size(); at += part) {
        const std::span<const int32_t> some = ids.subspan(at, std::min(part, ids.size() - at));
        session.eval({some.data(), some.size()}, true, buffer, &cancel);
        for (size_t i = 0; i < some.size(); ++i)
            use(at + i, std::span<const float>(buffer).subspan(i * n_vocab, n_vocab));
    }
}

}  // namespace cli
