// SPDX-License-Identifier: Apache-2.0
// Logits of the tokens of a text, a row at a time: memory does not grow with the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "minim/minim.hpp"

namespace cli {

// Returns log of the sum of exp(logit). Computes in double, because the sum has as many terms as the vocabulary.
double log_sum_exp(std::span<const float> logits);

// Evaluates the ids after the session's tokens, and calls use(i, row) with the logits [n_vocab] after ids[i], for each i from `first`
// on. `buffer` is work space, so that it need not be allocated again.
void for_each_logits(minim::Session& session, std::span<const int32_t> ids, size_t first, size_t n_vocab,
                     std::vector<float>& buffer, const minim::Cancel& cancel,
                     const std::function<void(size_t i, std::span<const float> row)>& use);

}  // namespace cli
