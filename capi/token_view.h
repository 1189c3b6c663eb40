// SPDX-License-Identifier: Apache-2.0
// Converts generated tokens and the state of an answer for callers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/answer.h"
#include "minim/minim.h"

namespace minim::capi {

// The struct of callers that were compiled before prompt_rank was added ends here.
inline constexpr uint32_t k_first_token = offsetof(minim_token, prompt_rank);

// Returns a view of `event`, and of `top`, which it fills: both must outlive it. Does not allocate if `top` has room for
// sampling::k_max_top_logprobs entries.
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
    token.prompt_rank = event.prompt_rank;
    return token;
}

// Fills the common fields of minim_generate_result and minim_request_state.
template <typename Result>
Result result_of(const engine::AnswerState& state) {
    Result result{};
    result.finish = static_cast<int32_t>(state.finish);
    result.stop_token = state.stop_token;
    result.n_prompt = static_cast<uint64_t>(state.n_prompt);
    result.n_generated = static_cast<uint64_t>(state.n_generated);
    result.prompt_us = static_cast<uint64_t>(state.prompt_us);
    result.generate_us = static_cast<uint64_t>(state.generate_us);
    result.seed = state.seed;
    result.stop_text = state.stop_text;
    result.n_reasoning = static_cast<uint64_t>(state.n_reasoning);
    result.stop_logprob = state.stop_logprob;
    result.n_drafted = static_cast<uint64_t>(state.n_drafted);
    result.n_drafts_accepted = static_cast<uint64_t>(state.n_drafts_accepted);
    return result;
}

}  // namespace minim::capi
