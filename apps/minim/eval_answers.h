// SPDX-License-Identifier: Apache-2.0
// Answers of a model to many conversations, several at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "minim/minim.hpp"
#include "options.h"

namespace cli {

// A conversation: JSON arrays of messages and tools; "": no tools.
struct Conversation {
    std::string messages;
    std::string tools;
};

// Calls use(i, output) for the answer to each of the n conversations, in order. Answers are greedy unless --temp says otherwise; they do
// not depend on how many are worked on at once.
void for_each_answer(const minim::Model& model, const Options& options, size_t n,
                     const std::function<Conversation(size_t i)>& conversation,
                     const std::function<void(size_t i, const minim::Output& output)>& use);

// A share of successes with its 95 % interval after Wilson.
struct Share {
    double value = 0.0;
    double low = 0.0;
    double high = 0.0;
};
Share share_of(int64_t right, int64_t count);

}  // namespace cli
