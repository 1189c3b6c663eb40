// SPDX-License-Identifier: Apache-2.0
// Log-probabilities of many texts, several at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "minim/minim.hpp"
#include "options.h"

namespace cli {

// A text whose tokens from index `first` on, at least 1 and less than the number of tokens, are scored.
struct ScoredText {
    std::vector<int32_t> ids;
    size_t first = 1;
};

// Calls use(i, sum) for each of the n texts, in order: the sum of the log-probabilities of its scored tokens. The tokens before these are
// evaluated once for texts that begin alike. Sums do not depend on how many texts are worked on at once. longest: the most tokens of a text.
void for_each_score(const minim::Model& model, const Options& options, size_t n, size_t longest,
                    const std::function<ScoredText(size_t i)>& text,
                    const std::function<void(size_t i, double sum)>& use);

}  // namespace cli
