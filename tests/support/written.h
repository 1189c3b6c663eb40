// SPDX-License-Identifier: Apache-2.0
// The output of a generation as text, with the probabilities of each token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/generation.h"

namespace minim::test {

struct Written {
    std::vector<int32_t> tokens;
    std::vector<float> logprobs;
    std::string text;
    bool operator==(const Written&) const = default;
};

inline void add(Written& written, const engine::TokenEvent& event) {
    written.tokens.push_back(event.choice.token);
    written.logprobs.push_back(event.choice.logprob);
    for (const sampling::TokenProbability& one : event.choice.top) {
        written.tokens.push_back(one.token);
        written.logprobs.push_back(one.logprob);
    }
    written.text += event.text;
}

inline Written rest_of(engine::Generation& generation) {
    Written written;
    while (const auto event = generation.next(nullptr)) add(written, *event);
    return written;
}

}  // namespace minim::test
