// A generated token as callers see it.
#pragma once

#include <vector>

#include "engine/answer.h"
#include "minim/minim.h"

namespace minim::capi {

// A view of `event`, and of `top`, which it fills: both must outlive it. Allocates nothing where `top` has
// room for sampling::k_max_top_logprobs entries.
inline minim_token token_view(const engine::TokenEvent& event, std::vector<minim_token_probability>& top) {
    top.clear();
    for (const sampling::TokenProbability& entry : event.choice.top)
        top.push_back({entry.token, entry.logprob});
    minim_token token{};
    token.size = sizeof(token);
    token.id = event.choice.token;
    token.text = event.text.c_str();
    token.text_length = event.text.size();
    token.logprob = event.choice.logprob;
    token.n_top = static_cast<int32_t>(top.size());
    token.top = top.empty() ? nullptr : top.data();
    return token;
}

}  // namespace minim::capi
